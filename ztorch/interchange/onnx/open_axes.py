"""Axes of inputs whose sizes are chosen when a model is compiled, and the axes of outputs that they
are. Both are known by importing the nodes for sizes that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ztorch.dtypes import DType
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import SizeNumbers
from ztorch.interchange.onnx.filled_up import OTHERS, NodeTrace, fault
from ztorch.layers.real_positions import Padding
from ztorch.real_sizes import Step, real_size

Shape = tuple[int, ...]
InputAxis = tuple[int, int]  # the number of an input, and of its axis; that of the batch is 0

# Pairs of sizes that are tried, until nodes can be imported for both: those of images that are
# halved five times, of short and long texts, of waves.
TRIED = ((64, 96), (224, 256), (16, 24), (8, 12), (4, 6), (512, 640), (2048, 2560), (16000, 16640))
PERIOD = 960  # a size and one that is so much longer leave the same rest for strides up to 6
ODD = (1, 3, 5, 7)  # one axis is so many times as long as another: no half of it is as long


@dataclass(frozen=True)
class OutputAxis:
    """An axis of an output whose size is that of an axis of an input, or follows from it."""

    source: InputAxis
    steps: tuple[Step, ...] = ()

    def size(self, inputs: Sequence[Value]) -> int:
        """The size for these inputs."""
        k, axis = self.source
        return max(int(real_size(inputs[k].shape[axis], self.steps)), 1)


@dataclass(frozen=True)
class OpenOutput:
    """The known properties of an output before sizes are chosen."""

    shape: Shape  # for the sizes that were tried, with the batch
    dtype: DType
    axes: dict[int, OutputAxis]  # its axes whose sizes follow from those of inputs


@dataclass(frozen=True)
class OpenAxes:
    """The open axes of a graph."""

    names: dict[InputAxis, str]  # axes of one name have one size
    tried: list[Shape]  # shapes of rows of inputs for which nodes can be imported
    outputs: list[OpenOutput]
    mixes: str = ""  # why rows may not be filled up along them
    multiples: dict[str, int] = field(default_factory=dict)  # by name: sizes are multiples of it


@dataclass(frozen=True)
class NodeTrial:
    """Imports all nodes for rows of some shapes."""

    path: str  # of the file, for errors
    rows: Sequence[Shape]  # of inputs, with any number for axes that are open
    run: Callable[[Sequence[Shape], Callable[[list[Value]], Padding] | None], NodeTrace]
    sizes: SizeNumbers  # is told which numbers follow sizes

    def plain(self, rows: Sequence[Shape]) -> NodeTrace:
        """The outputs where nothing is filled up."""
        return self.run(rows, None)

    def filled_up(self, names: Mapping[InputAxis, str], rows: Sequence[Shape]) -> NodeTrace:
        """The outputs where rows are filled up along all open axes."""
        def begun(inputs: list[Value]) -> Padding:
            padding = Padding({name: rows[k][axis - 1] for (k, axis), name in names.items()})
            for k, x in enumerate(inputs):
                padding.begin(x, {axis: name for (j, axis), name in names.items() if j == k})
            return padding

        return self.run(rows, begun)


def explored(trial: NodeTrial, names: Mapping[InputAxis, str]) -> OpenAxes:
    """Finds sizes of open axes for which all nodes can be imported, with the outputs for them.

    Where nodes can be imported only if all open axes have one size, they get one name.

    Args:
        trial: Imports the nodes.
        names: The names of open axes.
    """
    several = list(dict.fromkeys(names.values()))
    first: ZtorchError | None = None
    for alike in (True,) if len(several) > len(ODD) else (False, True)[:len(several)]:
        named = dict.fromkeys(names, several[0]) if alike else dict(names)
        for pair in TRIED:
            small, large = (_sized(trial.rows, names, {
                name: size * (1 if alike else ODD[k]) for k, name in enumerate(several)})
                for size in pair)
            try:
                return _explored(trial, named, (small, large))
            except ZtorchError as error:
                if isinstance(error, Unsupported) and str(error) == str(first):
                    raise
                first = first or error
    sizes = ", ".join(f"{name!r}: 128" for name in several)
    raise ConfigError(f"{trial.path} leaves sizes of axes open, and none that was tried fits its "
                      f"nodes; give those that it was exported for: sizes={{{sizes}}}. With "
                      f"{TRIED[0][0]}: {first}")


def _explored(trial: NodeTrial, names: dict[InputAxis, str],
              rows: tuple[list[Shape], list[Shape]]) -> OpenAxes:
    """The known open axes, by sizes that may fit. Nodes are imported for rows that are not
    filled up only where filled ones do not tell all."""
    trial.sizes.change.clear()
    known = _filled(trial, names, rows)
    if isinstance(known, OpenAxes):
        return known
    plain = trial.plain(rows[0]), trial.plain(rows[1])
    if trial.sizes.noted(*(t.numbers for t in plain)):
        known = _filled(trial, names, rows)
    return known if isinstance(known, OpenAxes) else OpenAxes(names, rows[0], [
        OpenOutput(y.shape, y.dtype, _axes_of(y, z, *rows, names))
        for y, z in zip(plain[0].outputs, plain[1].outputs, strict=True)], known)


def _filled(trial: NodeTrial, names: dict[InputAxis, str],
            rows: tuple[list[Shape], list[Shape]]) -> OpenAxes | str:
    """The known open axes with rows that are filled up along them, or why these are not."""
    mixes = OTHERS
    try:
        for short, long in ((1, 0), (1, PERIOD), (8, PERIOD)):
            pair = [_sized(trial.rows, names, {
                name: rows[0][k][axis - 1] * short + more for (k, axis), name in names.items()})
                for more in (0, long)] if long else rows
            first, second = (trial.filled_up(names, sizes) for sizes in pair)
            if trial.sizes.noted(first.numbers, second.numbers):
                first, second = (trial.filled_up(names, sizes) for sizes in pair)
            mixes = fault(first, second)
            if mixes != OTHERS and not first.padding.single:
                break
    except ZtorchError as error:  # such as one of sizes that tables do not have
        return str(error)
    return mixes or OpenAxes(names, rows[0], [OpenOutput(y.shape, y.dtype, {
        k: OutputAxis(next(at for at, name in names.items() if name == mask.axis), mask.steps)
        for k, mask in first.padding.of(y).items()}) for y in first.outputs], "",
        dict(first.padding.multiples))


def _sized(rows: Sequence[Shape], names: Mapping[InputAxis, str],
           sizes: Mapping[str, int]) -> list[Shape]:
    """The shapes with these sizes of open axes."""
    return [tuple(sizes[names[k, axis]] if (k, axis) in names else n
                  for axis, n in enumerate(row, 1)) for k, row in enumerate(rows)]


def _axes_of(y: Value, z: Value, small: Sequence[Shape], large: Sequence[Shape],
             names: Mapping[InputAxis, str]) -> dict[int, OutputAxis]:
    """The axes of an output that are as long as an open axis, for small and for large sizes."""
    axes: dict[int, OutputAxis] = {}
    for k, (n, m) in enumerate(zip(y.shape, z.shape, strict=True)):
        for source, axis in names if k and n != m else ():
            if (n, m) == (small[source][axis - 1], large[source][axis - 1]):
                axes.setdefault(k, OutputAxis((source, axis)))
    return axes
