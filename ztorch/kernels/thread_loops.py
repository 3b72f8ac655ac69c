"""Translates loops over `zt.threads` to programs of threads."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.graph.thread_kernel import parted
from ztorch.graph.thread_program import ThreadArray, ThreadProgram, reads_unwritten
from ztorch.graph.threads import THREADS, THREADS_RESULT
from ztorch.graph.value import Value
from ztorch.kernels.control_flow import thread_without_jumps
from ztorch.kernels.expressions import ExpressionRules
from ztorch.kernels.scope import KernelVariable
from ztorch.kernels.thread_memory import ThreadMemory
from ztorch.kernels.thread_rules import ThreadRules
from ztorch.kernels.tiles import LoopTensor

MAX_THREADS = 1024  # threads of a block; no device has more
MAX_TRIALS = 8  # number of translations in which the dtypes of variables may become wider


def run_threads(t: ExpressionRules, s: ast.For) -> None:
    """Runs a loop over threads."""
    assert isinstance(s.iter, ast.Call)
    if t.loops or t.masks:
        raise t.source.error(s, "zt.threads is inside a loop or a branch", "it is a loop at "
                             "the top of a kernel; put the others inside it")
    targets = s.target.elts if isinstance(s.target, ast.Tuple) else []
    if len(targets) != 2:
        raise t.source.error(s.target, "zt.threads gives two numbers: for block, thread in ...",
                             "with sizes of two axes each is a pair")
    shapes = [t.value(n) for n in s.iter.args]
    if len(shapes) != 2 or s.iter.keywords or not all(
            type(n) is int and n > 0 for x in shapes for n in _axes(x)):
        raise t.source.error(s.iter, "zt.threads takes the number of blocks and the threads of a "
                             "block, integers above 0 that are known while compiling, or tuples "
                             "of them")
    blocks, size = (math.prod(_axes(x)) for x in shapes)
    if size > MAX_THREADS:
        raise t.source.error(s.iter.args[1], f"a block of {size} threads is too large",
                             f"devices have up to {MAX_THREADS}, many 256")

    def body(memory: ThreadMemory, *ids: Value) -> ThreadRules:
        rules = ThreadRules(t.source, t, memory)
        places = memory.places
        places.counts.update(zip(ids, (blocks, size), strict=True))
        threads = np.arange(size)
        places.values.update(zip(ids, (0 * threads, threads), strict=True))
        for target, v, shape in zip(targets, ids, shapes, strict=True):
            _number(rules, target, LoopTensor(v, (), weak=True), shape)
        rules.run(thread_without_jumps(t.source, s))
        return rules

    t.note(s, f"{blocks} blocks of {size} threads, as written")
    run_program(t, s, blocks, size, body)


def run_program(t: ExpressionRules, s: ast.For, blocks: int, size: int,
                body: Callable[..., ThreadRules]) -> None:
    """Runs a loop as a program of threads. The arrays that they write become results of its node.

    Args:
        t: The translator of statements.
        s: The loop.
        blocks: Number of blocks.
        size: Threads of a block.
        body: Translates the statements of a thread, given its memory and the values for the indices
            of its block and of the thread in it.
    """
    kinds: dict[str, tuple[DType, bool]] = {}
    for _ in range(MAX_TRIALS):
        memory = ThreadMemory(kinds, size)
        rules = body(memory, memory.block, memory.thread)
        if not memory.widened:
            break
    else:
        raise t.source.error(s, "the dtypes of variables grow with each iteration of a loop")
    changed = list(memory.written.values())
    order = [*(a for a in memory.arrays if a not in changed), *changed]
    arrays = tuple(ThreadArray(memory.arrays[a], a.dtype, a.size, False, a in changed)
                   for a in order)
    program = ThreadProgram(blocks, size, memory.block, memory.thread, arrays,
                            tuple(memory.shared.values()), tuple(memory.variables.values()),
                            (*memory.scalars.values(), *rules.statements),
                            {x: where.line(n) for x, (where, n) in memory.lines.items()})
    if (statement := parted(program)) is not None:
        source, node = memory.lines[statement]
        raise source.error(node, "not all threads of the block come here, but all must: what is "
                           "around it depends on the thread", "put it outside of that")
    if (statement := reads_unwritten(program)) is not None:
        source, node = memory.lines[statement]
        raise source.error(node, f"{ast.unparse(node)} uses an array of the threads that nothing "
                           "writes before", "a new one has no values: write its elements first")
    value = THREADS(*order, program=program)
    for k, name in enumerate(memory.written):
        old = t.env[name]
        t.env[name] = replace(old, value=LoopTensor(THREADS_RESULT(value, index=k)))
    t.mark_parts(memory.written)


def _number(rules: ThreadRules, target: ast.expr, number: LoopTensor, shape: Any) -> None:
    """Sets a name to the number of the block or the thread, or to a tuple with the number along
    each axis."""
    places: Any = number
    if isinstance(shape, tuple):
        places = ()
        for k, n in enumerate(shape):
            place = rules.arithmetic.binary(ast.FloorDiv(), number, math.prod(shape[k + 1:]))
            place = rules.arithmetic.binary(ast.Mod(), place, n) if k else place
            rules.memory.places.counts[place.value] = n
            places += (place,)
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    parts = places if isinstance(target, ast.Tuple) else [places]
    if not isinstance(parts, (tuple, list)) or len(parts) != len(names) or not all(
            isinstance(n, ast.Name) for n in names):
        raise rules.source.error(target, f"{ast.unparse(target)} stands for "
                                 f"{len(_axes(shape))} axes", "zt.threads gives a number "
                                 "for a size, and a tuple of numbers for a tuple of sizes")
    for name, x in zip(names, parts, strict=True):
        rules.env[name.id] = KernelVariable(x, fixed="it numbers threads")  # type: ignore[attr-defined]


def _axes(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) and x else (x,)
