"""All exceptions that ztorch raises on purpose. Each message names the culprit and a fix."""

from __future__ import annotations

from collections.abc import Iterable


class ZtorchError(Exception):
    """Base class of all errors of ztorch."""


class ShapeError(ZtorchError, ValueError):
    """Shapes or dtypes do not fit together."""


class UnknownName(ZtorchError, ValueError):
    """A name (of a layer, loss, device, ...) does not exist."""


class ConfigError(ZtorchError, ValueError):
    """An argument has an impossible value, such as a batch size of zero."""


class DataError(ZtorchError, ValueError):
    """Data does not fit the program that it is given to."""


class WeightsError(ZtorchError, ValueError):
    """Weights belong to another model, or a file of weights is damaged."""


class ArtifactError(ZtorchError, ValueError):
    """An artifact is damaged, truncated, malicious or of a newer version."""


class Unsupported(ZtorchError, NotImplementedError):
    """A backend cannot do this; the message names backend, op and dtype."""


class VerifyError(ZtorchError):
    """A kernel breaks a rule of the IR."""


class InterpretError(VerifyError):
    """A kernel broke a rule while it ran: an index out of bounds, a race, an uninitialised read."""


class LinkError(ZtorchError):
    """Compiled code cannot become a self-contained library."""


class FileError(ZtorchError, OSError):
    """A file cannot be written."""


class KernelError(ZtorchError, ValueError):
    """A kernel written in Python cannot be compiled; the message shows the line of the source."""


class NonFiniteLoss(ZtorchError, ArithmeticError):
    """Training produced a NaN or infinite loss."""


class DeviceError(ZtorchError, RuntimeError):
    """A device is absent, or a call of its driver failed."""


class OutOfMemory(DeviceError):
    """A device has too little free memory."""


VAGUE = 0.7  # names less alike than this are hardly the same word
MOST_LISTED = 8  # names in an error: more are not read


def nearest(name: object, known: Iterable[str], likeness: float = 0.5) -> str:
    """A suggestion to append to a message; empty if no name is near.

    Args:
        name: The name that is not known.
        known: The names that may be meant.
        likeness: How much of two names must agree, from 0 to 1. Default: `0.5`.

    >>> nearest("CPU", ["auto", "cpu"])
    "; did you mean 'cpu'?"
    >>> nearest("adma", ["adam", "adamax"])
    "; did you mean 'adam'?"
    >>> nearest("conv", ["Conv1D", "Conv2D", "Dense"])
    "; did you mean 'Conv1D' or 'Conv2D'?"
    >>> nearest("exponential", ["exp", "percentile"])
    "; did you mean 'exp'?"
    """
    import difflib  # slow to import, and only needed for errors

    if str(name).startswith("_"):  # Python and its tools ask objects for these
        return ""
    folded = {k.lower(): k for k in sorted(known)}
    # letters in another order are the most common typing error
    swapped = [k for k in folded if sorted(k) == sorted(str(name).lower())]
    near = swapped[:1] or difflib.get_close_matches(str(name).lower(), folded, n=3, cutoff=likeness)
    best = [k for k in near if agreement(k, name) == agreement(near[0], name)]
    if not near or agreement(near[0], name) < VAGUE:  # a short name may be written out
        near = best = sorted((k for k in folded if len(k) >= 3 and str(name).lower().startswith(k)),
                             key=len)[-1:] or best
    shown = " or ".join(repr(folded[k]) for k in sorted(best))
    return f"; did you mean {shown}?" if near else ""


def agreement(known: str, name: object) -> float:
    """How much of two names agrees, from 0 to 1."""
    import difflib

    return difflib.SequenceMatcher(None, known.lower(), str(name).lower()).ratio()


def unknown(kind: str, name: object, known: Iterable[str],
            also: Iterable[str] = ()) -> UnknownName:
    """An UnknownName that lists the known names, of many the eight nearest, and suggests one.

    Names in `also` may be suggested too, but are not listed. The error for a name that another
    library has for one of them gives the name here.

    >>> str(unknown("activation", "rellu", ["relu", "tanh"]))
    "unknown activation 'rellu'; did you mean 'relu'? Known: relu, tanh"
    """
    names = sorted(known)
    from ztorch.other_names import OTHER_NAMES  # only now: services start without it

    other_name = OTHER_NAMES.get(kind, {}).get(str(name).lower())
    hint = f"; here it is {other_name}." if other_name else nearest(name, [*also, *names]) or "."
    more = ""
    if len(names) > MOST_LISTED:
        more = f" and {len(names) - MOST_LISTED} more"
        names = sorted(names, key=lambda n: -agreement(n, name))[:MOST_LISTED]
    return UnknownName(f"unknown {kind} {str(name)!r}{hint} Known: {', '.join(names)}{more}")
