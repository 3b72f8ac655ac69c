"""The NumPy definition of asynchronous products.

A product reads its operands and adds to its matrices at any time from its start until its threads
have waited for its group. Until then no thread may access the matrices or write to the operands.
For the race detector a separate thread reads the operands twice: when the product starts and at the
wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ztorch.dtypes import from_storage
from ztorch.ir import layouts
from ztorch.ir.kernel import (
    ASYNC_PRODUCTS,
    PART_BITS,
    SWIZZLE_LINE,
    WARPGROUP,
    Instr,
    MmaShape,
)
from ztorch.ir.lockstep import Lockstep, Watched
from ztorch.ir.matrices import matrix_of, parts_with_one, truncated

Step = Callable[[], None]  # runs one instruction


@dataclass
class ProductInFlight:
    """The same product by several warpgroups, in flight."""

    at: int  # number of its instruction
    operands: list[tuple[Watched, np.ndarray]]  # each with its places, by thread
    variables: list[int]  # ids of its matrices
    held: tuple[int, np.ndarray] | None  # of a left operand in registers: its id and value
    threads: np.ndarray  # mask of those that have started it


@dataclass
class ProductGroup:
    """Products that threads wait for together."""

    threads: np.ndarray  # mask of those that have not waited for it yet
    products: list[ProductInFlight] = field(default_factory=list)


class AsyncProducts:
    """The products of a launch that are in flight. The machine is passed to methods, not stored."""

    def __init__(self, m: Lockstep) -> None:
        self.open: list[ProductInFlight] = []  # in no group yet
        self.groups: list[ProductGroup] = []  # the oldest first
        starts = [i for i in m.kernel.body if i.opcode in ASYNC_PRODUCTS]
        names = {i.attrs[key] for i in starts for key in ("mem", "source") if key in i.attrs}
        self.stores = [m.stores[name] for name in names]
        for store in self.stores:
            store.reading = np.zeros(store.data.size, np.int32)
            store.unfenced = np.zeros(store.data.size, np.int32)
        self.variables = {v.id for i in starts for v in i.args[2:]}
        self.lefts = {i.args[1].id for i in starts if i.opcode == "mma_held_async"}
        self.fenced: dict[int, np.ndarray] = {}  # their contents at the last fence, by id

    def start(self, m: Lockstep, at: int, instr: Instr, left: Watched, right: Watched,
              indices: tuple[int, int]) -> Step:
        attrs, sums = instr.attrs, instr.args[2:]
        fragment = sums[0].fragment
        assert fragment is not None
        shape, line = fragment.shape, SWIZZLE_LINE // fragment.shape.of.bytes
        team, rows, columns = m.subgroup * WARPGROUP, shape.m * WARPGROUP, shape.n * len(sums)
        i, k = np.indices((rows, shape.k))
        at_a = attrs["off"] + (k * line + i if attrs["transposed"] else i * line + k)
        at_b = attrs["source_off"] + _places_of_b(shape, columns, attrs["source_transposed"], attrs)
        sides = [(left, at_a, indices[0]), (right, at_b, indices[1])]

        def step() -> None:
            teams, threads = self._teams(m, at, team)
            reads = [(store, self._places(m, at, store, offsets, m.regs[index], team))
                     for store, offsets, index in sides]
            a, b = (truncated(from_storage(
                shape.of, store.data[places[teams]]), shape.mantissa_bits).astype(
                    np.float64).reshape(-1, *offsets.shape) for (store, places), (_, offsets, _)
                in zip(reads, sides, strict=True))
            product = (a @ b).reshape(1, -1, shape.m, columns)
            self._begin(m, at, instr, product, reads, teams, threads)
        return step

    def start_held(self, m: Lockstep, at: int, instr: Instr, right: Watched, index: int,
                   left: int) -> Step:
        """The same where subgroups hold their rows of the left operand."""
        attrs, sums = instr.attrs, instr.args[2:]
        fragment = sums[0].fragment
        assert fragment is not None
        shape, team, columns = fragment.shape, m.subgroup * WARPGROUP, fragment.shape.n * len(sums)
        offsets = attrs["off"] + _places_of_b(shape, columns, attrs["transposed"], attrs)
        offsets = offsets + attrs["parts"] * np.arange(shape.parts)[:, None, None]

        def step() -> None:
            teams, threads = self._teams(m, at, team)
            registers = m.regs[left]
            if self.fenced.get(left) is not registers:
                raise m.fail(at, f"%{left} was computed without a fence (mma_fence) after it")
            places = self._places(m, at, right, offsets, m.regs[index], team)
            a = matrix_of(m, at, left, instr.args[1])[teams[:, ::m.subgroup] // m.subgroup]
            b = from_storage(shape.of, right.data[places[teams]]).reshape(-1, *offsets.shape)
            pairs = [(a, b[:, 0])]
            if shape.split:
                b = truncated(b, PART_BITS)
                (first, one, rest), b = parts_with_one(a.astype(np.float32)), b.swapaxes(0, 1)
                pairs = [(rest, b[0]), (one, b[1]), (first, b[0])]
            product = np.stack([x.astype(np.float64) @ y.astype(np.float64)[:, None]
                                for x, y in pairs]).reshape(len(pairs), -1, shape.m, columns)
            self._begin(m, at, instr, product, [(right, places)], teams, threads, (left, registers))
        return step

    def _begin(self, m: Lockstep, at: int, instr: Instr, product: np.ndarray,
               reads: list[tuple[Watched, np.ndarray]], teams: np.ndarray, threads: np.ndarray,
               registers: tuple[int, np.ndarray] | None = None) -> None:
        """Adds the products of all subgroups, of each part, to matrices, which must not be accessed
        from now on."""
        sums = instr.args[2:]
        results = np.zeros((len(product), m.threads // m.subgroup, *product.shape[2:]))
        results[:, teams[:, ::m.subgroup].reshape(-1) // m.subgroup] = product
        fragment = sums[0].fragment
        assert fragment is not None
        row, column = layouts.places(fragment)
        for n, v in enumerate(sums):
            self._add(m, at, v.id, results[:, :, row, n * fragment.shape.n + column], threads,
                      instr.attrs["fresh"])
        for store, places in reads:
            assert store.reading is not None
            np.add.at(store.reading, places[threads].reshape(-1), 1)
        self.open.append(ProductInFlight(at, reads, [v.id for v in sums], registers, threads))

    def _teams(self, m: Lockstep, at: int, team: int) -> tuple[np.ndarray, np.ndarray]:
        """The threads of each warpgroup, and a mask of those that are active."""
        active = np.broadcast_to(m.present(), (m.threads, 1))[:, 0].copy()
        teams = _whole_teams(m, team)
        masks = active[teams]
        if (masks.any(1) != masks.all(1)).any() or masks.sum() != active.sum():
            raise m.fail(at, "divergent: not every thread of a warpgroup gets here")
        return teams, active

    def _places(self, m: Lockstep, at: int, store: Watched, offsets: np.ndarray, index: np.ndarray,
                team: int) -> np.ndarray:
        """Where the elements of an operand are, shared out among the threads of each warpgroup;
        checks that they may be read."""
        teams, active = self._teams(m, at, team)
        first = np.broadcast_to(index, (m.threads, 1))[:, 0].astype(np.int64)[teams]
        if ((first != first[:, :1]) & active[teams]).any():
            raise m.fail(at, "the index differs between the threads of a warpgroup")
        positions = np.zeros((m.threads, offsets.size // team), np.int64)
        positions[teams.reshape(-1)] = (first[:, :1] + offsets.reshape(-1)).reshape(teams.size, -1)
        places, live = m.reach(at, store, positions, None)
        mask = active[:, None]
        self._touch(m, at, store, places, mask if live is None else live & mask, team)
        if store.filled_by is not None:
            m.arrived(at, store, places, active)
        assert store.unfenced is not None
        if store.unfenced[places[active]].any():
            raise m.fail(at, f"{store.spec.name} was written by a thread without a fence "
                             "(shared_fence) after it")
        return places

    def _touch(self, m: Lockstep, at: int, store: Watched, places: np.ndarray,
               live: np.ndarray | None, team: int) -> None:
        m.shifts += m.threads  # numbers that no thread has used before
        number = m.number // m.size * m.size + m.number % m.size // team
        m.touch(at, store, "read", places, live, number + m.shifts)

    def _add(self, m: Lockstep, at: int, v: int, product: np.ndarray, threads: np.ndarray,
             fresh: bool) -> None:
        """Adds to a matrix immediately, since no thread may read it before the wait. The sum is
        rounded once for each part."""
        sums = m.vars.get(v)
        if sums is None or (v in m.unset and (m.unset[v][:, 0] & threads).any()):
            raise m.fail(at, f"variable %{v} was never set")
        if self.fenced.get(v) is not sums:
            raise m.fail(at, f"variable %{v} was assigned without a fence (mma_fence) after it")
        lanes = product[0, 0].size // m.subgroup
        total = np.zeros_like(sums) if fresh else sums
        for part in product.reshape(-1, m.threads, lanes):
            total = (total.astype(np.float64) + part).astype(sums.dtype)
        result = np.where(threads[:, None], total, sums)
        m.vars[v] = self.fenced[v] = result
        m.summing.setdefault(v, np.zeros(m.threads, np.int32))[threads] += 1

    def fence_matrices(self, m: Lockstep) -> None:
        self.fenced.update((v, m.vars[v]) for v in self.variables & m.vars.keys())
        self.fenced.update((v, m.regs[v]) for v in self.lefts if v in m.regs)

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
            ended = group.threads & active & (newer >= pending)
            newer += group.threads
            group.threads &= ~ended
            for product in group.products:
                self._end(m, product, product.threads & ended)
        self.groups = [g for g in self.groups if g.threads.any()]

    def _end(self, m: Lockstep, product: ProductInFlight, threads: np.ndarray) -> None:
        if not threads.any():
            return
        if product.held is not None and m.regs[product.held[0]] is not product.held[1]:
            raise m.fail(product.at, f"%{product.held[0]} was computed anew while this product was "
                                     "in flight")
        for store, places in product.operands:
            assert store.reading is not None
            np.subtract.at(store.reading, places[threads].reshape(-1), 1)
            self._touch(m, product.at, store, places, threads[:, None], m.subgroup * WARPGROUP)
        for v in product.variables:
            m.summing[v][threads] -= 1
            if not m.summing[v].any():
                del m.summing[v]


def _whole_teams(m: Lockstep, team: int) -> np.ndarray:
    """The thread numbers of each warpgroup. The last threads of a workgroup may belong to none."""
    return np.arange(m.threads).reshape(-1, m.size)[:, :m.size // team * team].reshape(-1, team)


def _places_of_b(shape: MmaShape, columns: int, along_k: bool, attrs: dict) -> np.ndarray:
    """The positions of the elements (k, column) of a right operand."""
    line = SWIZZLE_LINE // shape.of.bytes
    k, j = np.indices((shape.k, columns))
    return j * line + k if along_k else j // line * attrs["panel"] + k * line + j % line
