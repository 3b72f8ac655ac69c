"""A loaded program on this CPU, with its library and memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.abi import CONNECT
from ztorch.backends.library import load_library
from ztorch.config import positive
from ztorch.dtypes import DType
from ztorch.errors import DeviceError
from ztorch.host import processor
from ztorch.host.memory import address_of_array, aligned
from ztorch.host.settings import current
from ztorch.locks import new_lock
from ztorch.runtime.host_program import HostProgram
from ztorch.runtime.loaded_program import BoundCall, MemoryCall, NativeSteps
from ztorch.runtime.native_call import NativeCall
from ztorch.runtime.spec import FunctionSpec, ProgramSpec
from ztorch.runtime.worker_trials import WorkerTrials, have_trials

if TYPE_CHECKING:
    from ztorch.runtime.first_values import FirstValues

# Work is measured in estimated cycles of one worker. A barrier takes about 100 to 300 cycles while
# workers are awake, and tens of microseconds if one of them sleeps.
SHARED_KERNEL_CYCLES = 6_000  # mean work of a kernel for which sharing is worth its barrier
TRIED_KERNEL_CYCLES = 1_000  # mean work of a kernel for which trials decide whether to share
WORKER_CYCLES = 150_000  # work for each further worker, which must be woken: some 50 microseconds
AWAKE_CYCLES = 20_000  # work for each further worker if all are awake


class Executable(HostProgram):
    """A loaded program on this CPU.

    Args:
        spec: The program.
        code: Its shared library.
        params: The first values of states and constants. Default None: zeros.
        threads: The largest number of workers of a run. Default None: the setting, or one for each
            usable core.
        adopt: Whether the program takes over the block of params, which must come from `aligned`,
            instead of copying it, which takes as long as reading the weights. Default: `False`.
        first: First values that params lack. Default None: it has all.
    """

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray | None = None,
                 threads: int | None = None, *, adopt: bool = False,
                 first: FirstValues | None = None):
        check_processor(spec)
        super().__init__(spec, code, spec.where, spec.memory_bytes)
        if adopt and params is not None:
            self._params = params
        else:
            self._params = aligned(spec.params_bytes)
            if params is not None:
                self._params[:] = params
        if first is not None:
            self.draw_later(first)
        self.arena = aligned(spec.arena_bytes)
        self._calls: weakref.WeakSet[NativeCall] = weakref.WeakSet()
        self._calls_lock = new_lock()  # held while calls are created or moved
        self.library = load_library(code, spec.name, current().dump)
        self.calls_libraries = hasattr(self.library, CONNECT)
        self.threads = (current().threads or processor.usable_cores() if threads is None else
                        positive("threads", threads))
        if self.calls_libraries:
            from ztorch.backends.vendor_libraries import connect  # hardly any program calls them

            self._prepared_calls = connect(self.library, self.threads)

    def bind(self, function: str) -> HostCall:
        return HostCall(self, self.functions[function])

    def bind_memory(self, function: str) -> HostMemoryCall:
        return HostMemoryCall(self, self.functions[function])

    def native(self, function: FunctionSpec) -> NativeCall:
        """A native call of a function, whose inputs and outputs are not set."""
        with self._calls_lock:
            call = NativeCall(self.library, function, self._params.ctypes.data,
                              self.arena.ctypes.data, self.workers_for(function))
            call.call_trials = self._trials(function)
            self._calls.add(call)
        return call

    def _move(self, params: np.ndarray) -> None:
        with self._calls_lock:
            super()._move(params)
            for call in self._calls:
                call.move(params.ctypes.data)

    def workers_for(self, function: FunctionSpec) -> int:
        """The number of workers for a run, by a fixed rule."""
        if function.cycles < SHARED_KERNEL_CYCLES * function.runs:
            return 1
        return max(1, min(self.threads, int(function.cycles / WORKER_CYCLES) + 1))

    def awake_workers(self, function: FunctionSpec) -> int:
        """The number of workers for a short run if they are awake. It is a power of two, to keep
        the number of pools small."""
        if function.cycles < SHARED_KERNEL_CYCLES * function.runs:
            return 1
        most = min(self.threads, int(function.cycles / AWAKE_CYCLES) + 1)
        return int(1 << (most.bit_length() - 1))

    def _trials(self, function: FunctionSpec) -> WorkerTrials | None:
        """Trials for the fastest number of workers; None if the rule is enough. With little work
        per kernel, a run may be slower with more workers: it waits for memory or busy cores."""
        low = max(TRIED_KERNEL_CYCLES * function.runs, WORKER_CYCLES)
        if self.threads == 1 or function.cycles < low or not have_trials(
                function.cycles, function.runs):
            return None
        return WorkerTrials(self.workers_for(function), self.threads, function.cycles, 0.0,
                            single=True, loops=bool(function.loops), runs=function.runs)


def check_processor(spec: ProgramSpec) -> None:
    """Raises an error if this CPU cannot run the code."""
    if spec.arch != processor.architecture():
        raise DeviceError(f"{spec.name} was compiled for {spec.arch}; this machine is "
                          f"{processor.architecture()}. Export it again for this machine")
    missing = sorted(set(spec.needs) - processor.features())
    if missing:
        raise DeviceError(f"{spec.name} was compiled for {spec.where}, which needs "
                          f"{', '.join(missing)}; this CPU ({processor.cpu_name()}) lacks it. "
                          "Export it for a lower level, such as cpu:avx2 or cpu:sse4.1")


class HostCall(BoundCall):
    """A function with its own arrays of inputs and outputs. A run is one native call."""

    def __init__(self, program: Executable, function: FunctionSpec):
        super().__init__(program, function)
        self.inputs = {n: _array(t.shape, t.dtype) for n, t in function.inputs.items()}
        self.outputs = {n: _array(t.shape, t.dtype) for n, t in function.outputs.items()}
        self._native = program.native(function)
        for table, arrays in ((self._native.inputs, self.inputs),
                              (self._native.outputs, self.outputs)):
            for k, array in enumerate(arrays.values()):
                table[k] = address_of_array(array)
        # The table, entry and own array of each.
        self._input_places = _places(self._native.inputs, self.inputs)
        self._output_places = _places(self._native.outputs, self.outputs)
        self._redirected: list[tuple[Any, int, int]] = []  # table, entry, original address

    def read_from(self, name: str, array: np.ndarray) -> bool:
        return self._redirect(self._input_places[name], array)

    def write_to(self, name: str, array: np.ndarray) -> bool:
        return self._redirect(self._output_places[name], array)

    def release(self) -> None:
        if self._redirected:
            for table, k, address in reversed(self._redirected):  # the first address is its own
                table[k] = address
            self._redirected.clear()

    def _redirect(self, place: tuple[Any, int, np.ndarray], array: np.ndarray) -> bool:
        """Has runs use a caller's array in place of the call's own. Compiled code needs only the
        alignment of an element."""
        table, k, own = place
        flags = array.flags
        if array.dtype != own.dtype or array.shape != own.shape or not (
                flags.c_contiguous and flags.aligned):
            return False
        self._redirected.append((table, k, table[k]))
        table[k] = address_of_array(array)
        return True

    def steps(self, columns: Mapping[str, np.ndarray],
              kept_columns: Any = None) -> NativeSteps | None:
        from ztorch.runtime.steps import HostSteps  # not needed to predict

        self.release()
        return HostSteps.of(self, self._native, columns)

    @property
    def workers(self) -> int:
        """The number of threads that share a run."""
        return abs(self._native.workers)

    @workers.setter
    def workers(self, count: int) -> None:
        self._native.workers, self._native.call_trials = count, None

    def run(self) -> None:
        self._native.run()


class HostMemoryCall(MemoryCall):
    """A function that gets the addresses of inputs and outputs at each run."""

    def __init__(self, program: Executable, function: FunctionSpec):
        super().__init__(program, function)
        self._native = program.native(function)
        self.addresses = self._native.addresses
        self.workers = self._native.workers  # number of threads that share a run, by the rule
        # Whether runs never use another thread.
        self.is_single_threaded = self.workers == 1 and self._native.call_trials is None

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        native = self._native
        if inputs:
            native.inputs[:] = inputs
        native.outputs[:] = outputs
        native.run()

    def sharing(self) -> np.ndarray | None:
        """The record with which a native function of CPython shares its runs with workers that are
        awake; None if that is not worth it."""
        program = self.program
        assert isinstance(program, Executable)
        count = program.awake_workers(self.function)
        if count == 1:
            return None
        from ztorch.backends.workers import workers  # not needed by programs of one worker

        return workers(count, program.library).sharing(program.library)

    def unlocked(self) -> Callable[[Sequence[int], Sequence[int]], None]:
        super().unlocked()
        native = self._native
        if not self.is_single_threaded:
            return self.run
        input_table, output_table, run_once = native.inputs, native.outputs, native.once

        def run(inputs: Sequence[int], outputs: Sequence[int],
                owner: MemoryCall = self) -> None:  # the default keeps the program's memory alive
            if inputs:
                input_table[:] = inputs
            output_table[:] = outputs
            run_once()

        return run


def _places(table: Any, arrays: Mapping[str, np.ndarray]
            ) -> dict[str, tuple[Any, int, np.ndarray]]:
    return {name: (table, k, array) for k, (name, array) in enumerate(arrays.items())}


def _array(shape: tuple[int, ...], d: DType) -> np.ndarray:
    nbytes = math.prod(shape) * d.bytes
    return aligned(nbytes).view(d.numpy).reshape(shape)
