"""The NumPy definition of asynchronous products.

A product reads its operands and adds to its matrices at any time from its start until its threads
have waited for its group. Until then nobody may touch the matrices or write to the operands. For
the race detector a thread that makes no other access reads them twice: when the product starts and
when it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ztorch.dtypes import from_storage
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, Instr
from ztorch.ir.lockstep import Lockstep, Watched

Step = Callable[[], None]  # runs one instruction


@dataclass
class ProductInFlight:
    """The same product of several warpgroups, on its way."""

    at: int  # number of its instruction
    operands: list[tuple[Watched, np.ndarray]]  # each with its places, by thread
    variables: list[int]  # ids of its matrices
    threads: np.ndarray  # mask of those that have started it


@dataclass
class ProductGroup:
    """AsyncProducts that threads wait for together."""

    threads: np.ndarray  # mask of those that have not waited for it yet
    products: list[ProductInFlight] = field(default_factory=list)


class AsyncProducts:
    """The products of a launch that are on their way. The machine is handed in, not held."""

    def __init__(self, m: Lockstep) -> None:
        self.open: list[ProductInFlight] = []  # in no group yet
        self.groups: list[ProductGroup] = []  # the oldest first
        starts = [i for i in m.kernel.body if i.opcode == "mma_async"]
        names = {i.attrs[key] for i in starts for key in ("mem", "source")}
        self.stores = [m.stores[name] for name in names]
        for store in self.stores:
            store.reading = np.zeros(store.data.size, np.int32)
            store.unfenced = np.zeros(store.data.size, np.int32)
        self.variables = {v.id for i in starts for v in i.args[2:]}
        self.fenced: dict[int, np.ndarray] = {}  # what variables held at the last fence, by id

    def start(self, m: Lockstep, at: int, instr: Instr, left: Watched, right: Watched,
              indices: tuple[int, int]) -> Step:
        attrs, sums = instr.attrs, instr.args[2:]
        fragment = sums[0].fragment
        assert fragment is not None
        shape, line = fragment.shape, SWIZZLE_LINE // fragment.shape.of.bytes
        team, rows, columns = m.subgroup * WARPGROUP, shape.m * WARPGROUP, shape.n * len(sums)
        i, k = np.indices((rows, shape.k))
        at_a = attrs["off"] + (k * line + i if attrs["turned"] else i * line + k)
        k, j = np.indices((shape.k, columns))
        at_b = attrs["source_off"] + (j * line + k if attrs["source_turned"] else
                                      j // line * attrs["panel"] + k * line + j % line)
        sides = [(left, at_a, indices[0]), (right, at_b, indices[1])]

        def step() -> None:
            m.together(at, team, "warpgroup")
            threads = np.broadcast_to(m.present(), (m.threads, 1))[:, 0].copy()
            reads = [(store, self._places(m, at, store, offsets, m.regs[index], team))
                     for store, offsets, index in sides]
            a, b = (from_storage(shape.of, store.data[places]).astype(np.float64).reshape(
                -1, *offsets.shape) for (store, places), (_, offsets, _) in zip(
                    reads, sides, strict=True))
            product = (a @ b).reshape(-1, shape.m, len(sums), shape.n)
            for n, v in enumerate(sums):
                self._add(m, at, v.id, product[:, :, n], threads)
            for store, places in reads:
                assert store.reading is not None
                np.add.at(store.reading, places[threads].reshape(-1), 1)
            self.open.append(ProductInFlight(at, reads, [v.id for v in sums], threads))
        return step

    def _places(self, m: Lockstep, at: int, store: Watched, offsets: np.ndarray, index: np.ndarray,
                team: int) -> np.ndarray:
        """Where the elements of an operand are, shared out among the threads of each warpgroup;
        checks that they may be read."""
        first = np.broadcast_to(index, (m.threads, 1)).astype(np.int64).reshape(-1, team)
        active = np.broadcast_to(m.present(), (m.threads, 1)).reshape(-1, team)
        if ((first != first[:, :1]) & active).any():
            raise m.fail(at, "the index differs between the threads of a warpgroup")
        each = (first[:, :1] + offsets.reshape(-1)).reshape(m.threads, -1)
        places, live = m.reach(at, store, each, None)
        self._touch(m, at, store, places, live, team)
        if store.brought_by is not None:
            m.arrived(at, store, places, active.reshape(-1))
        assert store.unfenced is not None
        if store.unfenced[places[active.reshape(-1)]].any():
            raise m.fail(at, f"{store.spec.name} was written by a thread that had no fence "
                             "(shared_fence) behind it")
        return places

    def _touch(self, m: Lockstep, at: int, store: Watched, places: np.ndarray,
               live: np.ndarray | None, team: int) -> None:
        m.shifts += m.threads  # numbers that no thread has used before
        m.touch(at, store, "read", places, live, m.number // team + m.shifts)

    def _add(self, m: Lockstep, at: int, v: int, product: np.ndarray, threads: np.ndarray) -> None:
        """Adds to a matrix, as if it were done at once: nobody may look before it is waited for."""
        held = m.vars.get(v)
        if held is None or (v in m.unset and (m.unset[v][:, 0] & threads).any()):
            raise m.fail(at, f"variable %{v} was never set")
        if self.fenced.get(v) is not held:
            raise m.fail(at, f"variable %{v} was assigned without a fence (mma_fence) behind it")
        lanes = product[0].size // m.subgroup
        total = np.broadcast_to(held, (m.threads, lanes)).astype(np.float64)
        total = total + product.reshape(m.threads, lanes)
        result = np.where(threads[:, None], total.astype(held.dtype), held)
        m.vars[v] = self.fenced[v] = result
        m.summing.setdefault(v, np.zeros(m.threads, np.int32))[threads] += 1

    def fence_matrices(self, m: Lockstep) -> None:
        self.fenced.update((v, m.vars[v]) for v in self.variables & m.vars.keys())

    def fence_memory(self, m: Lockstep) -> None:
        """Makes the writes of the active threads visible to products."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
        for store in self.stores:
            assert store.unfenced is not None
            written = np.flatnonzero(store.unfenced)
            store.unfenced[written[active[store.unfenced[written] - 1]]] = 0

    def commit(self, m: Lockstep) -> None:
        """Ends a group of the products that the active threads have started."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
        ended = [replace(p, threads=p.threads & active) for p in self.open]
        others = [replace(p, threads=p.threads & ~active) for p in self.open]
        self.groups.append(ProductGroup(active.copy(), [p for p in ended if p.threads.any()]))
        self.open = [p for p in others if p.threads.any()]

    def wait(self, m: Lockstep, pending: int) -> None:
        """Ends all groups of the active threads but the last `pending` of each."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0]
        newer = np.zeros(m.threads, np.int64)
        for group in reversed(self.groups):
            done = group.threads & active & (newer >= pending)
            newer += group.threads
            group.threads &= ~done
            for product in group.products:
                self._end(m, product, product.threads & done)
        self.groups = [g for g in self.groups if g.threads.any()]

    def _end(self, m: Lockstep, product: ProductInFlight, threads: np.ndarray) -> None:
        if not threads.any():
            return
        for store, places in product.operands:
            assert store.reading is not None
            np.subtract.at(store.reading, places[threads].reshape(-1), 1)
            self._touch(m, product.at, store, places, threads[:, None], m.subgroup * WARPGROUP)
        for v in product.variables:
            m.summing[v][threads] -= 1
            if not m.summing[v].any():
                del m.summing[v]
