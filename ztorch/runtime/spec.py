"""What a compiled program is, as plain data: enough to run it, and what an artifact stores."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ztorch.dtypes import DType, dtype
from ztorch.machines.processors import SIMD_LEVELS


def spelled(shape: list[Any], batch: Any) -> str:
    """A shape as tables show it, with the batch.

    >>> spelled([28, 28], "batch"), spelled([[3], [4]], 8)
    ('(batch, 28, 28)', '(8, 3), (8, 4)')
    """
    if shape and isinstance(shape[0], list):
        return ", ".join(spelled(one, batch) for one in shape)
    return f"({', '.join(map(str, [batch, *shape]))})"


PREPARE = "prepare"  # the function that fills derived states, where there are any
CPU_LEVELS = tuple(level.name for level in SIMD_LEVELS)  # what cpu:LEVEL names


class TensorSpec(NamedTuple):
    """An input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        return self.dtype.bytes * math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype.long}

    @staticmethod
    def from_json(data: dict[str, Any]) -> TensorSpec:
        return TensorSpec(data["name"], tuple(data["shape"]), dtype(data["dtype"]))


class StateSpec(NamedTuple):
    """A tensor that lives as long as the program, at an offset of its params."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    role: str
    trainable: bool

    @property
    def derived(self) -> bool:
        """Whether nobody need keep it: the function `prepare` makes it of other states, or it is
        a cache, which is filled anew."""
        return self.role in ("derived", "cache")

    @property
    def nbytes(self) -> int:
        return self.dtype.bytes * math.prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype.long,
                "offset": self.offset, "role": self.role, "trainable": self.trainable}

    @staticmethod
    def from_json(data: dict[str, Any]) -> StateSpec:
        return StateSpec(data["name"], tuple(data["shape"]), dtype(data["dtype"]),
                         data["offset"], data["role"], data["trainable"])


def entry_point(name: str, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec],
                params_bytes: int, arena_bytes: int) -> str:
    """The symbol of a function in the code for a CPU. It ends in a digest of what that code takes
    for granted of the memory it is given: for other sizes it has no such symbol.

    >>> one, two = (TensorSpec("x", (n, 4), dtype("float32")) for n in (1, 2))
    >>> entry_point("predict", [one], [], 64, 64)
    'zt_predict_8a0ae7d18e9cfb1c'
    >>> entry_point("predict", [one], [], 64, 64) == entry_point("predict", [two], [], 64, 64)
    False
    """
    taken = [[[list(t.shape), t.dtype.long] for t in tensors] for tensors in (inputs, outputs)]
    digest = _digest([*taken, params_bytes, arena_bytes])
    return f"zt_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}"


def kernel_name(stem: str, group: Iterable[int], grid: Iterable[int],
                places: Iterable[tuple[str, int, int, bool]]) -> str:
    """The name of a kernel in the code for a device. It ends in a digest as well: of its threads,
    its grid, the bytes of its memories and which of them it writes.

    >>> kernel_name("k0_add_0", (256, 1, 1), (4, 1, 1), [("arena", 0, 4096, True)])
    'k0_add_0_74dcdc787c4868b8'
    """
    taken = [[nbytes, writes] for _, _, nbytes, writes in places]
    return f"{stem}_{_digest([list(group), list(grid), taken])}"


def _digest(of: list[Any]) -> str:
    import hashlib  # not needed to describe programs, only to write and to load them

    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]


class LaunchSpec(NamedTuple):
    """One kernel of a function that runs on a device: which entry, on what grid, with which parts
    of which space (inputs, outputs, params, arena): its slot or offset, its bytes, and whether the
    kernel writes there. `barrier`: it depends on a launch since the last barrier."""

    entry: int
    grid: tuple[int, int, int]
    places: tuple[tuple[str, int, int, bool], ...]
    barrier: bool

    def to_json(self) -> list[Any]:
        return [self.entry, list(self.grid), [list(p) for p in self.places], self.barrier]

    @staticmethod
    def from_json(data: list[Any]) -> LaunchSpec:
        entry, grid, places, barrier = data
        return LaunchSpec(entry, (grid[0], grid[1], grid[2]),
                          tuple((p[0], p[1], p[2], p[3]) for p in places), barrier)


class FunctionSpec(NamedTuple):
    """One entry of the library, or on a device with memory of its own a list of launches. `cycles`
    is a rough estimate of a run by one worker."""

    name: str
    symbol: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    cycles: float
    kernels: tuple[tuple[str, float], ...] = ()  # in order, with their share of the cycles
    buffers: tuple[tuple[str, int, int, int, int], ...] = ()  # label, bytes, first, last, offset
    launches: tuple[LaunchSpec, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "symbol": self.symbol, "cycles": self.cycles,
                "kernels": [list(k) for k in self.kernels],
                "buffers": [list(b) for b in self.buffers],
                "launches": [x.to_json() for x in self.launches],
                "inputs": [t.to_json() for t in self.inputs.values()],
                "outputs": [t.to_json() for t in self.outputs.values()]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> FunctionSpec:
        inputs = [TensorSpec.from_json(t) for t in data["inputs"]]
        outputs = [TensorSpec.from_json(t) for t in data["outputs"]]
        return FunctionSpec(data["name"], data["symbol"], {t.name: t for t in inputs},
                            {t.name: t for t in outputs}, data["cycles"],
                            tuple((k[0], k[1]) for k in data["kernels"]),
                            tuple((b[0], b[1], b[2], b[3], b[4]) for b in data["buffers"]),
                            tuple(LaunchSpec.from_json(x) for x in data["launches"]))


def offered(functions: Mapping[str, FunctionSpec]) -> dict[str, FunctionSpec]:
    """The functions that users call; the other one runs by itself."""
    return {name: f for name, f in functions.items() if name != PREPARE}


class ProgramSpec(NamedTuple):
    """The whole program but its code and its numbers. `arch` is the instruction set of a CPU, or
    the chip of a device (empty: any); `entries` are the kernels of a device's code: name, first
    byte, bytes, threads of a workgroup; `limits` what the code takes for granted of the device."""

    name: str
    target: str
    arch: str
    needs: tuple[str, ...]  # CPU features
    functions: dict[str, FunctionSpec]
    states: dict[str, StateSpec]
    params_bytes: int
    arena_bytes: int
    constants: tuple[tuple[int, int], ...]  # (offset, bytes) of the parts of params nobody changes
    kernels: tuple[str, ...] = ()
    backend: str = "cpu"
    entries: tuple[tuple[str, int, int, tuple[int, int, int]], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()

    @property
    def where(self) -> str:
        """What it was compiled for, as users say it."""
        return f"cpu:{self.target}" if self.target in CPU_LEVELS else self.target

    @property
    def memory_bytes(self) -> int:
        """What running it takes: states, constants, arena, and the largest inputs and outputs."""
        return self.params_bytes + self.arena_bytes + max(
            sum(t.nbytes for t in (*f.inputs.values(), *f.outputs.values()))
            for f in self.functions.values())

    @property
    def host_bytes(self) -> int:
        """What of that lies in this machine's own memory; a device has the arena in its."""
        return self.memory_bytes - (0 if self.backend == "cpu" else self.arena_bytes)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "target": self.target, "arch": self.arch,
            "needs": list(self.needs), "params_bytes": self.params_bytes,
            "arena_bytes": self.arena_bytes, "constants": [list(c) for c in self.constants],
            "functions": [f.to_json() for f in self.functions.values()],
            "states": [s.to_json() for s in self.states.values()],
            "kernels": list(self.kernels), "backend": self.backend,
            "entries": [[n, at, size, list(group)] for n, at, size, group in self.entries],
            "limits": [list(x) for x in self.limits],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> ProgramSpec:
        functions = [FunctionSpec.from_json(f) for f in data["functions"]]
        states = [StateSpec.from_json(s) for s in data["states"]]
        return ProgramSpec(
            data["name"], data["target"], data["arch"], tuple(data["needs"]),
            {f.name: f for f in functions}, {s.name: s for s in states}, data["params_bytes"],
            data["arena_bytes"], tuple((c[0], c[1]) for c in data["constants"]),
            tuple(data["kernels"]), data["backend"],
            tuple((e[0], e[1], e[2], (e[3][0], e[3][1], e[3][2])) for e in data["entries"]),
            tuple((x[0], x[1]) for x in data["limits"]))
