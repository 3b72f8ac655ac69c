"""Axes of inputs whose sizes are chosen when a model is compiled, and the axes of outputs that they
are. Both are found by importing the nodes for sizes that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.graph.value import Value

Shape = tuple[int, ...]
InputAxis = tuple[int, int]  # the number of an input, and of its axis; that of the batch is 0

# Pairs of sizes that are tried, until nodes can be imported for both: those of images that are
# halved five times, of short and long texts, of waves.
TRIED = ((64, 96), (224, 256), (16, 24), (8, 12), (4, 6), (512, 640), (2048, 2560), (16000, 16640))
ODD = (1, 3, 5, 7)  # one axis is so many times as long as another: no half of it is as long


@dataclass(frozen=True)
class OpenOutput:
    """What is known of an output before sizes are chosen."""

    shape: Shape  # for the sizes that were tried, with the batch
    dtype: DType
    axes: dict[int, InputAxis]  # its axes that are axes of inputs


@dataclass(frozen=True)
class OpenAxes:
    """The open axes of a graph."""

    names: dict[InputAxis, str]  # axes of one name have one size
    tried: list[Shape]  # shapes of rows of inputs for which nodes can be imported
    outputs: list[OpenOutput]


def explored(path: str, rows: Sequence[Shape], names: Mapping[InputAxis, str],
             run: Callable[[Sequence[Shape]], list[Value]]) -> OpenAxes:
    """Finds sizes of open axes for which all nodes can be imported, and what outputs are then.

    Where nodes can be imported only if all open axes have one size, they get one name.

    Args:
        path: The file, for errors.
        rows: The shapes of rows of inputs, with any number for axes that are open.
        names: The names of these.
        run: Imports all nodes for rows of these shapes.
    """
    several = list(dict.fromkeys(names.values()))
    first: ZtorchError | None = None
    for alike in (True,) if len(several) > len(ODD) else (False, True)[:len(several)]:
        for pair in TRIED:
            try:
                small, large = (_sized(rows, names, {
                    name: size * (1 if alike else ODD[k]) for k, name in enumerate(several)})
                    for size in pair)
                before, after = run(small), run(large)
            except ZtorchError as error:
                if isinstance(error, Unsupported) and str(error) == str(first):
                    raise
                first = first or error
                continue
            named = dict.fromkeys(names, several[0]) if alike else dict(names)
            return OpenAxes(named, small, [
                OpenOutput(y.shape, y.dtype, _axes_of(y, z, small, large, named))
                for y, z in zip(before, after, strict=True)])
    sizes = ", ".join(f"{name!r}: 128" for name in several)
    raise ConfigError(f"{path} leaves sizes of axes open, and none that was tried fits its nodes; "
                      f"give those that it was exported for: sizes={{{sizes}}}. With "
                      f"{TRIED[0][0]}: {first}")


def _sized(rows: Sequence[Shape], names: Mapping[InputAxis, str],
           sizes: Mapping[str, int]) -> list[Shape]:
    """The shapes with these sizes of open axes."""
    return [tuple(sizes[names[k, axis]] if (k, axis) in names else n
                  for axis, n in enumerate(row, 1)) for k, row in enumerate(rows)]


def _axes_of(y: Value, z: Value, small: Sequence[Shape], large: Sequence[Shape],
             names: Mapping[InputAxis, str]) -> dict[int, InputAxis]:
    """The axes of an output that are as long as an open axis, for small and for large sizes."""
    axes: dict[int, InputAxis] = {}
    for k, (n, m) in enumerate(zip(y.shape, z.shape, strict=True)):
        for source, axis in names if k and n != m else ():
            if (n, m) == (small[source][axis - 1], large[source][axis - 1]):
                axes.setdefault(k, (source, axis))
    return axes
