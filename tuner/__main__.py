"""`python -m tuner` is `specbench`."""

from tuner.cli import main

if __name__ == "__main__":
    main()
