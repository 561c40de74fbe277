"""Parts of the plug-in to break, and whether the answers should survive it."""

CONTROLS = {
    "no gather": False,
    "no pool scope": False,
    "garbled replica": True,
    "diverged replica": False,
}
"""`garbled replica`: all ranks but the first draft nonsense, and the broadcast puts it right."""
