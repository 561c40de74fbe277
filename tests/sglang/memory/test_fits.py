"""What cannot fit is not launched, and what may fit is."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sglang.memory.configs import LLAMA_8B, load_memory_sweep
from tuner.config.loader import LoadedSweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.preflight.plan import make_plan
from tuner.server.base import server_config
from tuner.server.memory import MemoryPlan, ServerMemory, without_misfits, words
from tuner.sglang.memory.estimate import Offsets, server_memory


def memory(of: LoadedSweep, gib: float, draft_tp: int | str | None = None) -> ServerMemory:
    """The baseline's, or that of the first point with this placement."""
    machine = make_engine(of.sweep).estimate_memory(of.sweep, gib)
    assert machine is not None
    point = next((each for each in of.space.points if each.draft_tp == draft_tp), None)
    return machine.memory(server_config(of.sweep, point))


def test_the_cache_is_as_large_as_servers_logged(tmp_path: Path) -> None:
    """1,236,067, 1,180,799 and 1,122,005 tokens in results/h200_draft_tp."""
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.6")
    assert memory(sweep, 140.4).tokens == pytest.approx(1236067, rel=0.001)
    assert memory(sweep, 140.4, "target").tokens == pytest.approx(1180799, rel=0.001)
    assert memory(sweep, 140.4, 1).tokens == pytest.approx(1122005, rel=0.01)


def test_flags_change_the_cache(tmp_path: Path) -> None:
    plain = memory(load_memory_sweep(tmp_path, "mem-fraction-static: 0.6"), 140.4)
    half = memory(
        load_memory_sweep(tmp_path, "mem-fraction-static: 0.6, kv-cache-dtype: fp8_e5m2"), 140.4
    )
    assert half.tokens == pytest.approx(2 * (plain.tokens or 0), abs=2)
    few = memory(load_memory_sweep(tmp_path, "max-total-tokens: 4096"), 140.4)
    assert few.tokens == 4096
    assert few.cache == 4096 * 32 * 2 * 4 * 128 * 2 / 2**30


def test_before_0_5_14_the_draft_is_not_counted_when_the_pool_is_sized(tmp_path: Path) -> None:
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.6", "0.5.13")
    assert memory(sweep, 140.4, "target").tokens == memory(sweep, 140.4).tokens


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("", "SGLang's own mem-fraction-static"),
        ("mem-fraction-static: 0.6, pp-size: 1, cpu-offload-gb: 4", "--cpu-offload-gb"),
        ("mem-fraction-static: 0.6, kv-cache-dtype: fp4_e2m1", "--kv-cache-dtype"),
    ],
)
def test_what_is_not_known_has_no_figure(tmp_path: Path, flags: str, why: str) -> None:
    """A guess would be taken for a fact."""
    found = memory(load_memory_sweep(tmp_path, flags), 140.4)
    assert (found.tokens, found.cache, found.total) == (None, None, None)
    assert why in words(found, 140.4)
    assert "?" in words(found, 140.4)


def test_a_run_s_own_logs_correct_the_estimate(tmp_path: Path) -> None:
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.6")
    machine = make_engine(sweep.sweep).estimate_memory(sweep.sweep, 140.4)
    assert machine is not None
    config = server_config(sweep.sweep, None)
    more = Offsets(before=1.0, target=0.5)
    plain = server_memory(config, machine.pair, machine.release, 140.4)
    found = server_memory(config, machine.pair, machine.release, 140.4, more)
    assert plain.cache is not None
    assert found.cache == pytest.approx(plain.cache - 0.6 * 1.0 - 0.5, abs=0.001)


def test_only_placements_that_cannot_fit_are_left_out(tmp_path: Path) -> None:
    """On GPUs of 9.2 GiB the draft fits where it is shared, and not whole on each of them."""
    sweep = load_memory_sweep(tmp_path)
    plan = make_plan(sweep, gpu_gib=9.2)
    assert [each.draft_tp for each in plan.loaded.space.points] == ["target", "target"]
    [(why, count)] = plan.loaded.space.dropped.items()
    assert count == 2
    assert why == "the weights of target and draft take 9.6 GiB, a GPU has 9.2"
    assert make_plan(sweep, gpu_gib=10.0).loaded.space.points == sweep.space.points


def test_a_share_for_weights_and_cache_that_the_weights_alone_exceed(tmp_path: Path) -> None:
    """SGLang ends such a server after it has loaded the weights."""
    sweep = load_memory_sweep(tmp_path, "mem-fraction-static: 0.55")
    [why] = make_plan(sweep, gpu_gib=16.0).loaded.space.dropped
    assert why == (
        "the weights of target and draft take 9.6 GiB while they load, and mem-fraction-static "
        "0.55 leaves 8.8: a GPU has 16.0"
    )
    assert make_plan(sweep, gpu_gib=18.0).loaded.space.points == sweep.space.points
    older = load_memory_sweep(
        tmp_path, "mem-fraction-static: 0.55", "0.5.13"
    )  # the draft is loaded later
    assert make_plan(older, gpu_gib=16.0).loaded.space.points == sweep.space.points


def test_a_target_that_fits_on_no_gpu_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model.tp: the target's weights take 7.5 GiB") as caught:
        make_plan(load_memory_sweep(tmp_path), gpu_gib=7.0)
    assert str(caught.value.where).endswith("sweep.yaml:4")


def test_a_near_estimate_refuses_less_than_an_exact_one(tmp_path: Path) -> None:
    near = LLAMA_8B | {"quantization_config": {"quant_method": "fp8"}}
    for config, refused in ((near, 0.85), (LLAMA_8B, 0.95)):
        sweep = load_memory_sweep(tmp_path, target=config)
        found = memory(sweep, 100.0, "target")
        assert found.target is not None
        assert found.draft is not None
        whole = found.target + found.draft
        with pytest.raises(UserError):
            make_plan(sweep, gpu_gib=refused * whole)
        made = make_plan(sweep, gpu_gib=(refused + 0.07) * whole)
        assert len(made.loaded.space.points) == 2


def test_models_elsewhere_are_launched_and_not_judged(tmp_path: Path) -> None:
    sweep = load_memory_sweep(tmp_path)
    (tmp_path / "target" / "config.json").unlink()
    plan = make_plan(sweep, gpu_gib=1.0)
    assert plan.loaded.space.points == sweep.space.points
    assert plan.memory is not None
    assert "has no config.json" in words(plan.memory.servers[0].memory, 1.0)


def test_equal_servers_are_told_once(tmp_path: Path) -> None:
    plan = make_plan(load_memory_sweep(tmp_path, "mem-fraction-static: 0.6"), gpu_gib=140.4)
    assert isinstance(plan.memory, MemoryPlan)
    labels = [each.label for each in plan.memory.servers]
    shared, alone = "1 step, 2 tokens and 1 more", "1 step, 2 tokens, draft TP 1 and 1 more"
    assert labels == ["no speculation", shared, alone]
    shown = plan.to_json(None)["memory"]
    assert shown["gpu_gib"] == 140.4
    assert shown["servers"][0]["target"] == pytest.approx(7.48, abs=0.01)


def test_without_a_gpu_nothing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.sglang.memory.model_shape.visible_gpus", lambda environment: None)
    sweep = load_memory_sweep(tmp_path)
    plan = make_plan(sweep)
    assert plan.memory is None
    engine = make_engine(sweep.sweep)
    checked = engine.check(sweep)
    assert without_misfits(checked, engine.estimate_memory(sweep.sweep)) is checked
    simulated = replace(sweep, sweep=sweep.sweep.model_copy(
        update={"engine": sweep.sweep.engine.model_copy(update={"kind": "simulated"})}
    ))  # fmt: skip
    assert make_engine(simulated.sweep).estimate_memory(simulated.sweep, 80.0) is None
