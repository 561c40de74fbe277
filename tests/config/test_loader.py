"""The door: a mistake in a sweep file costs one sentence, not a night on eight GPUs."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.config.conftest import BASE, Load
from tuner.config.loader import load_sweep
from tuner.config.schema import EngineSpec, ModelSpec, json_schema
from tuner.core.errors import UserError


def refusal(load: Load, text: str) -> str:
    """The door's sentence, without the folder of the file."""
    with pytest.raises(UserError) as caught:
        load(text)
    folder, _, _ = str(caught.value).partition("s.yaml")
    return str(caught.value).replace(folder, "")


def with_line(line: str, old: str = "space:\n") -> str:
    """BASE with one line put before the space, as line 4."""
    return BASE.replace(old, line + "\n" + old)


# (the line put in as line 4, what the sentence must say)
WRONG_LINES = [
    ("serach: {trials: 3}", ["s.yaml:4: serach: unknown key", "did you mean search?"]),
    ("search: {trails: 3}", ["s.yaml:4: search.trails: unknown key", "did you mean trials?"]),
    ("search: {trials: 0}", ["s.yaml:4: search.trials: 0", "1 or more"]),
    ("search: {trials: many}", ["search.trials: 'many'", "a whole number"]),
    ("search: {trials: 2.0}", ["search.trials: 2.0", "a whole number"]),
    ("search: {sampler: tpee}", ["search.sampler: 'tpee'", "tpe, gp, nsga2, random or grid"]),
    ("search: {time_budget: 12 hours}", ["search.time_budget", "90s, 30m or 12h"]),
    ("search: {objective: {over: 8}}", ["search.objective.over", "concurrency 8 is not measured"]),
    ("name: again", ["s.yaml:4: name: this key is there twice (first at line 1)"]),
    ("server: {step_switch: 1}", ["s.yaml:4: server.step_switch: 1", "true or false"]),
    (
        "server: {step_switch: true, flags: {speculative-adaptive: true}}",
        ["s.yaml:4: server.flags.speculative-adaptive: server.step_switch sets this flag"],
    ),
    ("baseline: {step_switch: true}", ["s.yaml:4: baseline.step_switch: unknown key"]),
    ("server: {env: {SPECBENCH_STEPS: 1}}", ["server.env.SPECBENCH_STEPS", "server.step_switch"]),
    ("server: {env: {A: off}}", ["s.yaml:4: server.env.A: YAML reads off as a boolean"]),
    ("server: {env: {A: true}}", ["server.env.A", '"true" in quotes']),
    ("server: {env: {A: 010}}", ["server.env.A: 010", "in decimal"]),
    ("server: {env: {A: 1:30}}", ["server.env.A: 1:30", "in decimal"]),
    ("server: {env: {A: 1.5}}", ["server.env.A: 1.5", "a text"]),
    (
        "server: {env: {A-B: x}}",
        ["server.env.A-B: this is not the name", "digits and _"],
    ),
    ("server: {env: {A=B: x}}", ["s.yaml:4: server.env.A=B: this is not the name of a variable"]),
    ("server: {env: {1A: x}}", ["server.env.1A: this is not the name", "no digit in front"]),
    ("server: {flags: {disable_radix: true}}", ["flags.disable_radix: ", "write disable-radix"]),
    ("server: {flags: {--foo: 1}}", ["flags.--foo: ", "write foo without dashes in front"]),
    ("baseline: {flags: {Log_Level: x}}", ["baseline.flags.Log_Level: ", "write log-level"]),
    ("server: {flags: {a=b: 1}}", ["server.flags.a=b: this is not the name of a flag"]),
    ('server: {flags: {"a\\nb": 1}}', ["server.flags.a\\nb: this is not the name of a flag"]),
    ('server: {env: {A: "a\\0b"}}', ["s.yaml:4: server.env.A: a text cannot hold", "NUL"]),
    ('server: {env: {"A\\0": b}}', ["s.yaml:4: server.env.A\\x00: a text cannot hold"]),
    ('server: {env: {A: "\\ud800"}}', ["s.yaml:4: server.env.A: half a character"]),
    ('server: {flags: {a: ["\\ud83d\\ude00"]}}', ["s.yaml:4: server.flags.a[0]: half a character"]),
    ('workload: {prompts: "a\\0"}', ["s.yaml:4: workload.prompts: a text cannot hold"]),
    ('workload: {prompts: "a\\nb"}', ["s.yaml:4: workload.prompts: ", "a\\nb: No such file"]),
    ("workload: {prompts: 'a:1.jsonl'}", ["s.yaml:4: workload.prompts: ", "No such file"]),
    ("workload: {prompts: /dev/zero}", ["s.yaml:4: workload.prompts: /dev/zero: this is a pipe"]),
    ("workload: {prompts: " + "a" * 300 + "}", ["s.yaml:4: workload.prompts: ", "too long"]),
    ("server: {env: {A: " + "a" * 100_001 + "}}", ["server.env.A: ", "100,000 bytes fit"]),
    ("server: {env: {A: Unset}}", ["s.yaml:4: server.env.A: 'Unset'", "write unset in small"]),
    ("server: {flags: {a: UNSET}}", ["s.yaml:4: server.flags.a: 'UNSET'", "write unset in small"]),
    ("server: {env: {A: !!str 3}}", ["s.yaml:4: tags", '"3" for a text']),
    ("server: {env: {A: !x 1}}", ["s.yaml:4: tags"]),
    ("server: {flags: {a: 1e999}}", ["s.yaml:4: server.flags.a: 1e999 is too large"]),
    ('server: {flags: {a: "\\UFFFFFFFF"}}', ["s.yaml:4: this is not YAML", "too large"]),
    ("server: {flags: {a: \x07}}", ["s.yaml:4: this is not YAML: the control character U+0007"]),
    (
        "server: {flags: {a: " + "[" * 200 + "]" * 200 + "}}",
        ["s.yaml:4: this is nested"],
    ),
    ("timeouts: {request: 999999999999999999}", ["s.yaml:4: timeouts.request", "365d or less"]),
    ("timeouts: {launch: 366d}", ["s.yaml:4: timeouts.launch: 366d is too long"]),
    ("timeouts: {launch: 1e300}", ["s.yaml:4: timeouts.launch: 1e+300 is too long"]),
    ("search: {time_budget: " + "9" * 400 + "h}", ["time_budget: 999", "... is too long"]),
    ("baseline: {reference_tok_s: 1e300}", ["baseline.reference_tok_s: 1e+300"]),
    ("baseline: {reference_tok_s: 1e-300}", ["baseline.reference_tok_s: 1e-300", "0.001 or more"]),
    ("server: {env: {SPECBENCH_LAUNCH: x}}", ["server.env.SPECBENCH_LAUNCH: specbench sets this"]),
    ("baseline: {env: {SPECBENCH_DRAFT_TP: 1}}", ["specbench sets this variable, write space.dr"]),
    ("server: {flags: {port: 1}}", ["server.flags.port: specbench sets this flag"]),
    ("server: {flags: {--tp: 1}}", ["server.flags.--tp"]),
    ("server: [1]", ["s.yaml:4: server: a list", "a mapping"]),
    ("server:", ["s.yaml:4: server: nothing (null)", "a mapping"]),
    ("workload: {concurrency: []}", ["workload.concurrency", "at least one"]),
    ("workload: {concurrency: [1, 1]}", ["workload.concurrency", "twice"]),
    ("workload: {concurrency: [513]}", ["workload.concurrency[0]: 513", "512 or less"]),
    ("workload: {temperature: .nan}", ["workload.temperature"]),
    ("workload: {prompts: 'builtin:chats'}", ["s.yaml:4: workload.prompts", "builtin:chats"]),
    ("workload: {prompts: none.jsonl}", ["s.yaml:4: workload.prompts", "none.jsonl", "No such"]),
    ("timeouts: {launch: -3}", ["timeouts.launch"]),
    ("measure: {repeats: yes}", ["measure.repeats: YAML reads yes as a boolean, write true"]),
    ("? [a, b]\n: 1", ["a key is one word"]),
    ("search: {trials: 99999999999999999999}", ["search.trials", "too large"]),
]


@pytest.mark.parametrize(("line", "said"), WRONG_LINES, ids=[line for line, _ in WRONG_LINES])
def test_a_wrong_line_is_named_with_what_would_be_right(
    load: Load, line: str, said: list[str]
) -> None:
    sentence = refusal(load, with_line(line))
    for part in said:
        assert part in sentence
    assert "\n" not in sentence


# (text of the space, what the sentence must say)
WRONG_SPACES = [
    ("num_steps: {low: 5, high: 1}", ["s.yaml:5: space.num_steps", "low 5 is above high 1"]),
    ("num_steps: []", ["space.num_steps", "at least one"]),
    ("num_steps: 3", ["space.num_steps: 3", "{low: 1, high: 8}", "a list"]),
    ("num_steps: {low: 1, hgih: 3}", ["s.yaml:5: space.num_steps.hgih: unknown", "mean high?"]),
    ("num_steps:\n    low: 1\n    hgih: 3", ["s.yaml:7: space.num_steps.hgih: unknown key"]),
    ("num_steps: [1]\n  env: {X: [Unset, 1]}", ["s.yaml:6: space.env.X[0]: 'Unset'", "unset in"]),
    ("num_steps: [1]\n  flags: {x: [1, Unset]}", ["space.flags.x[1]: 'Unset'", "unset in"]),
    ("num_steps: [1]\n  flags: {x_y: [1]}", ["s.yaml:6: space.flags.x_y: ", "write x-y"]),
    ("num_steps: {low: 1}", ["space.num_steps.high: this is required"]),
    ("num_steps: [0, 1]", ["space.num_steps[0]: 0 is too small, write 1 or more"]),
    ("num_steps: [2, 2]", ["space.num_steps[1]: 2 is there twice"]),
    ("num_steps: {low: 1, high: 1000000000}", ["space.num_steps.high", "too large"]),
    ("eagle_topk: [1]", ["space.num_steps: this is required"]),
    ("num_steps: [1]\n  eagle_topk: [0]", ["s.yaml:6: space.eagle_topk[0]: 0 is too small"]),
    ("num_steps: [1]\n  num_draft_tokens: auot", ["s.yaml:6: space.num_draft_tokens", "auto"]),
    ("num_steps: [1]\n  num_draft_tokens: [1]", ["space.num_draft_tokens[0]: 1 is too small"]),
    ("num_steps: [1]\n  num_draft_tokens: [3]", ["[0]: 3 is above every tree's bound", "hold 2"]),
    (
        "num_steps: [3]\n  eagle_topk: [2]\n  num_draft_tokens: [4, 12]",
        ["s.yaml:7: space.num_draft_tokens[1]: 12 is above every tree's bound", "hold 11"],
    ),
    (
        "num_steps: [1, 3]\n  eagle_topk: [2]\n  num_draft_tokens: [8]",
        ["s.yaml:5: space.num_steps[0]: 1 is illegal or excluded with every"],
    ),
    (
        "num_steps: [1]\n  draft_tp: [3]",
        ["s.yaml:6: space.draft_tp[0]: 3 does not divide", "1, 2, 4"],
    ),
    ("num_steps: [1]\n  draft_tp: [8]", ["space.draft_tp[0]: 8 does not divide model.tp 4"]),
    ("num_steps: [1]\n  draft_tp: [targt]", ["space.draft_tp[0]: 'targt'", "target"]),
    ("num_steps: [1]\n  env: {NCCL_PROTO: LL}", ["space.env.NCCL_PROTO: 'LL'", "a list"]),
    ("num_steps: [1]\n  env: {NCCL_PROTO: [no, LL]}", ["space.env.NCCL_PROTO[0]", "boolean"]),
    ("num_steps: [1]\n  env: {NCCL_PROTO: []}", ["space.env.NCCL_PROTO", "at least one"]),
    ("num_steps: [1]\n  flags: {tp-size: [1]}", ["space.flags.tp-size: specbench sets"]),
    ("num_steps: [70]\n  eagle_topk: [2]", ["space", "no combination is left"]),
    ("num_steps: [1]\n  exclude: [{}]", ["s.yaml:6: space.exclude[0]: an empty entry"]),
    ("num_steps: [1]\n  exclude: {num_steps: 1}", ["s.yaml:6: space.exclude: a mapping", "a list"]),
    (
        "num_steps: [1]\n  exclude: [{stpes: 1}]",
        ["space.exclude[0].stpes: unknown key", "num_steps"],
    ),
    (
        "num_steps: [1]\n  exclude: [{num_steps: x}]",
        ["space.exclude[0].num_steps: 'x' does not fit"],
    ),
    (
        "num_steps: [1]\n  exclude: [{env: {NCCL_PROTO: LL}}]",
        ["s.yaml:6: space.exclude[0].env.NCCL_PROTO: the space does not vary it", "num_steps"],
    ),
    (
        "num_steps: [1, 2]\n  exclude:\n    - num_steps: 2\n    - num_steps: [1, 3]",
        ["s.yaml:8: space.exclude[1].num_steps: 3 is no value of space.num_steps", "are 1, 2"],
    ),
    (
        "num_steps: [1, 2]\n  flags: {x: [false, 1]}\n  exclude: [{flags: {x: true}}]",
        ["s.yaml:7: space.exclude[0].flags.x: true is no value", "there are false, 1"],
    ),
    (
        "num_steps: [1, 2]\n  exclude: [{num_steps: [1, 2]}]",
        ["s.yaml:4: space: no combination is left (space.exclude names it)"],
    ),
    (
        "num_steps: [1, 2]\n  env: {A: [p, q]}\n  exclude: [{env: {A: q}}]",
        ["s.yaml:6: space.env.A[1]: q is illegal or excluded with every combination"],
    ),
    (
        "num_steps: [1, 3]\n  eagle_topk: [2]\n  num_draft_tokens: [3, 8]\n"
        "  exclude: [{num_steps: 1, num_draft_tokens: 8}]",
        ["s.yaml:8: space.exclude[0]: no legal combination fits all of this"],
    ),
    (
        "num_steps: {low: 1, high: 99}\n  env: {"
        + ", ".join(f"V{i}: [a, b, c, d]" for i in range(9))
        + "}",
        ["s.yaml:4: space", "combinations are more than 1,000,000"],
    ),
]


@pytest.mark.parametrize(("space", "said"), WRONG_SPACES, ids=[s for s, _ in WRONG_SPACES])
def test_a_wrong_space_is_refused_at_its_line(load: Load, space: str, said: list[str]) -> None:
    sentence = refusal(load, BASE.replace("num_steps: [1, 2]", space))
    for part in said:
        assert part in sentence


WRONG_FILES = [
    ("", "s.yaml:1: a sweep file is a mapping"),
    ("- a\n", "s.yaml:1: a sweep file is a mapping"),
    ("a: [1\nb: 2\n", "s.yaml:2: this is not YAML"),
    ("a: 1\n  \n b: 2\n", "s.yaml:3: this is not YAML"),
    (
        "a:\n  b: 1\n c: 2\n",
        "s.yaml:3: this is not YAML: expected <block end>, but found '<block mapping start>'; "
        "is this line indented as the one above it?",
    ),
    ("a: &x [*x]\n", "s.yaml:1: a[0]: aliases nest or multiply"),
    ("a: &x {b: 1}\nc: !!python/object:os.system {}\n", "s.yaml:2: tags (words with !)"),
    ("%YAML 1." + "9" * 5000 + "\n---\na: 1\n", "s.yaml:1: this is not YAML"),
    (BASE.replace("name: trial", 'name: "trial\\n"'), "s.yaml:1: name: 'trial\\n' cannot be a"),
    (BASE.replace("kind: simulated", "knid: simulated"), "s.yaml:2: engine.knid: unknown key"),
    (
        BASE.replace("quickstart}", "quickstart, startup_scale: 1000}"),
        "s.yaml:2: engine.startup_scale: 1000 does not fit, write 10 or less",
    ),
    (BASE.replace("name: trial\n", ""), "s.yaml:1: name: this is required"),
    # All at once: each by itself would be an attempt on a machine that is paid by the minute.
    (
        "name: a\nengine: {kind: simulated}\n",
        "s.yaml:1: model: this is required, add model: {target: ..., algorithm: ...}; so is space",
    ),
    (
        BASE.replace(", algorithm: EAGLE3", ""),
        "s.yaml:3: model.algorithm: this is required, add algorithm: ...",
    ),
    (
        BASE.replace("EAGLE3", "null"),
        "s.yaml:3: model.algorithm: only a server that runs already has it, write one of EAGLE",
    ),
    ("{}\n", "s.yaml:1: name: this is required, add name: ...; so are engine, model and space"),
    (BASE.replace("name: trial", "name: ../x"), "s.yaml:1: name: '../x'"),
    (BASE.replace(", draft: d", ""), "s.yaml:3: model: EAGLE3 needs a draft model"),
    (
        BASE.replace("kind: simulated", "kind: endpoint"),
        "s.yaml:2: engine: kind endpoint needs a url",
    ),
    (BASE.replace("EAGLE3", "EAGLE9"), "s.yaml:3: model.algorithm: 'EAGLE9'"),
    (
        BASE.replace("draft: d, algorithm: EAGLE3", "algorithm: NGRAM"),
        "s.yaml:5: space.num_steps: NGRAM",
    ),
    (
        BASE.replace("draft: d, algorithm: EAGLE3", "algorithm: NGRAM").replace(
            "num_steps: [1, 2]", "num_draft_tokens: [99999]"
        ),
        "s.yaml:5: space.num_draft_tokens[0]: 99999 is too large, write 4096 or less",
    ),
]


@pytest.mark.parametrize(("text", "said"), WRONG_FILES, ids=[said for _, said in WRONG_FILES])
def test_a_wrong_file_is_one_sentence(load: Load, text: str, said: str) -> None:
    assert refusal(load, text).startswith(said)


URLS = [
    "http://[",
    "http://a:99999999",
    "http://a:0",
    "http://",
    "http://:80",
    "ftp://a",
    "localhost:30000",
    "http://a b",
    "http://a/?x=1",
    '"http://a\\n"',
]


@pytest.mark.parametrize("url", URLS)
def test_an_address_that_cannot_be_asked_is_refused_at_its_line(load: Load, url: str) -> None:
    """Otherwise it comes out of the HTTP library, hours later."""
    url = url if url.startswith('"') else f"'{url}'"
    sentence = refusal(load, BASE.replace("preset: quickstart", f"url: {url}"))
    assert sentence.startswith("s.yaml:2: engine.url: '")
    assert sentence.endswith("write it like http://127.0.0.1:30000")


@pytest.mark.parametrize("url", ["http://127.0.0.1:30000", "https://a.b-c/x/", "http://[::1]:80"])
def test_addresses_that_can_be_asked_pass(load: Load, url: str) -> None:
    text = BASE.replace("preset: quickstart", f"url: '{url}'")
    assert load(text).sweep.engine.url == url


def test_a_byte_order_mark_is_no_mistake(load: Load) -> None:
    """Some editors write one, and nobody sees it."""
    assert load("\ufeff" + BASE).sweep.name == "trial"


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"name: a\nengine: \xff\n")
    with pytest.raises(UserError, match=r"s\.yaml:2: this is not UTF-8"):
        load_sweep(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.yaml: No such file"):
        load_sweep(tmp_path / "gone.yaml")


def test_alias_bombs_end_quickly(load: Load) -> None:
    """A file of a few lines must not eat the memory of the machine that serves."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for name, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    assert "aliases nest or multiply" in refusal(load, bomb)


def test_a_dimension_that_the_server_section_also_sets_is_refused(load: Load) -> None:
    """Which of the two the server would get must not be a guess."""
    text = with_line("server: {env: {NCCL_PROTO: LL}}") + "  env: {NCCL_PROTO: [unset, LL]}\n"
    assert "server.env.NCCL_PROTO: this is also a dimension (space.env.NCCL_PROTO)" in refusal(
        load, text
    )


def test_integers_reach_the_environment_in_decimal(load: Load) -> None:
    loaded = load(BASE + "  env: {NCCL_P2P_DISABLE: [unset, 1]}\n")
    assert loaded.space.dimensions["env.NCCL_P2P_DISABLE"] == ("unset", "1")


def test_defaults_are_the_documented_ones(load: Load) -> None:
    sweep = load().sweep
    assert (sweep.workload.requests, sweep.workload.output_tokens) == (16, 256)
    assert sweep.workload.ignore_eos is True
    assert (sweep.measure.warmup_requests, sweep.measure.windows) == (2, 3)
    assert (sweep.search.sampler, sweep.search.trials, sweep.search.seed) == ("tpe", 40, 0)
    assert sweep.search.objective.over == "geomean"
    assert sweep.timeouts.launch == 1800.0


def test_durations_have_units(load: Load) -> None:
    timeouts = load(with_line("timeouts: {launch: 1.5h, request: 90}")).sweep.timeouts
    assert (timeouts.launch, timeouts.request) == (5400.0, 90.0)


def test_the_engine_can_be_replaced_from_outside(load: Load) -> None:
    assert load(BASE, engine="sglang").sweep.engine.kind == "sglang"


@pytest.mark.parametrize("path", sorted(Path("sweeps").glob("*.yaml")), ids=str)
def test_every_shipped_sweep_file_loads(path: Path) -> None:
    assert load_sweep(path).space.points


def test_editors_still_get_the_patterns_of_names() -> None:
    """The sentences replace patterns in messages, not in the schema."""
    schema = json_schema()
    assert schema["properties"]["name"]["pattern"].startswith("^[A-Za-z0-9]")
    for key in ("flags", "env"):
        assert schema["$defs"]["ServerSpec"]["properties"][key]["patternProperties"]


ATTACHED = """
name: theirs
engine: {kind: endpoint, url: "http://127.0.0.1:30000"}
model: {target: t}
"""


def test_a_server_that_runs_already_needs_no_algorithm(load: Load) -> None:
    """Whoever measures one without speculation would have to write what is not so."""
    sweep = load(ATTACHED).sweep
    assert sweep.model.algorithm is None
    assert sweep.model.speculation == "as the server runs it"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        *((path.read_text(), True) for path in sorted(Path("sweeps").glob("*.yaml"))),
        (BASE, True),
        (ATTACHED, True),
        (BASE.replace(", algorithm: EAGLE3", ""), False),
        (BASE.replace("space:", "spaces:"), False),
        (ATTACHED.replace("kind: endpoint", "kind: sglang"), False),
    ],
)
def test_editors_say_of_a_file_what_specbench_says(load: Load, text: str, valid: bool) -> None:
    """A mark at a key that is right, or none at one that is missing, is worse than no schema."""
    found = list(Draft202012Validator(json_schema()).iter_errors(yaml.safe_load(text)))
    assert (found == []) is valid, found
    with contextlib.nullcontext() if valid else pytest.raises(UserError):
        load(text)


@pytest.mark.parametrize("algorithm", ["NGRAM", "STANDALONE"])
def test_an_algorithm_that_can_never_switch_steps_is_refused(load: Load, algorithm: str) -> None:
    """A key that is typed and then ignored would be hours of launches that nobody expected."""
    text = with_line("server: {step_switch: true}").replace("EAGLE3", algorithm)
    if algorithm == "NGRAM":
        text = text.replace("draft: d, ", "").replace("num_steps: [1, 2]", "num_draft_tokens: [8]")
    said = refusal(load, text)
    assert said.startswith(f"s.yaml:4: server.step_switch: {algorithm} cannot switch num_steps")


def test_a_tilde_is_this_users_home_where_something_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell would expand it, so people write it; behind a prefix it may be another home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "python").touch()
    found = ModelSpec(target="~/model", draft="~/draft", algorithm="EAGLE3")
    assert (found.target, found.draft) == (str(tmp_path / "model"), "~/draft")
    assert EngineSpec(kind="sglang", python="~/python").python == str(tmp_path / "python")


@pytest.mark.parametrize("character", ["\\e", "\\x7f", "\\x9b", "\\u2028", "\u202e", "\u2066"])
@pytest.mark.parametrize("place", ["server: {env: {A: VALUE}}", "server: {flags: {a: VALUE}}",
                                   "VALUE: 1"])  # fmt: skip
def test_characters_that_cannot_be_seen_are_refused(load: Load, character: str, place: str) -> None:
    """They would steer the terminal that a plan is shown on, or turn what a report says around."""
    with pytest.raises(UserError, match=r":[0-9]+: .*the control character U\+[0-9A-F]{4} ") as no:
        load(f"{BASE}{place.replace('VALUE', chr(34) + 'a' + character + chr(34))}\n")
    assert str(no.value).isprintable()


def test_a_text_of_several_lines_is_no_mistake(load: Load) -> None:
    assert load(f'{BASE}server: {{env: {{A: "a\\n\\tb"}}}}\n').sweep.server.env == {"A": "a\n\tb"}


def test_a_pipe_that_nobody_writes_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`open` would wait for ever; one that somebody writes to, `<(command)`, is read."""
    monkeypatch.setattr("tuner.config.loader.PIPE_WAIT_S", 1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="nothing came from it in 1 s"):
        load_sweep(pipe)
    reading, writing = os.pipe()
    threading.Timer(0.2, lambda: (os.write(writing, BASE.encode()), os.close(writing))).start()
    assert load_sweep(Path(f"/dev/fd/{reading}")).sweep.name
    os.close(reading)
