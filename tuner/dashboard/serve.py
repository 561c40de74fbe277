"""optuna-dashboard over a run's study, with the run's own files as artifacts."""

from pathlib import Path

from optuna.storages import RDBStorage

from tuner.core.errors import UserError
from tuner.dashboard.run_files import RunFiles


def serve(storage: RDBStorage, folder: Path, host: str, port: int) -> None:
    """Serve the dashboard of an Optuna storage until Ctrl-C. Raises UserError for a taken port.

    `folder` is the run folder that the study's artifacts lie in.
    """
    from optuna_dashboard import run_server

    try:
        run_server(storage, host=host, port=port, artifact_store=RunFiles(folder))
    except OSError as error:
        raise UserError(f"{host}:{port}: {error.strerror}, choose another --port") from error
