"""The base classes of loaded programs and of calls of their functions, on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.errors import WeightsError
from ztorch.host import processor
from ztorch.locks import new_lock
from ztorch.runtime.spec import PREPARE, FunctionSpec, ProgramSpec, StateSpec

if TYPE_CHECKING:
    from ztorch.runtime.own_kernels import OwnKernels


class LoadedProgram(ABC):
    """A loaded program: its code, its states, and calls of its functions.

    The functions share params and arena, so a lock allows only one run at a time.

    Args:
        spec: The program.
        code: Its code.
        device: The name of its device, such as cuda:0.
        host_bytes: The memory of this machine that it needs.
    """

    threads = 1  # threads of the host that run the program
    calls_libraries = False  # whether kernels call functions of other libraries of this machine
    # Compiles such a program again without these calls, for files.
    own_kernels: Callable[[], OwnKernels] | None = None

    def __init__(self, spec: ProgramSpec, code: bytes, device: str, host_bytes: int):
        processor.need_memory(f"program {spec.name!r}", host_bytes,
                              "compile with a smaller batch_size, or make layers smaller")
        self.spec = spec
        self.code = code
        self.name = spec.name
        self.device = device
        self.functions = spec.functions
        self.states = spec.states
        self.lock = new_lock()
        self.stale = False  # whether weights have changed since derived states were computed
        self.steps = 0  # number of training steps, each of which may change every weight
        self.writes: dict[str, int] = {}  # how often each state was set
        self._prepare: BoundCall | None = None
        self.weights_changed()

    @abstractmethod
    def bind(self, function: str) -> BoundCall:
        """A call with its own input and output arrays, which can be run repeatedly."""

    @abstractmethod
    def bind_memory(self, function: str) -> MemoryCall:
        """A call that reads and writes the caller's memory, which may change from run to run."""

    def weights_changed(self) -> None:
        """Has the next run compute derived states again."""
        self.stale = PREPARE in self.functions

    def _written(self, name: str) -> None:
        """Notes that a state was set. The caller holds the lock."""
        self.writes[name] = self.writes.get(name, 0) + 1
        self.weights_changed()

    def keep(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Copies columns to the device, so that `BoundCall.steps` gathers rows there. Returns None
        if there is no such memory, or too little. They stay as long as the result."""
        return None

    def prepare_run(self, function: FunctionSpec) -> None:
        """Brings the program up to date before a run of a function. The caller holds the lock."""
        if self.stale:
            self.refresh()

    def refresh(self) -> None:
        """Computes derived states from the current weights. The caller holds the lock."""
        self.stale = False
        if PREPARE not in self.functions:
            return
        if self._prepare is None:
            self._prepare = self.bind(PREPARE)
        self._prepare.run()

    # -- states ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def params(self) -> np.ndarray:
        """The block of all states and constants; on a device, a copy of it."""

    @abstractmethod
    def _read_state(self, state: StateSpec) -> np.ndarray:
        """A copy of a state. The caller holds the lock."""

    @abstractmethod
    def _write_state(self, state: StateSpec, value: np.ndarray) -> None:
        """Sets a state to an array of its shape. The caller holds the lock."""

    def state(self, name: str) -> np.ndarray:
        """A copy of one state."""
        with self.lock:
            return self._read_state(self.states[name])

    def set_state(self, name: str, value: np.ndarray) -> None:
        """Sets one state; the array must have its shape."""
        state, array = self.states[name], np.asarray(value)
        if array.shape != state.shape:
            raise WeightsError(f"{name} has shape {state.shape}, not {tuple(array.shape)}")
        with self.lock:
            self._write_state(state, array)
            self._written(name)

    @abstractmethod
    def _copy_state(self, state: StateSpec, memory: Any, into_state: bool) -> None:
        """Copies a state to the caller's memory, or back. The caller holds the lock."""

    def copy_state_to(self, name: str, memory: Any) -> None:
        """Copies one state to the caller's memory: an address of the host, or a buffer of the
        device."""
        with self.lock:
            self._copy_state(self.states[name], memory, into_state=False)

    def copy_state_from(self, name: str, memory: Any) -> None:
        """Sets one state from the caller's memory, in the state's dtype."""
        with self.lock:
            self._copy_state(self.states[name], memory, into_state=True)
            self._written(name)

    def shared_state(self, name: str) -> np.ndarray | None:
        """The bytes of a state without a copy. They do not change as long as something holds the
        array. None if the state can only be copied."""
        return None

    def states_snapshot(self) -> dict[str, np.ndarray]:
        """Copies of all states, taken between two runs."""
        with self.lock:
            return {name: self._read_state(state) for name, state in self.states.items()}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Sets all states of a snapshot."""
        for name, value in snapshot.items():
            self.set_state(name, value)


class BoundCall(ABC):
    """One function with fixed buffers: fill `inputs`, call, read `outputs`."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    overlaps = False  # whether the host may continue during a run

    def __init__(self, program: LoadedProgram, function: FunctionSpec):
        self.program = program
        self.function = function

    def __call__(self) -> None:
        program = self.program
        with program.lock:
            program.prepare_run(self.function)
            self.run()

    def start(self) -> None:
        """Starts a run that overlaps the host's work until `finish`."""
        self()

    def finish(self) -> None:  # noqa: B027
        """Waits for the run that was started. Before that, outputs are not valid, and inputs must
        not be written."""

    def read_from(self, name: str, array: np.ndarray) -> bool:
        """Has runs read an input from the caller's array, until `release`. Returns False if that
        is not possible, and the input must be copied."""
        return False

    def write_to(self, name: str, array: np.ndarray) -> bool:
        """Has runs write an output to the caller's array, until `release`. Returns False if that
        is not possible, and the output must be copied."""
        return False

    def release(self) -> None:
        """Has runs read and write `inputs` and `outputs` again."""
        return

    def steps(self, columns: Mapping[str, np.ndarray],
              kept_columns: Any = None) -> NativeSteps | None:
        """Runs of this call for all batches of the rows of these inputs, in one native call. None
        if each batch must be a separate run.

        Args:
            columns: All rows of some inputs.
            kept_columns: What `LoadedProgram.keep` returned for them. Default: `None`.
        """
        return None

    @abstractmethod
    def run(self) -> None:
        """Runs the function once. The caller holds the lock of the program."""


class ScoreSum(NamedTuple):
    """A weighted sum of a score over batches."""

    output: np.ndarray  # the output of the call with the score of a batch
    sums: int  # address of the sums, a float64 for each element of the output
    weight: float  # weight of a batch


class NativeSteps(ABC):
    """Runs of a call for batch after batch of full size, in one native call."""

    call: BoundCall

    @abstractmethod
    def add_to(self, scores: Sequence[ScoreSum], finite: bool) -> None:
        """Accumulates the scores of later batches. With `finite`, the run stops after a batch whose
        first score is not a finite number."""

    @property
    @abstractmethod
    def steps_per_check(self) -> int:
        """The number of steps between two checks for signals."""

    @abstractmethod
    def run(self, order: np.ndarray | None, first: int, count: int) -> int:
        """Runs batches and returns their number: less than `count` if a score was not finite.

        Args:
            order: The numbers of all rows in the order of use; None: 0, 1, 2, ...
            first: The position of the first row in that order.
            count: The number of batches.
        """

    def start(self, order: np.ndarray | None, first: int, count: int) -> None:
        """Starts a run that overlaps the host's work until `finish`, where the call can."""
        raise NotImplementedError

    def finish(self) -> int:
        """Waits for the run that was started; returns what `run` does."""
        raise NotImplementedError


class MemoryCall(ABC):
    """A function that runs on the caller's memory: addresses of the host or buffers of a device."""

    def __init__(self, program: LoadedProgram, function: FunctionSpec):
        self.program = program
        self.function = function

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs the function. On a device it may return before the work is done.

        Args:
            inputs: The memory of each input, in the function's order.
            outputs: The memory of each output, in the function's order.
        """
        program = self.program
        with program.lock:
            program.prepare_run(self.function)
            self.run(inputs, outputs)

    def unlocked(self) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """This call without the lock, for a caller that runs the program in one thread at a time
        and sets no weights."""
        with self.program.lock:
            if self.program.stale:
                self.program.refresh()
        return self.run

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs the function once. The caller holds the lock of the program."""
