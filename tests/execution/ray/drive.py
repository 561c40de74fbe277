"""`specbench sweep --ray` as a program, in a process that is a driver of the local cluster."""

import sys

from tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
