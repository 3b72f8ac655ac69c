"""A compiled program on a device with memory of its own: weights and arena stay there.

Each call copies its inputs there, replays the launches that were recorded once, and copies its
outputs back: per training step the batch and a few numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import numpy as np

from ztorch.backends.device import Binding, Buffer, Device, Entry, Launch, Recording
from ztorch.dtypes import lying
from ztorch.errors import DeviceError, OutOfMemory, WeightsError
from ztorch.host import processor
from ztorch.runtime.executable import aligned
from ztorch.runtime.spec import PREPARE, FunctionSpec, ProgramSpec, StateSpec, TensorSpec

PLACE = 256  # what the place of an input or output within their buffer is a multiple of


class Remote:
    """What `Executable` is for the CPU; the device must stay open as long as it is used.

    One run at a time: the functions share params and arena, so a lock keeps them apart.
    """

    threads = 1  # of the host

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray, device: Device):
        refuse_other(spec, device)
        processor.need_memory(f"program {spec.name!r}", spec.host_bytes,
                         "compile with a smaller batch_size, or make layers smaller")
        self.spec, self.code, self.name = spec, code, spec.name
        self.target = device
        self.functions, self.states = spec.functions, spec.states
        self.lock = threading.Lock()
        self.device = device.id
        self.module = device.load(code, [Entry(*e) for e in spec.entries])
        self._params = self._alloc("its weights", spec.params_bytes, "make layers smaller")
        self._arena = self._alloc("what its layers compute", spec.arena_bytes,
                                  "compile with a smaller batch_size")
        device.write(self._params, params)
        self._prepare = RemoteCall(self, spec.functions[PREPARE]) if PREPARE in spec.functions \
            else None
        self._stale = self._prepare is not None

    def _alloc(self, what: str, nbytes: int, fix: str) -> Buffer:
        try:
            return self.target.alloc(max(nbytes, 1))
        except OutOfMemory as error:
            raise OutOfMemory(f"program {self.name!r} needs {nbytes:,} bytes of {self.device} for "
                              f"{what}: {fix}. {error}") from None

    def bind(self, function: str) -> RemoteCall:
        """A call with its own input and output arrays, ready to be run again and again."""
        return RemoteCall(self, self.functions[function])

    def fresh(self) -> None:
        """Derived states brought up to date after weights were set; the lock is held."""
        self._stale = False
        if self._prepare is not None:
            self._prepare.run()

    def buffer(self, space: str) -> Buffer:
        return self._params if space == "params" else self._arena

    # -- states ----------------------------------------------------------------------------------

    @property
    def params(self) -> np.ndarray:
        """A copy of the whole block of states and constants."""
        block = aligned(max(self.spec.params_bytes, 1))
        self.target.read(self._params, block)
        return block

    def _read(self, s: StateSpec) -> np.ndarray:
        out = np.empty(s.shape, lying(s.dtype).numpy)
        self.target.read(self._params, out.reshape(-1), s.offset)
        return out

    def state(self, name: str) -> np.ndarray:
        with self.lock:
            return self._read(self.states[name])

    def set_state(self, name: str, value: np.ndarray) -> None:
        s, array = self.states[name], np.asarray(value)
        if array.shape != s.shape:
            raise WeightsError(f"{name} has shape {s.shape}, not {tuple(array.shape)}")
        with self.lock:
            stored = array.astype(lying(s.dtype).numpy)
            self.target.write(self._params, stored, s.offset)
            self._stale = self._prepare is not None

    def states_snapshot(self) -> dict[str, np.ndarray]:
        with self.lock:
            return {name: self._read(s) for name, s in self.states.items()}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        for name, value in snapshot.items():
            self.set_state(name, value)

    def __del__(self) -> None:
        module = getattr(self, "module", None)
        if module is None or self.target.closed:
            return
        self.target.unload(module)
        for held in ("_params", "_arena"):
            if hasattr(self, held):
                self.target.free(getattr(self, held))


def refuse_other(spec: ProgramSpec, device: Device) -> None:
    """An error, not wrong numbers, where code takes for granted what this device has not."""
    if spec.backend != device.backend:
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}, not for {device.id}")
    if spec.arch and spec.arch not in (device.found.chip, *device.found.runs):
        raise DeviceError(f"{spec.name} was compiled for {spec.backend}:{spec.arch}; {device.id} "
                          f"({device.found.name}) is {device.found.chip or 'not'}. Compile it "
                          "again for this device")
    has = dict(device.found.limits)
    for name, wants in spec.limits:
        got = has.get(name, wants)
        if got < wants or (name == "subgroup" and wants and got != wants):
            raise DeviceError(f"{spec.name} was compiled for {name}={wants}; {device.id} "
                              f"({device.found.name}) has {got}. Compile it again for this device")


class RemoteCall:
    """One function with fixed buffers: fill `inputs`, call, read `outputs`."""

    def __init__(self, program: Remote, function: FunctionSpec):
        self.program, self.function = program, function
        self.inputs, self._given = _arrays(function.inputs.values())
        self.outputs, self._found = _arrays(function.outputs.values())
        device = program.target
        self._in = device.alloc(max(self._given.nbytes, 1))
        self._out = device.alloc(max(self._found.nbytes, 1))
        self._recording: Recording = device.record(program.module, self._launches())

    def _launches(self) -> list[Launch]:
        slots = {"inputs": (self._in, _offsets(self.function.inputs.values())),
                 "outputs": (self._out, _offsets(self.function.outputs.values()))}
        launches = []
        for launch in self.function.launches:
            bindings = []
            for space, at, nbytes, written in launch.places:
                if space in slots:
                    buffer, offsets = slots[space]
                    at = offsets[at]
                else:
                    buffer = self.program.buffer(space)
                bindings.append(Binding(buffer, at, nbytes, written))
            launches.append(Launch(launch.entry, launch.grid, tuple(bindings), launch.barrier))
        return launches

    def __call__(self) -> None:
        with self.program.lock:
            if self.program._stale:
                self.program.fresh()
            self.run()

    def run(self) -> None:
        """One run; the caller holds the lock of the program."""
        device = self.program.target
        if self.inputs:
            device.write(self._in, self._given)
        device.run(self._recording)
        if self.outputs:
            device.read(self._out, self._found)
        else:
            device.synchronise()

    def __del__(self) -> None:
        device = self.program.target
        if device.closed:
            return
        for held in ("_in", "_out"):  # which drops the recording that uses them
            if hasattr(self, held):
                device.free(getattr(self, held))


def _offsets(tensors: Iterable[TensorSpec]) -> list[int]:
    """Where each tensor begins, and at the end the bytes of all."""
    out = [0]
    for t in tensors:
        out.append(out[-1] + -(-max(1, t.nbytes) // PLACE) * PLACE)
    return out


def _arrays(tensors: Iterable[TensorSpec]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """An array for each tensor, all in one block, so that they travel in one copy."""
    listed = list(tensors)
    *offsets, total = _offsets(listed)
    block = aligned(max(total, 1))[:total]
    return {t.name: block[at:at + t.nbytes].view(t.dtype.numpy).reshape(t.shape)
            for t, at in zip(listed, offsets, strict=True)}, block
