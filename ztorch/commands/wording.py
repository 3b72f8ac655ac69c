"""Adapts messages of the library to the command line: options in place of arguments."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable

_VALUE = r"(?:\{[^{}]*\}|\([\d, ]*\)|\d+)"
_ARGUMENT = re.compile(rf"\bcompile\((?:\.\.\., )?((?:sizes|batch_size)={_VALUE})\)|"
                       rf"\b((?:sizes|batch_size)={_VALUE})")
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_COLUMN = re.compile(rf"\b(number|category|date|text|ignore)=\[({_STRING}|NAME)\]")


def as_options(message: str) -> str:
    """A message with options in place of the arguments `sizes` and `batch_size` of `compile`, and
    of the kinds of columns, which are arguments of `zt.data.table`.

    >>> as_options("several: compile(..., sizes={'time': (64, 128), 'width': 8})")
    'several: --sizes time=64,128 --sizes width=8'
    >>> as_options("compile with a larger size in sizes={'time': ...}")
    'compile with a larger size in --sizes time=N'
    >>> as_options("validation_split must be a number from 0 to 1")
    '--val must be a number from 0 to 1'
    >>> as_options("declare its kind: number=['the size']")
    "declare its kind: --number 'the size'"
    """
    message = message.replace("validation_split must", "--val must")
    message = _COLUMN.sub(lambda match: f"--{match[1]} {_column(match[2])}", message)
    return _ARGUMENT.sub(lambda match: _option(match[0], match[1] or match[2]), message)


def _option(text: str, argument: str) -> str:
    name, _, value = argument.partition("=")
    try:
        numbers = ast.literal_eval(value)
    except (SyntaxError, ValueError):  # text that is not Python
        return text
    if name == "batch_size":
        return text if isinstance(numbers, dict) else f"--batch-size {_listed(numbers)}"
    if not isinstance(numbers, dict):
        return text
    return " ".join(f"--sizes {axis}={_listed(n)}" for axis, n in numbers.items())


def _column(literal: str) -> str:
    """The name of a column as a shell reads it."""
    return literal if literal == "NAME" else shlex.quote(ast.literal_eval(literal))


def _listed(numbers: object) -> str:
    """Numbers as an option lists them.

    >>> _listed((64, 128)), _listed(...)
    ('64,128', 'N')
    """
    if isinstance(numbers, Iterable):
        return ",".join(map(str, numbers))
    return "N" if numbers is ... else str(numbers)
