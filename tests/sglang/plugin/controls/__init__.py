"""Parts of the plug-in to break, and whether the answers should survive it."""

CONTROLS = {
    "no gather": False,
    "no pool scope": False,
    "garbled replica": True,
    "diverged replica": False,
}
"""`garbled replica`: all ranks but the first draft nonsense, and the broadcast puts it right."""

V1_CONTROLS = {
    "no gather": False,
    "no scope": False,
    "garbled replica": True,
    "diverged replica": False,
}
"""The V1 worker is built in one scope, pool and all; that it was not is seen at the start."""
