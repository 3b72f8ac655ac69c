"""Rings of products whose workgroups have roles: each of their words is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.ring_kernels import ring
from tests.cases.ring_schedules import played
from ztorch.errors import VerifyError
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.parse import parse
from ztorch.ir.text import show
from ztorch.ir.verify import verify


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
