"""The rules for single instructions: dtypes, lanes, attributes and memory accesses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from ztorch.abi import BUFFER_ALIGN
from ztorch.errors import VerifyError
from ztorch.ir.halves import rounds_pairs
from ztorch.ir.kernel import Instr, Kernel, Memory, Operand
from ztorch.ir.opcodes import OPCODES

LOOP_KINDS = ("serial", "parallel", "grid", "block")
MAX_LANES = 1024  # of an operand; also the largest extent of a matrix
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # names that are safe in the text of every target


def is_int(x: Any) -> bool:
    """Whether x is an int and not a bool."""
    return isinstance(x, int) and not isinstance(x, bool)


# The allowed values of each attribute. Attributes that are not listed: see `_plain`.
ATTRIBUTES: dict[str, Callable[[Rules, Any], object]] = {
    **dict.fromkeys(("mem", "source", "right", "barriers"),
                    lambda r, v: isinstance(v, str) and v in r.memories),
    **dict.fromkeys(("off", "source_off", "right_off"),
                    lambda r, v: is_int(v) and abs(v) < 1 << (r.kernel.index.bits - 1)),
    **dict.fromkeys(("els", "transposed", "source_transposed", "right_transposed", "fewer"),
                    lambda r, v: isinstance(v, bool)),
    "align": lambda r, v: is_int(v) and 0 <= v <= BUFFER_ALIGN and not v & (v - 1),
    "lane": lambda r, v: is_int(v) and 0 <= v < r.instr.args[0].lanes,
    "perm": lambda r, v: isinstance(v, tuple) and all(
        is_int(n) and 0 <= n < 2 * r.instr.args[0].lanes for n in v),
    "axis": lambda r, v: is_int(v) and 0 <= v < 3,
    "kind": lambda r, v: v in LOOP_KINDS,
    "mask": lambda r, v: is_int(v) and 0 < v < 128,
    "panel": lambda r, v: is_int(v) and 0 <= v < 1 << (r.kernel.index.bits - 1),
    "pitch": lambda r, v: is_int(v) and 0 < v < 1 << (r.kernel.index.bits - 1),
    "pending": lambda r, v: is_int(v) and 0 <= v < MAX_LANES,
    **dict.fromkeys(("elements", "count", "cluster", "apart"),
                    lambda r, v: is_int(v) and 0 < v <= MAX_LANES),
    "bytes": lambda r, v: is_int(v) and 0 < v < 1 << 20,
    **dict.fromkeys(("extents", "pitches", "box"), lambda r, v: isinstance(v, tuple) and all(
        is_int(n) and 0 < n < 1 << (r.kernel.index.bits - 1) for n in v)),
}


def _plain(r: Rules, v: Any) -> object:
    """A number, a flag or a name."""
    return is_int(v) or isinstance(v, bool) or (isinstance(v, str) and NAME.fullmatch(v))


class Rules:
    """The rules that need only one instruction and the memories of the kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel: Kernel = kernel
        self.memories: dict[str, Memory] = {}
        self.multiples: dict[int, int] = {}  # a known divisor of each index value, by id
        self.at = -1  # position of the current instruction; -1: still in the declarations
        self.instr: Instr = Instr("", Operand(-1, kernel.index))  # current instruction

    def rule(self, holds: object, message: str, *parts: object) -> None:
        """Raise with the message unless the rule holds.

        `parts` are formatted into the message only then: formatting is slower than most checks.
        """
        if not holds:
            self.fail(message, *parts)

    def fail(self, message: str, *parts: object) -> NoReturn:
        """Raise with the message. Checks of every instruction call this themselves: a call of
        `rule` takes longer than most of them."""
        place = f", instruction {self.at} ({self.instr.opcode})" if self.at >= 0 else ""
        reason = message.format(*parts) if parts else message
        raise VerifyError(f"kernel {self.kernel.name}{place}: {reason}")

    def attributes(self, names: tuple[str, ...]) -> None:
        i = self.instr
        missing = [n for n in names if n not in i.attrs]
        if missing:
            self.fail("lacks the attributes {}", missing)
        for key, value in i.attrs.items():
            if key not in names:
                self.rule(i.opcode == "loop", "has no attribute {!r}", key)
                self.rule(isinstance(key, str) and NAME.fullmatch(key),
                          "the attribute name {!r} is not an identifier", key)
            if not ATTRIBUTES.get(key, _plain)(self, value):
                self.fail("{}={!r} is not possible", key, value)

    def same_type(self, *operands: Operand) -> None:
        first = operands[0]
        for a in operands[1:]:
            if a.dtype != first.dtype:
                self.fail("{!r} does not match {!r}", first.dtype, a.dtype)
            if a.lanes != first.lanes:
                self.fail("{} lanes do not match {}", first.lanes, a.lanes)
            if a.fragment != first.fragment:
                self.fail("fragments of different matrices do not mix")

    def kinds(self, *operands: Operand) -> None:
        kinds = OPCODES[self.instr.opcode].kinds
        for a in operands:
            if a.dtype.kind not in kinds:
                self.fail("is not defined on {!r}", a.dtype)

    def index(self, a: Operand) -> None:
        short = a.dtype.name == "i32" and self.instr.opcode == "gather"  # twice the lanes
        self.rule(short or a.dtype == self.kernel.index,
                  "the index is {!r}, but this kernel counts in {!r}", a.dtype, self.kernel.index)

    def one_lane(self, *operands: Operand) -> None:
        for a in operands:
            if a.lanes != 1:
                self.fail("takes 1 lane here, not {}", a.lanes)

    def check_identity(self) -> None:
        self.index(self.instr.dest)
        self.one_lane(self.instr.dest)

    check_worker = check_workers = check_grid_id = check_block_id = check_identity

    # -- scalar opcodes and lanes ------------------------------------------------------------------

    def scalar(self) -> None:
        i, row = self.instr, OPCODES[self.instr.opcode]
        typed = i.args  # operands that have the dtype of the operation
        if i.opcode == "select":
            typed = i.args[1:]
            self.rule(i.args[0].dtype.kind == "b", "chooses by bool, not {!r}", i.args[0].dtype)
        for a in i.args:
            if a.lanes != i.dest.lanes:
                self.fail("{} lanes do not match {}", a.lanes, i.dest.lanes)
        self.kinds(*typed)
        self.same_type(*typed)
        if row.result == "same":
            self.same_type(i.dest, typed[0])
        elif row.result == "bool":
            self.rule(i.dest.dtype.kind == "b", "gives bool, not {!r}", i.dest.dtype)
        elif i.opcode == "bitcast":
            self.kinds(i.dest)
            self.rule(i.dest.dtype.bits == typed[0].dtype.bits, "the sizes differ: {} and {} bits",
                      i.dest.dtype.bits, typed[0].dtype.bits)
        elif i.opcode == "raw_cast":
            self.rule(i.dest.dtype.is_int, "gives an integer, not {!r}", i.dest.dtype)

    def check_splat(self) -> None:
        x, dest = self.instr.args[0], self.instr.dest
        self.one_lane(x)
        self.rule(dest.dtype == x.dtype and dest.lanes > 1, "gives more lanes of the same dtype")

    def check_iota(self) -> None:
        self.kinds(self.instr.dest)
        self.rule(self.instr.dest.lanes > 1, "counts across more than one lane")

    def check_extract(self) -> None:
        x, dest = self.instr.args[0], self.instr.dest
        self.rule(x.lanes > 1, "takes a lane out of several")
        self.rule(dest.dtype == x.dtype and dest.lanes == 1, "gives one lane of the same dtype")

    def check_join(self) -> None:
        self.one_lane(*self.instr.args)
        self.same_type(*self.instr.args)
        dest, x = self.instr.dest, self.instr.args[0]
        self.rule(dest.dtype == x.dtype and dest.lanes == len(self.instr.args),
                  "gives as many lanes as it takes")

    def check_shuffle(self) -> None:
        (x, y), dest = self.instr.args, self.instr.dest
        self.same_type(x, y)
        self.rule(x.lanes > 1 and dest.lanes > 1, "works on vectors; use extract for one lane")
        self.rule(dest.dtype == x.dtype and dest.lanes == len(self.instr.attrs["perm"]),
                  "gives as many lanes as perm names")

    # -- memory ------------------------------------------------------------------------------------

    def access(self, x: Operand, mask: tuple[Operand, ...], reads: bool, writes: bool) -> None:
        i, m = self.instr, self.memories[self.instr.attrs["mem"]]
        at, off = i.args[0], i.attrs["off"]
        self.index(at)
        indexed = i.opcode in ("gather", "scatter")  # each lane has its own index
        if indexed:
            self.rule(at.lanes == x.lanes > 1, "{} indices for {} lanes", at.lanes, x.lanes)
        else:
            self.one_lane(at)
        for y in mask:
            self.rule(y.dtype.kind == "b", "a mask is bool, not {!r}", y.dtype)
            self.rule(y.lanes == x.lanes, "a mask of {} lanes for {} lanes", y.lanes, x.lanes)
        self.rule(m.access != "w" or not reads, "{} is write-only", m.name)
        self.rule(m.access != "r" or not writes, "{} is read-only", m.name)
        if at.is_const and all(y.is_const for y in mask):  # else all lanes may be masked off
            first = at.number + off
            last = first if indexed or mask else first + self.reach(x) - 1
            self.rule(first >= 0 and last < m.size, "{}[{}] is outside its {} elements", m.name,
                      first if first < 0 else last, m.size)
        if i.attrs.get("align"):
            elements = math.gcd(self.known_multiple(at), off, i.attrs.get("pitch", 0))
            self.rule(elements * m.dtype.bytes % i.attrs["align"] == 0,
                      "{} is not known to be aligned to {} bytes here", m.name, i.attrs["align"])

    def reach(self, x: Operand) -> int:
        """The number of elements from the first to the last that an access touches."""
        if x.fragment is None:
            return x.lanes
        rows, columns = x.fragment.extent[::-1 if self.instr.attrs["transposed"] else 1]
        return (rows - 1) * int(self.instr.attrs["pitch"]) + columns

    def check_load(self) -> None:
        self.access(self.instr.dest, self.instr.args[1:], reads=True, writes=False)

    def check_store(self) -> None:
        self.access(self.instr.args[1], self.instr.args[2:], reads=False, writes=True)

    check_gather, check_scatter = check_load, check_store

    def check_atomic(self) -> None:
        i, m = self.instr, self.memories[self.instr.attrs["mem"]]
        self.kinds(i.dest)
        self.same_type(i.dest, *i.args[1:])
        self.one_lane(i.dest)
        self.rule(m.dtype == i.dest.dtype, "{} holds {!r}, not {!r}", m.name, m.dtype, i.dest.dtype)
        self.rule(m.dtype.bits >= 32, "has no update of {!r}", m.dtype)
        self.access(i.dest, (), reads=True, writes=True)

    check_atomic_add = check_atomic_min = check_atomic_max = check_atomic
    check_atomic_exchange = check_atomic_cas = check_atomic

    # -- matrices ----------------------------------------------------------------------------------

    def fragment(self, x: Operand) -> None:
        """Check the fragment of a variable or value, if it has one."""
        if x.fragment is None:
            return
        role, s = x.fragment.role, x.fragment.shape
        self.rule(role in ("a", "b", "c"), f"the matrix {role!r} is not a, b or c")
        self.rule(all(is_int(e) and 0 < e <= MAX_LANES for e in (s.m, s.n, s.k)),
                  f"{s} is not a shape of a product: sizes are 1 to {MAX_LANES}")
        self.rule(s.of.is_float and s.into.name in ("f32", "f64"),
                  f"sums of {s.of!r} in {s.into!r}; sums are f32 or f64")
        bits = s.mantissa_bits
        self.rule(bits == 0 or (s.of.name == "f32" and is_int(bits) and 0 < bits < 23),
                  f"keeps {bits} bits of {s.of!r}; only f32 can be rounded, to 1 to 22 bits")
        self.rule(x.dtype == x.fragment.dtype, f"{role} of {s} is {x.fragment.dtype!r}")
        self.rule(is_int(x.lanes) and x.lanes > 0 and x.fragment.size % x.lanes == 0,
                  f"{x.fragment.size} elements do not spread evenly over threads of {x.lanes}")

    def matrix(self, x: Operand, roles: str) -> None:
        self.rule(x.fragment is not None and x.fragment.role in roles,
                  f"takes a fragment of a matrix {' or '.join(roles)} here")
        if self.instr.opcode == "mma":
            return
        m = self.memories[self.instr.attrs["mem"]]
        self.rule(x.dtype == m.dtype or rounds_pairs(self.instr, m.dtype),
                  f"{m.name} holds {m.dtype!r}, not {x.dtype!r}")
        self.rule(m.space != "local", f"{m.name} is local: private to each thread")
        self.access(x, (), reads=self.instr.opcode == "mma_load",
                    writes=self.instr.opcode == "mma_store")
        assert x.fragment is not None
        inner = x.fragment.extent[0 if self.instr.attrs["transposed"] else 1]
        self.rule(self.instr.attrs["pitch"] >= inner, f"lines of {inner} elements overlap at pitch "
                  f"{self.instr.attrs['pitch']}")

    def product(self) -> None:
        i = self.instr
        for x, role in zip((*i.args, i.dest), "abcc", strict=True):
            self.matrix(x, role)
        self.same_type(i.dest, i.args[2])
        fragments = [a.fragment for a in i.args if a.fragment]
        self.rule(len({f.shape for f in fragments}) == 1, "multiplies fragments of one shape only")
        self.rule(len({f.size // a.lanes for f, a in zip(fragments, i.args, strict=True)}) == 1,
                  "the matrices are spread over different numbers of threads")

    def check_prefetch(self) -> None:
        """A hint, so its address may be out of bounds."""
        self.index(self.instr.args[0])
        self.one_lane(self.instr.args[0])

    def known_multiple(self, a: Operand) -> int:
        """A known divisor of the index a. 0 means that a is zero."""
        return abs(a.number) if a.is_const else self.multiples.get(a.id, 1)

    def multiple_of(self) -> int:
        """A divisor of the index that the instruction gives, if its operands imply one."""
        i = self.instr
        multiples = [self.known_multiple(a) for a in i.args]
        if i.opcode in ("add", "sub", "rem"):
            return math.gcd(*multiples)
        if i.opcode == "mul":
            return multiples[0] * multiples[1]
        if i.opcode == "shl" and i.args[1].is_const and 0 <= i.args[1].number < 32:
            return multiples[0] << i.args[1].number
        if i.opcode == "splat":
            return multiples[0]
        if i.opcode == "select":
            return math.gcd(multiples[1], multiples[2])
        return math.gcd(multiples[0], multiples[2]) if i.opcode == "loop" else 1
