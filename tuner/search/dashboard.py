"""optuna-dashboard over a run's study."""

from pathlib import Path

from tuner.errors import UserError


def serve(url: str, host: str, port: int) -> None:
    """Serve the dashboard of an Optuna storage until Ctrl-C. Raises UserError for a taken port."""
    from optuna_dashboard import run_server

    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        raise UserError("this run has no study.db yet, wait for its first candidate", url)
    try:
        run_server(url, host=host, port=port)
    except OSError as error:
        raise UserError(f"{host}:{port}: {error.strerror}, choose another --port") from error
