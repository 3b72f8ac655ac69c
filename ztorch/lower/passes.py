"""Passes over one kernel: legalise opcodes, declare vectors, divide parallel loops, hoist loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ztorch.dtypes import ALL, DType, boolean, f32, i32, u32
from ztorch.errors import Unsupported
from ztorch.ir.atomic_memories import lacking_updates, with_integer_memories
from ztorch.ir.builder import Builder
from ztorch.ir.division import without_division
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import Grid, Instr, Kernel, Operand, launch_grid, matching
from ztorch.ir.opcodes import ARITHMETIC, OPCODES, PURE
from ztorch.ir.rewrite import next_id, rewrite

Supports = Callable[[Instr], bool]  # whether a target has the word for an instruction
# Narrow dtypes are computed in the one of 32 bits of their kind.
WIDER = {d: {"f": f32, "s": i32, "u": u32}[d.kind] for d in ALL if 1 < d.bits < 32}


def decompose(kernel: Kernel, supports: Supports, target: str, depth: int = 8) -> Kernel:
    """The kernel with only opcodes that the target has words for.

    Others are rewritten: 16-bit floats are computed in f32, an opcode without a word by the
    rewriting of its row, and narrow integers in 32 bits. `supports` returns whether the target has
    an instruction; `depth` limits repeated rewriting.
    """
    def change(b: Builder, instr: Instr) -> Operand | None:
        if supports(instr):
            return None
        result = _rewritten(b, instr)
        if result is None:
            of = instr.args[0] if instr.args and instr.dest.dtype is boolean else instr.dest
            raise Unsupported(f"kernel {kernel.name}: {target} lacks {instr.opcode} on {of.dtype}, "
                              "and no rewriting replaces it; use another dtype or device")
        return result

    if (update := lacking_updates(kernel, supports)) is not None:
        raise Unsupported(f"kernel {kernel.name}: {target} lacks {update.opcode} on "
                          f"{update.dest.dtype}; use a dtype of 32 bits, or another device")
    kernel = with_integer_memories(_plain_access(kernel), supports)
    kernel = without_division(kernel, supports)
    for _ in range(depth):
        if all(supports(i) for i in kernel.body):
            return kernel
        kernel = rewrite(kernel, change)
    raise Unsupported(f"kernel {kernel.name}: no rewriting ends in words of {target}")


def _rewritten(b: Builder, instr: Instr) -> Operand | None:
    """The result of an instruction computed by other instructions; None if it has no rewriting."""
    row, d, args = OPCODES[instr.opcode], instr.dest.dtype, instr.args
    if row.via_instr is not None:
        return row.via_instr(b, instr)
    attrs = {"dtype": d} if row.result == "attr" else {}
    if row.result != "attr" and instr.opcode in ARITHMETIC and any(a.dtype in HALVES for a in args):
        return _in_wider(b, instr.opcode, args, d)
    via = row.rewriting(args[-1].dtype) if args else row.via
    if via is not None:
        return via(b, *args, **attrs)
    if row.wraps and d in WIDER:
        return _in_wider(b, instr.opcode, args, d)
    return None


def _in_wider(b: Builder, opcode: str, args: tuple[Operand, ...], d: DType) -> Operand:
    """The result computed in 32 bits and converted back: integers wrap, floats round."""
    result = b.emit(opcode, *(b.cast(a, dtype=WIDER.get(a.dtype, a.dtype)) for a in args))
    return b.cast(result, dtype=d)


def _plain_access(kernel: Kernel) -> Kernel:
    """Separates the casts of loads and stores that convert: no target has words for these."""
    stored = {m.name: m.dtype for m in kernel.memories}
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    converts = False
    for i in kernel.body:
        d = stored.get(i.attrs.get("mem", ""), i.dest.dtype)
        if i.opcode in ("load", "gather") and d != i.dest.dtype:
            converts, raw = True, replace(i.dest, id=b.fresh(), dtype=d)
            b.body += [replace(i, dest=raw), Instr("cast", i.dest, (raw,))]
        elif i.opcode in ("store", "scatter") and d != i.args[1].dtype:
            b.body.append(replace(i, args=(i.args[0], b.cast(i.args[1], dtype=d), *i.args[2:])))
            b.forget()
            converts = True
        else:
            b.body.append(i)
    return replace(kernel, body=tuple(b.body)) if converts else kernel


def vectored(kernel: Kernel, scalar_stores: bool = True) -> Kernel:
    """Declares memories as arrays of vectors where all vector accesses have the same width and are
    aligned. `scalar_stores`: such an array also allows stores of single elements.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("last")
    >>> _ = b.memory("x", f32, 8), b.memory("y", f32, 1, access="w")
    >>> b.store("y", 0, b.extract(b.load("x", 4, lanes=4, align=16), 3))
    >>> [m.vec for m in vectored(b.kernel()).memories]
    [4, 1]
    """
    size = {m.name: m.dtype.bytes for m in kernel.memories}
    widths: dict[str, set[int]] = {}
    for i in kernel.body:
        name = i.attrs.get("mem", "")
        lanes = max(o.lanes for o in (i.dest, *i.args)) if name else 1
        written = i.dest.kind == "token"
        if lanes > 1 or (written and not scalar_stores):
            contiguous = i.opcode in ("load", "store") and len(i.args) == 1 + written \
                and lanes in (2, 4) and i.attrs["align"] >= lanes * size[name]
            widths.setdefault(name, set()).add(lanes if contiguous else 1)
    single = {name: n for name, (n, *others) in widths.items() if not others}
    return replace(kernel, memories=tuple(
        replace(m, vec=1 if m.size % single.get(m.name, 1) else single.get(m.name, 1))
        for m in kernel.memories))


def launched(kernel: Kernel) -> tuple[Kernel, Grid]:
    """The kernel of one thread, and its launch grid. Grid and block loops have one iteration per
    workgroup or thread, so their counters become `grid_id` and `block_id`."""
    if not any(i.attrs.get("kind") in ("grid", "block") for i in kernel.body):
        return kernel, launch_grid(kernel)
    new: dict[int, Operand] = {}
    ended: set[int] = set()
    body: list[Instr] = []
    for i in kernel.body:
        kind = i.attrs.get("kind") if i.opcode == "loop" else None
        if kind in ("grid", "block"):
            start, _, step = i.args
            assert start.number == 0 and step.number == 1, "grid and block loops count from zero"
            new[i.dest.id] = replace(i.dest, kind="value")
            ended.add(i.dest.id)
            body.append(Instr(f"{kind}_id", new[i.dest.id], (), {"axis": i.attrs.get("axis", 0)}))
        elif i.opcode != "end_loop" or i.args[0].id not in ended:
            args = tuple([new.get(a.id, a) for a in i.args])
            body.append(Instr(i.opcode, i.dest, args, i.attrs))
    return replace(kernel, body=tuple(body)), launch_grid(kernel)


def streamed_stores(kernel: Kernel) -> Kernel:
    """The kernel with stores that bypass the caches, to memories that it does not read.

    >>> from ztorch.dtypes import f32
    >>> b = Builder("copy")
    >>> _ = b.memory("x", f32, 1), b.memory("y", f32, 1, access="w")
    >>> b.store("y", 0, b.load("x", 0))
    >>> [m.streamed for m in streamed_stores(b.kernel()).memories]
    [False, True]
    """
    read = {i.attrs["mem"] for i in kernel.body if i.opcode in ("load", "gather")}
    return replace(kernel, memories=tuple(
        replace(m, access="w", streamed=True)
        if "w" in m.access and m.space == "global" and m.name not in read else m
        for m in kernel.memories))


def share_out(kernel: Kernel) -> Kernel:
    """Divides the iterations of each parallel loop among the workers, in contiguous ranges."""
    if not any(i.opcode == "loop" and i.attrs["kind"] == "parallel" for i in kernel.body):
        return kernel
    b = Builder(kernel.name, kernel.index, kernel.exact, first_id=next_id(kernel))
    me, all_ = b.identity("worker"), b.identity("workers")
    after = b.add(me, 1)
    bounds: dict[int, tuple[Operand, Operand, Operand]] = {}
    for instr in kernel.body:
        if instr.opcode == "loop" and instr.attrs["kind"] == "parallel":
            start, stop, step = instr.args
            assert start.number == 0 and step.number == 1, "parallel loops count from zero"
            low, high = (b.div(b.mul(n, stop), all_) for n in (me, after))
            bounds[instr.dest.id] = (low, high, step)
            b.body.append(replace(instr, args=(low, high, step), attrs={"kind": "serial"}))
        elif instr.opcode == "end_loop" and instr.args[0].id in bounds:
            b.body.append(replace(instr, args=(instr.args[0], *bounds[instr.args[0].id])))
        else:
            b.body.append(instr)
    return replace(kernel, body=tuple(b.body))


def hoist(kernel: Kernel) -> Kernel:
    """Hoists loop-invariant pure instructions and loads from read-only memory. LLVM hoists
    arithmetic itself, but not these loads."""
    body = list(kernel.body)
    read_only = {m.name for m in kernel.memories if m.access == "r"}
    ends = dict(matching(body))
    for start in sorted((s for s in ends if body[s].opcode == "loop"), reverse=True):
        body = _hoist_from(body, start, read_only)
    return replace(kernel, body=tuple(body))


def _hoist_from(body: list[Instr], start: int, read_only: set[str]) -> list[Instr]:
    depth, inside = 0, {body[start].dest.id}
    moved: list[Instr] = []
    remaining: list[Instr] = []
    at = start + 1
    while True:
        instr = body[at]
        if depth == 0 and instr.opcode == "end_loop":
            break
        if instr.opcode in ("loop", "if"):
            depth += 1
        elif instr.opcode in ("end_loop", "end_if"):
            depth -= 1
        free = instr.opcode in PURE or (
            instr.opcode in ("load", "gather") and instr.attrs["mem"] in read_only)
        if depth == 0 and free and inside.isdisjoint([a.id for a in instr.args]):
            moved.append(instr)
        else:
            inside.add(instr.dest.id)
            remaining.append(instr)
        at += 1
    return [*body[:start], *moved, body[start], *remaining, *body[at:]]
