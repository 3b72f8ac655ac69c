"""A program run by the interpreter of the kernel IR, for ZTORCH_INTERPRET=1.

Each access is checked for bounds, races between workers, and reads of uninitialized memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.host.memory import aligned
from ztorch.ir.interpret import interpret
from ztorch.ir.verify import verify
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.plan import Plan
from ztorch.runtime.host_program import HostProgram
from ztorch.runtime.loaded_program import BoundCall, MemoryCall
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, TensorSpec

WORKERS = 2  # that share a kernel, so that races between them are detected


class Interpreted(HostProgram):
    """Runs the functions of a CPU program without its compiled code."""

    def __init__(self, spec: ProgramSpec, code: bytes, params: np.ndarray,
                 plans: Mapping[str, Plan]):
        super().__init__(spec, code, spec.where, spec.memory_bytes)
        self._params = params
        self._plans = plans

    def bind(self, function: str) -> InterpretedCall:
        return InterpretedCall(self, self.functions[function])

    def bind_memory(self, function: str) -> InterpretedMemoryCall:
        return InterpretedMemoryCall(self, self.functions[function])

    def play(self, function: str, inputs: Sequence[np.ndarray],
             outputs: Sequence[np.ndarray]) -> None:
        """One run on the bytes of inputs and outputs, in the order of the function."""
        plan = self._plans[function]
        arena = aligned(plan.arena)
        written = np.zeros(plan.arena, bool)
        results = [np.zeros(y.size, bool) for y in outputs]  # which of their bytes are written

        def part(place: Location) -> tuple[np.ndarray, np.ndarray | None]:
            """The bytes at a location, and which of them were written; None: all were."""
            if place.space in SLOTS:
                bounds = slice(place.start, place.start + place.size)
                if place.space == "inputs":
                    return inputs[place.offset][bounds], None
                return outputs[place.offset][bounds], results[place.offset][bounds]
            bounds = slice(place.offset, place.offset + place.size)
            if place.space == "params":
                return self._params[bounds], None
            return arena[bounds], written[bounds]

        for step, places in plan.runs(lambda place: bool(part(place)[0][0])):
            verify(step.kernel)
            buffers: dict[str, np.ndarray] = {}
            masks: dict[str, np.ndarray] = {}
            parts: list[tuple[np.ndarray, np.ndarray, int]] = []
            memories = [m for m in step.kernel.memories if m.space == "global"]
            for m, place in zip(memories, places, strict=True):
                data, known = part(place)
                buffers[m.name] = data.view(m.dtype.numpy)
                if known is not None:
                    masks[m.name] = np.asarray(known.reshape(-1, m.dtype.bytes).all(1))
                    parts.append((known, masks[m.name], m.dtype.bytes))
            interpret(step.kernel, buffers, WORKERS, written=masks)
            for known, mask, nbytes in parts:
                known |= np.repeat(mask, nbytes)


class InterpretedCall(BoundCall):
    """A function bound to its own arrays."""

    program: Interpreted

    def __init__(self, program: Interpreted, function: FunctionSpec):
        super().__init__(program, function)
        self.inputs = {n: np.zeros(t.shape, t.dtype.numpy) for n, t in function.inputs.items()}
        self.outputs = {n: np.zeros(t.shape, t.dtype.numpy) for n, t in function.outputs.items()}

    def run(self) -> None:
        self.program.play(self.function.name, [_bytes(x) for x in self.inputs.values()],
                          [_bytes(y) for y in self.outputs.values()])


class InterpretedMemoryCall(MemoryCall):
    """A function called with addresses."""

    program: Interpreted

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        f = self.function
        self.program.play(f.name, _parts(inputs, f.inputs), _parts(outputs, f.outputs))


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _parts(addresses: Sequence[int], tensors: Mapping[str, TensorSpec]) -> list[np.ndarray]:
    return [_at(address, t.nbytes) for address, t in zip(addresses, tensors.values(), strict=True)]


class _AddressedBytes:
    """The caller's memory, as an array interface for NumPy."""

    def __init__(self, address: int, nbytes: int):
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "version": 3,
                                    "data": (address, False)}


def _at(address: int, nbytes: int) -> np.ndarray:
    return np.asarray(_AddressedBytes(address, nbytes))
