"""Several chain lengths in one server: what the plug-in asks SGLang for, without SGLang."""

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.sglang.plugin.fake_sglang import LOAD, fake_sglang, run_python
from tuner.sglang.plugin.specbench_sglang import settings, steps, switch, versions
from tuner.sglang.plugin.specbench_sglang.problems import NotPatched, Refused


def named(name: str, **values: Any) -> Any:
    module: Any = ModuleType(name)
    vars(module).update(values)
    return module


# --- what is built ---------------------------------------------------------------------------


def test_the_environment_is_read_strictly() -> None:
    """A typing error must not start a server that cannot be switched, or builds other lengths."""
    assert settings.read_steps({}) is None
    assert settings.read_steps({"SPECBENCH_STEP_SWITCH": "0", "SPECBENCH_STEPS": "1"}) is None
    on = {"SPECBENCH_STEP_SWITCH": "1"}
    assert settings.read_steps(on) == settings.StepSettings(None)
    several = {**on, "SPECBENCH_STEPS": "5, 1,3,1"}
    assert settings.read_steps(several) == settings.StepSettings((1, 3, 5))
    for wrong in ("1;3", "one", "-1,3", "0", "1,"):
        with pytest.raises(Refused, match="step switching refused"):
            settings.read_steps({**on, "SPECBENCH_STEPS": wrong})
    with pytest.raises(Refused, match="neither 1 nor 0"):
        settings.read_steps({"SPECBENCH_STEP_SWITCH": "yes"})


def config_module() -> Any:
    def _load_adaptive_config(cfg_path: str | None) -> Any:
        assert cfg_path is not None
        found = json.loads(Path(cfg_path).read_text())
        return found, {int(key): slot for key, slot in found.items() if key.isdigit()}

    def adaptive_unsupported_reason(server_args: Any) -> str | None:
        return server_args

    module = named(
        "adaptive_spec_params",
        _load_adaptive_config=_load_adaptive_config,
        adaptive_unsupported_reason=adaptive_unsupported_reason,
    )
    steps.patch_config(module)
    return module


def test_every_length_has_the_graphs_of_every_batch_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SGLang leaves a batch size out where its slot lacks the length: it would run without."""
    load = config_module()._load_adaptive_config
    monkeypatch.setenv("SPECBENCH_STEP_SWITCH", "1")
    monkeypatch.setenv("SPECBENCH_STEPS", "0,1,5")
    slot = {"candidate_steps": [0, 1, 5]}
    assert load(None) == ({"1": slot}, {1: slot})

    file = tmp_path / "adaptive.json"
    slots = {"1": {"candidate_steps": [3, 7]}, "8": {"candidate_steps": [1]}, "ema_alpha": 0.5}
    file.write_text(json.dumps(slots))
    with pytest.raises(Refused, match="both SPECBENCH_STEPS and"):
        load(str(file))
    monkeypatch.delenv("SPECBENCH_STEPS")
    assert load(str(file))[1] == {1: {"candidate_steps": [1, 3, 7]}}
    with pytest.raises(Refused, match="does not say which"):
        load(None)


def test_sglang_does_not_go_on_without_adaptive_speculation() -> None:
    """It only logs a warning then, and the server would have one length."""
    reason = config_module().adaptive_unsupported_reason
    assert reason(None) is None
    with pytest.raises(Refused, match="topk"):
        reason("topk=4 is not supported")


def test_neither_batch_size_nor_acceptance_changes_the_length() -> None:
    """A window would be measured with several lengths."""

    class AdaptiveController:
        def activate_step_by_batch(self, batch_size: int) -> None:
            raise AssertionError

        def on_verify_complete(self, accepted: list[int], batch_size: int) -> None:
            raise AssertionError

    steps.patch_controller(named("adaptive_runtime_state", AdaptiveController=AdaptiveController))
    AdaptiveController().activate_step_by_batch(8)
    AdaptiveController().on_verify_complete([1, 2], 2)


def test_draft_extend_is_captured_at_the_length_that_is_being_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.5.17 would capture the launch's width, and run other lengths without graphs."""
    module = named("runner", resolve_num_tokens_per_req=lambda *, phase, server_args: 8)
    spec = SimpleNamespace(speculative_num_draft_tokens=4)
    context = named("sglang.srt.runtime_context", get_spec=lambda: spec)
    monkeypatch.setitem(sys.modules, "sglang.srt.runtime_context", context)
    steps.patch_extend_runner(module)
    assert module.resolve_num_tokens_per_req(phase="draft_extend", server_args=None) == 4
    assert module.resolve_num_tokens_per_req(phase="draft_decode", server_args=None) == 8


FINE = {
    "speculative_adaptive": True,
    "speculative_adaptive_config": None,
    "speculative_num_steps": 5,
    "disaggregation_mode": "null",
}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"speculative_adaptive": False}, "needs --speculative-adaptive"),
        ({"speculative_num_steps": 3}, "start with the longest chain: --speculative-num-steps 5"),
        ({"pp_size": 2}, "pipeline stages"),
        ({"tokenizer_worker_num": 2}, "tokenizer workers"),
        ({"disaggregation_mode": "decode"}, "PD disaggregation"),
    ],
)
def test_what_cannot_work_is_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], reason: str | None
) -> None:
    """Weights take minutes to load, and some buffers are sized by the launch's length."""
    params = named("params", resolve_candidate_steps_from_config=lambda cfg_path: [1, 3, 5])
    parent = named("sglang.srt.speculative", adaptive_spec_params=params)
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative", parent)
    if reason is None:
        steps.refuse(SimpleNamespace(**FINE, **given))
        return
    with pytest.raises(Refused, match=reason):
        steps.refuse(SimpleNamespace(**{**FINE, **given}))


@pytest.mark.parametrize(("release", "takes"), [("0.5.13", False), ("0.5.14", True)])
def test_no_drafts_at_all_is_refused_where_sglang_cannot(
    monkeypatch: pytest.MonkeyPatch, release: str, takes: bool
) -> None:
    """0.5.13 has no verify without drafts: the server would die at the first switch to it."""
    params = named("params", resolve_candidate_steps_from_config=lambda cfg_path: [0, 5])
    parent = named("sglang.srt.speculative", adaptive_spec_params=params)
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative", parent)
    monkeypatch.setattr(versions, "installed", lambda: versions.parse(release))
    if takes:
        steps.refuse(SimpleNamespace(**FINE))
        return
    with pytest.raises(Refused, match=r"chains of 0 drafts need SGLang 0\.5\.14"):
        steps.refuse(SimpleNamespace(**FINE))


class Controller:
    """As much of an AdaptiveController as is looked at."""

    def __init__(self, *lengths: int, **broken: Any) -> None:
        self.candidate_steps = sorted(lengths)
        self.worker = SimpleNamespace(speculative_num_steps=max(lengths), device="cpu")
        self._states = {
            each: SimpleNamespace(
                target_graph_runner=SimpleNamespace(captured_req_width=each + 1),
                cuda_graph_runner_for_draft_extend=SimpleNamespace(captured_req_width=each + 1),
            )
            for each in lengths
        }
        for name, value in broken.items():
            setattr(self._states[min(lengths)], name, value)

    def _activate(self, length: int) -> None:
        self.worker.speculative_num_steps = length


def test_graphs_of_another_length_are_noticed() -> None:
    """They would fit no batch, and the server would quietly be slower than one launched so."""
    assert steps.built(Controller(1, 3)) == [1, 3]
    wrong = SimpleNamespace(captured_req_width=4)
    with pytest.raises(NotPatched, match="of 1 drafts takes 4 tokens"):
        steps.built(Controller(1, 3, cuda_graph_runner_for_draft_extend=wrong))
    with pytest.raises(NotPatched, match="1 drafts have no target_graph_runner"):
        steps.built(Controller(1, 3, target_graph_runner=None))
    one_missing = Controller(1, 3)
    one_missing.candidate_steps = [1, 2, 3]
    with pytest.raises(NotPatched, match="were built"):
        steps.built(one_missing)


# --- the switch ------------------------------------------------------------------------------


class Output:
    updated: bool

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Scheduler:
    """As much of a scheduler as is touched."""

    def __init__(self, server_args: Any) -> None:
        self.draft_worker = SimpleNamespace(adaptive_controller=Controller(0, 1, 3))
        self.running_batch = SimpleNamespace(reqs=[])
        self.waiting_queue: list[Any] = []
        self.metrics_reporter = SimpleNamespace(spec_total_num_accept_tokens=9)

    def is_fully_idle(self) -> bool:
        return not self.running_batch.reqs

    def set_internal_state(self, recv_req: Any) -> Any:
        return Output(updated=recv_req.server_args)

    def get_internal_state(self, recv_req: Any) -> Any:
        return SimpleNamespace(internal_state={"theirs": 1})


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Any:
    group = SimpleNamespace(world_size=1, rank_in_group=0)
    state = named("parallel_state", get_tp_group=lambda: group)
    modules = {
        "sglang.srt.distributed": named("distributed", parallel_state=state),
        "sglang.srt.managers.io_struct": named("io_struct", SetInternalStateReqOutput=Output),
        "torch": named(
            "torch", get_device_module=lambda _: SimpleNamespace(synchronize=lambda: None)
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(switch._Process, "refused", None)
    patched = type("Scheduler", (Scheduler,), {})
    switch.patch_scheduler(named("scheduler", Scheduler=patched))
    return patched(None)


def asked(scheduler: Any, **values: Any) -> bool:
    answer = scheduler.set_internal_state(SimpleNamespace(server_args=values))
    return bool(answer.updated)


def shown(scheduler: Any) -> dict[str, Any]:
    state: dict[str, Any] = scheduler.get_internal_state(None).internal_state
    assert state["theirs"] == 1
    mine: dict[str, Any] = state["specbench_steps"]
    return mine


def test_a_length_is_pinned_and_shown(scheduler: Any) -> None:
    """The answer and /server_info are all that a client can go by."""
    assert shown(scheduler) == {"pinned": 3, "built": [0, 1, 3], "refused": None}
    for length in (1, 0, 3):
        assert asked(scheduler, speculative_num_steps=length)
        assert shown(scheduler)["pinned"] == length
    assert scheduler.metrics_reporter.spec_total_num_accept_tokens == 0


def test_what_is_not_its_business_goes_to_sglang(scheduler: Any) -> None:
    answer = scheduler.set_internal_state(SimpleNamespace(server_args={"other": 1}))
    assert answer.updated == {"other": 1}


@pytest.mark.parametrize(
    ("values", "running", "reason"),
    [
        ({"speculative_num_steps": 2}, 0, "2 is not among the chain lengths built: 0, 1, 3"),
        ({"speculative_num_steps": 1.5}, 0, "1.5 is not among"),
        ({"speculative_num_steps": True}, 0, "True is not among"),
        ({"speculative_num_steps": 1, "other": 2}, 0, "is set alone, not with other"),
        ({"speculative_num_steps": 1}, 1, "not idle (1 requests running, 0 waiting)"),
    ],
)
def test_a_refusal_changes_nothing_and_has_its_reason(
    scheduler: Any, values: dict[str, Any], running: int, reason: str
) -> None:
    """A request would be drafted for by two lengths; half of what was asked would be done."""
    scheduler.running_batch.reqs = [None] * running
    assert not asked(scheduler, **values)
    assert shown(scheduler)["pinned"] == 3
    assert reason in shown(scheduler)["refused"]
    scheduler.running_batch.reqs = []
    assert asked(scheduler, speculative_num_steps=1)
    assert shown(scheduler) == {"pinned": 1, "built": [0, 1, 3], "refused": None}


def test_one_rank_that_cannot_keeps_all_from_switching(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks with different lengths would hang in the next all-reduce."""
    monkeypatch.setattr(switch, "_told", lambda mine: [mine, "rank 1 is not idle"])
    assert not asked(scheduler, speculative_num_steps=1)
    assert shown(scheduler)["pinned"] == 3


def test_ranks_that_come_out_different_end_the_server(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "_told", lambda mine: [mine, None if mine is None else 3])
    with pytest.raises(NotPatched, match="ranks draft chains"):
        asked(scheduler, speculative_num_steps=1)


# --- the process of the HTTP server ----------------------------------------------------------


@pytest.mark.parametrize(("updated", "status"), [([True, True], 200), ([True, False], 409)])
def test_the_http_answer_is_honest_about_every_replica(
    monkeypatch: pytest.MonkeyPatch, updated: list[bool], status: int
) -> None:
    """SGLang answers 200 with a list of booleans and no reason."""

    class TokenizerControlMixin:
        async def set_internal_state(self, obj: Any) -> list[bool]:
            return updated

        async def get_internal_state(self) -> list[dict[str, Any]]:
            states = [
                {"built": [1, 3], "pinned": 1, "refused": None}
                if done
                else {"built": [1, 3], "pinned": 3, "refused": "busy"}
                for done in updated
            ]
            return [{"specbench_steps": state} for state in states]

    def response(content: Any, status_code: int) -> tuple[Any, int]:
        return content, status_code

    monkeypatch.setitem(sys.modules, "fastapi", named("fastapi"))
    responses = named("fastapi.responses", JSONResponse=response)
    monkeypatch.setitem(sys.modules, "fastapi.responses", responses)
    monkeypatch.setattr(switch._Process, "pinned", None)
    monkeypatch.setattr(switch._Process, "lock", None)
    switch.patch_tokenizer_control(named("mixin", TokenizerControlMixin=TokenizerControlMixin))
    mixin = TokenizerControlMixin()

    request = SimpleNamespace(server_args={"speculative_num_steps": 1})
    content, code = asyncio.run(mixin.set_internal_state(request))  # type: ignore[misc]
    assert code == status
    assert [each["updated"] for each in content] == updated
    assert [each.get("reason") for each in content] == [None if d else "busy" for d in updated]
    assert switch._Process.pinned == (1 if all(updated) else None)
    other = SimpleNamespace(server_args={"pp_max_micro_batch_size": 1})
    assert asyncio.run(mixin.set_internal_state(other)) == updated


def test_rates_are_those_of_the_pinned_length() -> None:
    """SGLang divides by the length of the launch."""
    meta = {
        "spec_verify_ct": 10,
        "spec_num_correct_drafts": 15,
        "spec_num_proposed_drafts": 50,
        "spec_accept_rate": 0.3,
        "completion_tokens": 26,
    }
    switch._correct(meta, 3)
    assert meta["spec_num_proposed_drafts"] == 30 and meta["spec_accept_rate"] == 0.5
    switch._correct(meta, 0)
    assert meta == {"completion_tokens": 26}


# --- getting in ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("0.5.12", "not patched: chain lengths are switched from SGLang 0.5.13 on"),
        ("0.9.0", "not patched: SGLang 0.9.0 is not known"),
    ],
)
def test_a_release_that_cannot_ends_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, told: str
) -> None:
    site = fake_sglang(tmp_path, release, "")
    code, text = run_python(LOAD, site, None, SPECBENCH_STEP_SWITCH="1")
    assert code == 1 and f"specbench: {told}" in text


def test_another_scheduler_than_expected_stops_the_import(tmp_path: Path) -> None:
    """Without its question whether it is idle, requests would be drafted for by two lengths."""
    source = "class Scheduler:\n    def __init__(self, server_args): pass\n"
    site = fake_sglang(tmp_path, "0.5.17", source)
    program = LOAD + "import sglang.srt.managers.scheduler"
    code, text = run_python(program, site, None, SPECBENCH_STEP_SWITCH="1")
    assert code == 1 and "Scheduler.is_fully_idle is missing" in text
