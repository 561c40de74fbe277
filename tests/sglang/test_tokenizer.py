"""Prompts to ids: under another interpreter, once, and with the truth about what was lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.config.prompts import Prompt
from tuner.config.schema import ModelSpec, ServerFlag, ServerSpec
from tuner.server.base import Tokenised
from tuner.sglang.tokenizer import Tokeniser

PROMPTS = [
    Prompt("a", "chat", (("system", "be short"), ("user", "one two"))),
    Prompt("b", "code", (("user", "three"),)),
]

# Stands for the package in the server's interpreter: one id a word, 0 for the start of the text.
TRANSFORMERS = """
import json, os
from pathlib import Path

class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, name, trust_remote_code, revision="main"):
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(f"{trust_remote_code}\\n")
        self = cls()
        if not Path(name).is_dir():  # of the hub's cache
            repo = Path(os.environ["HF_HUB_CACHE"]) / f"models--{name.replace('/', '--')}"
            ref = repo / "refs" / revision
            name = repo / "snapshots" / (ref.read_text() if ref.exists() else revision)
        self.chat_template = json.loads((Path(name) / "tokenizer.json").read_text())
        print("a library that prints")
        return self

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize and add_generation_prompt
        if self.chat_template == "broken":
            raise ValueError("no system role")
        return "".join(f"<{m['role']}> {m['content']} " for m in messages) + "<assistant>"

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [0] * add_special_tokens + [len(word) for word in text.split()]}
"""


class Model:
    """A model folder, and an interpreter that has the stand-in."""

    def __init__(self, folder: Path, template: str | None) -> None:
        (folder / "site").mkdir()
        (folder / "site" / "transformers.py").write_text(TRANSFORMERS)
        self.folder = folder / "model"
        self.folder.mkdir()
        self.tokenizer = self.folder / "tokenizer.json"
        self.tokenizer.write_text(json.dumps(template))
        self._calls = folder / "calls"
        self.target = str(self.folder)
        self.env = {"PYTHONPATH": str(folder / "site"), "CALLS": str(self._calls)}

    def tokenise(
        self, flags: dict[str, ServerFlag] | None = None, python: str = sys.executable
    ) -> Tokenised:
        model = ModelSpec(target=self.target, draft="d", algorithm="EAGLE3")
        return Tokeniser(python, model, ServerSpec(flags=flags or {}, env=self.env))(PROMPTS)

    def calls(self) -> list[str]:
        return self._calls.read_text().split() if self._calls.exists() else []


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "specbench" / "tokens"


def test_the_template_is_applied(tmp_path: Path) -> None:
    """An instruct model fed raw text accepts other drafts than in production."""
    tokenised = Model(tmp_path, "template").tokenise()
    assert tokenised.doubt is None
    assert [r.input_ids for r in tokenised.requests] == [(8, 2, 5, 6, 3, 3, 11), (6, 5, 11)]
    assert [(r.prompt_id, r.kind, r.text) for r in tokenised.requests] == [
        ("a", "chat", None),
        ("b", "code", None),
    ]


@pytest.mark.parametrize(
    ("template", "why"), [(None, "no chat template"), ("broken", "no system role")]
)
def test_raw_text_is_told(template: str | None, why: str, tmp_path: Path) -> None:
    """Otherwise figures of raw text pass for figures of conversations."""
    tokenised = Model(tmp_path, template).tokenise()
    assert tokenised.doubt is not None
    assert why in tokenised.doubt
    assert tokenised.requests[1].input_ids == (0, 5)


def test_the_work_is_done_once_until_the_tokenizer_changes(tmp_path: Path, cache: Path) -> None:
    """Loading a large tokenizer takes a minute; a stale cache sends the wrong ids."""
    model = Model(tmp_path, "template")
    first = model.tokenise()
    assert model.tokenise() == first
    assert len(model.calls()) == 1
    [kept] = cache.iterdir()
    kept.write_text("cut of")
    assert model.tokenise() == first
    assert len(model.calls()) == 2
    os.utime(model.tokenizer, ns=(1, 1))
    model.tokenise()
    assert len(model.calls()) == 3


def on_the_hub(hub: Path, commit: str, template: str | None, vocabulary: int) -> None:
    folder = hub / "models--org--name" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(template))
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocabulary}))
    (hub / "models--org--name" / "refs").mkdir(exist_ok=True)
    (hub / "models--org--name" / "refs" / "main").write_text(commit)


def test_the_tokenizer_is_of_the_revision_that_servers_have(tmp_path: Path) -> None:
    """Another one's ids are other words to the model, and other counts."""
    model, hub = Model(tmp_path, "template"), tmp_path / "hub"
    model.target = "org/name"
    model.env["HF_HUB_CACHE"] = str(hub)
    old, new = "a" * 40, "b" * 40
    on_the_hub(hub, old, None, 10)
    assert (model.tokenise().doubt or "").endswith("no chat template")
    on_the_hub(hub, new, "template", 1000)
    assert model.tokenise().doubt is None  # main has moved on, and so have the ids
    assert (model.tokenise({"revision": old}).doubt or "").endswith("no chat template")
    assert model.tokenise({"revision": new}).doubt is None
    assert model.tokenise({"revision": "unset"}).doubt is None
    # With another tokenizer SGLang takes the target's revision too.
    model.target = "any/other"
    named: dict[str, ServerFlag] = {"tokenizer-path": "org/name"}
    assert model.tokenise(named).doubt is None
    assert (model.tokenise({**named, "revision": old}).doubt or "").endswith("no chat template")


def test_made_up_ids_are_of_the_revisions_vocabulary(tmp_path: Path) -> None:
    model, hub = Model(tmp_path, "template"), tmp_path / "hub"
    model.target = "org/name"
    model.env["HF_HUB_CACHE"] = str(hub)
    for commit, vocabulary in (("a" * 40, 3), ("b" * 40, 100_000)):
        on_the_hub(hub, commit, None, vocabulary)
        (hub / "models--org--name" / "snapshots" / commit / "tokenizer.json").unlink()
    ids = {
        commit: model.tokenise({"skip-tokenizer-init": True, "revision": commit}).requests[0]
        for commit in ("a" * 40, "b" * 40)
    }
    assert max(ids["a" * 40].input_ids or ()) < 3 < max(ids["b" * 40].input_ids or ())


def test_foreign_code_runs_only_where_the_server_may(tmp_path: Path) -> None:
    """trust-remote-code is the user's decision."""
    model = Model(tmp_path, "template")
    model.tokenise()
    model.tokenise({"trust-remote-code": True})
    assert model.calls() == ["False", "True"]


def test_without_a_tokenizer_the_server_gets_text(tmp_path: Path) -> None:
    """The server may have a tokenizer of its own; what is lost is told."""
    model = Model(tmp_path, "template")
    model.tokenizer.write_text("not json")
    tokenised = model.tokenise()
    assert [r.text for r in tokenised.requests] == ["be short\n\none two", "three"]
    assert tokenised.doubt is not None
    assert "no tokenizer" in tokenised.doubt


def test_a_missing_interpreter_is_no_tokenizer(tmp_path: Path) -> None:
    """Behind docker the interpreter is not on this machine."""
    tokenised = Model(tmp_path, "template").tokenise(python=str(tmp_path / "nowhere"))
    assert tokenised.doubt is not None
    assert tokenised.requests[0].text is not None


def test_a_server_that_takes_only_ids_gets_made_up_ones(tmp_path: Path) -> None:
    """Dummy models have no tokenizer; the same ids for every point, and a doubt."""
    model = Model(tmp_path, "template")
    model.tokenizer.unlink()
    (model.folder / "config.json").write_text('{"vocab_size": 10, "max_position_embeddings": 64}')
    first = model.tokenise({"skip-tokenizer-init": True})
    assert first == model.tokenise({"skip-tokenizer-init": True})
    assert model.calls() == []
    assert first.doubt == "random-token prompts: acceptance means nothing"
    ids = first.requests[0].input_ids
    assert ids is not None
    assert 4 <= len(ids) <= 16
    assert all(0 <= each < 10 for each in ids)


MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {w: n for n, w in enumerate(["?", "<user>", "<system>", "<end>", "one", "two", "three"])}
core = Tokenizer(models.WordLevel(words, unk_token="?"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
whole = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="?")
whole.chat_template = ("{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
                       "{% if add_generation_prompt %}<end>{% endif %}")
whole.save_pretrained(sys.argv[1])
"""


@pytest.mark.sglang
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    "SPECBENCH_SGLANG_PYTHON" not in os.environ, reason="SPECBENCH_SGLANG_PYTHON is not set"
)
def test_the_real_transformers_renders_the_template(tmp_path: Path) -> None:
    """Its interface changed between major releases; the stand-in above would not notice."""
    python = os.environ["SPECBENCH_SGLANG_PYTHON"]
    subprocess.run([python, "-c", MAKE_TOKENIZER, str(tmp_path / "m")], check=True)
    model = ModelSpec(target=str(tmp_path / "m"), draft="d", algorithm="EAGLE3")
    tokenised = Tokeniser(python, model, ServerSpec())(PROMPTS)
    assert tokenised.doubt is None
    assert [r.input_ids for r in tokenised.requests] == [(2, 0, 0, 1, 4, 5, 3), (1, 6, 3)]
