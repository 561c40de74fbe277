"""The simulated engine's own keys: a mistake is told at its line, before a folder is made."""

from pathlib import Path

import pytest

from tests.config.conftest import BASE
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.preflight.estimate import Earlier, earlier_runs
from tuner.preflight.plan import make_plan

WRONG = [
    ("preset: kimi", "engine.preset: there is no preset 'kimi', there are "),
    ("preset: ../presets/quickstart", "engine.preset: there is no preset"),
    ("overrides: {aceptance: 0.1}", "engine.overrides.aceptance: preset quickstart has no number"),
    ("overrides: {aceptance: 0.1}", "did you mean acceptance?"),
    ("overrides: {acceptance: 1.5}", "engine.overrides.acceptance: acceptance is a chance"),
    ("overrides: {acceptance: []}", "engine.overrides.acceptance: acceptance is a chance"),
    ("overrides: {verify.base_ms: fast}", "engine.overrides.verify.base_ms: verify.base_ms is a"),
    ("overrides: {verify.base_ms: 1e300}", "engine.overrides.verify.base_ms: "),
    ("overrides: {verify: {base_ms: 1}}", "engine.overrides.verify: preset quickstart has no"),
    ("overrides: {nvlink: 1}", "engine.overrides.nvlink: nvlink is true or false"),
    ("overrides: {nccl.NCCL_PROTO.LL: [1]}", "engine.overrides.nccl.NCCL_PROTO.LL: "),
    ("overrides: {kinds.mine:}", "engine.overrides.kinds.mine: "),
    ("faults: [{kind: oom}]", "engine.faults[0]: there is no fault 'oom', there are "),
    ("faults: [{kind: oom-lod}]", "there is no fault 'oom-lod', did you mean oom-load?"),
    ("faults: [{kind: oom-load}, {kind: hang-after}]", "engine.faults[1]: fault hang-after needs"),
    ("faults: [{kind: oom-load, value: 3}]", "engine.faults[0]: fault oom-load takes no number"),
]


def played(folder: Path, keys: str) -> LoadedSweep:
    path = folder / "s.yaml"
    path.write_text(BASE.replace("preset: quickstart", keys))
    return load_sweep(path)


@pytest.mark.parametrize(("keys", "said"), WRONG, ids=[keys for keys, _ in WRONG])
def test_a_wrong_key_is_refused_at_its_line(tmp_path: Path, keys: str, said: str) -> None:
    """Otherwise it comes out as a server that died, after a run folder was made."""
    loaded = played(tmp_path, keys)
    with pytest.raises(UserError) as caught:
        make_plan(loaded)
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:2: engine.")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        "overrides: {acceptance: [0.5, 0.2], kinds.mine: 0.9, nccl.NCCL_PROTO.LL: [1, 2]}",
        "faults: [{kind: slow-start, value: 1}, {kind: garbage-json}, {kind: no-tokens, value: 3}]",
    ],
)
def test_right_keys_pass(tmp_path: Path, keys: str) -> None:
    assert make_plan(played(tmp_path, keys)).commands


@pytest.mark.parametrize(
    ("keys", "tp", "is_said"),
    [
        ("preset: quickstart", 4, False),
        ("preset: quickstart", 6, True),
        ("preset: kimi-k2.5-8x-rtx-pro-6000", 4, True),
        ("preset: kimi-k2.5-8x-rtx-pro-6000, overrides: {tp: 4}", 4, False),
    ],
)
def test_a_machine_of_another_size_than_the_preset_is_said(
    tmp_path: Path, keys: str, tp: int, is_said: bool
) -> None:
    """Six of eight GPUs are no measured thing: who rehearses a purchase on it has to know."""
    loaded = played(tmp_path, keys)
    loaded.path.write_text(loaded.text.replace("tp: 4", f"tp: {tp}"))
    (said,) = [n for n in make_plan(load_sweep(loaded.path)).notes if "ranks" in n] or [""]
    assert said.startswith("the preset plays ") == is_said
    assert (f"model.tp is {tp}: compute is scaled" in said) == is_said


def test_a_prefix_that_is_no_program_is_refused_where_something_is_launched(tmp_path: Path) -> None:
    """A plan may be made on a laptop without srun; a run must not begin there."""
    loaded = played(tmp_path, "command: [no-such-program]")
    engine = make_engine(loaded.sweep)
    checked = engine.check(loaded)
    with pytest.raises(UserError) as caught:
        engine.refuse(checked.loaded)
    assert str(caught.value) == (
        f"{tmp_path}/s.yaml:2: engine.command[0]: there is no program 'no-such-program' on this "
        "machine, install it or write its path"
    )


def test_an_old_damaged_run_does_not_stop_a_plan(tmp_path: Path) -> None:
    """The estimate is made of what can be read."""
    broken = {
        "none": {},
        "newer": {"run.json": '{"format": 99}', "trials.jsonl": ""},
        "torn": {"run.json": "{", "trials.jsonl": ""},
        "no-ledger": {"run.json": '{"trials": 3, "prompts": "x"}'},
        "bad-ledger": {"run.json": '{"trials": 3, "prompts": "x"}', "trials.jsonl": "{\n"},
        "deep": {"run.json": "[" * 100_000},
    }
    for name, files in broken.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert earlier_runs(tmp_path, "simulated") == Earlier([])
