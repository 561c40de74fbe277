"""`python -m tuner.simulator`: the simulated server as a program."""

import os

PARENT = os.getppid()
"""Taken before the imports below: on a busy machine they outlast a parent that is killed."""

# aiohttp reads every certificate of the machine as it is imported, a third of the time that a start
# takes; this server speaks to nobody.
os.environ["SSL_CERT_FILE"] = os.devnull

import asyncio  # noqa: E402
import sys  # noqa: E402

from tuner.simulator import arguments, server  # noqa: E402
from tuner.simulator.log import log  # noqa: E402


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
        ended = asyncio.run(server.serve(parsed, PARENT))
    except KeyboardInterrupt:
        return 130
    return ended or int(parsed.release.text("interrupted_status") or 0)


if __name__ == "__main__":
    sys.exit(main())
