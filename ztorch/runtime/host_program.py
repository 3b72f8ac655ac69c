"""Programs whose states are in memory of this process."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

import numpy as np

from ztorch.dtypes import storage_dtype
from ztorch.host.memory import aligned
from ztorch.runtime.loaded_program import LoadedProgram
from ztorch.runtime.spec import FunctionSpec, StateSpec

if TYPE_CHECKING:
    from ztorch.runtime.first_values import FirstValues

# Least size of a state that is shared without a copy. To copy a smaller one takes under 0.1 ms, but
# after sharing, the program copies all of its params before it next changes them.
SHARED_STATE_BYTES = 1 << 20


class _SharedParams:
    """Params that others read, with NumPy's array interface. As long as something holds such an
    array, the program moves to other memory before it writes a state."""

    __slots__ = ("__array_interface__", "__weakref__", "params")

    def __init__(self, params: np.ndarray):
        self.params = params
        interface = params.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], True)}


class HostProgram(LoadedProgram):
    """A program whose states are in memory of this process."""

    _params: np.ndarray
    _first: FirstValues | None = None  # values that params lack
    _shared_params: weakref.ref[_SharedParams] | None = None

    def draw_later(self, first: FirstValues) -> None:
        """Has params get these values when something reads them."""
        self._first = first
        self.weights_changed()

    def weights_changed(self) -> None:
        super().weights_changed()
        self.stale |= self._first is not None  # the next run needs all values

    def refresh(self) -> None:
        self._draw()
        super().refresh()

    def _draw(self) -> None:
        """Writes the values that params lack."""
        if (first := self._first) is not None:  # read once: another thread may end it
            first.write(self._params)
            self._first = None

    @property
    def params(self) -> np.ndarray:
        self._draw()
        return self._params

    def shared_state(self, name: str) -> np.ndarray | None:
        state = self.states[name]
        if state.nbytes < SHARED_STATE_BYTES or state.order is not None:
            return None
        with self.lock:
            self._draw()
            shared = self._shared_params and self._shared_params()
            if shared is None:
                shared = _SharedParams(self._params)
                self._shared_params = weakref.ref(shared)
            return np.asarray(shared)[state.offset:state.offset + state.nbytes]

    def prepare_run(self, function: FunctionSpec) -> None:
        if self.stale:
            self.refresh()
        if self._shared_params is not None and function.changes_weights:
            self._copy_if_shared()

    def _copy_if_shared(self) -> None:
        """Copies params to other memory if something shares the states."""
        if self._shared_params is not None and self._shared_params() is not None:
            params = aligned(self._params.nbytes)
            params[:] = self._params
            self._move(params)
        self._shared_params = None

    def _move(self, params: np.ndarray) -> None:
        """Replaces the block of params."""
        self._params = params

    def _read_state(self, state: StateSpec) -> np.ndarray:
        if (first := self._first) is not None:
            first.write_one(state.name, self._params)
        return state.read(self._params).copy()

    def _write_state(self, state: StateSpec, value: np.ndarray) -> None:
        self._copy_if_shared()
        if (first := self._first) is not None:
            first.forget(state.name)
        state.write(self._params, value)

    def _copy_state(self, state: StateSpec, memory: int, into_state: bool) -> None:
        block = np.ctypeslib.as_array((ctypes.c_uint8 * state.nbytes).from_address(memory))
        array = block.view(storage_dtype(state.dtype).numpy).reshape(state.shape)
        if into_state:
            self._write_state(state, array)
        else:
            array[...] = self._read_state(state)
