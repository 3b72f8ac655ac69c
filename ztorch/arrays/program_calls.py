"""Programs on tensors: `program.predict(tensor)` reads and writes the memory of tensors; nothing
leaves the device."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch.arrays.elements import moved, node_of_array
from ztorch.arrays.memory import memory
from ztorch.arrays.node import computed
from ztorch.arrays.placement import memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.specs import spec
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.errors import DataError, Unsupported

if TYPE_CHECKING:
    from ztorch.runtime.running import MemoryCall, Running

_calls: weakref.WeakKeyDictionary[Running, dict[str, MemoryCall]] = weakref.WeakKeyDictionary()


def predict(program: Any, x: Any) -> dict[str, Tensor]:
    """The outputs of a program by port, for tensors; see `Predictor.predict`."""
    if program.metadata.open_axes:
        raise Unsupported(f"program {program.name!r} takes sequences of several sizes as arrays "
                          "only; pass x.numpy()")
    running = program.executable
    place = memory_of(program.device)
    columns = _columns(program.adapter, x, place)
    rows, batch = len(next(iter(columns.values()))), program.batch_size
    program.adapter.need_whole_batches(rows, batch)
    parts = [_batch(_call(running, program.buckets.function("predict", (min(batch, rows - k),))),
                    {port: column[k:k + batch] for port, column in columns.items()}, place)
             for k in range(0, rows, batch)]
    if len(parts) == 1:
        return parts[0]
    return {port: compute("concat", tuple(part[port] for part in parts), {"axis": 0})
            for port in parts[0]}


def _call(running: Running, function: str) -> MemoryCall:
    calls = _calls.setdefault(running, {})
    if function not in calls:
        calls[function] = running.bind_memory(function)
    return calls[function]


def _batch(call: MemoryCall, columns: Mapping[str, Tensor], place: str) -> dict[str, Tensor]:
    """The outputs for at most a batch of rows."""
    inputs = []
    rows = 0
    for port, t in call.function.inputs.items():
        column = columns[port]
        rows = len(column)
        if rows < t.shape[0]:
            missing = (t.shape[0] - rows, *(0,) * (len(t.shape) - 1))
            column = compute("pad", (column, (0,) * len(t.shape), missing), {})
        inputs.append(column.node)
    realize(inputs)
    pool = memory(place)
    outputs = {port: computed(spec(t.shape, t.dtype, place), pool.alloc(t.nbytes))
               for port, t in call.function.outputs.items()}
    call([n.block.place for n in inputs if n.block is not None],
         [n.block.place for n in outputs.values() if n.block is not None])
    return {port: tensor_of(n)[:rows] for port, n in outputs.items()}


def _columns(adapter: Any, x: Any, place: str) -> dict[str, Tensor]:
    """Tensors in a memory by port, all with the same number of rows."""
    parts = _by_port(adapter, x)
    if all(isinstance(t, Tensor) and t.device != "cpu" for t in parts.values()):
        columns = {}
        for p in adapter.input_ports:
            t = parts[p.port]
            if t.shape[1:] != p.shape or not t.size:
                raise DataError(f"x{p.name and f'[{p.name!r}]'} has shape {t.shape}; this program "
                                f"takes (rows, {', '.join(map(str, p.shape))})")
            if p.range is not None and t.size:
                low, high, layer = p.range
                if t.min().item() < low or t.max().item() > high:
                    raise DataError(f"{layer} takes integers from {low} to {high}; x holds others")
            columns[p.port] = t.astype(p.dtype).to(place)
        counts = {len(t) for t in columns.values()}
        if len(counts) > 1:
            raise DataError(f"inputs have {' and '.join(map(str, sorted(counts)))} rows; each row "
                            "needs all inputs")
        return columns
    arrays = adapter.inputs(x)  # of the host: checked as any array
    return {p.port: tensor_of(moved(node_of_array(arrays[p.port], p.dtype, "cpu", copy=False),
                                    place)) for p in adapter.input_ports}


def _by_port(adapter: Any, x: Any) -> dict[str, Any]:
    """The parts of x, as they are, by port."""
    names = {p.port: p.name for p in adapter.input_ports}
    if len(names) == 1:
        return dict.fromkeys(names, x)
    if isinstance(x, Mapping):
        return {port: x.get(name) for port, name in names.items()}
    return dict(zip(names, x, strict=False))
