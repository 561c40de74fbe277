"""scripts/make_dummy_models.py: without it the example sweep cannot be repeated."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_dummy_models.py"
FILES = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
SPECIALS = {
    "<|begin|>": 256,
    "<|end|>": 257,
    "<|user|>": 258,
    "<|assistant|>": 259,
    "<|system|>": 260,
}


def make(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    # -S: no site-packages, so that the script works with the standard library alone.
    return subprocess.run(
        [sys.executable, "-S", str(SCRIPT), str(out), *flags], capture_output=True, text=True
    )


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models")
    for shape in ("llama-8b", "tiny"):
        done = make(out, "--shape", shape)
        assert done.returncode == 0, done.stderr
    return out


def test_paths_are_printed_target_first(tmp_path: Path) -> None:
    """Scripts that read the two paths would launch the draft as the target."""
    done = make(tmp_path / "new" / "folder")
    out = tmp_path / "new" / "folder"
    assert done.stdout.splitlines() == [str(out / "llama8b-target"), str(out / "llama8b-eagle3")]
    assert all(set(FILES) <= {f.name for f in Path(p).iterdir()} for p in done.stdout.split())


def test_configs_have_the_shape_of_llama_8b(models: Path) -> None:
    """Another shape would cost something else than the model whose name the results carry."""
    target = read(models / "llama8b-target" / "config.json")
    draft = read(models / "llama8b-eagle3" / "config.json")
    assert target["architectures"] == ["LlamaForCausalLM"]
    assert draft["architectures"] == ["LlamaForCausalLMEagle3"]
    shape = {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    assert target.items() >= shape.items()
    assert draft.items() >= (shape | {"num_hidden_layers": 1, "draft_vocab_size": 32000}).items()


@pytest.mark.parametrize("name", ["llama8b-target", "llama8b-eagle3", "tiny-target", "tiny-eagle3"])
def test_configs_and_tokenizer_agree(models: Path, name: str) -> None:
    """An id beyond the embedding crashes the server; an end token that differs never ends."""
    folder = models / name
    config, tokenizer = read(folder / "config.json"), read(folder / "tokenizer.json")
    generation, settings = (
        read(folder / f"{kind}_config.json") for kind in ("generation", "tokenizer")
    )
    vocab = tokenizer["model"]["vocab"]
    assert sorted(vocab.values()) == list(range(config["vocab_size"]))
    assert vocab.items() >= SPECIALS.items()
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    assert added == SPECIALS
    for role in ("bos", "eos"):
        key = f"{role}_token_id"
        assert config[key] == generation[key] == vocab[settings[f"{role}_token"]]
    assert config["num_attention_heads"] * config["head_dim"] == config["hidden_size"]
    assert config.get("draft_vocab_size", 0) <= config["vocab_size"]


def test_tokenizers_of_target_and_draft_are_the_same(models: Path) -> None:
    """The draft would propose tokens that mean something else to the target."""
    for name in ("llama8b", "tiny"):
        files = [models / f"{name}-{part}" / "tokenizer.json" for part in ("target", "eagle3")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_foreign_folders_are_kept_unless_forced(tmp_path: Path) -> None:
    """Real weights in a folder of that name would get a config that does not fit them."""
    foreign = tmp_path / "tiny-eagle3"
    foreign.mkdir()
    (foreign / "config.json").write_text("{}")
    refused = make(tmp_path, "--shape", "tiny")
    assert refused.returncode == 2
    assert "--force" in refused.stderr and "tiny-eagle3" in refused.stderr
    assert not refused.stdout and not (tmp_path / "tiny-target").exists()
    assert (foreign / "config.json").read_text() == "{}"
    assert make(tmp_path, "--shape", "tiny", "--force").returncode == 0
    assert make(tmp_path, "--shape", "tiny").returncode == 0, "its own folders are rewritten"


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """A traceback would hide which path was wrong."""
    (tmp_path / "file").write_text("")
    done = make(tmp_path / "file", "--shape", "tiny")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and str(tmp_path / "file") in done.stderr


TEXTS = [
    "Hello, world. It 's  spaced ,  like this !",
    "Grüße, 日本語, العربية, 🙂👩‍🚀 e\u0301",
    "\n\n\ttabs\r\nand w300 and \x00\x7f\xad",
    "".join(chr(code) for code in range(1, 0x250)),
    "a <|user|> in the text",
]


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_gives_text_back(models: Path, text: str) -> None:
    """Prompts would reach the model changed, or answers the reader."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(models / "llama8b-target" / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert max(ids) <= max(SPECIALS.values())
    if "<|" not in text:
        assert ids == list(text.encode())
    assert tokenizer.decode([72, 105, 300, 301]) == "Hi w300 w301"


@pytest.mark.parametrize("name", ["llama8b-target", "llama8b-eagle3", "tiny-target"])
def test_transformers_loads_the_chat_template(
    models: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request of a sweep is rendered with it: none could be sent."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("jinja2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / name)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Wie heißt du?"},
        {"role": "assistant", "content": "Ada."},
        {"role": "user", "content": "Ah."},
    ]
    ids = tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    expected = (
        "<|begin|><|system|>Be brief.<|end|><|user|>Wie heißt du?<|end|>"
        "<|assistant|>Ada.<|end|><|user|>Ah.<|end|><|assistant|>"
    )
    assert tokenizer.decode(ids) == expected
    assert tokenizer.apply_chat_template(messages, tokenize=False) + "<|assistant|>" == expected
    assert all(0 <= token < len(tokenizer) for token in ids)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257)
    assert tokenizer.decode(tokenizer.encode("no begin token")) == "no begin token"
    assert "regex" not in caplog.text
