"""The entry point of the command line: `ztorch`, `python -m ztorch` and cli.py of a checkout."""

import os
import signal
import sys


def main() -> None:
    """Runs the command line. Ctrl-C while it is still loading ends the process silently."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # otherwise the parent process wants it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ztorch.cli import main as command_line
    from ztorch.commands import stopping

    if heard is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)
    if heard is signal.default_int_handler and sys.argv[1:2] and sys.argv[1] in stopping.COMMANDS:
        stopping.watch()
    try:
        command_line()
    except SystemExit as end:
        if end.code == stopping.STOPPED:  # exit at once: Python takes seconds to free large graphs
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(stopping.STOPPED)
        raise


if __name__ == "__main__":
    main()
