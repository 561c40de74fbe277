"""`python -m tuner.engine.simulated`: the simulated server as a program."""

import asyncio
import sys

from tuner.engine.simulated import arguments, server
from tuner.engine.simulated.log import log


def main(argv: list[str] | None = None) -> int:
    """Serve until a signal. Returns the exit status: 2 for wrong arguments, 1 for what SGLang
    refuses after reading them, the release's own after SIGINT."""
    try:
        parsed = arguments.parse(argv)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    except ValueError as error:
        log(f"ValueError: {error}")
        return 1
    try:
        ended = asyncio.run(server.serve(parsed))
    except KeyboardInterrupt:
        return 130
    return ended or int(parsed.release.text("interrupted_status") or 0)


if __name__ == "__main__":
    sys.exit(main())
