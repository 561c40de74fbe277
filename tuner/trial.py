"""One trial: launch, warm up, measure, stop, record. Engine, measure and ledger meet only here."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from tuner.engine import gpu
from tuner.engine.base import Engine, Server, server_config
from tuner.engine.endpoint import EndpointEngine
from tuner.engine.process import child_environment
from tuner.errors import EngineFailure, Failure
from tuner.ledger.lines import Ledger
from tuner.ledger.record import SIMULATED, Role, TrialRecord
from tuner.ledger.run import Run
from tuner.measure.checks import Context, doubts
from tuner.measure.client import Load, run_window
from tuner.measure.failures import beside_others, first_cause, judge, outcome_of
from tuner.measure.metrics import summarise
from tuner.measure.samples import Request, Window
from tuner.measure.samples_file import write_samples
from tuner.measure.statistics import speedup
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import Sweep
from tuner.sweep.point import Point
from tuner.sweep.workload import pick

ATTEMPTS = 2
"""Launches of a trial whose failure is worth a retry."""

DEATH_WAIT_S = 2.0

Windows = Mapping[int, Sequence[Window]]
"""Measured windows by concurrency."""


@dataclass(frozen=True)
class Phase:
    """What a trial is doing, for the progress line."""

    trial: int
    role: Role
    point: Point | None
    doing: Literal["launching", "warming", "measuring", "stopping"]
    concurrency: int | None = None
    window: int | None = None
    """The window that runs, from 1."""
    windows: int | None = None
    again: EngineFailure | None = None
    """Why the launch before failed, where this is the second one."""


@dataclass(frozen=True)
class Measured:
    """A recorded trial. `failure` says why it has no numbers, None where it has."""

    record: TrialRecord
    windows: Windows
    failure: EngineFailure | None


@dataclass
class _Attempt:
    """What one launch has brought so far; it stays when the launch fails."""

    launch_id: int
    info: Mapping[str, Any] | None = None
    """What the server says of itself, once it has started."""
    engine_version: str | None = None
    launch_s: float | None = None
    load_began: float | None = None
    load_ended: float | None = None
    windows: dict[int, list[Window]] = field(default_factory=dict)
    failure: EngineFailure | None = None
    stop_failure: EngineFailure | None = None

    @property
    def measured_s(self) -> float | None:
        if self.load_began is None or self.load_ended is None:
            return None
        return round(self.load_ended - self.load_began, 3)


@dataclass(frozen=True)
class Bench:
    """Everything that is the same for each trial of a run."""

    engine: Engine
    sweep: Sweep
    run: Run
    requests: Mapping[int, tuple[Request, ...]]
    """The requests of one window, by concurrency; the same for every window and point."""
    tokenise_doubt: str | None
    report: Callable[[Phase], None]

    @classmethod
    def prepare(
        cls, engine: Engine, loaded: LoadedSweep, run: Run, report: Callable[[Phase], None]
    ) -> "Bench":
        """Choose and tokenise the prompts. Raises EngineFailure where tokenising fails."""
        workload = loaded.sweep.workload
        counts = {level: max(workload.requests, level) for level in workload.concurrency}
        prompts = pick(loaded.prompts, max(counts.values()), workload.seed)
        tokenised = engine.tokenise(prompts)
        requests = {level: tokenised.requests[:count] for level, count in counts.items()}
        return cls(engine, loaded.sweep, run, requests, tokenised.doubt, report)

    def measure(self, role: Role, point: Point | None, baseline: Windows | None) -> Measured:
        """Measure a point (None: no speculation) and add it to the ledger.

        An endpoint has its own point, whatever is asked for; it is recorded as what it is.
        `baseline`, where there is one, gives each level its speed-up. A failure is recorded and
        returned, not raised. KeyboardInterrupt passes through: nothing runs, nothing is recorded.
        """
        ledger = self.run.ledger()
        trial, launch_id = ledger.next_trial, self.run.free_launch(ledger.next_launch)
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        retried: list[EngineFailure] = []
        crowded = self._crowded(point)
        while True:
            again = retried[-1] if retried else None
            phase = Phase(trial, role, point, "launching", again=again)
            attempt = self._attempt(phase, launch_id)
            failure = attempt.failure
            if failure is None or not failure.label.is_worth_a_retry:
                break
            if len(retried) + 1 == ATTEMPTS:
                break
            retried.append(failure)
            launch_id = self.run.free_launch(launch_id + 1)
        if isinstance(self.engine, EndpointEngine):
            if failure is not None and retried:
                failure = first_cause(retried[0], failure)
            if attempt.info is not None:
                point = self.engine.point_of(attempt.info)
                role = "baseline" if point is None else "candidate"
        failure = beside_others(failure, crowded)
        samples = None
        if attempt.windows:
            samples = self.run.samples_file(trial)
            write_samples(samples, attempt.windows)
        metrics, checks = self._figures(point, attempt, baseline)
        checks += [_note("retried", "note", f"a launch failed before: {each}") for each in retried]
        checks += _version_doubt(ledger, attempt)
        checks += [_note("GPU memory", "doubt", f"{each}, before the launch") for each in crowded]
        record = TrialRecord(
            trial=trial,
            role=role,
            point=None if point is None else point.to_json(),
            outcome=outcome_of(failure),
            failure=None if failure is None else failure.label.value,
            message=None if failure is None else failure.message,
            engine=SIMULATED if SIMULATED in (attempt.info or {}) else self.engine.name,
            engine_version=attempt.engine_version,
            launch_id=attempt.launch_id,
            launch_s=attempt.launch_s,
            command=self._command(point),
            started=started,
            measured_s=attempt.measured_s,
            metrics=metrics,
            checks=checks,
            samples=None if samples is None else self.run.relative(samples),
        )
        self.run.append(record)
        return Measured(record, attempt.windows, failure)

    def _crowded(self, point: Point | None) -> list[str]:
        """What others hold of the GPUs that this launch will see."""
        if self.engine.name != "sglang":
            return []
        config = server_config(self.sweep, point)
        return gpu.crowded(child_environment(config.env, config.unset, mark=""))

    def _command(self, point: Point | None) -> dict[str, Any] | None:
        command = self.engine.command(server_config(self.sweep, point))
        return command.to_json() if command.argv else None

    def _attempt(self, phase: Phase, launch_id: int) -> _Attempt:
        attempt = _Attempt(launch_id)
        self.report(phase)
        config = server_config(self.sweep, phase.point)
        try:
            server = self.engine.launch(config, self.run.log_file(launch_id), launch_id)
        except EngineFailure as failure:
            attempt.failure = failure
            return attempt
        attempt.info = server.info
        attempt.engine_version, attempt.launch_s = server.engine_version, server.launch_s
        try:
            self._load(server, phase, attempt)
        except EngineFailure as failure:
            attempt.failure = failure
        finally:
            self.report(replace(phase, doing="stopping"))
            try:
                server.stop()
            except EngineFailure as failure:
                attempt.stop_failure = failure
        return attempt

    def _load(self, server: Server, phase: Phase, attempt: _Attempt) -> None:
        """Every level's warm-up and windows. Raises EngineFailure."""
        attempt.load_began = time.monotonic()
        repeats = self.sweep.measure.repeats
        for level, requests in self.requests.items():
            phase = replace(phase, concurrency=level, window=None, windows=None)
            warm_up = _first(requests, self.sweep.measure.warmup_requests)
            if warm_up:
                self.report(replace(phase, doing="warming"))
                self._window(server, warm_up, level)
            for number in range(1, repeats + 1):
                self.report(replace(phase, doing="measuring", window=number, windows=repeats))
                server.flush_cache()
                window = self._window(server, requests, level)
                attempt.windows.setdefault(level, []).append(window)
                attempt.load_ended = time.monotonic()

    def _window(self, server: Server, requests: Sequence[Request], level: int) -> Window:
        workload = self.sweep.workload
        load = Load(
            concurrency=level,
            output_tokens=workload.output_tokens,
            temperature=workload.temperature,
            ignore_eos=workload.ignore_eos,
            request_timeout_s=self.sweep.timeouts.request,
        )
        window = run_window(server.url, requests, load)
        server.check_alive()
        try:
            judge(window, len(requests))
        except EngineFailure as failure:
            if failure.label is Failure.CLIENT:
                _tell_death(server)
            raise
        return window

    def _figures(
        self, point: Point | None, attempt: _Attempt, baseline: Windows | None
    ) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
        """Metrics by concurrency and doubts about them; none of a failed trial."""
        metrics: dict[str, dict[str, Any]] = {}
        checks: list[dict[str, str]] = []
        steps, topk = (point.num_steps, point.eagle_topk) if point else (None, None)
        context = Context(steps, topk, self.tokenise_doubt)
        for level, windows in attempt.windows.items() if attempt.failure is None else ():
            figures = summarise(windows, steps, topk)
            if baseline is not None:
                metric = self.sweep.search.objective.metric
                ratio = speedup(baseline[level], windows, metric)
                figures |= {
                    "speedup": ratio and ratio.value,
                    "speedup_low": ratio and ratio.low,
                    "speedup_high": ratio and ratio.high,
                }
            metrics[str(level)] = figures
            for doubt in doubts(windows, figures, context):
                note = _note(doubt.check, doubt.level, doubt.message)
                if note not in checks:
                    checks.append(note)
        if attempt.stop_failure is not None:
            checks.append(_note("stop", "doubt", str(attempt.stop_failure)))
        return metrics, checks


def _version_doubt(ledger: Ledger, attempt: _Attempt) -> list[dict[str, str]]:
    """Another release than the baseline's, as after an upgrade before a resume."""
    first, now = ledger.baseline, attempt.engine_version
    if first is None or now is None or first.engine_version == now:
        return []
    message = f"measured with {now}, the baseline with {first.engine_version}: begin a new run"
    return [_note("engine version", "doubt", message)]


def _tell_death(server: Server) -> None:
    """Raises the cause of death of a server that is about to be seen dead.

    Its sockets break a moment before its exit status can be read; what the clients saw of that is
    not the cause.
    """
    deadline = time.monotonic() + DEATH_WAIT_S
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.05)


def _first(requests: Sequence[Request], count: int) -> tuple[Request, ...]:
    """`count` requests, round and round where there are fewer."""
    return tuple(requests[index % len(requests)] for index in range(count))


def _note(check: str, level: str, message: str) -> dict[str, str]:
    return {"check": check, "level": level, "message": message}
