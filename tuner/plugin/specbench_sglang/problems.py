"""Why a server with the plug-in does not start. specbench reads the first words of the message."""


class Refused(RuntimeError):
    """The configuration cannot run with the draft on its own TP size."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"specbench: draft TP refused: {reason}")


class NotPatched(RuntimeError):
    """This SGLang is not what the plug-in was written for; nothing may run half patched."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"specbench: not patched: {reason}")
