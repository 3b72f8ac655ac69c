"""A program on this CPU: its library loaded, its params and arena allocated, ready to run."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.backends.library import load_library
from ztorch.config import positive
from ztorch.dtypes import DType, storage_dtype
from ztorch.errors import DeviceError
from ztorch.host import processor
from ztorch.host.memory import aligned
from ztorch.host.settings import current
from ztorch.locks import new_lock
from ztorch.runtime.native_call import NativeCall
from ztorch.runtime.running import BoundCall, MemoryCall, NativeSteps, Running
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec
from ztorch.runtime.worker_trials import TRIED_CYCLES, WorkerTrials

# Both numbers are in cycles of one worker, as lowering estimates them. A barrier takes about 100 to
# 300 cycles while workers are awake, and tens of microseconds where one of them sleeps.
SHARED_KERNEL_CYCLES = 6_000  # mean work of a kernel from which its barrier is worth sharing it
# Where kernels have less work, sharing does not pay. There, trials decide: a run that waits
# for memory, or for a core that others use, may be slower with each further worker.
TRIED_KERNEL_CYCLES = 1_000
WORKER_CYCLES = 150_000  # work that each further worker should save: some 50 microseconds
# The same where workers are awake, for native functions of Python, which measure the faster way.
AWAKE_CYCLES = 20_000
# Of a state that is lent in place. A smaller one is copied in less than 0.1 ms; a program that
# lent one copies all of its params before the next change.
LENT_BYTES = 1 << 20


class _SharedParams:
    """Params that others read, as NumPy asks for them. As long as something holds an array of them,
    the program moves to other memory before it writes a state."""

    __slots__ = ("__array_interface__", "__weakref__", "params")

    def __init__(self, params: np.ndarray):
        self.params = params
        interface = params.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], True)}


class HostProgram(Running):
    """A program whose states are in memory of this process."""

    _params: np.ndarray
    _shared_params: weakref.ref[_SharedParams] | None = None

    @property
    def params(self) -> np.ndarray:
        return self._params

    def lent_state(self, name: str) -> np.ndarray | None:
        state = self.states[name]
        if state.nbytes < LENT_BYTES or state.order is not None:
            return None
        with self.lock:
            lent = self._shared_params and self._shared_params()
            if lent is None:
                lent = _SharedParams(self._params)
                self._shared_params = weakref.ref(lent)
            return np.asarray(lent)[state.offset:state.offset + state.nbytes]

    def ready_for(self, function: FunctionSpec) -> None:
        super().ready_for(function)
        if self._shared_params is not None and function.changes_weights:
            self._copy_if_shared()

    def _copy_if_shared(self) -> None:
        """Copy params to other memory if something reads the states in place."""
        if self._shared_params is not None and self._shared_params() is not None:
            params = aligned(self._params.nbytes)
            params[:] = self._params
            self._move(params)
        self._shared_params = None

    def _move(self, params: np.ndarray) -> None:
        """Use another block of params from now on."""
        self._params = params

    def _read_state(self, state: StateSpec) -> np.ndarray:
        return state.read(self._params).copy()

    def _write_state(self, state: StateSpec, value: np.ndarray) -> None:
        self._copy_if_shared()
        state.write(self._params, value)

    def _copy_state(self, state: StateSpec, memory: int, into_state: bool) -> None:
        block = np.ctypeslib.as_array((ctypes.c_uint8 * state.nbytes).from_address(memory))
        target = block.view(storage_dtype(state.dtype).numpy).reshape(state.shape)
        if into_state:
            self._copy_if_shared()
            state.write(self._params, target)
        else:
            target[...] = state.read(self._params)


class Executable(HostProgram):
    """Runs the functions of a program on this CPU."""

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray | None = None,
                 threads: int | None = None, *, adopt: bool = False):
        """`params` are the first values of states and constants; None means zeros. With `adopt` the
        block, which must come from `aligned`, becomes the program's own instead of being copied:
        copying large weights takes as long as reading them. `threads` is the most workers that a
        run may use; None means the number of the settings, else one for each usable core."""
        check_processor(spec)
        super().__init__(spec, code, spec.where, spec.memory_bytes)
        if adopt and params is not None:
            self._params = params
        else:
            self._params = aligned(spec.params_bytes)
            if params is not None:
                self._params[:] = params
        self.arena = aligned(spec.arena_bytes)
        self._calls: weakref.WeakSet[NativeCall] = weakref.WeakSet()
        self._calling = new_lock()  # held where those are made or moved
        self.library = load_library(code, spec.name, current().dump)
        self.threads = (current().threads or processor.usable_cores() if threads is None else
                        positive("threads", threads))

    def bind(self, function: str) -> HostCall:
        return HostCall(self, self.functions[function])

    def bind_memory(self, function: str) -> HostMemoryCall:
        return HostMemoryCall(self, self.functions[function])

    def native(self, function: FunctionSpec) -> NativeCall:
        """A native call of a function, without inputs and outputs."""
        with self._calling:
            call = NativeCall(self.library, function, self._params.ctypes.data,
                              self.arena.ctypes.data, self.workers_for(function))
            call.call_trials = self._trials(function)
            self._calls.add(call)
        return call

    def _move(self, params: np.ndarray) -> None:
        with self._calling:
            super()._move(params)
            for call in self._calls:
                call.move(params.ctypes.data)

    def workers_for(self, function: FunctionSpec) -> int:
        """How many workers a run of the function keeps busy."""
        if function.cycles < SHARED_KERNEL_CYCLES * function.runs:
            return 1
        return max(1, min(self.threads, int(function.cycles / WORKER_CYCLES) + 1))

    def awake_workers(self, function: FunctionSpec) -> int:
        """How many workers may share a short run where they are awake: a power of two, since each
        number has threads of its own."""
        if function.cycles < SHARED_KERNEL_CYCLES * function.runs:
            return 1
        most = min(self.threads, int(function.cycles / AWAKE_CYCLES) + 1)
        return int(1 << (most.bit_length() - 1))

    def _trials(self, function: FunctionSpec) -> WorkerTrials | None:
        """Trials of how many workers make a run fastest, where no rule can know."""
        low = max(TRIED_KERNEL_CYCLES * function.runs, WORKER_CYCLES)
        if self.threads == 1 or not low <= function.cycles < TRIED_CYCLES:
            return None
        return WorkerTrials(self.workers_for(function), self.threads, function.cycles, 0.0,
                            single=True)


def check_processor(spec: ProgramSpec) -> None:
    """A clear error, not a crash, where this CPU cannot run the code."""
    if spec.arch != processor.architecture():
        raise DeviceError(f"{spec.name} was compiled for {spec.arch}; this machine is "
                          f"{processor.architecture()}. Export it again for this machine")
    missing = sorted(set(spec.needs) - processor.features())
    if missing:
        raise DeviceError(f"{spec.name} was compiled for {spec.where}, which needs "
                          f"{', '.join(missing)}; this CPU ({processor.cpu_name()}) lacks it. "
                          "Export it for a lower level, such as cpu:avx2 or cpu:sse4.1")


class HostCall(BoundCall):
    """A function bound to its own arrays; a run is one native call."""

    def __init__(self, program: Executable, function: FunctionSpec):
        super().__init__(program, function)
        self.inputs = {n: _array(t.shape, t.dtype) for n, t in function.inputs.items()}
        self.outputs = {n: _array(t.shape, t.dtype) for n, t in function.outputs.items()}
        self._native = program.native(function)
        for table, arrays in ((self._native.inputs, self.inputs),
                              (self._native.outputs, self.outputs)):
            for k, array in enumerate(arrays.values()):
                table[k] = array.ctypes.data
        self._redirected: list[tuple[Any, int, int]] = []  # table, entry, and its own address

    def read_from(self, name: str, array: np.ndarray) -> bool:
        return self._redirect(self._native.inputs, self.inputs, name, array)

    def write_to(self, name: str, array: np.ndarray) -> bool:
        return self._redirect(self._native.outputs, self.outputs, name, array)

    def release(self) -> None:
        for table, k, address in self._redirected:
            table[k] = address
        self._redirected.clear()

    def _redirect(self, table: Any, own: dict[str, np.ndarray], name: str,
                  array: np.ndarray) -> bool:
        """Makes runs use an array in place of the program's own. Compiled code needs no more
        alignment than that of an element."""
        like, flags = own[name], array.flags
        if array.dtype != like.dtype or array.shape != like.shape or not (
                flags.c_contiguous and flags.aligned):
            return False
        k = list(own).index(name)
        self._redirected.append((table, k, table[k]))
        table[k] = array.__array_interface__["data"][0]
        return True

    def steps(self, columns: Mapping[str, np.ndarray]) -> NativeSteps | None:
        from ztorch.runtime.steps import HostSteps  # not needed to predict

        self.release()
        return HostSteps.of(self, self._native, columns)

    @property
    def workers(self) -> int:
        """How many threads share a run."""
        return self._native.workers

    @workers.setter
    def workers(self, count: int) -> None:
        self._native.workers, self._native.call_trials = count, None

    def run(self) -> None:
        self._native.run()


class HostMemoryCall(MemoryCall):
    """A function that reads and writes addresses which change from run to run."""

    def __init__(self, program: Executable, function: FunctionSpec):
        super().__init__(program, function)
        self._native = program.native(function)
        self.addresses = self._native.addresses
        self.workers = self._native.workers  # how many threads share a run, by the rule
        # Whether no other thread ever shares one.
        self.runs_alone = self.workers == 1 and self._native.call_trials is None

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        native = self._native
        if inputs:
            native.inputs[:] = inputs
        native.outputs[:] = outputs
        native.run()

    def sharing(self) -> np.ndarray | None:
        """A record by which a native function of Python's kind has the workers that are awake share
        its runs; None if that is not worth it."""
        program = self.program
        assert isinstance(program, Executable)
        count = program.awake_workers(self.function)
        if count == 1:
            return None
        from ztorch.backends.workers import workers  # not needed by programs of one worker

        return workers(count, program.library).sharing(program.library)

    def alone(self) -> Callable[[Sequence[int], Sequence[int]], None]:
        super().alone()
        native = self._native
        if not self.runs_alone:
            return self.run
        input_table, output_table, run_once = native.inputs, native.outputs, native.once

        def run(inputs: Sequence[int], outputs: Sequence[int],
                owner: MemoryCall = self) -> None:  # which keeps the memory that the code works in
            if inputs:
                input_table[:] = inputs
            output_table[:] = outputs
            run_once()

        return run


def _array(shape: tuple[int, ...], d: DType) -> np.ndarray:
    nbytes = math.prod(shape) * d.bytes
    return aligned(nbytes).view(d.numpy).reshape(shape)
