"""Answers for prompt files that have only what users ask, before anything is measured.

A later turn needs an answer before it. A server without speculation writes them, once, and every
configuration then gets the same conversations: with its own answers as history each would get other
prompts, since greedy answers part sooner or later too.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.config.conversation import Prompt, has_answers, up_to_turn, with_answer, without_answers
from tuner.config.loader import LoadedSweep
from tuner.config.prompts import read_prompts
from tuner.config.schema import Sweep
from tuner.config.yaml_document import as_text
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.core.files import write_text
from tuner.execution.launch import ATTEMPTS
from tuner.execution.progress import Phase
from tuner.execution.request_plan import between_turns
from tuner.loadgen.client import Load, judge, run_window
from tuner.runs.run import Run
from tuner.server.base import Engine, Server, server_config

STREAMS = 64
"""Open at a time; whoever measures later, these answers are not timed."""


def with_conversations(
    loaded: LoadedSweep, run: Run, engine: Engine, report: Callable[[Phase], None]
) -> LoadedSweep:
    """The sweep with prompts whose answers are there: read from the run, taken from
    `workload.answers`, or written by a launch.

    Itself where every turn has its answer in the file already. Of the others only those that the
    run sends are answered. Raises EngineFailure where no server answers, UserError where the file
    of a run that has measured already is gone or is not this run's.
    """
    asked = between_turns(loaded)
    if not asked:
        return loaded
    if not run.conversations_file.exists():
        if run.records():
            message = "the answers before later turns are not there any more, restore this file"
            raise UserError(message, run.conversations_file)
        given = {each.id: each.messages for each in loaded.answers}
        # In their order, so that the same answers are the same file.
        told = {
            each.id: replace(each, messages=given[each.id]) for each in asked if each.id in given
        }
        if left := [each for each in asked if each.id not in told]:
            told |= {x.id: x for x in _answered(loaded.sweep, left, run, engine, report)}
        _write(run, [told[each.id] for each in asked])
    found = read_prompts(run.conversations_file.name, run.path, "all").prompts
    answered = {each.id: each for each in found}
    for each in asked:
        if each.id not in answered or without_answers(answered[each.id]) != without_answers(each):
            message = f"conversation '{each.id}' is not that of the prompts, restore this file"
            raise UserError(message, run.conversations_file)
    prompts = tuple(answered.get(each.id, each) for each in loaded.prompts)
    return replace(loaded, prompts=prompts)


def _write(run: Run, prompts: Sequence[Prompt]) -> None:
    lines = [
        json.dumps(
            {
                "id": each.id,
                "kind": each.kind,
                "messages": [{"role": role, "content": text} for role, text in each.messages],
            },
            ensure_ascii=False,
        )
        for each in prompts
    ]
    try:
        write_text(run.conversations_file, "\n".join(lines) + "\n")
    except OSError as error:
        message = f"{error.strerror}, make it writable with space left and resume the run"
        raise UserError(message, run.conversations_file) from error


def _answered(
    sweep: Sweep,
    prompts: Sequence[Prompt],
    run: Run,
    engine: Engine,
    report: Callable[[Phase], None],
) -> list[Prompt]:
    """The conversations with their answers, by a launch of the baseline; tried twice."""
    ledger = run.ledger()
    launch_id, again = ledger.next_launch, None
    for attempt in range(ATTEMPTS):
        launch_id = run.free_launch(launch_id)
        phase = Phase(ledger.next_trial, "baseline", None, "answering", again=again)
        report(phase)
        try:
            server = engine.launch(server_config(sweep, None), run.log_file(launch_id), launch_id)
            try:
                return _talk(sweep, prompts, server, engine)
            finally:
                try:
                    report(replace(phase, doing="stopping"))
                finally:  # a signal that comes just then is no reason to leave the server
                    server.stop()
        except EngineFailure as failure:
            if attempt + 1 == ATTEMPTS or not failure.label.is_worth_a_retry:
                raise
            again = failure
    raise AssertionError("an attempt returns or raises")


def _talk(sweep: Sweep, prompts: Sequence[Prompt], server: Server, engine: Engine) -> list[Prompt]:
    """First every conversation's first turn, then every second one, ...; the last is not sent."""
    talks: dict[str, Prompt] = {each.id: each for each in prompts}
    load = Load(
        concurrency=STREAMS,
        output_tokens=sweep.workload.output_tokens,
        temperature=sweep.workload.temperature,
        ignore_eos=False,  # what comes after its natural end is no answer
        request_timeout_s=sweep.timeouts.request,
        keep="ids and text",
        keys=server.keys,
        api=server.api,
    )
    number, has_text = 1, False
    while due := [each for each in talks.values() if not has_answers(each, number)]:
        turns = [up_to_turn(each, number) for each in due]
        requests = engine.tokenise(sweep.model, sweep.server, turns).requests
        window = run_window(server.url, requests, load)
        server.check_alive()
        judge(window, len(requests))
        said = {each.prompt_id: each for each in window.samples}
        # A model may end an answer at once; of a server that sends no text none has any.
        has_text = has_text or any(each.text for each in window.samples)
        for each in due:
            sample = said[each.id]
            if sample.error is not None:
                message = f"turn {number} of '{each.id}' was not answered: {sample.error}"
                raise EngineFailure(Failure.CLIENT, message)
            if not has_text:
                message = (
                    f"turn {number} of '{each.id}' was answered without text, which the next turn "
                    "comes after: write workload.turns: first, or a file with answers"
                )
                raise EngineFailure(Failure.CLIENT, message)
            talks[each.id] = with_answer(each, number, as_text(sample.text or ""))
        number += 1
    return list(talks.values())
