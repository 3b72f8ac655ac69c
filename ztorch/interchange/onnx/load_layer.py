"""Loads the graph in an ONNX file as a layer for tensors of any shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import flag
from ztorch.dtypes import to_storage
from ztorch.errors import ConfigError, unknown
from ztorch.interchange.onnx.contents import OnnxFile, StoredCodes
from ztorch.interchange.onnx.file import read
from ztorch.interchange.onnx.formats import FORMATS
from ztorch.interchange.onnx.graph import OnnxGraph
from ztorch.interchange.onnx.protobuf import Port
from ztorch.layers.layer import Layer


@checked
def load_layer(path: str | os.PathLike[str], *, constants: Mapping[str, Any] | None = None,
               outputs: Sequence[str] | None = None, name: str = "graph",
               pad_results: bool = False) -> Layer:
    """Loads the graph in an ONNX file as a layer for tensors of any shapes, without a batch.

    Floats keep the dtypes of the file. Float32 initializers are weights, others are constants.

    Args:
        path: The file.
        constants: Numbers of inputs that are known now, by name. Inputs that shapes depend on must
            be among them. `None` leaves out an optional input. Default: `None`.
        outputs: The names of outputs to keep, or of other tensors of the file; None: all outputs.
            Default: `None`.
        name: The name of the layer. Default: `"graph"`.
        pad_results: Whether NonMaxSuppression of boxes that depend on the data, which is otherwise
            unsupported, returns as many rows as it can choose, -1 in unused ones. Default: `False`.

    Returns:
        A layer that takes a list of the other inputs, in the order of the file, and returns the
        output, or a dict of several. 4-bit and 8-bit floats and integers of less than 8 bits are
        codes: uint8, or int8 for signed integers.

    Raises:
        ArtifactError: The file is not an ONNX file, or is damaged.
        Unsupported: It has features that ztorch lacks. Nodes that cannot be imported are listed
            when the layer is called, because that depends on shapes.
        ConfigError: There is no such input or output.

    Examples:
        ```python
        layer = zt.onnx.load_layer("resize.onnx", constants={"sizes": np.array([1, 3, 64, 64])})
        y = layer([zt.ones((1, 3, 32, 32))])
        ```
    """
    return layer_of(read(path), constants or {}, outputs, name, flag("pad_results", pad_results))


def layer_of(file: OnnxFile, constants: Mapping[str, Any], outputs: Sequence[str] | None = None,
             name: str = "graph", pad_results: bool = False) -> OnnxGraph:
    """The graph of a file as a layer, with numbers for some of its inputs."""
    names = [port.name for port in file.inputs]
    for key in constants:
        if key not in names:
            raise ConfigError(f"{file.path}: {unknown('input', key, names)}")
    left_out = {key for key, x in constants.items() if x is None}
    arrays = dict(file.arrays)
    arrays.update((port.name, _stored(port, np.asarray(constants[port.name])))
                  for port in file.inputs if port.name in constants.keys() - left_out)
    inputs = tuple(port for port in file.inputs if port.name not in constants)
    changed = replace(file, arrays=arrays, inputs=inputs)
    return OnnxGraph(changed, output_names(file, outputs), {}, keeps_floats=True, left_out=left_out,
                     pads_results=pad_results, name=name)


def _stored(port: Port, array: np.ndarray) -> np.ndarray | StoredCodes:
    """The numbers of an input, as a file would store them."""
    if port.format:
        return StoredCodes(array, FORMATS[port.format])
    if port.dtype.in_numpy:
        return array.astype(port.dtype.numpy)
    return StoredCodes(to_storage(port.dtype, array.astype(np.float32)), port.dtype)


def output_names(file: OnnxFile, requested: Sequence[str] | None) -> list[str]:
    """The names of outputs to keep: those of the file if `requested` is None."""
    names = [p.name for p in file.outputs]
    if isinstance(requested, str):
        requested = [requested]
    if not isinstance(requested, list | tuple | None):
        raise ConfigError(f"outputs={requested!r} must list names of outputs: {', '.join(names)}")
    inner = {name for spec in file.nodes for name in spec.outputs if name}
    for name in requested or ():
        if name not in names and name not in inner:
            raise ConfigError(f"{file.path}: {unknown('output', name, names)}")
    return list(requested or names)
