"""The exceptions that ztorch raises. Each message names the cause and a fix."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONG_WORD = re.compile(r"(\S{100})\S{300,}")  # no path or name is as long


class ZtorchError(Exception):
    """Base class of all ztorch errors."""

    def __init__(self, *arguments: object):
        # A damaged file can put a word of any length into a message.
        super().__init__(*(_LONG_WORD.sub(r"\1...", a) if isinstance(a, str) else a
                           for a in arguments))


class ShapeError(ZtorchError, ValueError):
    """Shapes or dtypes do not fit together."""


class UnknownName(ZtorchError, ValueError):
    """A name (of a layer, loss, device, ...) does not exist."""


class ConfigError(ZtorchError, ValueError):
    """An argument has an invalid value, such as a batch size of zero."""


class DataError(ZtorchError, ValueError):
    """Data does not fit the program."""


class WeightsError(ZtorchError, ValueError):
    """Weights belong to another model, or a file of weights is damaged."""


class ArtifactError(ZtorchError, ValueError):
    """An artifact is damaged, truncated, malicious or from a newer version."""


class Unsupported(ZtorchError, NotImplementedError):
    """A backend cannot do this; the message names backend, op and dtype."""


class VerifyError(ZtorchError):
    """A kernel breaks a rule of the IR."""


class InterpretError(VerifyError):
    """A kernel broke a rule while it ran: an index out of bounds, a race, an uninitialized read."""


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


_OF_OPTIMIZER = "one of the optimizer: optimizer=zt.optimizers.Adam(learning_rate=0.001)"
VAGUE = 0.7  # names less alike than this are probably unrelated
MOST_LISTED = 8  # names in an error; nobody reads more


def nearest(name: object, known: Iterable[str], likeness: float = 0.5) -> str:
    """A suggestion to append to a message; empty if no name is similar.

    Args:
        name: The unknown name.
        known: The possible names.
        likeness: The least agreement of two names, from 0 to 1. Default: `0.5`.

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

    if str(name).startswith("_"):  # attributes that Python and its tools look up
        return ""
    folded = {k.lower(): k for k in sorted(known)}
    # swapped letters are the most common typing error
    swapped = [k for k in folded if sorted(k) == sorted(str(name).lower())]
    near = swapped[:1] or difflib.get_close_matches(str(name).lower(), folded, n=3, cutoff=likeness)
    best = [k for k in near if agreement(k, name) == agreement(near[0], name)]
    if not near or agreement(near[0], name) < VAGUE:  # an abbreviation may be meant
        near = best = sorted((k for k in folded if len(k) >= 3 and str(name).lower().startswith(k)),
                             key=len)[-1:] or best
    if not near and len(str(name)) >= 4:  # a long name may be cut short
        near = best = [k for k in folded if k.startswith(str(name).lower())][:1]
    shown = " or ".join(repr(folded[k]) for k in sorted(best))
    return f"; did you mean {shown}?" if near else ""


def agreement(known: str, name: object) -> float:
    """How much two names agree, from 0 to 1."""
    import difflib

    return difflib.SequenceMatcher(None, known.lower(), str(name).lower()).ratio()


def unknown(kind: str, name: object, known: Iterable[str],
            also: Iterable[str] = ()) -> UnknownName:
    """An UnknownName that lists the known names (the eight nearest of many) and suggests one.

    Names in `also` may be suggested, but are not listed. If `name` is another library's name for a
    known one, the error says so.

    >>> str(unknown("activation", "rellu", ["relu", "tanh"]))
    "unknown activation 'rellu'; did you mean 'relu'? Known: relu, tanh"
    """
    names = sorted(known)
    from ztorch.names.other_names import OTHER_NAMES  # imported late: services start without it

    family = "argument" if kind.startswith("argument of ") else kind
    other_name = OTHER_NAMES.get(family, {}).get(str(name).lower())
    if family == "argument" and other_name not in names:
        other_name = _OF_OPTIMIZER if other_name == "learning_rate" and "optimizer" in names else ""
    hint = f"; here it is {other_name}." if other_name else nearest(name, [*also, *names]) or "."
    more = ""
    if len(names) > MOST_LISTED:
        more = f" and {len(names) - MOST_LISTED} more"
        names = sorted(names, key=lambda n: -agreement(n, name))[:MOST_LISTED]
    return UnknownName(f"unknown {kind} {str(name)!r}{hint} Known: {', '.join(names)}{more}")
