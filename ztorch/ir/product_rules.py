"""The rules for asynchronous products and swizzled memories."""

from __future__ import annotations

import math

from ztorch.ir.kernel import (
    ASYNC_PRODUCTS,
    SWIZZLE_LINE,
    SWIZZLE_REPEAT,
    WARPGROUP,
    Memory,
    MmaShape,
    Operand,
)
from ztorch.ir.thread_rules import ScopeRules

CHUNK = 16  # bytes that stay contiguous in a swizzled memory
SPLIT_ROWS = 16  # elements to which the start of a matrix is aligned that is split as it is loaded
MAX_SUMS = 32  # the most adjacent matrices that one product adds to


class ProductRules(ScopeRules):
    """The rules for single instructions, asynchronous products among them."""

    def swizzled_access(self) -> None:
        """An access to a swizzled memory stays within a chunk, or is an access to whole chunks by a
        matrix instruction."""
        i = self.instr
        m = self.memories[i.attrs["mem"]]
        if not m.swizzled or i.opcode in (*ASYNC_PRODUCTS, "copy_tile"):
            return
        x = i.dest if i.opcode in ("load", "gather", "mma_load") else i.args[1]
        if self.loads_parts and x.fragment is not None:
            self.rule(math.gcd(self.known_multiple(i.args[0]), SPLIT_ROWS) == SPLIT_ROWS and (
                i.attrs["off"] % (SPLIT_ROWS if i.attrs["transposed"] else x.fragment.shape.k) == 0
                and i.attrs["pitch"] * m.dtype.bytes == SWIZZLE_LINE * (1 + i.attrs["transposed"])),
                "{} is swizzled: a matrix that is split begins at a multiple of {} elements and "
                "has every line, or every other one if it is transposed", m.name, SPLIT_ROWS)
            return
        if i.opcode in ("mma_load", "mma_store"):
            chunked = x.fragment is not None and x.fragment.role != "c" and m.dtype.bits == 16
            self.rule(chunked and i.attrs["align"] >= CHUNK, "{} is swizzled: matrices are loaded "
                      "from it as operands of 16 bits, aligned to {} bytes", m.name, CHUNK)
            return
        lanes = i.attrs["elements"] if i.opcode == "copy_async" else x.lanes
        size = lanes * m.dtype.bytes
        self.rule(lanes == 1 or i.opcode in ("gather", "scatter") or (
            size <= CHUNK and i.attrs["align"] >= size),
            "{} is swizzled: {} bytes are not known to be in a chunk of {}", m.name, size, CHUNK)

    @property
    def loads_parts(self) -> bool:
        """Whether this is the load of a left operand that is split."""
        x = self.instr.dest.fragment
        return (self.instr.opcode == "mma_load" and x is not None and x.role == "a"
                and x.shape.split)

    def check_mma_async(self) -> None:
        attrs, (left, right, *sums) = self.instr.attrs, self.instr.args
        shape = self._sums(sums)
        across = attrs["transposed"] or not attrs["source_transposed"]
        truncates = shape.mantissa_bits > 0 and not shape.split
        self.rule(shape.of.bits == 16 or (truncates and not across),
                  "multiplies matrices of 16 bits, or along k those that it truncates, not {!r}",
                  shape.of)
        self._side(attrs["mem"], left, attrs["off"], not attrs["transposed"], shape)
        self._side(attrs["source"], right, attrs["source_off"], attrs["source_transposed"], shape)
        line = SWIZZLE_LINE // shape.of.bytes
        self.rule(shape.m * WARPGROUP <= line or not attrs["transposed"],
                  "{} rows do not fit into a line", shape.m * WARPGROUP)
        self._panels(shape, sums, attrs["source_transposed"])

    def check_mma_held_async(self) -> None:
        attrs, (right, a, *sums) = self.instr.attrs, self.instr.args
        shape = self._sums(sums)
        self.rule(shape.of.bits == 16 or (shape.split and attrs["transposed"]),
                  "multiplies matrices of 16 bits, or along k those that are split, not {!r}",
                  shape.of)
        self.rule((attrs["parts"] > 0) == shape.split
                  and attrs["parts"] * shape.of.bytes % SWIZZLE_REPEAT == 0,
                  "parts of b are a multiple of {} bytes apart, if a is split", SWIZZLE_REPEAT)
        self._side(attrs["mem"], right, attrs["off"], attrs["transposed"], shape)
        self._panels(shape, sums, attrs["transposed"])
        fragment = a.fragment
        self.rule(fragment is not None and fragment.role == "a" and fragment.shape == shape
                  and fragment.size // a.lanes == shape.m * shape.n // sums[0].lanes,
                  "multiplies a matrix a of the same shape and threads")

    def _sums(self, sums: list[Operand]) -> MmaShape:
        """Check the matrix that a product adds to."""
        self.rule(1 <= len(sums) <= MAX_SUMS, "adds to 1 to {} matrices, not {}", MAX_SUMS,
                  len(sums))
        self.same_type(*sums)
        self.rule(len({v.id for v in sums}) == len(sums), "adds to one matrix twice")
        fragment = sums[0].fragment
        self.rule(fragment is not None and fragment.role == "c", "adds to matrices c only")
        assert fragment is not None
        shape = fragment.shape
        self.check_barrier(fragment.size // sums[0].lanes * WARPGROUP)
        for v in sums:
            self.rule(v.id in self.assigned, "%{} may not have been set on some path to here", v.id)
        return shape

    def _side(self, name: str, index: Operand, off: int, along_k: bool, shape: MmaShape) -> None:
        """Check an operand in shared memory."""
        m = self.memories[name]
        self.rule(m.space == "shared" and m.swizzled, "{} is not swizzled memory", name)
        self.rule(m.dtype == shape.of, "{} holds {!r}, not {!r}", name, m.dtype, shape.of)
        self._start(index, off, along_k, shape.k, shape.of.bytes)
        fragment = self.instr.args[2].fragment
        assert fragment is not None
        threads = fragment.size // self.instr.args[2].lanes * WARPGROUP
        self.rule(index.id not in self.varying(threads),
                  "the index may differ between the threads of a warpgroup")

    def _panels(self, shape: MmaShape, sums: list[Operand], along_k: bool) -> None:
        line, panel = SWIZZLE_LINE // shape.of.bytes, self.instr.attrs["panel"]
        repeat = SWIZZLE_REPEAT // shape.of.bytes
        self.rule(len(sums) * shape.n <= line or along_k or (panel > 0 and panel % repeat == 0),
                  "panels are a multiple of {} elements apart, not {}", repeat, panel)

    def _start(self, index: Operand, off: int, along_k: bool, k: int, size: int) -> None:
        """An operand starts at the first of eight lines of the swizzle; along k it may start at any
        step within a line."""
        self.index(index)
        repeat, line = SWIZZLE_REPEAT // size, SWIZZLE_LINE // size
        inside = off % repeat if along_k else 0
        self.rule(math.gcd(self.known_multiple(index), off - inside) % repeat == 0
                  and inside < line and inside % k == 0,
                  "an operand is not known to begin where lines of a swizzle repeat")

    def check_mma_commit(self) -> None:
        """Has no rules."""

    check_mma_wait = check_mma_fence = check_shared_fence = check_mma_commit

    def swizzle(self, m: Memory) -> None:
        """Check the declaration of a memory."""
        self.rule(not m.swizzled or (m.space == "shared" and m.vec == 1),
                  "{}: only shared memory of single elements is swizzled", m.name)
        self.rule(not m.streamed or (m.space == "global" and m.access == "w"),
                  "{}: only global memory that is never read is streamed", m.name)
        self.rule(not m.swizzled or m.size * m.dtype.bytes % SWIZZLE_REPEAT == 0,
                  "{}: a swizzled memory has a multiple of {} bytes", m.name, SWIZZLE_REPEAT)
