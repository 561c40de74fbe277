"""What the longer proofs on real servers share: cells, a command line, and lines that are kept."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cell:
    """One configuration to hold against its stock server."""

    release: str
    tp: int
    draft_tp: int
    algorithm: str

    def __str__(self) -> str:
        return f"{self.release}:{self.tp}:{self.draft_tp}:{self.algorithm}"

    @property
    def told(self) -> str:
        """As a heading."""
        return f"SGLang {self.release}, {self.algorithm}, tp {self.tp}, draft_tp {self.draft_tp}"


def parser(description: str | None, default: str) -> argparse.ArgumentParser:
    """`--cells CELL ...` and `--log FILE`; `default` says which cells there are without it."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--cells", nargs="*", help=f"default: {default}")
    made.add_argument("--log", type=Path, help="also write the lines here")
    return made


class Lines:
    """Prints lines as they come and keeps them in a file, where one is named."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._lines: list[str] = []

    def __call__(self, line: str) -> None:
        print(line, flush=True)
        self._lines.append(line)
        if self._log:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._log.write_text("\n".join(self._lines) + "\n")
