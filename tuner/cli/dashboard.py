"""`specbench dashboard`: report errors before printing the URL."""

import socket
from pathlib import Path

import click

from tuner.core.errors import UserError
from tuner.dashboard.serve import serve, study_to_view
from tuner.runs.run import Run

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def open_dashboard(path: Path, host: str, port: int) -> None:
    """Serve optuna-dashboard over a run until Ctrl-C.

    Raises UserError for a run without a study, and for an address that cannot be used.
    """
    run = Run.open(path)
    if not run.sweep().engine.launches_servers:
        raise UserError("a run of an endpoint searches nothing and has no study to show", path)
    _refuse_taken(host, port)
    storage, note = study_to_view(run)
    if note is not None:
        click.echo(note)
    if host not in LOOPBACK:
        click.echo(
            f"{host}: anybody who reaches this machine can read and change it, without a password; "
            "127.0.0.1 and ssh -L keep it to you"
        )
    click.echo(f"optuna-dashboard of {run.id} at http://{host}:{port}/ (Ctrl-C ends it)")
    serve(storage, run, host, port)


def _refuse_taken(host: str, port: int) -> None:
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        message = f"{host}:{port}: {error.strerror}, choose another --host or --port"
        raise UserError(message) from error
