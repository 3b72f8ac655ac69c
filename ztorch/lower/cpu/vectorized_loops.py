"""Vectorizes innermost loops: several iterations run in the lanes of a vector.

An example is the loop over the elements of a row in a sparse or ragged array. The remainder runs in
masked lanes, so a short row takes one or two vectors, and no branch depends on its length. Loops
that gather, or run a known number of times, compute full vectors, then the remainder; so do loops
that write, on machines without mask registers, whose remainder is computed one by one. Reductions
have one accumulator per lane, combined after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ztorch.dtypes import i32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand, constant
from ztorch.ir.limits import Limits
from ztorch.ir.nested import Nested, nested
from ztorch.ir.opcodes import PURE, identity
from ztorch.ir.ranges import Range, range_of, range_of_result, ranges
from ztorch.ir.rewrite import next_id
from ztorch.lower.tuning import KNOWN_LOOP, LANES_OF_GATHERS

# The opcode that combines accumulators, by the opcode that updates them.
COMBINED = {"add": "add", "sub": "add", "mul": "mul", "min": "min", "max": "max", "and": "and",
            "or": "or", "xor": "xor"}
ALONG = frozenset({"cast", "add", "sub"})  # opcodes that preserve a stride of one per iteration
ONE_LANE = frozenset({"worker", "workers", "grid_id", "block_id", "extract", "join", "splat",
                      "iota", "shuffle"})


def vectorize_loops(kernel: Kernel, limits: Limits) -> Kernel:
    """The kernel with innermost loops vectorized whose iterations are independent except for
    reductions. Exact kernels keep the order of sums.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("total", exact=False)
    >>> _ = b.memory("n", b.index, 1), b.memory("x", f32, 64), b.memory("y", f32, 1, access="w")
    >>> total = b.var(f32, init=0.0)
    >>> with b.loop(0, b.load("n", 0)) as i:
    ...     b.set(total, b.add(b.get(total), b.load("x", i)))
    >>> b.store("y", 0, b.get(total))
    >>> k = vectorize_loops(b.kernel(), Limits(512, 32, True, mask_registers=True))
    >>> next(i.args[2].number for i in k.body if i.opcode == "loop")
    16
    """
    if limits.vector_bits < 256:  # no loads under masks
        return kernel
    limits_by_id = ranges(kernel)
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    b.memories = {m.name: m for m in kernel.memories}
    b.variables = list(kernel.variables)
    top = nested(kernel.body)
    while_counters = {i.args[0].id for i in kernel.body if i.opcode == "while"}

    def emit(n: Nested) -> None:
        loop = None if n.instr.dest.id in while_counters else _vectorizable(
            n, kernel, limits, limits_by_id)
        if loop is not None:
            loop.emit(b)
        else:
            b.body.append(n.instr)
            for inner in n.yes:
                emit(inner)
            if n.otherwise is not None:
                b.body.append(n.otherwise)
            for inner in n.no:
                emit(inner)
            if n.end is not None:
                b.body.append(n.end)
        b.forget()

    for n in top:
        emit(n)
    return replace(kernel, variables=tuple(b.variables), body=tuple(b.body))


def _plain(nodes: list[Nested]) -> Iterator[Instr | None]:
    """The instructions of a loop body; None in place of each loop or branch."""
    for n in nodes:
        if n.instr.opcode == "if" and n.instr.args[0].is_const and n.instr.args[0].number:
            yield from _plain(n.yes)
        else:
            yield None if n.end is not None else n.instr


def _vectorizable(n: Nested, kernel: Kernel, limits: Limits,
                  limits_by_id: Mapping[int, Range]) -> _VectorizedLoop | None:
    """A loop that can be vectorized; None for any other node."""
    i = n.instr
    if i.opcode != "loop" or i.attrs["kind"] != "serial" or not (
            i.args[2].is_const and i.args[2].number == 1):
        return None
    body = [*_plain(n.yes)]
    instructions = [x for x in body if x is not None]
    if len(instructions) < len(body):
        return None
    assert n.end is not None
    loop = _VectorizedLoop(i, instructions, n.end, kernel, limits_by_id, limits)
    turns = i.args[1].number if i.args[1].is_const else KNOWN_LOOP
    return loop if loop.is_legal() and turns >= KNOWN_LOOP and not (
        i.args[1].is_const and loop.updates) else None


def _place(access: Instr) -> tuple[Operand, int]:  # of a load or a store: index and offset
    return access.args[0], access.attrs["off"]


@dataclass
class _VectorizedLoop:
    """An innermost loop."""

    loop: Instr
    body: list[Instr]
    end: Instr
    kernel: Kernel
    known: Mapping[int, Range]
    limits: Limits

    def __post_init__(self) -> None:
        self.memories = {m.name: m for m in self.kernel.memories}
        self.along = {self.loop.dest.id}  # values that grow by one per iteration
        self.vary: set[int] = set()  # other values that depend on the iteration
        self.updates: dict[int, Instr] = {}  # the reduction of each variable, by its id
        self.places: dict[str, tuple[Operand, int]] = {}  # index and offset of stores, by memory
        self.gathers = False

    def is_legal(self) -> bool:
        """Whether the iterations are independent; classifies all values."""
        changed = {i.args[0].id for i in self.body if i.opcode == "set"}
        if len(changed) < sum(i.opcode == "set" for i in self.body):
            return False
        for i in self.body:
            if i.opcode == "store" and (len(i.args) > 2 or _place(i) != self.places.setdefault(
                    i.attrs["mem"], _place(i))):
                return False
        return all(self._fits(i, changed) for i in self.body) and (
            {*self.updates} == changed) and self._is_supported() and bool(changed or self.places)

    def _is_supported(self) -> bool:
        """Whether the machine has masked accesses and vectors for all values."""
        if any(i.dest.lanes > 1 or i.dest.fragment is not None for i in self.body):
            return False
        if self.limits.mask_registers:
            return True
        touched = {i.attrs["mem"] for i in self.body if "mem" in i.attrs}
        return all(self.memories[n].dtype.bits >= 32 for n in touched)

    def _fits(self, i: Instr, changed: set[int]) -> bool:
        moving = any(a.id in self.along or a.id in self.vary for a in i.args if not a.is_const)
        if i.opcode == "get":
            if i.args[0].id in changed:
                return self._is_updated(i)
        elif i.opcode == "set":
            return i.args[0].id in self.updates
        elif i.opcode == "store":
            return i.args[0].id in self.along
        elif i.opcode == "load" and len(i.args) == 1:
            mem = i.attrs["mem"]
            if mem in self.places and _place(i) != self.places[mem]:
                return False
            if moving:
                self.vary.add(i.dest.id)
                self.gathers |= i.args[0].id not in self.along
        elif i.opcode not in PURE or i.opcode in ONE_LANE or i.opcode.startswith("raw_"):
            return False
        elif moving and not self._is_update(i):
            grows = i.opcode in ALONG and i.dest.dtype.is_int and sum(
                a.id in self.along for a in i.args) == 1 and not any(
                a.id in self.vary for a in i.args) and (
                i.opcode != "sub" or i.args[0].id in self.along)
            (self.along if grows else self.vary).add(i.dest.id)
        return True

    def _is_updated(self, get: Instr) -> bool:
        """Whether a variable is a reduction: it is read only to update it, by an opcode whose
        accumulators can be combined. Records the update."""
        readers = [i for i in self.body if any(a.id == get.dest.id for a in i.args)]
        if not readers:
            return True
        change, last = readers[0], next(i for i in self.body if i.opcode == "set"
                                        and i.args[0] == get.args[0])
        accumulator = [a.id == get.dest.id for a in change.args]
        if len(readers) > 1 or change.opcode not in COMBINED or sum(accumulator) != 1 or (
                change.opcode == "sub" and not accumulator[0]) or (
                last.args[1].id != change.dest.id) or sum(
                    a.id == change.dest.id for i in self.body for a in i.args) != 1:
            return False
        sums = change.opcode in ("add", "sub", "mul") and change.dest.dtype.is_float
        if (sums and self.kernel.exact) or get.args[0].id in self.updates:
            return False
        self.updates[get.args[0].id] = change
        return True

    def _is_update(self, i: Instr) -> bool:
        return any(i is change for change in self.updates.values())

    # -- the new loop ----------------------------------------------------------------------------

    def emit(self, b: Builder) -> None:
        """Emits the vectorized loop."""
        widest = max((i.args[1] if i.opcode == "store" else i.dest).dtype.bits for i in self.body
                     if i.dest.id in self.vary or i.opcode in ("load", "store") or
                     self._is_update(i))
        lanes = LANES_OF_GATHERS if self.gathers else self.limits.vector_bits // widest
        parts = {v: b.var(i.dest.dtype, lanes, self._neutral(i, lanes))
                 for v, i in self.updates.items()}
        start, stop, _ = self.loop.args
        self.known = self._ranges_in_lanes(lanes)
        alone = bool(self.places) and not self.limits.mask_registers  # masked stores are slow
        known = start.is_const and stop.is_const
        if self.gathers or alone or known:
            rest = b.max(b.sub(stop, b.and_(b.sub(stop, start), lanes - 1)), start)
            with b.loop(start, rest, lanes) as counter:
                self._iteration(b, counter, None, lanes, parts)
            if not alone and not (known and rest.number == stop.number):  # without a branch
                self._masked(b, rest, b.max(b.sub(stop, rest), 0), lanes, parts)
        else:
            with b.loop(start, stop, lanes) as counter:
                self._masked(b, counter, b.min(b.sub(stop, counter), lanes), lanes, parts)
        for v, i in self.updates.items():
            opcode = COMBINED[i.opcode]
            variable = next(x for x in self.kernel.variables if x.id == v)
            b.set(variable, b.emit(opcode, b.get(variable), b.fold(opcode, b.get(parts[v]))))
        if alone:  # the remainder, one by one
            bounds = (rest, *self.loop.args[1:])
            end = replace(self.end, args=(self.end.args[0], *bounds))
            b.body += [replace(self.loop, args=bounds), *self.body, end]

    def _ranges_in_lanes(self, lanes: int) -> Mapping[int, Range]:
        """The ranges of values, also in lanes beyond the end of the loop, which may be before its
        start."""
        (low, most), (_, end) = (range_of(a, self.known) for a in self.loop.args[:2])
        known = {**self.known, self.loop.dest.id: (low, max(most, end) + lanes - 1)}
        for i in self.body:
            if (result := range_of_result(i, self.kernel, known)) is not None:
                known[i.dest.id] = result
        return known

    def _masked(self, b: Builder, counter: Operand, left: Operand, lanes: int,
                parts: Mapping[int, Operand]) -> None:
        mask = b.lt(b.iota(lanes, i32), b.cast(left, dtype=i32))
        self._iteration(b, counter, mask, lanes, parts, b.gt(left, 0) if self.gathers else None)

    def _neutral(self, i: Instr, lanes: int) -> Operand:
        d, opcode = i.dest.dtype, COMBINED[i.opcode]
        return constant(-0.0 if opcode == "add" and d.is_float else identity(opcode, d), d, lanes)

    def _iteration(self, b: Builder, counter: Operand, mask: Operand | None, lanes: int,
                   parts: Mapping[int, Operand], active: Operand | None = None) -> None:
        """A vector of iterations: those of `mask`, or all of them. `active`: whether there are any;
        if not, what is the same in all of them must not be read, either."""
        new: dict[int, Operand] = {self.loop.dest.id: counter}  # of `along`: the first lane's value
        old: dict[int, int] = {}  # variables, by the values read from them
        stored: dict[str, Operand] = {}

        def first(a: Operand) -> Operand:
            return new.get(a.id, a)

        def vector(a: Operand) -> Operand:
            x = b.splat(first(a), lanes)
            return b.add(x, b.iota(lanes, x.dtype)) if a.id in self.along else x

        for i in self.body:
            if i.opcode == "get" and i.args[0].id in parts:
                old[i.dest.id] = i.args[0].id
            elif self._is_update(i):
                v = next(old[a.id] for a in i.args if a.id in old)
                total = b.get(parts[v])
                args = [total if a.id in old else vector(a) for a in i.args]
                update = b.emit(i.opcode, *args)
                b.set(parts[v], update if mask is None else b.select(mask, update, total))
            elif i.opcode == "set":
                pass
            elif i.opcode == "store":
                mem = i.attrs["mem"]
                stored[mem] = vector(i.args[1])
                b.store(mem, first(i.args[0]), stored[mem], off=i.attrs["off"], mask=mask)
            elif i.opcode == "load" and i.args[0].id in (*self.along, *self.vary):
                new[i.dest.id] = self._loaded(b, i, first(i.args[0]), mask, lanes, stored)
            elif i.dest.id in self.vary:
                new[i.dest.id] = b.raw(i.opcode, i.dest.dtype, lanes, tuple(map(vector, i.args)),
                                       **i.attrs)
            else:
                args = [*map(first, i.args), *([active] if active and i.opcode == "load" else [])]
                new[i.dest.id] = b.raw(i.opcode, i.dest.dtype, 1, tuple(args), **i.attrs)

    def _loaded(self, b: Builder, i: Instr, at: Operand, mask: Operand | None, lanes: int,
                stored: Mapping[str, Operand]) -> Operand:
        mem, off, d = i.attrs["mem"], i.attrs["off"], i.dest.dtype
        if mem in stored and stored[mem].dtype == d:
            return stored[mem]
        if at.lanes == 1:
            return b.load(mem, at, off, lanes, d, mask)
        low, high = range_of(i.args[0], self.known)
        if low + off < 0 or high + off >= self.memories[mem].size or lanes != LANES_OF_GATHERS:
            return b.load(mem, at, off, lanes, d, mask)
        return b.join(*(b.load(mem, b.extract(at, k), off, 1, d) for k in range(lanes)))
