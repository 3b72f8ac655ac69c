"""The verifier on random kernels: whole ones pass and run, broken ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.covering import full
from tests.cases.random_kernels import random_buffers, random_kernel
from ztorch.dtypes import f16, f64
from ztorch.errors import VerifyError
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr
from ztorch.ir.opcodes import OPCODES, SCALAR
from ztorch.ir.verify import verify


@settings(max_examples=60 if full() else 25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_kernels_are_well_formed_and_run(rng: Random) -> None:
    kernel = random_kernel(rng)
    verify(kernel)
    interpret(kernel, random_buffers(kernel, rng))


Mutation = Callable[[list[Instr], Random], bool]


def wrong_dtype(body: list[Instr], rng: Random) -> bool:
    """Some result of another dtype than its operands."""
    positions = [n for n, i in enumerate(body)
                 if i.opcode in SCALAR and OPCODES[i.opcode].result != "attr"]
    if not positions:
        return False
    at = rng.choice(positions)
    d = f64 if body[at].dest.dtype != f64 else f16
    body[at] = replace(body[at], dest=replace(body[at].dest, dtype=d))
    return True


def wrong_lanes(body: list[Instr], rng: Random) -> bool:
    positions = [n for n, i in enumerate(body) if i.opcode in SCALAR]
    if not positions:
        return False
    at = rng.choice(positions)
    body[at] = replace(body[at], dest=replace(body[at].dest, lanes=body[at].dest.lanes + 1))
    return True


def use_after_scope(body: list[Instr], rng: Random) -> bool:
    """A value that a loop or if defines is used after its end."""
    depth, inside = 0, []
    for i in body:
        depth += (i.opcode in ("loop", "if")) - (i.opcode in ("end_loop", "end_if"))
        if depth and i.dest.kind == "value" and i.dest.dtype.is_float:
            inside.append(i.dest)
    if not inside:
        return False
    x = rng.choice(inside)
    body.append(Instr("neg", replace(x, id=10 ** 6), (x,)))
    return True


def swapped_ends(body: list[Instr], rng: Random) -> bool:
    """The ends of two nested blocks are swapped."""
    positions = [n for n, i in enumerate(body) if i.opcode in ("loop", "if", "end_loop", "end_if")]
    pairs = [(m, n) for m, n in pairwise(positions)
             if body[m].opcode.startswith("end") and body[n].opcode.startswith("end")]
    if not pairs:
        return False
    m, n = rng.choice(pairs)
    body[m], body[n] = body[n], body[m]
    return True


def lost_end(body: list[Instr], rng: Random) -> bool:
    positions = [n for n, i in enumerate(body) if i.opcode in ("end_loop", "end_if")]
    if positions:
        del body[rng.choice(positions)]
    return bool(positions)


def used_before_defined(body: list[Instr], rng: Random) -> bool:
    positions = [n for n, i in enumerate(body[:-1])
                 if i.dest.kind == "value" and i.dest in body[n + 1].args]
    if not positions:
        return False
    at = rng.choice(positions)
    body[at], body[at + 1] = body[at + 1], body[at]
    return True


def lost_definition(body: list[Instr], rng: Random) -> bool:
    used = {a.id for i in body for a in i.args}
    positions = [n for n, i in enumerate(body) if i.dest.kind == "value" and i.dest.id in used]
    if positions:
        del body[rng.choice(positions)]
    return bool(positions)


def repeated(body: list[Instr], rng: Random) -> bool:
    at = rng.randrange(len(body))
    body.insert(at, body[at])
    return True


def never_set(body: list[Instr], rng: Random) -> bool:
    read = {i.args[0].id for i in body if i.opcode == "get"}
    if not read:
        return False
    v = rng.choice(sorted(read))
    body[:] = [i for i in body if i.opcode != "set" or i.args[0].id != v]
    return True


def beyond_the_end(body: list[Instr], rng: Random) -> bool:
    positions = [n for n, i in enumerate(body) if "off" in i.attrs and i.args[0].is_const
                 and (len(i.args) == OPCODES[i.opcode].arity)]  # under a mask that is allowed
    if not positions:
        return False
    at = rng.choice(positions)
    body[at] = replace(body[at], attrs=body[at].attrs | {"off": rng.choice((-1, 10 ** 6))})
    return True


def write_to_input(body: list[Instr], rng: Random) -> bool:
    inputs = [i.attrs["mem"] for i in body if i.opcode in ("load", "gather")]
    positions = [n for n, i in enumerate(body) if i.opcode in ("store", "scatter")]
    if not inputs or not positions:
        return False
    at = rng.choice(positions)
    body[at] = replace(body[at], attrs=body[at].attrs | {"mem": rng.choice(inputs)})
    return True


@pytest.mark.parametrize("mutation", [
    wrong_dtype, wrong_lanes, use_after_scope, swapped_ends, lost_end, used_before_defined,
    lost_definition, repeated, never_set, beyond_the_end, write_to_input])
def test_broken_random_kernels_are_refused(mutation: Mutation) -> None:
    broken = 0
    for seed in range(60):
        rng = Random(seed)
        kernel = random_kernel(rng)
        instructions = list(kernel.body)
        if mutation(instructions, rng):
            broken += 1
            with pytest.raises(VerifyError):
                verify(replace(kernel, body=tuple(instructions)))
    assert broken >= 10, "too few kernels had anything to break"
