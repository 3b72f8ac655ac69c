"""The base of all loaded programs, on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.errors import WeightsError
from ztorch.host import processor
from ztorch.locks import new_lock
from ztorch.runtime.spec import PREPARE, FunctionSpec, ProgramSpec, StateSpec


class Running(ABC):
    """A loaded program: its code, its states, and calls of its functions.

    One run at a time: the functions share params and arena, so a lock keeps runs apart.
    """

    threads = 1  # of the host that work on a run

    def __init__(self, spec: ProgramSpec, code: bytes, device: str, host_bytes: int):
        """`device` is its name, such as cuda:0; `host_bytes` is the memory it needs here."""
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
        self.steps = 0  # counts trainings, each of which may have changed every weight
        self.writes: dict[str, int] = {}  # how often each state was set
        self._prepare: BoundCall | None = None
        self.weights_changed()

    @abstractmethod
    def bind(self, function: str) -> BoundCall:
        """A call with its own input and output arrays, which can be run repeatedly."""

    @abstractmethod
    def bind_memory(self, function: str) -> MemoryCall:
        """A call that reads and writes memory of the caller's, which may change from run to run."""

    def weights_changed(self) -> None:
        """Makes the next run compute derived states again."""
        self.stale = PREPARE in self.functions

    def _written(self, name: str) -> None:
        """Counts that a state was set. The caller holds the lock."""
        self.writes[name] = self.writes.get(name, 0) + 1
        self.weights_changed()

    def ready_for(self, function: FunctionSpec) -> None:
        """Prepares a run of a function. The caller holds the lock."""
        if self.stale:
            self.refresh()

    def refresh(self) -> None:
        """Computes derived states from the weights as they are now. The caller holds the lock."""
        self.stale = False
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
        """Copies a state to memory of the caller's, or back. The caller holds the lock."""

    def state_to(self, name: str, memory: Any) -> None:
        """Copies one state to memory of the caller's: an address of the host, a buffer of the
        device."""
        with self.lock:
            self._copy_state(self.states[name], memory, into_state=False)

    def state_from(self, name: str, memory: Any) -> None:
        """Sets one state from the caller's memory, in the state's dtype."""
        with self.lock:
            self._copy_state(self.states[name], memory, into_state=True)
            self._written(name)

    def lent_state(self, name: str) -> np.ndarray | None:
        """The bytes of a state in place, which stay as they are as long as something holds the
        array; None if this program only copies it."""
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

    def __init__(self, program: Running, function: FunctionSpec):
        self.program = program
        self.function = function

    def __call__(self) -> None:
        program = self.program
        with program.lock:
            program.ready_for(self.function)
            self.run()

    def start(self) -> None:
        """Begins a run that overlaps the host's work until `finish`."""
        self()

    def finish(self) -> None:  # noqa: B027
        """Waits until the run that was begun is done. Only then outputs are there, and inputs may
        be written again."""

    def read_from(self, name: str, array: np.ndarray) -> bool:
        """Makes runs read an input from a caller's array, until `release`. False if that
        cannot be: then the input must be copied."""
        return False

    def write_to(self, name: str, array: np.ndarray) -> bool:
        """Makes runs write an output to a caller's array, until `release`. False if that
        cannot be: then the output must be copied."""
        return False

    def release(self) -> None:
        """Makes runs read and write `inputs` and `outputs` again."""
        return

    def steps(self, columns: Mapping[str, np.ndarray]) -> NativeSteps | None:
        """Runs this call for batch after batch of the rows of these inputs, without Python in
        between; None if that cannot be: then each batch is a separate run."""
        return None

    @abstractmethod
    def run(self) -> None:
        """One run. The caller holds the lock of the program."""


class ScorePlace(NamedTuple):
    """Where the scores of batches are added."""

    output: np.ndarray  # of the call
    sums: int  # address of a float64 for each of its elements
    weight: float  # of a batch in them


class NativeSteps(ABC):
    """Runs of a call for batch after batch of full size, in one native call."""

    call: BoundCall

    @abstractmethod
    def add_to(self, scores: Sequence[ScorePlace], finite: bool) -> None:
        """Adds up the scores of each batch from now on. With `finite`, a batch whose first score
        is not a finite number is the last."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many steps to run between two checks for signals."""

    @abstractmethod
    def run(self, order: np.ndarray | None, first: int, count: int) -> int:
        """Runs batches, and returns how many: fewer than `count` where a score was not finite.

        Args:
            order: The numbers of all rows in their order; None: they follow one another.
            first: The place of the first row in it.
            count: How many batches.
        """


class MemoryCall(ABC):
    """One function that runs on memory of the caller's: addresses on the host, buffers on a device.
    """

    def __init__(self, program: Running, function: FunctionSpec):
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
            program.ready_for(self.function)
            self.run(inputs, outputs)

    def alone(self) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """This call without a lock, for a caller that lets one thread at a time run the program and
        sets no weights."""
        with self.program.lock:
            if self.program.stale:
                self.program.refresh()
        return self.run

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """One run. The caller holds the lock of the program."""

