"""How the commands behave together: their order, errors in one line, near names, examples."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from inspect import cleandoc
from typing import IO, Any

import click

from ztorch.errors import ZtorchError, nearest


class Failure(click.ClickException):
    """One clean line, exit status 1. Wrong usage is click's own, with status 2."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class Commands(click.Group):
    """The commands in the order of a first tour, with helpful errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        near = nearest(args[0], self.commands)
        if self.get_command(ctx, args[0]) is None and near and args[0][:1] != "-":
            ctx.fail(f"there is no command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        if sys.stdout is None:  # closed by whoever started us: a file that we open would become it
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        try:
            return super().main(*args, **options)
        except OSError as error:  # of --help and --version, which click prints
            sys.exit(f"error: {_reason(error)}")

    def invoke(self, ctx: click.Context) -> Any:
        from ztorch.host import settings

        try:
            debugging = bool(settings.current().debug)
        except ZtorchError as error:  # a setting that makes no sense
            raise Failure(str(error)) from None
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn  # type: ignore[assignment]
                result = super().invoke(ctx)
            sys.stdout.flush()  # what it says has to arrive before all is well
            return result
        except (ZtorchError, OSError) as error:
            if debugging or isinstance(error, BrokenPipeError):
                raise
            raise Failure(_reason(error)) from None


def _warn(message: Warning | str, *where: Any) -> None:
    """One clean line: which line of ours warned is nothing to the user."""
    click.echo(f"warning: {message}", err=True)


def _reason(error: Exception) -> str:
    """What an error says. That of a full disk names no file where it is behind standard output,
    the only one that is not written by way of another name (`tensorfile.write_atomic`)."""
    if isinstance(error, OSError) and error.filename is None and error.errno in (
            errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        sys.stdout = None  # else Python complains again when it ends
        return f"cannot write to standard output: {error.strerror}"
    return str(error)


class ModelName(click.ParamType):
    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from click.shell_completion import CompletionItem

        from ztorch.commands.recipe import zoo

        found = [CompletionItem(n) for n in zoo() if n.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def examples(text: str) -> Any:
    """Examples at the end of a command's help, as they are written."""
    lines = [f"  {line.strip()}" for line in text.strip().splitlines()]

    def add(function: Any) -> Any:
        says = cleandoc(function.__doc__)
        function.__doc__ = f"{says}\n\n\b\nExamples:\n" + "\n".join(lines)
        return function

    return add
