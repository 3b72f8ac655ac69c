"""The parts of a program besides its steps: the layout of its states and constants, and its
kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ztorch.dtypes import storage_dtype, to_storage, u32
from ztorch.graph.value import Value
from ztorch.ir.kernel import Kernel
from ztorch.ir.limits import Limits
from ztorch.lower.rewrites.frozen import Order
from ztorch.lower.schedule import Schedule
from ztorch.lower.shared_kernels import RegionShape
from ztorch.sized_cache import SizedCache

Lowered = SizedCache[tuple, tuple[Kernel, Schedule]]
KERNEL_SIZE = 50  # instructions that take as much memory as the rest of a kernel: some 40 KiB


@dataclass
class Params:
    """The layout of states and constants, which live as long as the program, in one block."""

    limits: Limits
    declared: dict[str, Value] = field(default_factory=dict)  # states of the functions
    offsets: dict[str, int] = field(default_factory=dict)  # of states, in bytes
    states: dict[str, Value] = field(default_factory=dict)  # states that have an offset
    orders: dict[str, Order] = field(default_factory=dict)  # of states stored in packed order
    constants: list[tuple[int, np.ndarray]] = field(default_factory=list)  # offset and data
    size: int = 0  # of the block, in bytes
    # Kernels by the shape of their regions, and the ops in it.
    kernels: dict[tuple, tuple[Kernel, Schedule]] = field(default_factory=dict)
    earlier: Lowered | None = None  # kernels of earlier programs of this process
    _shared: tuple[int, int] = (0, 0)  # the workspace of kernels: offset and bytes
    _known: dict[tuple, int] = field(default_factory=dict)  # offsets of constants, by content

    def state(self, v: Value) -> int:
        name = v.attrs["name"]
        if name not in self.offsets:
            self.offsets[name] = self._take(v.size * v.dtype.bytes)
            self.states[name] = v
        return self.offsets[name]

    def share_packed(self, name: str, packed: str, order: Order) -> None:
        """Gives a state the memory of a derived state, which has the same numbers in another order.
        """
        self.offsets[name] = self.offsets.pop(packed)
        self.states[name] = self.declared[name]
        del self.states[packed]
        self.orders[name] = order

    def place_declared(self) -> None:
        """Gives an offset to the declared states that no kernel uses."""
        for v in self.declared.values():
            self.state(v)
        self.states = {name: self.states[name] for name in {**self.declared, **self.states}}

    def constant(self, v: Value) -> int:
        data = np.ascontiguousarray(to_storage(storage_dtype(v.dtype), v.attrs["data"]))
        key = (data.dtype.str, data.shape, data.tobytes())
        if key not in self._known:
            self._known[key] = self._take(data.nbytes)
            self.constants.append((self._known[key], data))
        return self._known[key]

    def counters(self, count: int = 1) -> int:
        """The offset of counters of barriers or signals of a launch, which are zero when a program
        starts."""
        self.constants.append((at := self._take(count * u32.bytes), np.zeros(count, np.uint32)))
        return at

    def workspace(self, nbytes: int) -> int:
        """The offset of bytes that kernels use one after another, and that hold nothing between
        them."""
        if nbytes > self._shared[1]:
            self._shared = self._take(nbytes), nbytes
        return self._shared[0]

    def kernel(self, shape: RegionShape,
               lowered: Callable[[], tuple[Kernel, Schedule]]) -> tuple[Kernel, Schedule]:
        """The kernel of a region and its schedule; lowered only if no equal region was before."""
        key = shape.key, shape.ops
        kernel = self.kernels.get(key)
        if kernel is None and self.earlier is not None and shape.is_complete:
            kernel = self.earlier.get((self.limits, *key))
            if kernel is None:
                kernel = lowered()
                self.earlier.put((self.limits, *key), kernel, len(kernel[0].body) + KERNEL_SIZE)
        self.kernels[key] = kernel = kernel or lowered()
        return kernel

    def _take(self, nbytes: int) -> int:
        at = self.size
        align = self.limits.buffer_align
        self.size += (nbytes + align - 1) // align * align
        return at
