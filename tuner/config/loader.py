"""The door: a sweep file becomes a Sweep, or one sentence that says what to mend and where."""

import os
import select
import stat
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from tuner.config.conversation import has_answers, without_answers
from tuner.config.credentials import reveal, without_secrets
from tuner.config.load_level import Rate, named
from tuner.config.prompts import Prompt, Prompts, read_prompts
from tuner.config.reserved_flags import HIDING, RESERVED, RESERVED_VARIABLES, check_nodes
from tuner.config.schema import ALGORITHMS, STEP_SWITCHERS, Sweep
from tuner.config.space import Space
from tuner.config.task_dataset import Question, load_task
from tuner.config.validation_errors import refusal
from tuner.config.yaml_document import Document, plain_value, read_document, shortened, spell
from tuner.core.errors import UserError
from tuner.core.files import at_once
from tuner.core.secrets import is_secret

MAX_BYTES = 1_000_000
PIPE_WAIT_S = 5


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep file with everything that it names, checked."""

    sweep: Sweep
    space: Space
    prompts: tuple[Prompt, ...]
    path: Path
    text: str
    """The file as it was read, with its secrets."""
    document: Document
    """The file's values as written, with their lines, for a mistake that is found later."""
    task: tuple[Question, ...] = ()
    """The questions of `workload.task`."""
    prompts_read: str | None = None
    """How the file of prompts was read; None of the built-in ones."""
    answers: tuple[Prompt, ...] = ()
    """Conversations of `workload.answers`, with what is said between the turns of `prompts`."""

    @property
    def text_without_secrets(self) -> str:
        """The file with `${NAME}` for each secret, also in comments."""
        return without_secrets(self.text, self.document.root)


def load_sweep(
    path: Path,
    *,
    engine: str | None = None,
    beside: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    answers: Path | None = None,
) -> LoadedSweep:
    """Read and check a sweep file; secrets that it names as `${NAME}` are taken from `environ`.

    `engine` replaces `engine.kind`, as `--engine` does. A file of prompts is looked for in
    `beside`, by default the sweep file's folder. `answers` is a begun run's own file of them, in
    the place of the one that the sweep names. Raises UserError whose text is
    `FILE:LINE: path: what is wrong, what would be right`.
    """
    text = _read(path)
    written = read_document(text, str(path))
    document = replace(written, value=deepcopy(written.value))
    if not isinstance(document.value, dict):
        raise UserError("a sweep file is a mapping, begin with `name: ...`", f"{path}:1")
    if engine is not None and isinstance(document.value.get("engine"), dict):
        document.value["engine"]["kind"] = engine
    reveal(document, environ)
    try:
        sweep = Sweep.model_validate(document.value)
    except ValidationError as error:
        raise refusal(document, error) from error
    _check_across(document, sweep)
    found = _prompts(document, sweep, beside or path.parent)
    return LoadedSweep(
        sweep=sweep,
        space=Space.from_sweep(sweep, document),
        prompts=found.prompts,
        path=path,
        text=text,
        document=written,
        task=_task(document, sweep, beside or path.parent),
        prompts_read=found.read_as,
        answers=(
            _answers(document, sweep, beside or path.parent, found.prompts)
            if answers is None or sweep.workload.answers is None
            else _own_answers(answers, found.prompts)
        ),
    )


def _read(path: Path) -> str:
    try:
        with open(path, "rb", opener=at_once) as file:
            os.set_blocking(file.fileno(), True)
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                _wait_for_a_writer(file.fileno(), path)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{error.strerror}, give the path of a sweep file", path) from error
    if len(data) > MAX_BYTES:
        raise UserError("this is over 1 MB, too large for a sweep file", path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(
            "this is not UTF-8 text, save the file as UTF-8", f"{path}:{line}"
        ) from error


def _wait_for_a_writer(pipe: int, path: Path) -> None:
    """`<(command)` is a pipe as well, and the command may need a moment. Raises UserError."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    if not poll.poll(1000 * PIPE_WAIT_S):
        raise UserError(
            f"this is a pipe, and nothing came from it in {PIPE_WAIT_S} s, give the path of a "
            "sweep file",
            path,
        )


def _prompts(document: Document, sweep: Sweep, beside: Path) -> Prompts:
    try:
        return read_prompts(sweep.workload.prompts, beside, sweep.workload.turns)
    except UserError as error:
        if error.where is not None:
            raise  # the prompts' own file and line
        raise document.error(("workload", "prompts"), error.message) from error


def _answers(
    document: Document, sweep: Sweep, beside: Path, prompts: Sequence[Prompt]
) -> tuple[Prompt, ...]:
    name, place = sweep.workload.answers, ("workload", "answers")
    if name is None:
        return ()
    if sweep.workload.turns != "all":
        raise document.error(place, "answers stand between turns, write turns: all, or remove it")
    lacking = {each.id for each in prompts if not has_answers(each)}
    if not lacking:
        raise document.error(place, "the prompts have answers of their own, remove it")
    right = "name the conversations.jsonl of a run on these"
    try:
        if name.startswith("builtin:"):
            raise UserError("built-in prompts are no file of answers")
        found = read_prompts(name, beside, "all").prompts
    except UserError as error:
        if error.where is not None:
            raise  # its own file and line
        # Of a file that cannot be read; what it says would be right is said of prompts.
        what = error.message.rpartition("; ")[0] or error.message
        raise document.error(place, f"{what}, {right}") from error
    known = {each.id: without_answers(each) for each in prompts}
    if other := next(
        (x for x in found if known.get(x.id, without_answers(x)) != without_answers(x)), None
    ):
        raise document.error(
            place,
            f"its conversation '{shortened(other.id)}' is not that of the prompts, {right}",
        )
    told = tuple(each for each in found if each.id in lacking and has_answers(each))
    if not told:
        raise document.error(place, f"it answers none of the prompts' conversations, {right}")
    return told


def _own_answers(file: Path, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """A run keeps all that it sends: where its answers are from may be gone by now. Whether they
    are those of the prompts is looked at before they are sent."""
    lacking = {each.id for each in prompts if not has_answers(each)}
    found = read_prompts(file.name, file.parent, "all").prompts
    return tuple(each for each in found if each.id in lacking and has_answers(each))


def _task(document: Document, sweep: Sweep, beside: Path) -> tuple[Question, ...]:
    if sweep.workload.task is None:
        return ()
    try:
        return load_task(sweep.workload.task, beside)
    except UserError as error:
        if error.where is not None:
            raise  # the task's own file and line
        raise document.error(("workload", "task"), error.message) from error


def _check_across(document: Document, sweep: Sweep) -> None:
    """Rules that join two places of the file."""
    if sweep.model.algorithm is None and sweep.engine.launches_servers:
        raise document.error(
            ("model", "algorithm"),
            f"only a server that runs already has it, write one of {', '.join(ALGORITHMS)}",
        )
    only, known = sweep.search.objective.level, sweep.workload.levels
    if only is not None and only not in known:
        levels = ", ".join(map(str, known))
        raise document.error(
            ("search", "objective", "over"),
            f"{named(only)} is not measured, write geomean, min or one of {levels}",
        )
    if sweep.workload.request_rate is not None and sweep.search.objective.metric == "output_tok_s":
        raise document.error(
            ("workload", "request_rate"),
            "whatever keeps up with requests at a rate has the same output_tok_s, write "
            "search.objective.metric: decode_tok_s",
        )
    if len(set(known)) < len(known):
        key = "request_rate" if isinstance(known[0], Rate) else "concurrency"
        raise document.error(("workload", key), "a level is there twice, keep one")
    if isinstance(known[0], Rate) and len(sweep.workload.concurrency) > 1:
        raise document.error(
            ("workload", "concurrency"),
            "each of several request rates is a level of its own, write one concurrency, the most "
            "requests that are open at a time, such as [256]",
        )
    for section in ("server", "baseline", "space"):
        for flag in getattr(sweep, section).flags:
            if flag in RESERVED:
                raise document.error(
                    (section, "flags", flag), f"specbench sets this flag, {RESERVED[flag]}"
                )
            if flag in HIDING:
                raise document.error((section, "flags", flag), HIDING[flag])
        for name in getattr(sweep, section).env:
            if name in RESERVED_VARIABLES:
                raise document.error(
                    (section, "env", name),
                    f"specbench sets this variable, {RESERVED_VARIABLES[name]}",
                )
    for kind in ("flags", "env"):
        for name in getattr(sweep.space, kind):
            if is_secret(name):
                raise document.error(
                    ("space", kind, name),
                    f"a secret is no dimension of a search, write it in server.{kind}",
                )
    check_nodes(document, sweep)
    if sweep.server.step_switch:
        _check_step_switch(document, sweep)
    for kind in ("flags", "env"):
        for name in getattr(sweep.space, kind):
            if name in getattr(sweep.server, kind):
                raise document.error(
                    ("server", kind, name),
                    f"this is also a dimension ({spell(('space', kind, name))}), keep one of both",
                )


def _check_step_switch(document: Document, sweep: Sweep) -> None:
    """What can never be switched is refused; what a release cannot do is said in the plan."""
    if sweep.model.algorithm not in STEP_SWITCHERS:
        raise document.error(
            ("server", "step_switch"),
            f"{sweep.model.algorithm} cannot switch num_steps on a running server "
            f"({', '.join(STEP_SWITCHERS)} can), remove it",
        )
    for section in ("server", "baseline", "space"):
        for flag in ("speculative-adaptive", "speculative-adaptive-config"):
            if flag in getattr(sweep, section).flags:
                raise document.error(
                    (section, "flags", flag),
                    "server.step_switch sets this flag itself, keep one of both",
                )


def with_trials(loaded: LoadedSweep, trials: int) -> LoadedSweep:
    """The same sweep with another number of candidates, as `--trials N` asks."""
    search = loaded.sweep.search.model_copy(update={"trials": trials})
    return replace(loaded, sweep=loaded.sweep.model_copy(update={"search": search}))


def with_deadline(loaded: LoadedSweep, deadline: str) -> LoadedSweep:
    """The same sweep with another end, as `--deadline 07:30` asks."""
    search = loaded.sweep.search.model_copy(update={"deadline": deadline})
    return replace(loaded, sweep=loaded.sweep.model_copy(update={"search": search}))


def with_slots(loaded: LoadedSweep, slots: int | Literal["auto"]) -> LoadedSweep:
    """The same sweep with another number of slots, as `--slots N` asks."""
    return replace(loaded, sweep=loaded.sweep.model_copy(update={"slots": slots}))


class _Dumper(yaml.SafeDumper):
    """Quotes every text that the door would read as something else; YAML 1.1 quotes others."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        is_plain = text.isprintable() and plain_value(text) == text
    except ValueError:
        is_plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)


def sweep_text(sweep: Sweep, comment: Sequence[str] = ()) -> str:
    """A sweep file that the door reads as `sweep` again, with comment lines on top.

    Only what differs from the defaults is written.
    """
    data: dict[str, Any] = sweep.model_dump(mode="json", exclude_defaults=True)
    if sweep.workload.request_rate is not None:  # with one the default is another
        data["workload"]["concurrency"] = sweep.workload.concurrency
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    body = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
    return "\n".join([*lines, body])
