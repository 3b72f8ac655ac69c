"""Saves models as ONNX files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.errors import ConfigError, Unsupported, WeightsError, ZtorchError, unknown
from ztorch.files.atomic import need_name, write_atomic
from ztorch.graph.op_calls import OpCall, record_calls
from ztorch.graph.value import Value, topological
from ztorch.interchange.onnx import writers as _writers  # noqa: F401 (fills the registries)
from ztorch.interchange.onnx.opset import converted
from ztorch.interchange.onnx.protobuf import Port, packed
from ztorch.interchange.onnx.selection import WriteSelector
from ztorch.interchange.onnx.writer import BATCH, SymbolicAxis, Writer
from ztorch.interchange.onnx.writing import name_output, write_values
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.own_policy import rounding_of
from ztorch.model.open_axes import sizes_of
from ztorch.model.trace import float_dtypes

if TYPE_CHECKING:
    from ztorch.model.model import Model

OPSET = 21  # the version of ONNX's ops that is written
_BATCHES = (104_729, 1_299_709)  # primes: no model has another size that is a multiple of one
# Sizes of open axes, one for each axis; smaller ones for models with a limit.
_OPEN = ((10_007, 14_009, 17_011), (211, 251, 293), (41, 53, 67), (5, 11, 17))
_TRACES = 4  # consecutive sizes: what depends on a remainder, such as padding, differs in one


@checked
def save(model: Model, path: str | os.PathLike[str], *, batch_size: int | None = None,
         weights: Mapping[str, Any] | None = None, dtype: Any = "float32",
         sizes: Any = None, opset: int = OPSET) -> None:
    """Writes the predict function of a model as an ONNX file.

    Initializers have the names of the weights, in the layout of ONNX.

    Args:
        model: A Sequential or a Model.
        path: The file.
        batch_size: The rows of a batch; None: as many as the Inputs declare, or any number.
            Default: `None`.
        weights: Arrays by name, in place of the model's own; `program.weights` fits. Default:
            `None`.
        dtype: "float32" or "float64". Default: `"float32"`.
        sizes: The size of each open axis, by name; None: the file takes any size, the same for all
            rows of a batch, since an ONNX file does not mask padding. Default: `None`.
        opset: The version of ONNX's ops, 13 or later. Versions other than 21 are produced by the
            converter of the package onnx. Default: `21`.

    Raises:
        Unsupported: ONNX lacks ops that the model needs; the message lists them.
        ConfigError: `model` is not a model. Or the package onnx is not installed: pip install
            ztorch[onnx].

    Examples:
        ```python
        zt.onnx.save(model, "digits.onnx", weights=program.weights)
        ```
    """
    from ztorch.model.model import Model

    if not isinstance(model, Model):
        fix = ("pass the model that it was compiled from, and weights=program.weights"
               if hasattr(model, "executable") else "pass a Sequential or a Model")
        raise ConfigError(f"zt.onnx.save takes a model, not {type(model).__name__}; {fix}")
    if not isinstance(weights, Mapping | None):
        raise ConfigError("zt.onnx.save(weights=...) takes arrays by the names of weights, such as "
                          f"program.weights, not a {type(weights).__name__}")
    version = positive("opset", opset)
    need_name(path, "an ONNX file", ".onnx", "name it .onnx")
    data = encode(model, batch_size, weights, dtype, sizes)
    write_atomic(path, data if version == OPSET else
                 converted(data, version, f"model {model.name!r}"))


def encode(model: Model, batch_size: int | None = None, weights: Mapping[str, Any] | None = None,
           dtype: Any = "float32", sizes: Any = None) -> bytes:
    """The bytes of the file; arguments as those of `save`.

    For a file that takes any size, the model is traced with sizes that nothing else has, so that
    multiples of them in a shape stand for that axis. All traces must give the same file.
    """
    states = _states(model, dtype)
    rows = model.declared_batch_size if batch_size is None else positive("batch_size", batch_size)
    fixed = None if model.open_axes and sizes is None else _fixed(model, sizes)
    if rows is not None and fixed is not None:
        return _draft(model, rows, fixed, (), states, weights).packed()
    first_error: ZtorchError | None = None
    for smallest in _OPEN if fixed is None else _OPEN[:1]:
        try:
            draft = _common_draft(model, rows, fixed, smallest, states, weights)
        except OverflowError:  # a count of elements, in a batch that stands for any
            draft = None
        except ZtorchError as error:  # perhaps a limit of the model
            first_error = first_error or error
            continue
        if draft is not None:
            return draft.packed()
        if fixed is not None:
            raise Unsupported(f"model {model.name!r} computes with the number of rows in a batch; "
                              "pass batch_size=, for a file with batches of that size")
    if fixed is not None and first_error is not None:
        raise first_error
    axes = ", ".join(f"{name!r}: 64" for name in model.axis_names)
    reason = first_error or "it computes with their sizes, or with the number of rows"
    raise Unsupported(f"model {model.name!r} cannot be written for any size of its open axes: "
                      f"{reason}; pass sizes={{{axes}}}, for a file with rows of these sizes")


def _states(model: Model, dtype: Any) -> States:
    """The weights of a model for a trace, which must be float32 or float64."""
    d, narrow = float_dtypes(dtype)
    if narrow is not None:
        raise Unsupported(f"dtype={dtype!r}: an ONNX file is written in float32 or float64")
    model.build()
    if any(rounding_of(model, d).own.values()):
        raise Unsupported(f"model {model.name!r} has layers of mixed precision, and an ONNX file "
                          "is written in float32 or float64; leave out their dtype=")
    model.need_memory(4 + 4 * d.bytes)  # the model's own, in the graph, and twice in the file
    return States(d, seed=model.seed, root=model.path)


def _common_draft(model: Model, rows: int | None, fixed: Mapping[str, int] | None,
                  smallest: Sequence[int], states: States,
                  weights: Mapping[str, Any] | None) -> Draft | None:
    """The file that traces for several sizes have in common; None if they differ.

    Args:
        model: The model.
        rows: The rows of a batch; None: any number.
        fixed: The sizes of open axes; None: any sizes.
        smallest: A size for each open axis, from which on sizes are tried.
        states: The weights.
        weights: Arrays by name, in place of the model's own.
    """
    varying = [*([BATCH] if rows is None else []), *(model.axis_names if fixed is None else ())]
    drafts = []
    for k in range(2 if fixed is not None else _TRACES):
        sizes = fixed if fixed is not None else {
            name: size + k for name, size in zip(model.axis_names, smallest, strict=False)}
        drafts.append(_draft(model, rows or _BATCHES[k % 2], sizes, varying, states, weights))
    return drafts[0] if all(drafts[0].same_as(other) for other in drafts[1:]) else None


def _fixed(model: Model, sizes: Any) -> dict[str, int]:
    """The size of each open axis, of which there must be one."""
    choices = sizes_of(model, sizes)
    for name, choice in choices.items():
        if len(choice) > 1:
            raise ConfigError(f"sizes[{name!r}]={choice}: an ONNX file takes one size, or any size "
                              "if sizes= is left out")
    return {name: size for name, [size] in choices.items()}


@dataclass(frozen=True)
class Draft:
    """The contents of a file."""

    name: str
    inputs: list[Port]
    outputs: list[Port]
    writer: Writer

    def same_as(self, other: Draft) -> bool:
        """Whether the files are equal, up to the sizes of outputs."""
        ours, theirs = self.writer.arrays, other.writer.arrays
        return ((self.inputs, [(y.name, len(y.dims), y.dtype) for y in self.outputs],
                 self.writer.nodes, list(ours)) ==
                (other.inputs, [(y.name, len(y.dims), y.dtype) for y in other.outputs],
                 other.writer.nodes, list(theirs))
                and all(a is theirs[name] or np.array_equal(a, theirs[name], equal_nan=True)
                        for name, a in ours.items()))

    def packed(self) -> bytes:
        """The bytes of the file."""
        return packed(self.name, self.writer.nodes, self.inputs, self.outputs, self.writer.arrays,
                      OPSET)


def _draft(model: Model, batch: int, sizes: Mapping[str, int], varying: Sequence[str],
           states: States, weights: Mapping[str, Any] | None) -> Draft:
    """The file for these sizes; those of the axes in `varying` stand for any size."""
    context = Context(states=states)
    x = model.leaves(batch, states.dtype, sizes)
    with record_calls() as calls:
        outputs = model.called(x, context)
    if context.memories:
        keeper = next(iter(context.keepers.values()))
        raise Unsupported(f"layer {keeper.path!r} is stateful, and an ONNX file keeps no "
                          "states between calls; leave stateful=True out, and "
                          "declare the states as inputs and outputs")
    _replace(context, weights or {})
    axis_sizes = {BATCH: batch, **sizes}
    places = {BATCH: (next(iter(x)), 0)} | {name: (key, axis + 1) for key, axes in
                                            model.open_axes.items() for axis, name in axes.items()}
    return drafted(model.name, x, outputs, context, calls, {
        axis_sizes[name]: SymbolicAxis(name, port("x", key), axis)
        for name, (key, axis) in places.items() if name in varying})


def drafted(name: str, x: Mapping[str, Value], outputs: Mapping[str, Value], context: Context,
            calls: Mapping[Value, list[OpCall]],
            open_sizes: Mapping[int, SymbolicAxis] | None = None) -> Draft:
    """The file of a graph from its inputs to its outputs."""
    order = topological(outputs.values())
    uses = Counter(a for v in order for a in v.args) + Counter(outputs.values())
    writer = Writer(open_sizes or {}, checked=frozenset(context.ranges))
    for key, v in x.items():
        writer.record(v, writer.unique(port("x", key)))
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
    """Replaces weights by name. Ignores names that the model lacks, unless it lacks all of them."""
    for name, state in context.states.leaves.items():
        if name in weights:
            array = np.asarray(weights[name])
            if array.shape != state.shape:
                raise WeightsError(f"weight {name!r} has shape {state.shape}, but the array for it "
                                   f"has {array.shape}")
            state.attrs["data"] = array.astype(state.dtype.working)
    if weights and not set(weights) & set(context.states.leaves):
        raise WeightsError(str(unknown("weight", next(iter(weights)), context.states.leaves)))
