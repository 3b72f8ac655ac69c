"""A checkout's front door; the command line itself is ztorch/cli.py."""

from ztorch.__main__ import main

if __name__ == "__main__":
    main()
