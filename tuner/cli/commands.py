"""The commands and their arguments. Heavy libraries are imported where a command needs them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from tuner import __version__
from tuner.cli.arguments import (
    OUT_FILE,
    RUN,
    SWEEP_FILE,
    DeadlineText,
    LaunchTime,
    Percent,
    SlotCount,
    TrialCount,
    Trials,
    unused_trials,
)
from tuner.cli.draft_tp import draft_tp
from tuner.cli.run_commands import clean, dashboard, report, status, stop

ENGINES = ("sglang", "simulated", "endpoint")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="specbench %(version)s")
def specbench() -> None:
    """Find the speculative-decoding configuration that serves your model fastest on your GPUs.

    \b
    specbench sweep sweeps/quickstart.yaml    a first look, no GPU needed
    specbench plan  sweeps/kimi_eagle3.yaml   what a sweep would launch, and for how long
    """


@specbench.command()
@click.argument("file", type=SWEEP_FILE, required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Instead of results/NAME: the run is DIR/RUN-ID.")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), help="Instead of the file's engine.kind.")
@click.option("--trials", type=Trials(), help="Candidates to measure; +N more with --resume.")
@click.option(
    "--resume", type=RUN, metavar="RUN", help="Go on with this run; nothing is measured twice."
)
@click.option("--deadline", type=DeadlineText(), help="Instead of search.deadline, such as 07:30.")
@click.option("--share-gpus", is_flag=True, help="Also beside another specbench run on them.")
@click.option("--slots", type=SlotCount(), help="Instead of the file's slots: auto, 1, 2, ...")
@click.option("--ray", metavar="ADDRESS", help="Launch on the nodes of this Ray cluster.")
@click.option(
    "--ray-resource", metavar="NAME", help="On those of its nodes that have this resource."
)
@click.option("--dry-run", is_flag=True, help="The same as specbench plan FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
@click.pass_context
def sweep(context: click.Context, /, file: Path | None, dry_run: bool, **options: Any) -> int:
    """Launch, measure and search; leave a run folder with the winner.

    Exit code 0 when done, also when nothing beats the baseline; 1 when the engine or every trial
    failed; 2 for a mistake in the file or the arguments; 130 when interrupted.
    """
    if dry_run:
        if file is None:
            raise click.UsageError("--dry-run needs a sweep file.")
        if options["resume"] is not None:
            raise click.UsageError("--dry-run shows a new run, leave --resume out.")
        kept = {name: options[name] for name in ("as_json", "engine", "trials", "slots")}
        return int(context.invoke(plan, file=file, show_all=False, limit=20, **kept) or 0)
    from tuner.cli.sweep import SweepOptions, run

    return run(SweepOptions(file=file, **options))


@specbench.command()
@click.argument("file", metavar="[SWEEP]", type=SWEEP_FILE, required=False)
@click.option("--storage", metavar="URL", required=True, envvar="SPECBENCH_STORAGE",
              help="The Optuna storage that the workers share; or SPECBENCH_STORAGE.")  # fmt: skip
@click.option("--study", help="Its name there; default: the sweep's.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Instead of results/NAME: the run is DIR/RUN-ID.")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), help="Instead of the file's engine.kind.")
@click.option("--resume", type=RUN, metavar="RUN", help="Go on with this worker's run.")
@click.option("--deadline", type=DeadlineText(), help="Instead of search.deadline, such as 07:30.")
@click.option("--share-gpus", is_flag=True, help="Also beside another specbench run on them.")
@click.option("--slots", type=SlotCount(), help="Instead of the file's slots: auto, 1, 2, ...")
@click.option("--heartbeat", "beat_s", type=click.IntRange(1, 3600), metavar="SECONDS",
              help="Silent for four times that, a worker is dead; the same for all workers of a "
                   "study. Default: as the first one had it, 30.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
def worker(
    file: Path | None, storage: str, study: str | None, beat_s: int | None, **options: Any
) -> int:
    """Take part in the search of SWEEP, one of several hosts on one database.

    Each worker has its own run folder and baseline; together they measure search.trials candidates,
    each once. Exit codes as of sweep.
    """
    from tuner.cli.sweep import SweepOptions, run
    from tuner.workers.joining import WorkerOptions

    shared = WorkerOptions(storage, study, beat_s)
    return run(SweepOptions(file=file, trials=None, worker=shared, **options))


@specbench.command()
@click.argument("file", type=SWEEP_FILE)
@click.option("--engine", type=click.Choice(ENGINES), help="Instead of the file's engine.kind.")
@click.option("--all", "show_all", is_flag=True,
              help="Every point, not the first 20, with its whole command.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), default=20, hidden=True)
@click.option("--trials", type=Trials(), help="Candidates to measure, as sweep --trials.")
@click.option("--slots", type=SlotCount(), help="Instead of the file's slots, as sweep --slots.")
@click.option("--sglang", "release", metavar="VERSION", help="Plan for this SGLang release.")
@click.option("--gpu-memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB",
              help="What a GPU has; default: as NVML says.")  # fmt: skip
@click.option("--launch", type=LaunchTime(), metavar="15m",
              help="How long a launch takes; default: as in earlier runs.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    file: Path,
    engine: str | None,
    show_all: bool,
    limit: int,
    trials: TrialCount | None,
    slots: int | Literal["auto"] | None,
    release: str | None,
    gpu_memory: float | None,
    launch: float | None,
    as_json: bool,
) -> None:
    """Show what a sweep would launch, with the exact commands. Launches nothing.

    The baseline's command is whole; the others are shown by what they have besides, unless --all.
    """
    from tuner.cli.plan import show_plan
    from tuner.config.loader import load_sweep, with_slots, with_trials
    from tuner.preflight.estimate import earlier_runs
    from tuner.preflight.plan import make_plan
    from tuner.runs.run_folder import RESULTS

    loaded = load_sweep(file, engine=engine)
    if trials is not None:
        loaded = with_trials(loaded, trials.of_new_run())
    if slots is not None:
        loaded = with_slots(loaded, slots)
    earlier = earlier_runs(RESULTS / loaded.sweep.name, loaded.sweep.engine.kind)
    made = make_plan(loaded, earlier, release, gpu_memory, launch)
    if trials is not None and (unused := unused_trials(made.loaded)):
        made = replace(made, notes=(*made.notes, unused))
    cut = None if show_all else limit
    if as_json:
        click.echo(json.dumps(made.to_json(cut), indent=2))
    else:
        show_plan(made, cut)


@specbench.command()
@click.argument("file", metavar="[SWEEP]", type=SWEEP_FILE, required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where the run would go, as sweep --out.")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), help="Instead of the file's engine.kind.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(file: Path | None, out: Path | None, engine: str | None, as_json: bool) -> int:
    """Say what would stop a sweep on this machine, line by line: ok, doubt or stop.

    Looks at the interpreter, GPUs, ports, disk and models; without SWEEP at the machine alone.
    Launches nothing. Exit code 1 where something stops it, else 0; 2 for a mistake in the file.
    """
    from tuner.cli.doctor import run_doctor

    return run_doctor(file, out, engine, as_json)


@specbench.command()
@click.argument("file", metavar="[SWEEP]", type=SWEEP_FILE, required=False)
@click.option("--engine", type=click.Choice(ENGINES), help="Instead of the file's engine.kind.")
@click.option("--hidden", type=click.IntRange(min=1), help="Hidden size; default: config.json's.")
@click.option("--dtype", help="Of hidden states: bfloat16, float16 or float32.")
@click.option("--tokens", metavar="N,N", help="Tokens of the passes; default: the space's.")
@click.option("--tp", type=click.IntRange(min=1), help="Ranks; default: model.tp.")
@click.option("--python", help="The interpreter that has torch; default: engine.python.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="cpu: gloo, for rehearsals.")
@click.option("--setting", multiple=True, metavar="A=B,C=D", help="Instead of the space's; repeat.")
@click.option("--rounds", type=click.IntRange(2, 100), default=4, show_default=True)
@click.option("--limit", default="60s", show_default=True, help="Longer silence is a hang.")
@click.option("--at-once", type=click.IntRange(1, 64), help="Process groups up at a time.")
@click.option("--share-gpus", is_flag=True, help="Also beside a specbench run on them.")
@click.option("--out", type=OUT_FILE, metavar="FILE", help="Write the JSON here.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON on stdout.")
def comm(
    file: Path | None,
    engine: str | None,
    share_gpus: bool,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Time all-reduces of the model's sizes under each NCCL setting of SWEEP.

    Says which settings are worth launching servers for, which are alike, and which lose, hang or
    crash. Takes about a minute for four settings (plan says how long SWEEP's take); needs the GPUs
    to be free.
    """
    from tuner.cli.comm import read_options, run_comm

    run_comm(file, engine, read_options(options), out, as_json, share_gpus=share_gpus)


@specbench.command("compare-report")
@click.argument("runs", type=RUN, nargs=-1, required=True)
@click.option("--all", "show_all", is_flag=True, help="All points that the runs share, too.")
@click.option("--fail-on-regression", "fail_on", type=Percent(),
              help="Exit with 3 where a server is surely slower by more.")  # fmt: skip
@click.option("--markdown", is_flag=True, help="Markdown instead of text.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--out", type=OUT_FILE, metavar="FILE", help="Write it here, not to stdout.")
@click.option("--html", type=OUT_FILE, metavar="FILE", help="Write a page of its own, besides.")
def compare_report(runs: tuple[Path, ...], **options: Any) -> int:
    """Hold runs against each other: no speculation and best candidates, with ratios to the first.

    RUNS are run folders, and results of sglang.bench_serving, bench_speculative.py, vllm bench and
    SpecForge, which become rows without a verdict where they have no requests one by one.

    Exit code 3 for a regression, where --fail-on-regression asks for it; 4 when the runs are not
    comparable: another model, workload or kind of engine, or nothing measured in both; with
    --fail-on-regression also when a server could not be judged.
    """
    from tuner.cli.compare import CompareOptions, run_compare

    return run_compare(runs, CompareOptions(**options))


@specbench.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: tuple[str, ...]) -> int:
    """Serve as SGLang would, from a performance model; takes SGLang's flags and its own."""
    from tuner.simulator.__main__ import main

    return main(list(arguments))


@specbench.command()
def schema() -> None:
    """Print the JSON Schema of sweep files, for editors."""
    from tuner.config.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


for each in (draft_tp, report, status, stop, clean, dashboard):
    specbench.add_command(each)
