"""The description of a compiled program as data: enough to run it and to store it in a file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ztorch.abi import AGAIN
from ztorch.dtypes import DType, storage_dtype
from ztorch.files.kinds import (
    DTYPE,
    FLAG,
    TEXT,
    BadValue,
    ByName,
    ListOf,
    OneOf,
    OrNone,
    Real,
    Row,
    String,
    Whole,
)
from ztorch.files.schema import Record, field
from ztorch.machines.processors import SIMD_LEVELS
from ztorch.runtime.state_order import MAX_AXES, StateOrder

CALL = "call"  # the function of a program that is a function of tensors and not a model
ARGUMENT = "x/"  # prefix of the ports that take its arguments
RESULTS = "results"  # the function that computes metrics from their sums
SUMS = "sums/"  # prefix of sums that evaluate and train accumulate: sums/METRIC/SUM
PREPARE = "prepare"  # the function that computes derived states
CPU_LEVELS = tuple(level.name for level in SIMD_LEVELS)  # the possible LEVELs of cpu:LEVEL
SPACES = ("inputs", "outputs", "params", "arena")  # the blocks that kernels read and write


def score_of(output: str) -> str:
    """The name of the score that an output of evaluate and train belongs to.

    >>> score_of("accuracy"), score_of("sums/auc/true_positives")
    ('accuracy', 'auc')
    """
    return output.removeprefix(SUMS).rpartition("/")[0] if output.startswith(SUMS) else output


MAX_BYTES = 1 << 40  # of any block; the memory of this machine is checked later
MAX_LOOPS = 1 << 10  # loops of a function, nested or not
MAX_WORKGROUP = 1 << 16  # threads along one axis
MAX_GRID = (1 << 31) - 1  # workgroups along one axis

SIZE, COUNT = Whole(0, MAX_BYTES), Whole(1, MAX_BYTES)
SHAPE = ListOf(COUNT, MAX_AXES, f"a shape of at most {MAX_AXES} axes")
CYCLES = Real(0, 1e300, "a number, zero or more")
TARGET_NAME = String(r"[a-z0-9][a-z0-9._\-]*(:[a-z0-9_\-]+){0,2}",
                     "the name of a target, such as 'avx2'")
BACKEND_NAME = String("[a-z]+", "the name of a backend, such as 'cpu'")
KERNEL_NAME = String("[A-Za-z_][A-Za-z0-9_]*", "the name of a kernel")
SYMBOL = String("zt_(?!worker$)[A-Za-z0-9_]+", "a symbol such as 'zt_predict'")


def shape_text(shape: Iterable[Any], batch: Any) -> str:
    """The text of a shape, or of several, with the batch.

    >>> shape_text([28, 28], "batch"), shape_text([[3], [4]], 8)
    ('(batch, 28, 28)', '(8, 3), (8, 4)')
    """
    sizes = list(shape)
    if sizes and isinstance(sizes[0], (list, tuple)):
        return ", ".join(shape_text(inner, batch) for inner in sizes)
    return f"({', '.join(map(str, [batch, *sizes]))})"


class TensorSpec(Record):
    """An input or an output of a function."""

    name: str = field(TEXT)  # its name; a port is x or y, or x/NAME or y/NAME of several
    shape: tuple[int, ...] = field(SHAPE)  # its shape; that of a port includes the batch
    dtype: DType = field(DTYPE)  # dtype of its elements

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.dtype.bytes * math.prod(self.shape)

    def check(self) -> None:
        if self.nbytes > MAX_BYTES:
            raise BadValue(list(self.shape), f"a shape of at most {MAX_BYTES} bytes", "shape")


class StateSpec(TensorSpec):
    """A tensor in params, which lives as long as the program."""

    offset: int = field(SIZE)  # its byte offset in params
    role: str = field(TEXT)  # weight, slot, counter, ...; derived and cache are not stored
    trainable: bool = field(FLAG)  # whether the optimizer changes it
    order: StateOrder | None = field(  # order of its numbers in params; null: row-major
        OrNone(StateOrder), default=None)

    @property
    def memory(self) -> TensorSpec:
        """The tensor as it lies in params."""
        return self if self.order is None else TensorSpec(self.name, self.order.shape, self.dtype)

    def arrange(self, array: np.ndarray) -> np.ndarray:
        """Rearranges an array of the state's shape to its order in params; maybe a view."""
        return array if self.order is None else self.order.arrange(array)

    def read(self, block: np.ndarray) -> np.ndarray:
        """Reads the state from the bytes of params; maybe a view."""
        array = self._numbers(block)
        return array if self.order is None else self.order.read(array, self.shape)

    def write(self, block: np.ndarray, array: np.ndarray) -> None:
        """Writes an array of the state's shape into the bytes of params."""
        self._numbers(block)[...] = self.arrange(array)

    def _numbers(self, block: np.ndarray) -> np.ndarray:
        memory = self.memory
        part = block[self.offset:self.offset + memory.nbytes]
        return part.view(storage_dtype(self.dtype).numpy).reshape(memory.shape)

    def check(self) -> None:
        super().check()
        if self.order is None:
            return
        try:
            self.order.check_from(self.shape)
            self.memory.check()
        except BadValue as error:
            raise error.inside("order") from None

    @property
    def derived(self) -> bool:
        """Whether files omit it: the function `prepare` computes it from other states, or it is a
        cache."""
        return self.role in ("derived", "cache")


class LaunchSpec(Record, row="[kernel, grid, places, barrier]"):
    """One launch of a kernel on a device."""

    entry: int = field(SIZE)  # number of the kernel in the entries of the program
    grid: tuple[int, int, int] = field(  # workgroups along x, y and z
        Row(*[Whole(1, MAX_GRID)] * 3, names="three numbers"))
    places: tuple[tuple[str, int, int, bool], ...] = field(ListOf(  # its buffers, in order
        Row(OneOf(*SPACES), SIZE, COUNT, FLAG, names="[space, place, bytes, writes]")))
    barrier: bool = field(FLAG)  # whether it depends on a launch since the last barrier


class FunctionSpec(Record):
    """One function of a program."""

    name: str = field(TEXT)  # predict, train, evaluate, results, prefill, generate, beams, prepare
    symbol: str = field(SYMBOL)  # its entry point in the code for a CPU
    inputs: dict[str, TensorSpec] = field(ByName(TensorSpec))  # in the order of the code's table
    outputs: dict[str, TensorSpec] = field(ByName(TensorSpec))  # likewise
    cycles: float = field(CYCLES)  # estimated cycles of a run by one worker
    kernels: tuple[tuple[str, float], ...] = field(  # in order, each with its share of the cycles
        ListOf(Row(TEXT, CYCLES, names="[name, cycles]")), default=())
    buffers: tuple[tuple[str, int, int, int, int], ...] = field(  # buffers in the arena
        ListOf(Row(TEXT, *[SIZE] * 4, names="[label, bytes, first, last, offset]")), default=())
    launches: tuple[LaunchSpec, ...] = field(ListOf(LaunchSpec), default=())  # only on a device
    loops: tuple[tuple[int, int, int], ...] = field(  # ranges of repeated kernels, outer ones first
        ListOf(Row(SIZE, COUNT, COUNT, names="[first kernel, kernel after the last, trip count]"),
               MAX_LOOPS, f"a list of at most {MAX_LOOPS} loops"),
        default=())
    moves: tuple[tuple[int, int, int, int], ...] = field(  # by how much places move per iteration
        ListOf(Row(SIZE, SIZE, SIZE, Whole(-MAX_BYTES, MAX_BYTES),
                   names="[launch, place, loop, bytes]")), default=())

    def times(self) -> list[int]:
        """The largest number of runs of each kernel in a call."""
        times = [1] * len(self.launches or self.kernels)
        for first, end, trip_count in self.loops:
            for k in range(first, end):
                times[k] *= trip_count
        return times

    @property
    def changes_weights(self) -> bool:
        """Whether a run may change weights."""
        return self.name.partition("@")[0] == "train"

    @property
    def runs(self) -> int:
        """The largest number of runs of all kernels in a call."""
        return sum(self.times())

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The kernels that run a second time, so that their results need not be stored."""
        return tuple(name for name, _ in self.kernels if re.match(rf"k\d+(_\d+)*{AGAIN}_", name))


def public_functions(functions: Mapping[str, FunctionSpec]) -> dict[str, FunctionSpec]:
    """The functions that users call, which are all but `prepare`."""
    return {name: f for name, f in functions.items() if name != PREPARE}


class ProgramSpec(Record):
    """The whole program except its code and its states' values."""

    name: str = field(TEXT)  # name of the model
    target: str = field(TARGET_NAME)  # target of its code
    arch: str = field(TEXT)  # instruction set of a CPU, or chip of a device (empty: any)
    needs: tuple[str, ...] = field(ListOf(TEXT))  # features that the CPU must have
    functions: dict[str, FunctionSpec] = field(ByName(FunctionSpec))  # at least predict or call
    states: dict[str, StateSpec] = field(ByName(StateSpec))  # tensors in params
    params_bytes: int = field(SIZE)  # size of the block of states and constants
    arena_bytes: int = field(SIZE)  # size of the block of all other values
    constants: tuple[tuple[int, int], ...] = field(  # parts of params that never change
        ListOf(Row(SIZE, COUNT, names="[offset, bytes]")))
    kernels: tuple[str, ...] = field(ListOf(TEXT), default=())  # the names of all kernels
    backend: str = field(BACKEND_NAME, default="cpu")  # the driver that runs it
    entries: tuple[tuple[str, int, int, tuple[int, int, int]], ...] = field(  # a device's kernels
        ListOf(Row(KERNEL_NAME, SIZE, COUNT, Row(*[Whole(1, MAX_WORKGROUP)] * 3,
                                                 names="three numbers"),
                   names="[name, first byte, bytes, workgroup]")), default=())
    shared: tuple[tuple[int, int], ...] = field(  # shared memory that launches request, by kernel
        ListOf(Row(SIZE, COUNT, names="[kernel, bytes]")), default=())
    maps: tuple[tuple, ...] = field(  # tensor maps, with which kernels copy boxes of their buffers
        ListOf(Row(SIZE, SIZE, OneOf("f16", "bf16", "f32"), SIZE, *[ListOf(COUNT, 5)] * 3,
                   names="[kernel, memory, dtype, first byte, extents, pitches, box]")), default=())
    limits: tuple[tuple[str, int], ...] = field(  # the code's assumptions about the device
        ListOf(Row(TEXT, SIZE, names="[name, number]")), default=())

    @property
    def where(self) -> str:
        """The device string that it was compiled for."""
        return f"cpu:{self.target}" if self.target in CPU_LEVELS else self.target

    @property
    def kernel_entries(self) -> list[tuple]:
        """The kernels in a device's code, each with the shared memory that its launches request,
        and with its tensor maps."""
        shared = dict(self.shared)
        return [(*entry, shared.get(k, 0), tuple(m[1:] for m in self.maps if m[0] == k))
                for k, entry in enumerate(self.entries)]

    @property
    def memory_bytes(self) -> int:
        """The memory to run it: states, constants, arena, and the largest inputs and outputs."""
        return self.params_bytes + self.arena_bytes + max(
            sum(t.nbytes for t in (*f.inputs.values(), *f.outputs.values()))
            for f in self.functions.values())

    @property
    def host_bytes(self) -> int:
        """The part of these bytes in the host's memory, which excludes the arena of a device."""
        return self.memory_bytes - (0 if self.backend == "cpu" else self.arena_bytes)


def entry_point(name: str, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec],
                params_bytes: int, arena_bytes: int) -> str:
    """The symbol of a function in the code for a CPU. It ends in a digest of the sizes of the
    memory that the code was compiled for.

    >>> from ztorch.dtypes import f32
    >>> small, large = (TensorSpec("x", (n, 4), f32) for n in (1, 2))
    >>> entry_point("predict", [small], [], 64, 64)
    'zt_predict_8a0ae7d18e9cfb1c'
    >>> entry_point("predict", [large], [], 64, 64) == entry_point("predict", [small], [], 64, 64)
    False
    """
    ports = [[[list(t.shape), t.dtype.long] for t in tensors] for tensors in (inputs, outputs)]
    digest = _digest([*ports, params_bytes, arena_bytes])
    return f"zt_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}"


def kernel_name(stem: str, group: Iterable[int], grid: Iterable[int],
                places: Iterable[tuple[str, int, int, bool]]) -> str:
    """The name of a kernel in the code for a device. It ends in a digest of its threads, its grid,
    the sizes of its buffers and which of them it writes.

    >>> kernel_name("k0_add_0", (256, 1, 1), (4, 1, 1), [("arena", 0, 4096, True)])
    'k0_add_0_74dcdc787c4868b8'
    """
    memories = [[nbytes, writes] for _, _, nbytes, writes in places]
    return f"{stem}_{_digest([list(group), list(grid), memories])}"


def _digest(data: list[Any]) -> str:
    import hashlib  # only needed when programs are written or loaded

    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]
