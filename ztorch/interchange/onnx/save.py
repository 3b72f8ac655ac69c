"""Writes models as ONNX files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.errors import ConfigError, Unsupported, WeightsError, unknown
from ztorch.files.atomic import write_atomic
from ztorch.graph.op import OpCall, remember_calls
from ztorch.graph.value import Value, topological
from ztorch.interchange.onnx import writers as _writers  # noqa: F401 (fills the registries)
from ztorch.interchange.onnx.protobuf import Port, converted, packed
from ztorch.interchange.onnx.selection import WriteSelector
from ztorch.interchange.onnx.writer import Writer
from ztorch.interchange.onnx.writing import name_output, write_values
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.model.trace import float_dtypes, sizes_of

if TYPE_CHECKING:
    from ztorch.model.model import Model

OPSET = 21  # the version of ONNX's ops that is written
_BATCHES = (104_729, 1_299_709)  # primes that are no other size in a model


@checked
def save(model: Model, path: str | os.PathLike[str], *, batch_size: int | None = None,
         weights: Mapping[str, Any] | None = None, dtype: Any = "float32",
         sizes: Any = None, opset: int = OPSET) -> None:
    """Writes what a model predicts as an ONNX file.

    Initializers have the names of the weights, in the layout of ONNX.

    Args:
        model: A Sequential or a Model.
        path: The file.
        batch_size: The rows of a batch; None: the file takes any number. Default: `None`.
        weights: Arrays by name, in place of the model's own; `program.weights` fits. Default:
            `None`.
        dtype: "float32" or "float64". Default: `"float32"`.
        sizes: The size of each axis that an Input leaves open, by name: all rows of the file have
            it. Default: `None`.
        opset: The version of ONNX's ops. Others than 21 are what the converter of the package onnx
            makes of it. Default: `21`.

    Raises:
        Unsupported: ONNX lacks something that the model computes; the message lists all of it.
        ConfigError: `model` is no model. Or the package onnx is not installed: pip install
            ztorch[onnx].

    Examples:
        ```python
        zt.onnx.save(model, "digits.onnx", weights=program.weights)
        ```
    """
    from ztorch.model.model import Model

    if not isinstance(model, Model):
        fix = ("give the model that it was compiled from, and weights=program.weights"
               if hasattr(model, "executable") else "give a Sequential or a Model")
        raise ConfigError(f"zt.onnx.save takes a model, not {type(model).__name__}; {fix}")
    if not isinstance(weights, Mapping | None):
        raise ConfigError("zt.onnx.save(weights=...) takes arrays by the names of weights, such as "
                          f"program.weights, not a {type(weights).__name__}")
    version = positive("opset", opset)
    data = encode(model, batch_size, weights, dtype, sizes)
    write_atomic(path, data if version == OPSET else
                 converted(data, version, f"model {model.name!r}"))


def encode(model: Model, batch_size: int | None = None, weights: Mapping[str, Any] | None = None,
           dtype: Any = "float32", sizes: Any = None) -> bytes:
    """The bytes of the file; arguments as those of `save`.

    For any batch size, the model is traced with two sizes that nothing else has. A multiple of the
    size in a shape means the batch. Both traces must give the same file.
    """
    d, narrow = float_dtypes(dtype)
    if narrow is not None:
        raise Unsupported(f"dtype={dtype!r}: an ONNX file is written in float32 or float64")
    model.build()
    model.need_memory(4 + 4 * d.bytes)  # the model's own, in the graph, and twice in the file
    states = States(d, seed=model.seed, root=model.path)
    fixed = _fixed(model, sizes)
    if batch_size is not None:
        rows = positive("batch_size", batch_size)
        return _draft(model, rows, False, states, weights, fixed).packed()
    first, second = (_draft(model, size, True, states, weights, fixed) for size in _BATCHES)
    if not first.same_as(second):
        raise Unsupported(f"model {model.name!r} computes with the number of rows in a batch; "
                          "give batch_size=, and the file is for batches of that size")
    return first.packed()


def _fixed(model: Model, sizes: Any) -> dict[str, int]:
    """The one size of each axis that Inputs leave open."""
    if model.open_axes and sizes is None:
        axes = ", ".join(f"{name!r}: 64" for name in model.axis_names)
        raise Unsupported(f"all rows of an ONNX file have one size, and model {model.name!r} "
                          f"leaves axes open; say them: sizes={{{axes}}}")
    choices = sizes_of(model, sizes)
    for name, choice in choices.items():
        if len(choice) > 1:
            raise ConfigError(f"sizes[{name!r}]={choice}: all rows of an ONNX file have one size; "
                              "write a file for each, or a .zt")
    return {name: size for name, [size] in choices.items()}


@dataclass(frozen=True)
class Draft:
    """The contents of a file."""

    name: str
    inputs: list[Port]
    outputs: list[Port]
    writer: Writer

    def same_as(self, other: Draft) -> bool:
        ours, theirs = self.writer.arrays, other.writer.arrays
        return ((self.inputs, self.outputs, self.writer.nodes, list(ours)) ==
                (other.inputs, other.outputs, other.writer.nodes, list(theirs))
                and all(a is theirs[name] or np.array_equal(a, theirs[name], equal_nan=True)
                        for name, a in ours.items()))

    def packed(self) -> bytes:
        return packed(self.name, self.writer.nodes, self.inputs, self.outputs, self.writer.arrays,
                      OPSET)


def _draft(model: Model, batch: int, symbolic: bool, states: States,
           weights: Mapping[str, Any] | None, sizes: Mapping[str, int]) -> Draft:
    context = Context(states=states)
    x = model.leaves(batch, states.dtype, sizes)
    with remember_calls() as calls:
        outputs = model.called(x, context)
    if context.memories:
        keeper = next(iter(context.keepers.values()))
        raise Unsupported(f"layer {keeper.path!r} is stateful, and an ONNX file has no "
                          "states from call to call; leave stateful=True out, and "
                          "declare the states as inputs and outputs")
    _replace(context, weights or {})
    return drafted(model.name, x, outputs, context, calls, batch if symbolic else 0)


def drafted(name: str, x: Mapping[str, Value], outputs: Mapping[str, Value], context: Context,
            calls: Mapping[Value, list[OpCall]], batch: int = 0) -> Draft:
    """The file of a graph from its inputs to its outputs."""
    order = topological(outputs.values())
    uses = Counter(a for v in order for a in v.args) + Counter(outputs.values())
    writer = Writer(batch, checked=frozenset(context.ranges))
    for key, v in x.items():
        writer.source = writer.unique(port("x", key))
        writer.give(v, writer.source)
    for key in outputs:
        writer.unique(port("y", key))
    write_values(writer, WriteSelector(context, calls, uses), list(outputs.values()))
    for key, v in outputs.items():
        name_output(writer, v, port("y", key))
    return Draft(name,
                 [Port(port("x", key), writer.dims(v.shape), v.dtype) for key, v in x.items()],
                 [Port(port("y", key), writer.dims(v.shape), v.dtype)
                  for key, v in outputs.items()], writer)


def _replace(context: Context, weights: Mapping[str, Any]) -> None:
    """Replaces states by name. Names that the model lacks are ignored, unless all are."""
    for name, state in context.states.leaves.items():
        if name in weights:
            array = np.asarray(weights[name])
            if array.shape != state.shape:
                raise WeightsError(f"weight {name!r} has shape {state.shape}, the given array "
                                   f"{array.shape}")
            state.attrs["data"] = array.astype(state.dtype.working)
    if weights and not set(weights) & set(context.states.leaves):
        raise WeightsError(str(unknown("weight", next(iter(weights)), context.states.leaves)))
