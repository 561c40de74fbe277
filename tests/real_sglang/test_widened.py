"""scripts/widen_mlps.py: a model that costs more and answers the same.

If it answered otherwise, the acceptance measured on it would be nobody's.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.real_sglang import build
from tests.real_sglang.serving import OLD

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "widen_mlps.py"
NARROW, WIDE = 48, 160

MAKE = f"""
import sys, torch, transformers
torch.manual_seed(1)
config = transformers.LlamaConfig(
    vocab_size=300, hidden_size=32, intermediate_size={NARROW}, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
)
model = transformers.LlamaForCausalLM(config)
model.save_pretrained(sys.argv[1])
"""
COMPARE = """
import sys, torch, transformers
told = torch.arange(24).reshape(2, 12)
logits = []
for folder in sys.argv[1:]:
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits.append(model(told).logits)
    print(sum(each.numel() for each in model.parameters()))
torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)
for layer in model.model.layers:
    assert layer.mlp.gate_proj.weight[-1].std() > 0.01
    assert layer.mlp.up_proj.weight[-1].std() > 0.01
"""


def python(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(build.interpreter(OLD)), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("narrow")
    done = python("-c", MAKE, str(folder))
    assert done.returncode == 0, done.stderr
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def test_a_widened_model_answers_the_same_and_weighs_more(narrow: Path, tmp_path: Path) -> None:
    out = tmp_path / "wide"
    done = python(str(SCRIPT), str(narrow), str(out), "--intermediate-size", str(WIDE))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(out)]
    compared = python("-c", COMPARE, str(narrow), str(out))
    assert compared.returncode == 0, compared.stderr
    before, after = map(int, compared.stdout.split())
    assert after - before == 3 * 3 * 32 * (WIDE - NARROW)
    assert json.loads((out / "config.json").read_text())["intermediate_size"] == WIDE
    assert (out / "chat_template.jinja").read_text() == "{{ messages }}"


def test_what_cannot_be_widened_is_refused(narrow: Path, tmp_path: Path) -> None:
    """A folder half made or overwritten would be launched as if it were the model."""
    narrower = python(str(SCRIPT), str(narrow), str(tmp_path / "x"), "--intermediate-size", "48")
    assert narrower.returncode == 2
    assert f"{narrow} has 48" in narrower.stderr
    taken = python(str(SCRIPT), str(narrow), str(narrow), "--intermediate-size", "96")
    assert taken.returncode == 1
    assert f"{narrow} is not empty" in taken.stderr
    nothing = python(str(SCRIPT), str(tmp_path), str(tmp_path / "x"), "--intermediate-size", "96")
    assert nothing.returncode == 2
    assert f"{tmp_path} has no config.json" in nothing.stderr
    assert not (tmp_path / "x").exists()
