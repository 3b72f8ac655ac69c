"""Turns exceptions of parsers into errors of ours that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ztorch.errors import Unsupported, WeightsError, ZtorchError

_LONGEST = 300  # characters of a parser's message


@contextmanager
def parsing(where: str, kind: type[ZtorchError], complaint: str, fix: str,
            member: str = "") -> Iterator[None]:
    """Turns any exception in the block, which reads a file, into an error that names the file.
    Errors of ours pass through.

    Args:
        where: The file.
        kind: The class of the error.
        complaint: What is wrong, in words that follow the file's name.
        fix: Advice for the user.
        member: The part of the file that is read. Default: `""`.

    Examples:
        >>> from ztorch.errors import DataError
        >>> with parsing("a.npy", DataError, "cannot be read", "save it again"):
        ...     int("three")
        Traceback (most recent call last):
        ...
        ztorch.errors.DataError: a.npy cannot be read (invalid literal ... 'three'); save it again
    """
    try:
        yield
    except ZtorchError:
        raise
    except Exception as error:  # parsers raise anything
        place = f"{where}: {member}" if member else where
        raise kind(f"{place} {complaint} ({_reason(error)}); {fix}") from error


@contextmanager
def describing(where: str, member: str = "") -> Iterator[None]:
    """Adds the name of a file to errors in the block, which builds a model from that file.

    Args:
        where: The file.
        member: The part of the file that is read. Default: `""`.

    Examples:
        >>> with describing("a.keras"):
        ...     raise ZtorchError("an axis must be a positive integer")
        Traceback (most recent call last):
        ...
        ztorch.errors.WeightsError: a.keras describes an invalid model: an axis must ...
    """
    try:
        with parsing(where, WeightsError, "describes an invalid model", "save it again",
                     member):
            yield
    except ZtorchError as error:
        if where in str(error) or isinstance(error, Unsupported):
            raise
        raise WeightsError(f"{where} describes an invalid model: {error}") from error


def _reason(error: Exception) -> str:
    """A parser's message in one line."""
    if isinstance(error, MemoryError):
        return "it holds more than fits in memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"there is no {error}"
    text = " ".join(str(error).split()) or type(error).__name__
    if "allow_pickle" in text:  # NumPy's words for a pickle, which would run code
        return "it holds Python objects"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
