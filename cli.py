"""A checkout's front door; the command line itself is ztorch/cli.py."""

from ztorch.cli import main

if __name__ == "__main__":
    main()
