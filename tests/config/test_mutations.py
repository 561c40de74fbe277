"""Whatever happens to a file in an editor, the door answers with a sweep or with one line."""

import re
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.config.conftest import BASE
from tuner.config.loader import LoadedSweep, load_sweep, sweep_text
from tuner.config.prompts import load_prompts
from tuner.config.schema import Sweep
from tuner.config.yaml_document import unusable_text
from tuner.core.errors import UserError

SWEEPS = [path.read_text(encoding="utf-8") for path in sorted(Path("sweeps").glob("*.yaml"))]
PROMPTS = (
    '{"prompt": "a"}\n{"id": "x", "kind": "chat", "prompt": "b \\ud83d\\ude00"}\n'
    '{"messages": [{"role": "system", "content": "c"}, {"role": "user", "content": "d"}]}\n'
)

SHAPES = [
    '[{"id": "a", "conversations": [{"from": "human", "value": "b"}, '
    '{"from": "gpt", "value": "c"},\n {"from": "human", "value": "d"}]},\n'
    ' {"conversations": [{"from": "user", "value": "e"}]}]\n',
    '{"question_id": 81, "category": "writing", "turns": ["a", "b"]}\n'
    '{"question_id": 82, "category": "math", "turns": ["c"], "reference": ["d"]}\n',
    '{"question_id": "x", "category": "rag", "sub_category": null, "turns": ["a"]}\n',
    '{"question": "a", "answer": "#### 3"}\n{"question": "b", "answer": "4"}\n',
    '{"task_id": "HumanEval/0", "prompt": "def f():", "test": "", "entry_point": "f"}\n',
]

MARKS = "\"'{}[]:,#&*!|>%@`-?\\\n\t\r \x00\x07\ud800\ufeff\u20289x"
WORDS = "unset|1e999|~|!!str |<<: |- |: |\n  |999999999999999999|null|..."
ESCAPES = '"\\0"|"\\ud800"|\\u0000'
PIECES = st.sampled_from([*MARKS, *WORDS.split("|"), *ESCAPES.split("|")]) | st.text(max_size=3)


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """A text with up to four characters, pieces or lines taken out, put in or doubled."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["cut", "put", "drop line", "double line"])):
            case "cut":
                text = text[:start] + text[start + draw(st.integers(1, 12)) :]
            case "put":
                text = text[:start] + draw(PIECES) + text[start:]
            case what:
                lines = text.split("\n")
                at = text.count("\n", 0, start)
                lines[at : at + 1] = [] if what == "drop line" else [lines[at]] * 2
                text = "\n".join(lines)
    return text


def says_one_line(error: UserError, file: Path) -> bool:
    text = str(error)
    return len(text.splitlines()) == 1 and bool(re.match(rf"{re.escape(str(file))}:\d+: ", text))


many = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@many
@given(text=mutated(SWEEPS))
def test_a_damaged_sweep_file_is_read_or_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        with patch("tuner.config.space.MAX_COMBINATIONS", 20_000):  # the rest costs only time
            assert isinstance(load_sweep(path), LoadedSweep)
    except UserError as error:
        assert says_one_line(error, path), str(error)


@many
@given(text=mutated([PROMPTS, *SHAPES]))
def test_damaged_prompts_are_read_or_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        assert load_prompts("p.jsonl", tmp_path)
    except UserError as error:
        assert says_one_line(error, path), str(error)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda text: unusable_text(text) is None and not text.startswith("-")
)
ODD = st.sampled_from(
    ["y", "off", "010", "1:30", "1e5", ".5", "1_0", "true", "", "~", "0x1", "=", "<<", "unset "]
)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS | ODD, min_size=1, unique=True, max_size=6))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """Otherwise best.yaml would launch another server than the one that won, or be refused."""
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(BASE)
    sweep = load_sweep(path).sweep
    texts = [text for text in texts if text.strip().lower() != "unset"]
    env = {f"V{index}": text for index, text in enumerate(texts)}
    server = sweep.server.model_copy(update={"env": env, "flags": {"a-flag": [*texts]}})
    wanted: Sweep = sweep.model_copy(update={"server": server})
    path.write_bytes(sweep_text(wanted).encode())
    assert load_sweep(path).sweep == wanted
