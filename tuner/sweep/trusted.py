"""Code of a model's files that a sweep file lets run on this machine."""

from tuner.sweep.model import Sweep

FLAG = "trust-remote-code"


def trusted_code(sweep: Sweep) -> str | None:
    """What plans and reports say where the sweep file sets `trust-remote-code`; None else.

    Nothing but the sweep file does: specbench never adds the flag.
    """
    alone = sweep.server.flags.get(FLAG), sweep.baseline.flags.get(FLAG)
    if True not in (*alone, *sweep.space.flags.get(FLAG, [])):
        return None
    models = " and ".join(name for name in (sweep.model.target, sweep.model.draft) if name)
    return f"{FLAG} is on: Python code in the files of {models} is run here"
