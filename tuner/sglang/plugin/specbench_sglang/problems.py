"""Why a server with the plug-in does not start. specbench reads the first words of the message."""

DRAFT_TP = "draft TP"
STEP_SWITCH = "step switching"


class Refused(RuntimeError):
    """The configuration cannot run with what was asked of the plug-in."""

    def __init__(self, reason: str, what: str = DRAFT_TP) -> None:
        super().__init__(f"specbench: {what} refused: {reason}")


class NotPatched(RuntimeError):
    """This SGLang is not what the plug-in was written for; nothing may run half patched."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"specbench: not patched: {reason}")
