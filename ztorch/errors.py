"""Every exception ztorch raises on purpose; each message names the culprit and a fix."""

from __future__ import annotations

from collections.abc import Iterable


class ZtorchError(Exception):
    """Base of all errors raised on purpose."""


class ShapeError(ZtorchError, ValueError):
    """Shapes or dtypes that do not fit together, found while a model is declared or compiled."""


class UnknownName(ZtorchError, ValueError):
    """A name (layer, loss, device, ...) that does not exist."""


class ConfigError(ZtorchError, ValueError):
    """An argument with an impossible value, such as a batch size of zero."""


class DataError(ZtorchError, ValueError):
    """Data handed to a compiled program that does not fit it."""


class WeightsError(ZtorchError, ValueError):
    """Weights that belong to another model, or a damaged weights file."""


class ArtifactError(ZtorchError, ValueError):
    """A damaged, truncated, newer or hostile artifact."""


class Unsupported(ZtorchError, NotImplementedError):
    """Something this backend cannot do; names backend, op and dtype."""


class VerifyError(ZtorchError):
    """A kernel that breaks a rule of the IR."""


class InterpretError(VerifyError):
    """A kernel that broke a rule while it ran: out of bounds, a race, an uninitialised read."""


class LinkError(ZtorchError):
    """Compiled code that cannot become a self-contained library."""


class FileError(ZtorchError, OSError):
    """A file that cannot be written."""


class NonFiniteLoss(ZtorchError, ArithmeticError):
    """Training produced a NaN or infinite loss."""


class DeviceError(ZtorchError, RuntimeError):
    """A device that is absent, or a driver call that failed."""


class OutOfMemory(DeviceError):
    """A device has less memory left than was asked for."""


def nearest(name: object, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or nothing.

    >>> nearest("CPU", ["auto", "cpu"])
    "; did you mean 'cpu'?"
    >>> nearest("adma", ["adam", "adamax"])
    "; did you mean 'adam'?"
    """
    import difflib  # only where something went wrong

    folded = {k.lower(): k for k in sorted(known)}
    swapped = [k for k in folded if sorted(k) == sorted(str(name).lower())]  # as typing does
    near = swapped or difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def unknown(kind: str, name: object, known: Iterable[str],
            also: Iterable[str] = ()) -> UnknownName:
    """An UnknownName that suggests the nearest known name; those in `also` are not listed.

    >>> str(unknown("activation", "rellu", ["relu", "tanh"]))
    "unknown activation 'rellu'; did you mean 'relu'? Known: relu, tanh"
    """
    names = sorted(known)
    hint = nearest(name, [*also, *names]) or "."
    return UnknownName(f"unknown {kind} {str(name)!r}{hint} Known: {', '.join(names)}")
