"""Calls programs and functions from files on tensors: `program.predict(tensor)` reads and writes
the tensors' memory, so no data leave the device."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arrays.elements import moved, node_from, node_of_array
from ztorch.arrays.memory import memory, place_of
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.placement import memory_of
from ztorch.arrays.port_tensors import conditions, fitted_tensor, parts_by_port
from ztorch.arrays.realize import realize
from ztorch.arrays.specs import spec
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.dtypes import i32
from ztorch.errors import DataError, Unsupported
from ztorch.runtime.buckets import parse_open_axes
from ztorch.runtime.spec import ARGUMENT, CALL

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import LoadedProgram, MemoryCall

_calls: weakref.WeakKeyDictionary[LoadedProgram, dict[str, MemoryCall]] = (
    weakref.WeakKeyDictionary())


def predict(program: Any, x: Any) -> dict[str, Tensor]:
    """The outputs of a program by port, for tensors; see `Predictor.predict`."""
    running = program.executable
    place = memory_of(program.device)
    columns = _columns(program.adapter, x, place)
    rows, batch = len(next(iter(columns.values()))), program.batch_size
    program.adapter.need_whole_batches(rows, batch)
    sizes = _sizes(program.adapter, columns)
    parts = [_batch(_call(running, program.buckets.function(
        "predict", (min(batch, rows - k), *sizes.values()))),
                    {port: column[k:k + batch] for port, column in columns.items()}, sizes,
                    program.metadata.open_axes, place)
             for k in range(0, rows, batch)]
    if len(parts) == 1:
        return parts[0]
    return {port: compute("concat", tuple(part[port] for part in parts), {"axis": 0})
            for port in parts[0]}


def call_function(running: LoadedProgram, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The outputs of a function from a file by port, for tensors and arrays by port."""
    place = memory_of(running.device)
    call = _call(running, CALL)
    inputs = []
    for port, t in call.function.inputs.items():
        node = node_from(arguments[port], None, place, copy=False)
        label = f"{running.name}: argument {port.removeprefix(ARGUMENT)!r}"
        if node.spec.shape != t.shape:
            raise DataError(f"{label} has shape {node.spec.shape}; this function takes {t.shape}")
        inputs.append(node if node.spec.dtype is t.dtype else
                      tensor_of(node).astype(t.dtype).node)
    return {port: tensor_of(n) for port, n in _outputs(call, inputs, place).items()}


def _outputs(call: MemoryCall, inputs: Sequence[TensorNode], place: str) -> dict[str, TensorNode]:
    """The outputs of a native call by port, for nodes in its memory."""
    realize(inputs)
    pool = memory(place)
    outputs = {port: computed(spec(t.shape, t.dtype, place), pool.alloc(t.nbytes))
               for port, t in call.function.outputs.items()}
    call([place_of(n.block) for n in inputs if n.block is not None],
         [place_of(n.block) for n in outputs.values() if n.block is not None])
    return outputs


def _call(running: LoadedProgram, function: str) -> MemoryCall:
    calls = _calls.setdefault(running, {})
    if function not in calls:
        calls[function] = running.bind_memory(function)
    return calls[function]


def _sizes(adapter: Any, columns: Mapping[str, Tensor]) -> dict[str, int]:
    """The size of each open axis, by name; all inputs must agree."""
    sizes = dict.fromkeys(adapter.open_axes, 0)
    for p in adapter.input_ports:
        label = f"x{p.name and f'[{p.name!r}]'}"
        for axis, name in p.axes.items():
            size = columns[p.port].shape[1 + axis]
            adapter.buckets.need_size(name, size, label)
            if sizes[name] not in (0, size):
                raise DataError(f"{label} has size {size} along axis {name!r}, and another input "
                                f"has {sizes[name]}; the sizes must be equal")
            sizes[name] = size
    return sizes


def _batch(call: MemoryCall, columns: Mapping[str, Tensor], sizes: Mapping[str, int],
           open_axes: Mapping[str, str], place: str) -> dict[str, Tensor]:
    """The outputs for one batch of rows or less, whose open axes all have the same sizes."""
    inputs = []
    rows = len(next(iter(columns.values())))
    for port, t in call.function.inputs.items():
        if port not in columns:  # an input for the sizes of rows
            lengths = np.full(t.shape, sizes[port.partition("/")[2]], np.int32)
            inputs.append(node_of_array(lengths, i32, place, copy=True))
            continue
        column = columns[port]
        for axis, n in enumerate(t.shape[1:], 1):
            if column.shape[axis] < n:  # the last element pads each row
                last = node_of_array(np.minimum(np.arange(n), column.shape[axis] - 1).astype(
                    np.int32), i32, place, copy=True)
                column = compute("take", (column, tensor_of(last)), {"axis": axis})
        if rows < t.shape[0]:
            missing = (t.shape[0] - rows, *(0,) * (len(t.shape) - 1))
            column = compute("pad", (column, (0,) * len(t.shape), missing), {})
        inputs.append(column.node)
    outputs = _outputs(call, inputs, place)
    ends = {port: {axis + 1: int(open_axis.size(sizes[open_axis.name]))
                   for axis, open_axis in parse_open_axes(text).items()}
            for port, text in open_axes.items()}
    return {port: tensor_of(n)[tuple(
        slice(rows if axis == 0 else ends.get(port, {}).get(axis)) for axis in range(
            len(n.spec.shape)))] for port, n in outputs.items()}


def _columns(adapter: Any, x: Any, place: str) -> dict[str, Tensor]:
    """Tensors in a memory by port, all with the same number of rows."""
    parts = parts_by_port(adapter.input_ports, x)
    tensors = {p.port: fitted_tensor(parts.get(p.port), p.shape, p.axes)
               for p in adapter.input_ports}
    columns = {port: t for port, t in tensors.items() if t is not None and t.device != "cpu"}
    if len(columns) == len(tensors) and len({len(t) for t in columns.values()}) == 1 and all(
            bool(c) for p in adapter.input_ports for c in conditions(p, columns[p.port])):
        return {p.port: columns[p.port].astype(p.dtype).to(place) for p in adapter.input_ports}
    # As any array, or with the error of one.
    arrays = {port: _even(a) for port, a in adapter.inputs(x).items()}
    return {p.port: tensor_of(moved(node_of_array(arrays[p.port], p.dtype, "cpu", copy=False),
                                    place)) for p in adapter.input_ports}


def _even(rows: Any) -> np.ndarray:
    """Rows of equal size as an array."""
    if isinstance(rows, np.ndarray):
        return rows
    if any(n.min() != n.max() for n in rows.sizes.values()):
        raise Unsupported("rows of different sizes are not tensors: pass rows of one size, or "
                          "arrays, such as [row.numpy() for row in rows]")
    padded: np.ndarray = rows.padded(np.arange(len(rows)), rows[0].shape)
    return padded
