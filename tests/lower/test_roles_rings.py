"""Rings of products whose workgroups have roles: none comes to a standstill, and each of their words is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import step_of, transposed, with_units
from tests.cases.ring_schedules import played
from tests.parity import Job
from ztorch.dtypes import f16
from ztorch.errors import VerifyError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse
from ztorch.ir.text import show
from ztorch.ir.verify import verify


def ring(stages: int, teams: int, strips: int, cluster: int, tiles: int, beside: int = 1) -> Kernel:
    """The kernel of a product of which one cluster has so many tiles."""
    rows, columns, k = 64 * teams * cluster * tiles, 128 * beside, 64 * strips
    a, b = leaf("input", "a", (rows, k), f16), leaf("input", "b", (columns, k), f16)
    one = Job(Graph({"y": transposed(a, b)}), {v: np.zeros(v.shape, np.float32) for v in (a, b)})
    return step_of(one, with_units(cluster * beside), f"grid_roles tile(rows={64 * teams}, columns=128) stages({stages}) "
                   f"epilogue(bands=1) cluster(rows={cluster}, columns={beside})").kernel


@together()
@pytest.mark.parametrize(("stages", "teams", "strips", "cluster", "beside"), [
    *product((2, 3, 4), (2,), (1, 3), (1,), (1,)), (3, 1, 3, 1, 1), (2, 1, 2, 2, 1), (3, 2, 1, 2, 1), (4, 2, 3, 2, 1),
    (3, 1, 3, 4, 1), (2, 2, 1, 2, 2), (4, 2, 3, 2, 2)])
def test_no_ring_deadlocks(stages: int, teams: int, strips: int, cluster: int, beside: int) -> None:
    """For 1 to 1,000 tiles of one strip, and 1 to 30 of others; whichever role is ahead."""
    kernel = ring(stages, teams, strips, cluster, 1000 if strips == 1 else 30, beside)
    assert played(kernel) == "" == played(kernel, last_first=True)


@together()
@pytest.mark.parametrize(("old", "new", "said"), [
    (r"mbarrier_expect (full\S+) bytes=\d+", r"mbarrier_arrive \1 cluster=1", "too much comes"),
    (r"bytes=\d+", "bytes=65536", "deadlock"), (r"(init empty\S+ count=)2", r"\g<1>3", "deadlock"),
    (r"(set %\d+, )1\n", r"\g<1>0\n", "deadlock"), (r"mbarrier_arrive empty", "mbarrier_arrive full", "deadlock")])
def test_the_simulator_finds_mistakes(old: str, new: str, said: str) -> None:
    text = show(ring(2, 2, 3, 1, 3))
    broken = re.sub(old, new, text)
    assert broken != text
    assert said in played(parse(broken))


WORDS = re.compile(r"\s*(mbarrier_\w+|copy_tile|mma_(wait|fence|commit|async)|\w+_barrier|set %\d+, (%\d+|[01])$)")
CHANGES: list[tuple[str, Callable[[re.Match], str] | str]] = [
    (r"cluster=2", "cluster=1"), (r"apart=(\d)", lambda m: f"apart={3 - int(m[1])}"), (r"cluster=4", "cluster=2"),
    (r"count=(\d+)", lambda m: f"count={int(m[1]) + 1}"),
    (r"pending=(\d)", lambda m: f"pending={int(m[1]) + 1}"), (r"bytes=\d+", "bytes=16384"),
    (r"(set %\d+, )([01])$", lambda m: f"{m[1]}{1 - int(m[2])}"),
    (r"(empty|full)\[", lambda m: "full[" if m[1] == "empty" else "empty[")]


def mutants(kernel: Kernel) -> Iterator[str]:
    """The text of a kernel without each word of its ring, and with each changed."""
    lines = show(kernel).split("\n")
    for k, line in enumerate(lines):
        if WORDS.match(line):
            changed = {re.sub(old, new, line) for old, new in CHANGES} - {line}
            yield from ("\n".join((*lines[:k], *other, *lines[k + 1:])) for other in ((), *((c,) for c in sorted(changed))))


def results(kernel: Kernel) -> np.ndarray:
    """Of small integers, so that every order of sums is exact."""
    *inputs, out = (m for m in kernel.memories if m.space == "global")
    rng = np.random.default_rng(3)
    held = {m.name: rng.integers(-3, 4, m.size).astype(m.dtype.numpy) for m in inputs}
    held[out.name] = np.full(out.size, np.nan, out.dtype.numpy)
    interpret(kernel, held, subgroup=32)
    return held[out.name]


@pytest.mark.parametrize("teams, beside", [(1, 1), (2, 2)])
def test_every_instruction_of_a_ring_is_needed(teams: int, beside: int) -> None:
    """Two or four workgroups of a cluster, two tiles of two strips, two stages: whatever is dropped or changed, the
    verifier, the simulator or the interpreter refuses it, or the results are wrong. One change is none: which stage was
    last read is not asked for before one was."""
    kernel = ring(2, teams, 2, 2, 2, beside)
    want, actual, missed = results(kernel), 0, []
    for text in mutants(kernel):
        try:
            broken = parse(text)
            verify(broken)
            wrong = played(broken) != "" or not np.array_equal(results(broken), want)
        except VerifyError:
            wrong = True
        actual += wrong
        if not wrong:
            missed += set(text.split("\n")) - set(show(kernel).split("\n"))
    assert actual > 50 and [re.sub(r"%\d+", "%", m.strip()) for m in missed] == ["set %, 1"]
