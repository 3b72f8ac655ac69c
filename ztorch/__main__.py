"""Where the command line begins: the command ztorch, python -m ztorch, and cli.py of a checkout."""

import os
import signal
import sys


def main() -> None:
    """Runs the command line; while that is being loaded, Ctrl-C ends the process without a word."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # else the parent process wants it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ztorch import cli
    from ztorch.commands import stopping

    if heard is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)
    if heard is signal.default_int_handler and sys.argv[1:2] and sys.argv[1] in stopping.COMMANDS:
        stopping.watch()
    try:
        cli.main()
    except SystemExit as end:
        if end.code == stopping.STOPPED:  # at once: to free large graphs takes Python seconds
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(stopping.STOPPED)
        raise


if __name__ == "__main__":
    main()
