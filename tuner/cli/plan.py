"""`specbench plan`: what a sweep would do, as text for people."""

import click

from tuner.core.formatting import spell_time
from tuner.execution.request_plan import describe_load
from tuner.preflight.plan import Plan
from tuner.server.base import Command
from tuner.server.launch_script import difference, of_every_rank, shell_line
from tuner.server.memory import words


def show_plan(plan: Plan, limit: int | None) -> None:
    """Print a plan; `limit` cuts the list of points and their commands to what is not the
    baseline's, None shows all as they are."""
    sweep, space = plan.loaded.sweep, plan.loaded.space
    points = "1 point" if len(space.points) == 1 else f"{len(space.points):,} points"
    click.echo(f"{sweep.name}: {points}, engine {sweep.engine.kind}")
    for word, reasons in (("dropped", space.dropped), ("collapsed", space.collapsed)):
        for reason, count in reasons.items():
            click.echo(f"  {count:,} {word}: {reason}")
    click.echo(f"  {describe_load(plan.loaded)}")
    for note in plan.notes:
        click.echo(f"  {note}")
    estimate = plan.estimate
    noun = "launch" if estimate.launches == 1 else "launches"
    about = spell_time(estimate.hours * 3600)
    click.echo(f"  {estimate.launches:,} {noun}, about {about} ({estimate.basis})")
    if estimate.parts:
        early = "" if sweep.search.sampler == "grid" else "; the search may end before all of them"
        click.echo(f"  of these {estimate.parts}{early}")
    if not sweep.engine.launches_servers:
        click.echo("  nothing is launched: the server that runs is measured as it is")
        return
    _show_memory(plan)
    _show_command("baseline: no speculation", plan.baseline)
    blocks = [(f"one launch, {block.label()}", command) for block, command in plan.shared[:limit]]
    alone = [
        (f"{number}. {point.label()}", command)
        for number, (point, command) in enumerate(plan.commands[:limit], start=1)
    ]
    if limit is None:
        for title, command in [*blocks, *alone]:
            _show_command(title, command)
        return
    click.echo("\nthe others, by what they have besides (--all: every one, as a whole command)")
    for title, command in [*blocks, *alone]:
        click.echo(f"\n{title}\n  {difference(command, plan.baseline)}")
    if left := len(plan.commands) - len(alone):
        click.echo(f"\n... and {left:,} more, --all shows them")


def _show_command(title: str, command: Command) -> None:
    """One line of a shell; of a server that spans nodes one for each."""
    click.echo(f"\n{title}")
    for each in of_every_rank(command):
        click.echo(f"  {shell_line(each)}")


def _show_memory(plan: Plan) -> None:
    if plan.memory is None:
        if plan.loaded.sweep.engine.uses_gpus:
            click.echo("  memory: --gpu-memory GIB says what a GPU has, and shows who takes it")
        return
    click.echo(f"  memory, GiB on each GPU of {plan.memory.gpu:.1f} ({plan.memory.source}):")
    for each in plan.memory.servers:
        click.echo(f"    {each.label}: {words(each.memory, plan.memory.gpu)}")
