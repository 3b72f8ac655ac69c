"""Loads the model in an ONNX file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ztorch.arguments import checked
from ztorch.config import flag, positive
from ztorch.errors import ArtifactError, ConfigError, ShapeError, Unsupported, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import OnnxFile
from ztorch.interchange.onnx.file import read
from ztorch.interchange.onnx.graph import BatchedGraph, plain
from ztorch.interchange.onnx.load_layer import output_names
from ztorch.interchange.onnx.open_axes import InputAxis, NodeTrial, explore
from ztorch.interchange.onnx.padding_check import NodeTrace
from ztorch.interchange.onnx.protobuf import Port
from ztorch.layers.axes import OpenSize, named_axes
from ztorch.layers.context import Context, States
from ztorch.layers.core import Input
from ztorch.layers.naming import checked_name
from ztorch.layers.real_positions import Padding
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential

MANY_ROWS = 64  # rows of a batch that is tried where nodes do not accept one row


@checked
def load(path: str | os.PathLike[str], *, sizes: Mapping[str, int] | None = None,
         outputs: Sequence[str] | None = None, name: str | None = None,
         keep_dtypes: bool = False) -> Model:
    """Loads the model in an ONNX file. It compiles, predicts and trains like any other.

    Float initializers become weights, named `graph/` and their name in the file. The first axis of
    each input is the batch; `compile` gives its size, unless the file fixes it.

    Args:
        path: The file.
        sizes: Sizes of other symbolic axes, by name, such as {"sequence": 128}. Axes without a
            size here stay open; `compile(sizes=...)` or the data set their sizes. Default: `None`.
        outputs: The names of outputs to keep, or of other tensors of the file; None: all outputs.
            Default: `None`.
        name: The name of the model; None: that of the file. Default: `None`.
        keep_dtypes: Whether to compute in the float dtypes of the file, such as float16, rather
            than in the dtype of `compile`. Weights, inputs and outputs have the dtype of `compile`
            in both cases. Default: `False`.

    Returns:
        A Sequential for one input and one output, else a Model.

    Raises:
        ArtifactError: The file is not an ONNX file, or is damaged.
        Unsupported: It has nodes that ztorch cannot import; the message lists all of them.
        ConfigError: There is no such output, or no size of an open axis fits the nodes. Or the
            package onnx is not installed: pip install ztorch[onnx].

    Examples:
        ```python
        model = zt.onnx.load("resnet.onnx")
        program = model.compile(batch_size=1)
        ```
    """
    return model_of(read(path), sizes, outputs, name, keep_dtypes)


def model_of(file: OnnxFile, sizes: Mapping[str, int] | None = None,
             outputs: Sequence[str] | None = None, name: str | None = None,
             keep_dtypes: bool = False) -> Model:
    """The graph of a file as a model. Arguments as in `load`."""
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ConfigError(f"sizes={sizes!r} must give sizes by the names of axes: "
                          "sizes={'sequence': 128}")
    fixed_sizes = {n: positive(f"sizes[{n!r}]", size) for n, size in (sizes or {}).items()}
    if not file.inputs:
        raise Unsupported(f"{file.path} has no inputs; ztorch imports models that have some")
    graph = BatchedGraph(file, output_names(file, outputs), fixed_sizes,
                         flag("keep_dtypes", keep_dtypes), name="graph")
    rows = [_row(file.path, port, fixed_sizes) for port in file.inputs]
    if names := _open_names(file, rows):
        trial = NodeTrial(file.path, rows, partial(_traced, graph), graph.numbers)
        graph.tensors = {}
        graph.leave_open(axes := explore(trial, names))
        graph.tensors = None
        rows = [tuple(OpenSize(axes.names[k, a]) if (k, a) in names else n
                      for a, n in enumerate(row, 1)) for k, row in enumerate(rows)]
    else:
        _imported(graph, rows)
    model_name = name or _name(file.path)
    inputs = [Input(row, None if port.dtype.is_float else port.dtype.long, name=plain(port.name),
                    batch_size=graph.fixed_batch)
              for port, row in zip(file.inputs, rows, strict=True)]
    x = inputs[0] if len(inputs) == 1 else inputs
    one_each = len(inputs) == len(graph.outputs) == 1
    model: Model = Sequential([inputs[0], graph], name=model_name) if one_each else Model(
        x, graph(x), name=model_name)
    model.build()
    return model


def _row(path: str, source: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of one row of an input; axes without a size are open."""
    shape: list[int] = []
    for axis, n in enumerate(source.dims[1:], 1):
        size = n if isinstance(n, int) else sizes.get(n or "")
        shape.append(OpenSize(_axis_name(str(n or ""))) if size is None else
                     positive(f"{path}: axis {axis} of the input {source.name!r}", size))
    return tuple(shape)


def _axis_name(name: str) -> str | None:
    """The name of an axis, without characters that ours may not have; None for an empty name."""
    cleaned = "".join("_" if c in "/@," else c for c in name if c.isprintable())
    return "batch axis" if cleaned == "batch" else cleaned or None


def _open_names(file: OnnxFile, rows: Sequence[tuple[int, ...]]) -> dict[InputAxis, str]:
    """The names of all open axes."""
    return {(k, axis + 1): name for k, (port, row) in enumerate(zip(file.inputs, rows, strict=True))
            for axis, name in named_axes(row, plain(port.name) if len(rows) > 1 else "").items()}


def _traced(graph: BatchedGraph, rows: Sequence[tuple[int, ...]],
            begin: Callable[[list[Value]], Padding] | None) -> NodeTrace:
    """The outputs for two padded rows; for one that is not padded, where `begin` is None."""
    batch = graph.fixed_batch or (1 if begin is None else 2)
    context = Context(states=States(data=False))
    outputs = _imported(graph, rows, batch, context, begin)
    return NodeTrace(outputs, context.padding, graph.tensors or {}, graph.nodes)


def _imported(graph: BatchedGraph, rows: Sequence[tuple[int, ...]], batch: int = 0,
              context: Context | None = None,
              begin: Callable[[list[Value]], Padding] | None = None) -> list[Value]:
    """The outputs for a batch of such rows: of one row, or as many as the file fixes.
    Raises one Unsupported for all nodes that cannot be imported."""
    batch, path = batch or graph.fixed_batch or 1, graph.file.path
    context = context or Context(states=States(data=False))
    x = [leaf("input", port.name, (batch, *row), "float32" if port.dtype.is_float else port.dtype)
         for port, row in zip(graph.file.inputs, rows, strict=True)]
    if begin is not None:
        context.padding = begin(x)
    graph.own_weights.clear()
    graph.stored.clear()
    try:
        results = graph.run(x, context)
    except (ArtifactError, ShapeError) as error:
        if graph.fixed_batch:
            raise
        if batch < MANY_ROWS and _accepts_many_rows(graph, rows, begin):
            raise _needs_many_rows(graph.file, error) from error
        if isinstance(error, ArtifactError):
            raise
        raise ShapeError(f"{error}. The batch, the first axis of each input, has one row "
                         f"here; {graph.file.without_batch} takes inputs without a "
                         "batch") from error
    for name, y in zip(graph.outputs, results, strict=True):
        if y.shape[:1] != (batch,):
            raise Unsupported(f"{path}: the output {name!r} of shape {y.shape} has no row for "
                              f"each of {batch} in the batch, the first axis of inputs; outputs="
                              f"[...] of others leaves it out, and {graph.file.without_batch} "
                              "takes inputs without a batch")
        for declared in graph.file.outputs:
            if declared.name == name:
                _warn_if_shape_differs(path, declared, y.shape)
    return results


def _accepts_many_rows(graph: BatchedGraph, rows: Sequence[tuple[int, ...]],
                       begin: Callable[[list[Value]], Padding] | None) -> bool:
    """Whether the nodes accept a batch of many rows."""
    try:
        _imported(graph, rows, MANY_ROWS, begin=begin)
    except ZtorchError:
        return False
    return True


def _needs_many_rows(file: OnnxFile, error: ZtorchError) -> Unsupported:
    """The error for nodes that raise `error` for one row, and none for many."""
    axis = file.inputs[0].dims[0]
    size = f"sizes={{{axis!r}: {MANY_ROWS}}}" if axis else "a number in the file"
    return Unsupported(f"{error}. The nodes accept {MANY_ROWS} rows but not one, as where "
                       f"x[1] is read, and a batch may have any size; {size} fixes it")


def _warn_if_shape_differs(path: str, declared: Port, shape: tuple[int, ...]) -> None:
    """Warns if the file declares another shape for an output than its nodes compute."""
    differs = len(declared.dims) != len(shape) or any(
        isinstance(n, int) and n != m
        for n, m in zip(declared.dims[1:], shape[1:], strict=False))
    if declared.dims and differs:
        declared_shape = tuple("?" if n is None else n for n in declared.dims)
        warnings.warn(f"{path}: the output {declared.name!r} is declared with shape "
                      f"{declared_shape}, but its nodes compute {('batch', *shape[1:])}, which is "
                      "used", stacklevel=2)


def _name(path: str | os.PathLike[str]) -> str:
    """A name for the model: that of the file, if valid."""
    stem = Path(path).stem
    try:
        return checked_name(stem, "model")
    except ConfigError:
        return "onnx"
