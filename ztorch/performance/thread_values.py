"""The integers that the threads of one workgroup compute: indices, counters, conditions.

An integer from memory is assumed to be a small number that depends only on its address.
The values of floats are unknown, as are values that are computed from them.
"""

from __future__ import annotations

import math

import numpy as np

from ztorch.ir.kernel import Grid, Instr, Kernel, Operand
from ztorch.ir.opcodes import OPCODES

MEMORY_INTEGERS = 8  # number of different integers that memory is assumed to hold

ThreadValue = np.ndarray | None  # of shape (threads or 1, lanes or 1); None: unknown


class ThreadValues:
    """The integers of one workgroup, by the ids of IR values."""

    def __init__(self, kernel: Kernel, grid: Grid, group: Grid):
        self.kernel, self.grid, self.group = kernel, grid, group
        self.threads = math.prod(kernel.workgroup)
        self.number = np.arange(self.threads)[:, None]
        self.values: dict[int, ThreadValue] = {}

    def of(self, a: Operand) -> ThreadValue:
        """The value of an operand."""
        if a.is_const:
            if a.dtype.is_float:
                return None
            return np.array([[a.number]], bool if a.dtype.kind == "b" else a.dtype.numpy)
        return self.values.get(a.id)

    def column(self, a: Operand) -> ThreadValue:
        """The value of each thread as int64, of shape (threads,)."""
        x = self.of(a)
        return None if x is None else np.broadcast_to(x[:, 0], (self.threads,)).astype(np.int64)

    def step(self, i: Instr, active: np.ndarray) -> None:
        """Computes the result of an instruction that reads no memory."""
        d, args = i.dest, [self.of(a) for a in i.args]
        if i.opcode == "set":
            self._assign(i.args[0].id, args[1], active)
        elif i.opcode in ("get", "splat"):
            self.values[d.id] = args[0]
        elif i.opcode in ("grid_id", "block_id"):
            self.values[d.id] = self._identity(i)
        elif i.opcode == "iota":
            self.values[d.id] = np.arange(d.lanes, dtype=d.dtype.numpy)[None]
        elif i.opcode == "extract" and args[0] is not None:
            lane = i.attrs["lane"] if args[0].shape[1] > 1 else 0
            self.values[d.id] = args[0][:, lane:lane + 1]
        elif i.opcode == "select" and args[0] is None:
            self.values[d.id] = args[1]
        else:
            self.values[d.id] = self._computed(i, args)

    def from_memory(self, i: Instr, addresses: ThreadValue) -> None:
        """Assumes a result for a load."""
        d = i.dest
        if d.dtype.kind == "b":
            self.values[d.id] = np.ones((1, 1), bool)
        elif d.dtype.is_int and addresses is not None:
            self.values[d.id] = (addresses * 5 % MEMORY_INTEGERS).astype(d.dtype.numpy)
        else:
            self.values[d.id] = None

    def _assign(self, variable: int, x: ThreadValue, active: np.ndarray) -> None:
        before = self.values.get(variable)
        if x is None or before is None or active.all():
            self.values[variable] = x
        else:
            self.values[variable] = np.where(active[:, None], x, before)

    def _identity(self, i: Instr) -> np.ndarray:
        axis = i.attrs.get("axis", 0)
        if i.opcode == "grid_id":
            return np.array([[self.group[axis]]], i.dest.dtype.numpy)
        size = self.kernel.workgroup
        place = self.number // math.prod(size[:axis]) % size[axis]
        return place.astype(i.dest.dtype.numpy)

    def _computed(self, i: Instr, args: list[ThreadValue]) -> ThreadValue:
        row, d = OPCODES.get(i.opcode), i.dest.dtype
        if row is None or row.meaning is None or d.is_float or any(a is None for a in args):
            return None
        named = {"dtype": d} if row.result == "attr" else {}
        with np.errstate(all="ignore"):
            x = np.asarray(row.meaning(*args, **named))
        return x.astype(bool if d.kind == "b" else d.numpy)
