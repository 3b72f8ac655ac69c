"""Where the command line begins: the command ztorch, python -m ztorch, and cli.py of a checkout."""

import signal


def main() -> None:
    """Runs the command line; while that is being loaded, Ctrl-C ends the process without a word."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # else whoever started us wants it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ztorch import cli

    if heard is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)
    cli.main()


if __name__ == "__main__":
    main()
