"""Feeds programs with tensors that are already on their device: rows never leave the device.

Only numbers of rows, weights of rows, scores and the result of the data check cross to the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arrays.elements import moved, node_of_array
from ztorch.arrays.memory import Allocation, memory, place_of
from ztorch.arrays.placement import memory_of
from ztorch.arrays.port_tensors import conditions, fitted_tensor, parts_by_port
from ztorch.arrays.realize import realize
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.dtypes import dtype
from ztorch.graph.trees import flatten

if TYPE_CHECKING:
    from ztorch.runtime.buckets import Buckets
    from ztorch.runtime.loaded_program import LoadedProgram, MemoryCall
    from ztorch.runtime.spec import TensorSpec

Columns = dict[str, Tensor]  # by input and target, all with the same number of rows

_calls: weakref.WeakKeyDictionary[LoadedProgram, dict[str, MemoryCall]] = (
    weakref.WeakKeyDictionary())


def feed(program: Any, x: Any) -> Feed | None:
    """The feed of a program if all of x are tensors in its device's memory; else None."""
    if program.metadata.open_axes:  # sequences of different lengths go through the host
        return None
    place = memory_of(program.device)
    leaves = flatten(x)[0]
    fits = place != "cpu" and leaves and all(
        isinstance(t, Tensor) and t.device == place for t in leaves)
    return Feed(program, place) if fits else None


class Feed:
    """Tensors for one program: its columns, and the calls that read them."""

    def __init__(self, program: Any, place: str):
        self._running = program.executable
        self.adapter = program.adapter
        self._place = place

    def columns(self, x: Any, y: Any) -> Columns:
        """x and y as tensors by input and target, with the same checks as for arrays."""
        parts = {**parts_by_port(self.adapter.input_ports, x),
                 **parts_by_port(self.adapter.target_ports, y)}
        ports = [*self.adapter.input_ports, *self.adapter.target_ports]
        columns: Columns = {}
        good: list[Tensor] = []
        for p in ports:
            t = parts.get(p.port)
            fitted = fitted_tensor(t, p.shape)
            if fitted is None or fitted.device != self._place or (
                    len(fitted) != len(columns[ports[0].port] if columns else fitted)):
                return self._from_host(x, y)
            good += conditions(p, fitted)
            columns[p.port] = fitted.astype(p.dtype)
        realize([t.node for t in (*columns.values(), *good)])
        if not all(bool(t) for t in good):
            return self._from_host(x, y)
        return columns

    def _from_host(self, x: Any, y: Any) -> Columns:
        """The columns by way of the host: for a mix with arrays, and for error messages."""
        arrays = self.adapter.inputs(x)
        arrays |= self.adapter.targets(y, arrays)
        dtypes = self.adapter.dtypes
        return {port: tensor_of(moved(node_of_array(a, dtype(a.dtype), "cpu", copy=False),
                                      self._place)).astype(dtypes[port])
                for port, a in arrays.items()}

    def weights(self, sample_weight: Any, class_weight: Mapping[int, float] | None,
                columns: Columns) -> np.ndarray | None:
        """One weight per row, as in `DataAdapter.weights`."""
        labels = {} if class_weight is None else {
            p.port: columns[p.port].numpy() for p in self.adapter.target_ports}
        weights: np.ndarray | None = self.adapter.weights(
            sample_weight, class_weight, labels, len(next(iter(columns.values()))))
        return weights

    def of_each_bucket(self, verb: str) -> AbstractContextManager[TensorCalls]:
        """The calls of a function in all buckets, for a `with` block."""
        return nullcontext(TensorCalls(self._running, self.adapter.buckets, verb, self._place))


class TensorCalls:
    """The calls of a function in several buckets, each created on first use."""

    def __init__(self, running: LoadedProgram, buckets: Buckets, verb: str, place: str):
        self._running, self._buckets = running, buckets
        self._verb, self._place = verb, place
        self._calls: dict[str, TensorCall] = {}

    def fitting(self, sizes: Sequence[int]) -> TensorCall:
        """The call of the smallest bucket that holds these sizes."""
        function = self._buckets.function(self._verb, sizes)
        if function not in self._calls:
            bound = _calls.setdefault(self._running, {})
            if function not in bound:
                bound[function] = self._running.bind_memory(function)
            self._calls[function] = TensorCall(bound[function], self._place)
        return self._calls[function]


class TensorCall:
    """A call of a scoring function on tensors: fill `inputs`, call, read `outputs`."""

    overlaps = False  # reading a score waits for all submitted work

    def __init__(self, call: MemoryCall, place: str):
        self._call = call
        self.batch_size = next(iter(call.function.inputs.values())).shape[0]
        self.inputs = Staging(place, call.function.inputs)
        self.outputs = {name: _Score(place, t) for name, t in call.function.outputs.items()}

    def __call__(self) -> None:
        nodes = [t.node for t in self.inputs.values()]
        realize(nodes)
        self._call([place_of(n.block) for n in nodes if n.block is not None],
                   [score.block.place for score in self.outputs.values()])


class Staging(dict[str, Tensor]):
    """The tensors that a call reads, in the order of its inputs."""

    def __init__(self, place: str, inputs: Mapping[str, TensorSpec]):
        super().__init__()
        self._place = place
        self._inputs = inputs

    def fill(self, columns: Columns, rows: np.ndarray, weights: np.ndarray, real: int) -> None:
        """Gathers a batch of rows with their weights; only the first `real` rows count."""
        numbers = self._moved(rows)
        for port, spec in self._inputs.items():
            if port in ("w", "real"):
                counts = weights if port == "w" else np.arange(len(rows)) < real
                self[port] = self._moved(counts.astype(spec.dtype.numpy))
            else:
                self[port] = compute("take", (columns[port], numbers), {"axis": 0})

    def _moved(self, array: np.ndarray) -> Tensor:
        return tensor_of(node_of_array(array, dtype(array.dtype), self._place, copy=True))


class _Score:
    """One number, or a few, that a call computes."""

    def __init__(self, place: str, t: TensorSpec):
        self._pool = memory(place)
        self.block: Allocation = self._pool.alloc(t.nbytes)
        self._value = np.empty(t.shape, t.dtype.numpy)

    def item(self) -> float:
        """The number, after it is computed."""
        return float(self.__array__().item())

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """The numbers, after they are computed."""
        self._pool.download(self.block, self._value.reshape(-1))
        return self._value
