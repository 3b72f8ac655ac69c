"""Open axes: input axes whose sizes are chosen when a model is compiled, and the output axes that
depend on them. Finds them by importing the nodes for several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ztorch.dtypes import DType
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import SizeNumbers
from ztorch.interchange.onnx.padding_check import OTHER_NODES, NodeTrace, padding_fault
from ztorch.layers.real_positions import Padding
from ztorch.real_sizes import Step, real_size

Shape = tuple[int, ...]
InputAxis = tuple[int, int]  # the number of an input, and of its axis; that of the batch is 0

# Pairs of sizes to try until nodes can be imported for both: images that are halved five times,
# short and long text, and sound.
TRIED = ((64, 96), (224, 256), (16, 24), (8, 12), (4, 6), (512, 640), (2048, 2560), (16000, 16640))
PERIOD = 960  # divisible by strides up to 6, so that sizes this far apart have the same remainder
ODD = (1, 3, 5, 7)  # factors between axes, odd so that no axis is a power of two times another


@dataclass(frozen=True)
class OutputAxis:
    """An axis of an output whose size follows from that of an input axis."""

    source: InputAxis
    steps: tuple[Step, ...] = ()

    def size(self, inputs: Sequence[Value]) -> int:
        """The size for these inputs."""
        k, axis = self.source
        return max(int(real_size(inputs[k].shape[axis], self.steps)), 1)


@dataclass(frozen=True)
class OpenOutput:
    """What is known about an output before sizes are chosen."""

    shape: Shape  # for the sizes that were tried, including the batch
    dtype: DType
    axes: dict[int, OutputAxis]  # its axes whose sizes follow from those of inputs


@dataclass(frozen=True)
class OpenAxes:
    """The open axes of a graph."""

    names: dict[InputAxis, str]  # axes of one name have one size
    tried: list[Shape]  # shapes of rows of inputs for which nodes can be imported
    outputs: list[OpenOutput]
    mixes: str = ""  # why rows may not be padded; empty: they may
    multiples: dict[str, int] = field(default_factory=dict)  # of sizes, by axis name


@dataclass(frozen=True)
class NodeTrial:
    """Imports all nodes for rows of some shapes."""

    path: str  # of the file, for errors
    rows: Sequence[Shape]  # of inputs, with any number for axes that are open
    run: Callable[[Sequence[Shape], Callable[[list[Value]], Padding] | None], NodeTrace]
    sizes: SizeNumbers  # records which integers vary with the sizes

    def plain(self, rows: Sequence[Shape]) -> NodeTrace:
        """The outputs for rows that are not padded."""
        return self.run(rows, None)

    def padded(self, names: Mapping[InputAxis, str], rows: Sequence[Shape]) -> NodeTrace:
        """The outputs for rows that are padded along all open axes."""
        def begin(inputs: list[Value]) -> Padding:
            padding = Padding({name: rows[k][axis - 1] for (k, axis), name in names.items()})
            for k, x in enumerate(inputs):
                padding.begin(x, {axis: name for (j, axis), name in names.items() if j == k})
            return padding

        return self.run(rows, begin)


def explore(trial: NodeTrial, names: Mapping[InputAxis, str]) -> OpenAxes:
    """Finds sizes of open axes for which all nodes can be imported, with the outputs for them.

    Where nodes can be imported only if all open axes have one size, they get one name.

    Args:
        trial: Imports the nodes.
        names: The names of open axes.
    """
    distinct = list(dict.fromkeys(names.values()))
    first_error: ZtorchError | None = None
    for share_name in (True,) if len(distinct) > len(ODD) else (False, True)[:len(distinct)]:
        axis_names = dict.fromkeys(names, distinct[0]) if share_name else dict(names)
        for pair in TRIED:
            small, large = (_sized(trial.rows, names, {
                name: size * (1 if share_name else ODD[k]) for k, name in enumerate(distinct)})
                for size in pair)
            try:
                return _explore_sizes(trial, axis_names, (small, large))
            except ZtorchError as error:
                if isinstance(error, Unsupported) and str(error) == str(first_error):
                    raise
                first_error = first_error or error
    sizes = ", ".join(f"{name!r}: 128" for name in distinct)
    raise ConfigError(f"{trial.path} has open axes, and its nodes accept none of the sizes that "
                      f"were tried; pass the sizes that it was exported for: sizes={{{sizes}}}. "
                      f"The error for {TRIED[0][0]}: {first_error}")


def _explore_sizes(trial: NodeTrial, names: dict[InputAxis, str],
                   rows: tuple[list[Shape], list[Shape]]) -> OpenAxes:
    """The open axes, from two sizes of each. Nodes are imported for rows without padding only if
    padded rows do not tell everything."""
    trial.sizes.varying.clear()
    result = _explore_padded(trial, names, rows)
    if isinstance(result, OpenAxes):
        return result
    plain = trial.plain(rows[0]), trial.plain(rows[1])
    if trial.sizes.record(*(t.numbers for t in plain)):
        result = _explore_padded(trial, names, rows)
    return result if isinstance(result, OpenAxes) else OpenAxes(names, rows[0], [
        OpenOutput(y.shape, y.dtype, _axes_of(y, z, *rows, names))
        for y, z in zip(plain[0].outputs, plain[1].outputs, strict=True)], result)


def _explore_padded(trial: NodeTrial, names: dict[InputAxis, str],
                    rows: tuple[list[Shape], list[Shape]]) -> OpenAxes | str:
    """The open axes if rows may be padded along them, else why they may not."""
    mixes = OTHER_NODES
    try:
        for short, long in ((1, 0), (1, PERIOD), (8, PERIOD)):
            pair = [_sized(trial.rows, names, {
                name: rows[0][k][axis - 1] * short + increase for (k, axis), name in names.items()})
                for increase in (0, long)] if long else rows
            first, second = (trial.padded(names, sizes) for sizes in pair)
            if trial.sizes.record(first.numbers, second.numbers):
                first, second = (trial.padded(names, sizes) for sizes in pair)
            mixes = padding_fault(first, second)
            if mixes != OTHER_NODES and not first.padding.single:
                break
    except ZtorchError as error:  # such as a size that a table does not have
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
