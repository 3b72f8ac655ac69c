"""Compiled routines, cached by their meaning, and their runs on the callers' memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import ztorch.ops  # noqa: F401 (fills the registry)
from ztorch.abi import BUFFER_ALIGN
from ztorch.backends.handles import DevicePiece
from ztorch.compile.pipeline import build, compile_functions
from ztorch.compile.targeting import target_for
from ztorch.dtypes import DType, to_storage
from ztorch.errors import Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.host.memory import aligned
from ztorch.library.buffers import BufferPart
from ztorch.library.memory import DeviceStore, HostStore, Store
from ztorch.locks import new_lock
from ztorch.runtime.devices import resolve

CAPACITY = 512  # compiled routines that are kept at most

Build = Callable[[Mapping[str, Value]], Mapping[str, Value]]  # operands -> results, all flat


class Extent(NamedTuple):
    """The elements of memory that a routine reads or writes."""

    part: BufferPart
    elements: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.elements * self.dtype.bytes


class Gathered(NamedTuple):
    """Elements of memory of a device that are in several places, and are one flat operand."""

    extents: tuple[Extent, ...]
    dtype: DType

    @property
    def elements(self) -> int:
        """The elements of all places."""
        return sum(e.elements for e in self.extents)


class Number(NamedTuple):
    """A number that may be another one at each call, such as a learning rate."""

    value: float
    dtype: DType


Extents = Mapping[str, Extent] | Mapping[str, Gathered]
Numbers = Mapping[str, Number]


class Options(NamedTuple):
    """How routines are compiled."""

    device: str  # to compile for, such as "cpu:avx2"
    threads: int | None = None  # of a CPU; None: one per core
    precision: str = "float32"  # of products of float32, as in `PRECISIONS`
    tensor_cores: bool = True  # whether instructions that multiply matrices may be used


class Programs:
    """The compiled routines of one device."""

    def __init__(self, store: Store, options: Options):
        self.store = store
        self.options = options
        self._kept: OrderedDict[tuple[Any, ...], CompiledRoutine] = OrderedDict()
        self._lock = new_lock()

    def run(self, name: str, key: tuple[Any, ...], function: Build, reads: Extents,
            writes: Extents, numbers: Numbers | None = None) -> None:
        """Runs a routine, which is compiled at its first call.

        Args:
            name: Name of the routine.
            key: All that `function` depends on, besides the sizes and dtypes of its operands.
            function: Takes the operands by name: flat values for regions, scalars for numbers.
                Gives the flat value of each region that is written.
            reads: The memory that it reads.
            writes: The memory that it writes.
            numbers: Its numbers. Default: `None`.
        """
        numbers = numbers or {}
        self.routine(name, key, function, reads, writes, numbers).run(reads, writes, numbers)

    def routine(self, name: str, key: tuple[Any, ...], function: Build, reads: Extents,
                writes: Extents, numbers: Numbers) -> CompiledRoutine:
        """The compiled routine; arguments as those of `run`."""
        full_key = (name, key, *((n, r.elements, r.dtype) for n, r in reads.items()), "->",
                    *((n, r.elements, r.dtype) for n, r in writes.items()),
                    *((n, x.dtype) for n, x in numbers.items()))
        with self._lock:
            known = self._kept.get(full_key)
            if known is None:
                graph = _graph(function, reads, numbers)
                known = self._kept[full_key] = self._compiled(name, graph)
                if len(self._kept) > CAPACITY:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(full_key)
        return known

    def _compiled(self, name: str, graph: Graph) -> CompiledRoutine:
        try:
            return CompiledRoutine(self.store, self.options, name, graph)
        except Unsupported as error:
            raise unsupported(self.options.device, name, graph, error) from None


class Trial(Programs):
    """Compiles routines without running them: the capabilities of a device, without its driver."""

    def run(self, name: str, key: tuple[Any, ...], function: Build, reads: Extents,
            writes: Extents, numbers: Numbers | None = None) -> None:
        self.compile(name, _graph(function, reads, numbers or {}))

    def compile(self, name: str, graph: Graph) -> None:
        """Raises Unsupported where the device cannot run a graph."""
        target = target_for(resolve(self.options.device)).with_precision(self.options.precision)
        try:
            compile_functions({"call": graph}, target, name)
        except Unsupported as error:
            raise unsupported(self.options.device, name, graph, error) from None


def unsupported(device: str, name: str, graph: Graph, error: Unsupported) -> Unsupported:
    """The error that names the backend, the routine and its dtypes."""
    dtypes = dict.fromkeys(v.dtype.long for v in graph.leaves("input"))
    return Unsupported(f"backend {device} cannot do {name} of {' and '.join(dtypes)}: {error}")


def _graph(function: Build, reads: Extents, numbers: Numbers) -> Graph:
    operands = {n: leaf("input", n, (r.elements,), r.dtype) for n, r in reads.items()}
    operands |= {n: leaf("input", n, (), x.dtype) for n, x in numbers.items()}
    return Graph(dict(function(operands)))


class CompiledRoutine:
    """One routine for operands of certain sizes."""

    def __init__(self, store: Store, options: Options, name: str, graph: Graph):
        running = build({"call": graph}, options.device, name, options.threads, options.precision,
                        options.tensor_cores)
        function = running.functions["call"]
        self._inputs = list(function.inputs)  # a number or region that is not used is not there
        self._outputs = list(function.outputs)
        self._call = running.bind_memory("call")
        self._store = store
        self._lock = new_lock()  # one thread at a time uses the memory below
        self._numbers: dict[str, Any] = {}  # position of each number
        self._values: dict[str, float] = {}  # their values
        self._scratch: dict[str, np.ndarray] = {}  # of the host, in place of a caller's memory

    def run(self, reads: Extents, writes: Extents, numbers: Numbers) -> None:
        """Runs it on the callers' memory."""
        store = self._store
        with self._lock:
            for name, number in numbers.items():
                self._set(name, number)
            if isinstance(store, HostStore):
                return self._run_on_host(store, _each(reads), _each(writes))
            assert isinstance(store, DeviceStore)
            self._call([self._numbers.get(n) or _pieces(store, reads[n]) for n in self._inputs],
                       [_pieces(store, writes[n]) for n in self._outputs])

    def _set(self, name: str, number: Number) -> None:
        if name not in self._numbers:
            self._numbers[name] = self._store.number()
        if self._values.get(name) != number.value:
            stored = to_storage(number.dtype, np.asarray(number.value, number.dtype.working))
            self._store.set_number(self._numbers[name], stored)
            self._values[name] = number.value

    def _run_on_host(self, store: HostStore, reads: Mapping[str, Extent],
                     writes: Mapping[str, Extent]) -> None:
        """Compiled code requires aligned memory, and results that do not overlap its operands. If
        the caller's memory is different, a buffer is used in between."""
        inputs, outputs, moved = [], [], []
        taken = [(address, address + r.nbytes) for r in reads.values()
                 for address in (store.address(r.part),)]
        for name in self._inputs:
            if name in self._numbers:
                inputs.append(store.number_address(self._numbers[name]))
                continue
            address = store.address(reads[name].part)
            if address % BUFFER_ALIGN:
                scratch = self._between(f"<{name}", reads[name].nbytes)
                scratch[:] = store.bytes_of(reads[name].part, reads[name].nbytes)
                address = _address(scratch)
            inputs.append(address)
        for name in self._outputs:
            region = writes[name]
            address = store.address(region.part)
            if address % BUFFER_ALIGN or any(
                    low < address + region.nbytes and address < high for low, high in taken):
                scratch = self._between(f">{name}", region.nbytes)
                moved.append((region, scratch))
                address = _address(scratch)
            outputs.append(address)
        self._call(inputs, outputs)
        for region, scratch in moved:
            store.bytes_of(region.part, region.nbytes)[:] = scratch

    def _between(self, name: str, nbytes: int) -> np.ndarray:
        if name not in self._scratch:
            self._scratch[name] = aligned(nbytes)
        return self._scratch[name]

    def __del__(self) -> None:
        store = getattr(self, "_store", None)
        if isinstance(store, DeviceStore):
            for place in self._numbers.values():
                store.free(place)


def _each(operands: Extents) -> dict[str, Extent]:
    """The operands of the host, where each is in one place."""
    return {n: e for n, e in operands.items() if isinstance(e, Extent)}


def _pieces(store: DeviceStore, operand: Extent | Gathered) -> list[DevicePiece]:
    extents = operand.extents if isinstance(operand, Gathered) else (operand,)
    return [store.piece(e.part, e.nbytes) for e in extents]


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
