"""The value ranges of a kernel's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ztorch.dtypes import DType
from ztorch.ir.kernel import Instr, Kernel, Operand

Range = tuple[int, int]  # the least and the greatest number
WORKERS = 1 << 16  # CPU threads of a program: no machine has more
GROUPS = 1 << 31  # workgroups along one axis: no driver takes more


def ranges(kernel: Kernel, worker: int | None = None, workers: int = 1) -> dict[int, Range]:
    """The range of each integer value and counter, by its id. An unknown value, such as the
    content of memory or of a variable, has the range of its dtype, and so has one that may wrap.

    Args:
        kernel: The kernel.
        worker: The number of a worker. Default: `None`, the ranges hold for all of them.
        workers: How many workers share the kernel, if `worker` is one of them.

    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("k")
    >>> with b.loop(0, 10) as i:
    ...     x = b.add(b.mul(i, 3), 1)
    >>> ranges(b.kernel())[x.id]
    (1, 28)
    """
    by_id: dict[int, Range] = {}
    for i in kernel.body:
        if worker is not None and i.opcode in ("worker", "workers"):
            number = worker if i.opcode == "worker" else workers
            by_id[i.dest.id] = number, number
        elif (result := range_of_result(i, kernel, by_id)) is not None:
            by_id[i.dest.id] = result
    return by_id


def range_of_result(i: Instr, kernel: Kernel, known: Mapping[int, Range]) -> Range | None:
    """The range of the result of an instruction; None if it is no integer made of integers.

    Args:
        i: An instruction of the kernel.
        kernel: The kernel.
        known: The ranges of values and counters, by their ids.
    """
    if not i.dest.dtype.is_int or any(a.dtype.is_float for a in i.args):
        return None
    return _within(i.dest.dtype, _range(i, kernel, [range_of(a, known) for a in i.args]))


def range_of(a: Operand, known: Mapping[int, Range]) -> Range:
    """The range of an operand, a constant among them."""
    if a.is_const:
        return int(a.number), int(a.number)
    return known.get(a.id, limits(a.dtype))


def limits(d: DType) -> Range:
    """The least and the greatest number of a dtype."""
    if d.kind == "b":
        return 0, 1
    low = -(1 << (d.bits - 1)) if d.kind == "s" else 0
    return low, low + (1 << d.bits) - 1


def _within(d: DType, r: Range | None) -> Range:
    low, high = limits(d)
    return r if r is not None and low <= r[0] <= r[1] <= high else (low, high)


def _range(i: Instr, kernel: Kernel, args: Sequence[Range]) -> Range | None:
    """The range of a result if nothing wraps; None: not known."""
    axis = i.attrs.get("axis", 0)
    if i.opcode == "block_id":
        return 0, kernel.workgroup[axis] - 1
    if i.opcode in RANGES:
        return RANGES[i.opcode](*args)
    return {"grid_id": (0, GROUPS - 1), "worker": (0, WORKERS - 1), "workers": (1, WORKERS),
            "iota": (0, i.dest.lanes - 1)}.get(i.opcode)


def _products(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _divide(a: Range, b: Range) -> Range | None:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _remainder(a: Range, b: Range) -> Range | None:
    if a[0] < 0 or b[0] <= 0:
        return None
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:  # all have the same quotient
        return a[0] % b[0], a[1] % b[0]
    return 0, min(a[1], b[1] - 1)


def _and(a: Range, b: Range) -> Range | None:
    natural = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(natural)) if natural else None


def _or(a: Range, b: Range) -> Range | None:
    return (0, (1 << max(a[1], b[1]).bit_length()) - 1) if min(a[0], b[0]) >= 0 else None


def _shift_left(a: Range, b: Range) -> Range | None:
    small = a[0] >= 0 and 0 <= b[0] <= b[1] < 64
    return (a[0] << b[0], a[1] << b[1]) if small else None


def _counter(start: Range, stop: Range, step: Range) -> Range:
    last = max(start[0], stop[1] - 1)
    if start[0] == start[1] and step[0] == step[1] > 0:
        last -= (last - start[0]) % step[0]
    return start[0], last


def _union(*rs: Range) -> Range:
    return min(r[0] for r in rs), max(r[1] for r in rs)


RANGES: dict[str, Callable[..., Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "neg": lambda a: (-a[1], -a[0]),
    "div": _divide,
    "rem": _remainder,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _and,
    "or": _or,
    "xor": _or,
    "shl": _shift_left,
    "shr": lambda a, b: (a[0] >> b[1], a[1] >> b[0]) if a[0] >= 0 and b[0] >= 0 else None,
    "select": lambda c, a, b: _union(a, b),
    "cast": lambda a: a,
    "splat": lambda a: a,
    "extract": lambda a: a,
    "join": _union,
    "shuffle": _union,
    "loop": _counter,
}
