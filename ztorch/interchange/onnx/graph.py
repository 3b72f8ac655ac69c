"""An ONNX graph as a layer: float initializers are its weights, and calls import its nodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ztorch.dtypes import from_storage
from ztorch.errors import ArtifactError, ConfigError, Unsupported
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Value
from ztorch.interchange.onnx.contents import (
    NodeSpec,
    OnnxFile,
    SizeNumbers,
    StoredCodes,
    batch_of,
)
from ztorch.interchange.onnx.faults import (
    UnsupportedNode,
    all_of,
    outputs_without,
    unsupported,
)
from ztorch.interchange.onnx.formats import FORMATS, CodeFormat
from ztorch.interchange.onnx.node import (
    Coded,
    FloatInitializer,
    LeftOut,
    Node,
    Tensor,
)
from ztorch.interchange.onnx.open_axes import OpenAxes
from ztorch.interchange.onnx.protobuf import Port
from ztorch.interchange.onnx.runner import NodeRunner, present
from ztorch.layers.axes import TRACED
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.real_positions import Padding
from ztorch.layers.symbol import leaves
from ztorch.layers.weight import Weight
from ztorch.real_sizes import real_size


class OnnxGraph(Layer):
    """The nodes of a file between its inputs and outputs.

    Float initializers with at least one axis are weights, named as in the file. Integers,
    single numbers, and arrays with infinities or NaN are constants.
    """

    takes_many = True
    trains_all_floats = False  # whether floats of all dtypes are weights, not only float32
    has_batch = False  # whether the first axis of inputs is the batch
    has_phases = False  # whether training nodes wait for a training step

    def __init__(self, file: OnnxFile, outputs: Sequence[str], sizes: Mapping[str, int],
                 keeps_floats: bool = False, left_out: Collection[str] = (),
                 pads_results: bool = False, **common: Any):
        super().__init__(**common)
        self.file = file
        self.outputs = tuple(outputs)
        self.sizes = dict(sizes)
        self.keeps_floats = keeps_floats
        self.left_out = frozenset(left_out)  # names of inputs
        self.pads_results = pads_results
        self.nodes = _needed(file.nodes, outputs)
        self.stored: dict[str, Weight] = {}
        self.numbers = SizeNumbers()
        self.tensors: dict[str, Any] | None = None  # of the last run; None: not kept

    def call(self, x: Any, context: Context) -> Any:
        """The output; a dict where there are several."""
        return self.by_name(self.run(leaves(x), context))

    def by_name(self, results: Sequence[Value]) -> Any:
        """The only result, or a dict of several results by output names."""
        return results[0] if len(results) == 1 else dict(
            zip(map(plain, self.outputs), results, strict=True))

    def run(self, x: Sequence[Value], context: Context) -> list[Value]:
        """The outputs for these inputs. Raises one Unsupported that lists all missing nodes."""
        runner = NodeRunner(self.file.path, context, partial(self._initial, context),
                            self.keeps_floats, context.training or not self.has_phases,
                            (x[0].shape[0] if self.has_batch else 1) or 1,
                            pads_results=self.pads_results, numbers=self.numbers)
        results: tuple[Tensor | None, ...]
        tensors = self._sources(x, context)
        faults: list[UnsupportedNode] = []
        faulty: set[str] = set()
        for spec in self.nodes:
            try:
                results = runner.results(spec, tensors)
            except Unsupported as error:
                fault = UnsupportedNode(spec, error)
                faults += all_of(fault)
                faulty.update(spec.outputs)
                results = tuple(self._expected(name, x) for name in spec.outputs)
            tensors.update((name, y) for name, y in zip(spec.outputs, results, strict=False)
                           if name)
        if self.tensors is not None:
            self.tensors = tensors
        if faults:
            hint = outputs_without(self.nodes, faulty, [p.name for p in self.file.outputs])
            raise unsupported(self.file.path, faults, sum(spec.size for spec in self.nodes),
                              hint)
        return self._results(tensors, context)

    def _sources(self, x: Sequence[Value], context: Context) -> dict[str, Tensor | LeftOut | None]:
        """The initializers and the inputs by name."""
        initializers = {name: self._initial(context, name, array)
                        for name, array in self.file.arrays.items()}
        inputs = {port.name: self._input(port, v)
                  for port, v in zip(self.file.inputs, x, strict=True)}
        return {**initializers, **inputs, **dict.fromkeys(self.left_out, LeftOut())}

    def _results(self, tensors: Mapping[str, Tensor | LeftOut | None],
                 context: Context) -> list[Value]:
        """The outputs among all tensors."""
        for name in self.outputs:
            if tensors.get(name) is None:
                raise ArtifactError(f"{self.file.path}: no node computes the output {name!r}")
        ends = Node(NodeSpec("", "", "", {}, (), ()),
                    tuple(present(tensors[name]) for name in self.outputs), context,
                    self.keeps_floats)
        return [y.codes if isinstance(y, Coded) else ends.as_value(y) for y in ends.inputs
                if y is not None]

    def _input(self, port: Port, v: Value) -> Tensor:
        return Coded(v, FORMATS[port.format]) if port.format else v

    def _initial(self, context: Context, name: str, stored: np.ndarray | StoredCodes) -> Tensor:
        """A tensor that the file stores."""
        if isinstance(stored, StoredCodes):
            if isinstance(stored.format, CodeFormat):
                return Coded(constant(stored.codes), stored.format)
            array, file_dtype = from_storage(stored.format, stored.codes), stored.format
            if self.keeps_floats and not self.trains_all_floats:
                return constant(array, file_dtype)
        else:
            array, file_dtype = stored, None
        is_constant = self.keeps_floats and array.dtype != np.float32 and not self.trains_all_floats
        if (is_constant or array.dtype.kind != "f" or array.ndim == 0
                or not np.isfinite(array).all()):
            return array

        def read(trainable: bool) -> Value:
            if name not in self.stored:
                weight = self.stored[name] = self.add_weight(name, array.shape, "zeros", trainable)
                weight.value = array
            self.stored[name].trainable &= trainable and name not in self.file.frozen
            value = context.read(self.stored[name])
            return OPS.cast(value, file_dtype or array.dtype) if self.keeps_floats else value

        def write(value: Value) -> None:
            weight = self.stored[name]
            context.write(weight, OPS.cast(value, context.stored(weight).dtype))

        return FloatInitializer(name, array, read, write)

    def _expected(self, name: str, x: Sequence[Value]) -> Tensor | None:
        """A placeholder for the output of an unsupported node, so that later nodes can be checked;
        None where its shape is unknown."""
        port = self.file.infer().get(name)
        if port is None:
            return None
        actual = {n: m for p, v in zip(self.file.inputs, x, strict=True)
                  for n, m in zip(p.dims, v.shape, strict=False) if isinstance(n, str)}
        dims = _shape(port, {**actual, **self.sizes})
        return None if dims is None else leaf("input", name, dims, port.dtype)

    def get_config(self) -> dict[str, Any]:
        """Raises a ConfigError: an imported graph has no config."""
        raise ConfigError(f"layer {self.name!r} is an ONNX graph, which cannot be written to a "
                          "config; keep the file, and load its weights by load_weights")

    def __repr__(self) -> str:
        return f"<OnnxGraph {self.name!r} of {len(self.nodes)} nodes>"


class BatchedGraph(OnnxGraph):
    """The nodes of a file whose inputs have the batch as their first axis.

    If other axes are open, nodes are imported again for each size, because nodes that compute
    shapes then return other numbers. Rows are padded along them if each node masks the padding.

    Inputs and outputs have the dtype of the model. With `keeps_floats`, inputs are cast to the
    dtypes of the file, and outputs back.
    """

    trains_all_floats = has_batch = has_phases = True

    def __init__(self, file: OnnxFile, outputs: Sequence[str], sizes: Mapping[str, int],
                 keeps_floats: bool = False, **common: Any):
        super().__init__(file, outputs, sizes, keeps_floats, **common)
        self.fixed_batch = batch_of(file, sizes)
        self.open_axes: OpenAxes | None = None

    def leave_open(self, axes: OpenAxes) -> None:
        """Leaves the sizes of axes to the compilation of a model."""
        self.open_axes, self.mixes_open_axes = axes, axes.mixes

    def run(self, x: Sequence[Value], context: Context) -> list[Value]:
        """The outputs for these inputs. Raises one Unsupported that lists all missing nodes."""
        if not self.keeps_floats:
            return super().run(x, context)
        rounded = [OPS.cast(v, port.dtype) if port.dtype.is_float and not port.format else v
                   for port, v in zip(self.file.inputs, x, strict=True)]
        return [OPS.cast(y, context.dtype) if y.dtype.is_float else y
                for y in super().run(rounded, context)]

    def call(self, x: Any, context: Context) -> Any:
        """The output; a dict where there are several."""
        inputs = leaves(x)
        if self.open_axes is not None:
            return self.by_name(self._sized(inputs, context, self.open_axes))
        if self.fixed_batch is None or inputs[0].shape[0] == self.fixed_batch:
            return self.by_name(self._of_rows(inputs, context))
        if inputs[0].shape[0] != 1 or context.states.data:
            port = next(p for p in self.file.inputs
                        if self.sizes.get(str(p.dims[0]), p.dims[0]) == self.fixed_batch)
            raise ConfigError(f"{self.file.path} takes batches of {self.fixed_batch}, the first "
                              f"axis of {port.name!r}, not {inputs[0].shape[0]}: compile("
                              f"batch_size={self.fixed_batch}), or export it again with a dynamic "
                              "batch axis")
        # While the model is built, with one example, only shapes matter.
        full_batch = [leaf("input", "x", (self.fixed_batch, *v.shape[1:]), v.dtype) for v in inputs]
        return self.by_name([leaf("input", "y", (1, *y.shape[1:]), y.dtype)
                             for y in self.run(full_batch, context)])

    def _of_rows(self, inputs: Sequence[Value], context: Context) -> list[Value]:
        """The outputs, which must have a row for each row of the inputs."""
        results, batch = self.run(inputs, context), inputs[0].shape[0]
        for name, y in zip(self.outputs, results, strict=True):
            if y.shape[:1] != (batch,):
                raise Unsupported(f"{self.file.path}: the output {name!r} of shape {y.shape} has "
                                  f"no row for each of {batch} in the batch, the first axis of "
                                  "inputs; compile(batch_size=1), or outputs=[...] of others")
        return results

    def _sized(self, inputs: Sequence[Value], context: Context, axes: OpenAxes) -> list[Value]:
        """The outputs for inputs of any sizes; placeholders until sizes are chosen."""
        padding = context.padding
        padded = [padding.of(v) for v in inputs]
        batch = inputs[0].shape[0]
        is_known = context.states.data or any(inputs[k].shape[axis] not in TRACED
                                              for k, axis in axes.names)
        if is_known and not axes.mixes:
            return self._of_rows(inputs, context)
        unpadded_context = replace(context, padding=Padding())
        if is_known:
            results = self._of_rows(inputs, unpadded_context)
        else:
            if not self.stored:  # run once, to create the weights
                self.run([leaf("input", "x", (self.fixed_batch or batch, *shape), v.dtype)
                          for v, shape in zip(inputs, axes.tried, strict=True)], unpadded_context)
            results = [leaf("input", "y", (batch, *(
                y.axes[k].size(inputs) if k in y.axes else n
                for k, n in enumerate(y.shape) if k)), y.dtype) for y in axes.outputs]
            for name, of in axes.multiples.items() if any(padded) else ():
                padding.multiples[name] = math.lcm(padding.multiples.get(name, 1), of)
        for result, y in zip(results, axes.outputs, strict=True):
            masks = {}
            for k, open_axis in y.axes.items():
                if mask := padded[open_axis.source[0]].get(open_axis.source[1]):
                    masks[k] = mask
                    for steps in open_axis.steps:
                        if k in masks:
                            padding.resize(masks, k, steps, max(int(real_size(
                                masks[k].size, [steps])), 1))
            padding.declare(result, masks)
        return results


def plain(name: str) -> str:
    """A name of the file as a name of ours, where '/' separates layers."""
    return name.replace("/", "_")


def _shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A shape in numbers, if all its symbols are known."""
    dims = [n if isinstance(n, int) else sizes.get(n or "") for n in port.dims]
    return None if None in dims else tuple(n for n in dims if n is not None)


def _needed(specs: tuple[NodeSpec, ...], outputs: Sequence[str]) -> tuple[NodeSpec, ...]:
    """The nodes that the outputs need, in order."""
    names, needed = set(outputs), []
    for spec in reversed(specs):
        if any(name in names for name in spec.outputs if name):
            names.update(spec.reads)
            needed.append(spec)
    return tuple(reversed(needed))
