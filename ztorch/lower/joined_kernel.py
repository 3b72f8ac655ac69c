"""One kernel whose workgroups are divided among the kernels of independent regions, its parts:

    workgroups 0 to 63: the first part    64 to 79: the second    80: the third

Each workgroup runs one part, which it finds by its number. So all threads of a workgroup take the
same branch, and the barriers of a part remain correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel, Operand

NAMED_MEMORIES = ("mem", "source")  # attributes that name a memory


def grid_loop(kernel: Kernel) -> Instr | None:
    """The loop over the workgroups of a kernel that can be a part: the only one, along x."""
    loops = [i for i in kernel.body if i.attrs.get("kind") == "grid" or i.opcode == "grid_id"]
    if len(loops) != 1 or loops[0].opcode != "loop" or loops[0].attrs.get("axis", 0):
        return None
    start, stop, step = loops[0].args
    counts = start.number == 0 and stop.is_const and step.number == 1
    return loops[0] if counts else None


def group_count(kernel: Kernel) -> int:
    """The workgroups of a kernel that can be a part."""
    loop = grid_loop(kernel)
    assert loop is not None, f"{kernel.name} has no loop over workgroups"
    return int(loop.args[1].number)


def joined(kernels: Sequence[Kernel], buffers: Sequence[Mapping[str, str]]) -> Kernel:
    """The kernel that runs all of some kernels, whose workgroups are equally large.

    Args:
        kernels: The parts, in the order of their workgroups.
        buffers: For each part, the names of its buffers in the joint kernel. Parts that only read
            the same buffer give it the same name.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> def scaled(factor):
        ...     b = Builder(f"by_{factor}")
        ...     _ = b.memory("x", f32, 2), b.memory("y", f32, 2, access="w")
        ...     with b.loop(0, 2, kind="grid") as g:
        ...         b.store("y", g, b.mul(b.load("x", g), factor))
        ...     return b.kernel()
        >>> both = joined([scaled(2), scaled(3)], [{"x": "x", "y": "y"}, {"x": "x", "y": "z"}])
        >>> import numpy as np
        >>> from ztorch.ir.interpret import interpret
        >>> x, y, z = np.arange(6, dtype=np.float32).reshape(3, 2)
        >>> interpret(both, {"x": x, "y": y, "z": z})
        >>> y.tolist(), z.tolist()
        ([0.0, 2.0], [0.0, 3.0])
    """
    first = kernels[0]
    b = Builder(first.name, first.index, first.exact)
    b.workgroup = first.workgroup
    parts, at = [], 0
    for kernel, names in zip(kernels, buffers, strict=True):
        parts.append(_JoinedPart(kernel, {**names, **_arrays(kernel)}, at, group_count(kernel)))
        at += parts[-1].count
    for part in parts:
        _declare(b, part)
    with b.loop(0, at, kind="grid") as group:
        _choose(b, parts, group)
    return replace(b.kernel(), origin=tuple(dict.fromkeys(o for k in kernels for o in k.origin)))


@dataclass(frozen=True)
class _JoinedPart:
    """A kernel that some workgroups of a joint kernel run."""

    kernel: Kernel
    names: Mapping[str, str]  # of its memories in the joint kernel
    first: int  # of its workgroups
    count: int  # of its workgroups


def _arrays(kernel: Kernel) -> dict[str, str]:
    """Names of the arrays that a part has in each workgroup or thread. A workgroup runs one part,
    so the parts share them: the largest array of a part has the memory of the others' largest."""
    counts: dict[tuple, int] = {}
    names = {}
    for m in sorted(kernel.memories, key=lambda m: -m.size):
        if m.space != "global":
            kind = (m.space, m.dtype, m.swizzled)
            counts[kind] = counts.get(kind, -1) + 1
            names[m.name] = f"{m.space}_{m.dtype.name}{'_lines' * m.swizzled}_{counts[kind]}"
    return names


def shared_bytes(kernels: Iterable[Kernel]) -> int:
    """The shared memory of a workgroup of a kernel with these parts.

    >>> from ztorch.dtypes import f32, i32
    >>> one, other = Builder("one"), Builder("other")
    >>> _ = one.memory("a", f32, 8, "shared"), one.memory("b", f32, 2, "shared")
    >>> _ = other.memory("c", f32, 4, "shared"), other.memory("d", i32, 1, "shared")
    >>> shared_bytes([one.kernel(), other.kernel()])
    44
    """
    nbytes: dict[str, int] = {}
    for kernel in kernels:
        names = _arrays(kernel)
        for m in kernel.memories:
            if m.space == "shared":
                name = names[m.name]
                nbytes[name] = max(nbytes.get(name, 0), m.size * m.dtype.bytes)
    return sum(nbytes.values())


def _declare(b: Builder, part: _JoinedPart) -> None:
    """Declares the memories of a part: a buffer that others read too is declared once, and an array
    is as large as the largest part needs."""
    for m in part.kernel.memories:
        name = part.names[m.name]
        size = max(m.size, b.memories[name].size) if name in b.memories else m.size
        assert m.space != "global" or size == m.size, f"{name} has two sizes"
        b.memories[name] = replace(m, name=name, size=size)


def _choose(b: Builder, parts: Sequence[_JoinedPart], group: Operand) -> None:
    """The parts, one of which runs: found by halving, so that none waits for many tests."""
    if len(parts) == 1:
        _emit(b, parts[0], group)
        return
    middle = len(parts) // 2
    with b.if_(b.lt(group, parts[middle].first), els=True) as chosen:
        _choose(b, parts[:middle], group)
        b.else_(chosen)
        _choose(b, parts[middle:], group)


def _emit(b: Builder, part: _JoinedPart, group: Operand) -> None:
    """The body of a part in place of its loop over workgroups. Its number of a workgroup is
    bounded, as that of a loop is: divisions of numbers that are not negative are faster."""
    loop = grid_loop(part.kernel)
    assert loop is not None
    number = b.min(b.max(b.sub(group, part.first), 0) if part.first else group, part.count - 1)
    new: dict[int, Operand] = {loop.dest.id: number}

    def renamed(x: Operand) -> Operand:
        if x.is_const:
            return x
        if x.id not in new:
            new[x.id] = replace(x, id=b.fresh())
        return new[x.id]

    b.variables += [renamed(v) for v in part.kernel.variables]
    for i in part.kernel.body:
        if i is loop or (i.opcode == "end_loop" and i.args[0].id == loop.dest.id):
            continue
        attrs = {k: part.names[v] if k in NAMED_MEMORIES else v for k, v in i.attrs.items()}
        args = tuple(map(renamed, i.args))
        b.body.append(Instr(i.opcode, renamed(i.dest), args, attrs))
    b.forget()
