"""The base of all commands: their order, errors in one line, hints at similar names, examples."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from inspect import cleandoc
from typing import IO, Any

import click

from ztorch.commands.wording import as_options
from ztorch.errors import ZtorchError, nearest
from ztorch.names.other_names import OTHER_NAMES

STOPPED = 130  # 128 + SIGINT, as shells count


class Failure(click.ClickException):
    """An error: one line, exit status 1. Click reports wrong usage itself, with status 2."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class Stopped(click.ClickException):
    """The user pressed Ctrl-C. The exit status is that of a process that the signal ends."""

    exit_code = STOPPED

    def __init__(self) -> None:
        super().__init__("stopped")

    def show(self, file: IO[Any] | None = None) -> None:
        echoed = sys.stderr is not None and sys.stderr.isatty()  # ^C is printed in the line
        click.echo(f"{chr(10) if echoed else ''}{self.message}", err=True)


class CommandGroup(click.Group):
    """The commands in the order in which they are declared, with helpful errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        other = OTHER_NAMES["command"].get(name.lower())
        near = f"; here it is `ztorch {other}`" if other else nearest(name, self.commands, 0.6)
        if self.get_command(ctx, name) is None and near and name[:1] != "-":
            ctx.fail(f"there is no command {name!r}{near}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*args, **more)
        except KeyboardInterrupt:  # for which click prints "Aborted!"
            raise Stopped from None

    def main(self, *args: Any, **options: Any) -> Any:
        _open_streams()
        try:
            return super().main(*args, **options)
        except OSError as error:  # in --help and --version, which click prints
            sys.exit(f"error: {_reason(error)}")

    def invoke(self, ctx: click.Context) -> Any:
        debugging = False
        try:
            from ztorch.host import settings

            debugging = bool(settings.current().debug)
            with warnings.catch_warnings():
                warnings.showwarning = _warn  # type: ignore[assignment]
                result = super().invoke(ctx)
            sys.stdout.flush()  # the command succeeds only if its output is written
            return result
        except KeyboardInterrupt:
            raise Stopped from None
        except click.NoSuchOption as error:
            name = error.option_name
            if other := OTHER_NAMES["option"].get(name.lstrip("-").lower()):
                raise click.NoSuchOption(name, f"No such option {name!r}; here it is {other}",
                                         ctx=error.ctx) from None
            raise
        except (ZtorchError, OSError) as error:
            if debugging or isinstance(error, BrokenPipeError):
                raise
            raise Failure(_reason(error)) from None


def _open_streams() -> None:
    """Opens standard input and output if the caller closed them, or the next file would take their
    descriptors. Characters that a stream cannot encode are escaped: they end no command."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _warn(message: Warning | str, *_location: Any) -> None:
    """Prints a warning in one line, without its place in the code."""
    click.echo(f"warning: {message}", err=True)


def _reason(error: Exception) -> str:
    """The text of an error, with options in place of arguments. An error without a file name comes
    from standard output, since errors of `write_atomic` name the file."""
    if isinstance(error, OSError) and error.filename is None and error.errno in (
            errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        sys.stdout = None  # otherwise Python reports the error again when it ends
        return f"cannot write to standard output: {error.strerror}"
    return as_options(str(error))


def examples(text: str) -> Any:
    """A decorator that adds examples to the end of a command's help."""
    lines = [f"  {line.strip()}" for line in text.strip().splitlines()]

    def add(function: Any) -> Any:
        text = cleandoc(function.__doc__ or "")  # Python -OO leaves docstrings out
        function.__doc__ = f"{text}\n\n\b\nExamples:\n" + "\n".join(lines)
        return function

    return add
