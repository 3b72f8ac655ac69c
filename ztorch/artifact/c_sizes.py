"""C functions that take any number of rows, and sequences and images of any size. Each calls the
function of the smallest bucket that fits, and pads its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ztorch.artifact.c_interface import CFunction, CInterface, identifier
from ztorch.real_sizes import OpenAxis, Step
from ztorch.runtime.buckets import Buckets, parse_open_axes, verb_of
from ztorch.runtime.spec import ProgramSpec


@dataclass(frozen=True)
class CAxis:
    """An axis of a row."""

    size: int  # where it does not vary
    name: str = ""  # in C, of the axis of inputs that its size follows; empty: it does not vary
    steps: tuple[Step, ...] = ()  # from the size of that axis to this one's

    @property
    def formula(self) -> str:
        """The size of the caller's array along this axis, for the header."""
        return OpenAxis(f"{self.name}_count", self.steps).formula.replace(
            "//", "/") if self.name else str(self.size)


@dataclass(frozen=True)
class CPort:
    """An input or output of such a function."""

    name: str  # of the argument
    type: str  # of an element, in C
    role: str  # x, y, w, lengths, real; or score: one number
    axis: str  # of lengths: its name in C
    axes: tuple[CAxis, ...]  # of a row, up to the last one whose size varies
    rest: int  # elements of the axes after these
    size: int  # elements in the largest bucket


@dataclass(frozen=True)
class CBucket:
    """A function of a bucket."""

    function: str  # its name in C
    sizes: tuple[tuple[str, int], ...]  # name of the axis in C, and its size here
    arguments: tuple[str, ...]  # names of ports, in its order


@dataclass(frozen=True)
class CChooser:
    """A function that chooses among the functions of several buckets."""

    name: str  # in C
    axes: tuple[str, ...]  # that vary, that of the batch first
    inputs: tuple[CPort, ...]
    outputs: tuple[CPort, ...]
    buckets: tuple[CBucket, ...]  # in the order of the search
    multiples: tuple[tuple[str, int], ...] = ()  # axis in C, the number its sizes are multiples of


def choosers(c: CInterface, spec: ProgramSpec, axes: Mapping[str, tuple[int, ...]],
             open_axes: Mapping[str, str], whole_axes: Sequence[str] = (),
             whole_batches: Sequence[str] = (),
             multiples: Mapping[str, int] | None = None) -> tuple[CChooser, ...]:
    """The functions that choose; none if there is one bucket, whose arrays are never padded.

    Args:
        c: The interface of the library.
        spec: Describes its program.
        axes: The sizes of open axes, by name.
        open_axes: The open axes by port, in the form of the metadata.
        whole_axes: Axes along which rows are never padded: with them, callers choose themselves.
            Default: `()`.
        whole_batches: Functions whose batches are never padded: none chooses among them. Default:
            `()`.
        multiples: By axis, a number that sizes are multiples of. Default: none.
    """
    buckets = Buckets(axes)
    if whole_axes or (len(buckets) == 1 and not open_axes):
        return ()
    names = {axis: "rows" if k == 0 else identifier(axis, "axis") for k, axis in enumerate(axes)}
    by_name = dict(zip(spec.functions, c.functions, strict=True))
    result = []
    for verb in dict.fromkeys(map(verb_of, spec.functions)):
        if verb in whole_batches or buckets.name(verb, min(buckets)) not in by_name:
            continue
        largest, function = by_name[verb], spec.functions[verb]
        inputs = _ports(largest, list(function.inputs), True, names, open_axes)
        outputs = _ports(largest, list(function.outputs), False, names, open_axes)
        members = []
        for sizes in sorted(buckets):
            f = by_name[buckets.name(verb, sizes)]
            accepted = {t.name for t in f.inputs}
            arguments = (*(p.name for p in inputs if p.name in accepted),
                         *(p.name for p in outputs))
            members.append(CBucket(f.name, tuple(zip(names.values(), sizes, strict=True)),
                                   arguments))
        result.append(CChooser(
            f"{largest.name}_any", tuple(names.values()), inputs, outputs, tuple(members),
            tuple((names[axis], of) for axis, of in (multiples or {}).items())))
    return tuple(result)


def _ports(function: CFunction, ports: list[str], into: bool, names: Mapping[str, str],
           open_axes: Mapping[str, str]) -> tuple[CPort, ...]:
    result = []
    for port, t in zip(ports, function.inputs if into else function.outputs, strict=True):
        role, _, part = port.partition("/")
        varying = parse_open_axes(open_axes.get(port, ""))
        dims = [int(n) for n in t.shape[t.shape.find("["):].strip("[]").split("][")
                if n.isdigit()] if "[" in t.shape else []
        count = 1 + max(varying, default=-1)
        row = tuple(CAxis(n, names[varying[k].name], varying[k].steps) if k in varying else CAxis(n)
                    for k, n in enumerate(dims[1:1 + count]))
        if not dims:
            role = "score"
        elif role not in ("x", "y", "w", "lengths", "real"):
            role = "y"
        result.append(CPort(t.name, t.type, role, names[part] if role == "lengths" else "", row,
                            math.prod(dims[1 + count:]), t.size))
    return tuple(result)
