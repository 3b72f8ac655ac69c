"""The words of the PTX templates: each opcode on each dtype computes the same as the interpreter of the IR,
to the bit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from tests.cases import oracle
from tests.cases.covering import pairs, share
from tests.cases.grid import ELEMENTWISE, REDUCING, job
from tests.cases.grouping import together
from tests.cases.opcodes import array, edges, kernel_for, numbers, opcodes_of, same, threaded
from tests.cases.random_kernels import random_buffers, random_kernel
from tests.cases.vectors import stores
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run, spoken, through_ptx
from tests.parity import answer, plan_of
from ztorch.dtypes import ALL, DType, bf16, boolean, f16, f32, f64, i32, u8
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits

CHIPS = ("sm_75", "sm_90")


@pytest.mark.parametrize(("d", "chip"), pairs(ALL, CHIPS, [(d, CHIPS[-1]) for d in ALL]), ids=str)
def test_every_opcode(d: DType, chip: str) -> None:
    made = []
    for opcode in opcodes_of(d):
        kernel, held = kernel_for(opcode, d, 1)
        made.append((opcode, spoken(threaded(kernel), chip), held))
    program = parse(rendered([k for _, k, _ in made], chip))
    for number, (opcode, kernel, held) in enumerate(made):
        got = {n: a.copy() for n, a in held.items()}
        run(kernel, got, program, f"k{number}")
        same(numbers(kernel, got), numbers(kernel, answer(kernel, held)), f"{opcode} {d!r} for {chip}",
             opcode in ("min", "max"))


@pytest.mark.parametrize("chip", CHIPS)
def test_random_kernels(chip: str) -> None:
    """Structure, variables, masks, conversions: everything at once."""
    for seed in share(range(60), CHIPS.index(chip), 3):
        kernel = random_kernel(Random(seed), lanes=(1,), kinds=("serial",))
        want = random_buffers(kernel, Random(seed))
        got = {n: a.copy() for n, a in want.items()}
        through_ptx(kernel, got, chip)
        interpret(spoken(kernel, chip), want)
        same(numbers(kernel, got), numbers(kernel, want), f"random kernel {seed} for {chip}", True)


@pytest.mark.parametrize("d", [d for d in ALL if d is not boolean], ids=repr)
def test_literals_are_exact(d: DType) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 256, 64 * d.bytes).astype(np.uint8).view(d.numpy)
    b = Builder("literals", i32)
    b.memory("y", d, 64, access="w")
    for k, x in enumerate(bits):
        raw = int(x.view(f"u{d.bytes}"))
        b.store("y", k, Operand(-1, d, 1, "const", raw))
    got = {"y": np.zeros(64, d.numpy)}
    through_ptx(b.kernel(), got)
    assert got["y"].tobytes() == bits.tobytes()


@pytest.mark.parametrize("d", [f32, f64], ids=repr)
def test_fma_rounds_once(d: DType) -> None:
    """Against exact fractions; also where rounding twice goes wrong."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(1, 1 << 24, 3000).astype(d.numpy) for _ in range(2))
    z = (rng.normal(size=3000) * 2.0 ** rng.integers(-60, 60, 3000)).astype(d.numpy)
    # x * y is halfway between two float32, and z decides in which direction
    x[:2], y[:2], z[:2] = 1 + 2.0**-23, 1 + 2.0**-1, (2.0**-70, -(2.0**-70))
    n = len(x)
    b = Builder("fused", i32)
    for name in "xyz":
        b.memory(name, d, n)
    b.memory("out", d, n, access="w")
    with b.loop(0, n) as i:
        b.store("out", i, b.fma(b.load("x", i), b.load("y", i), b.load("z", i)))
    kernel = replace(threaded(b.kernel()), workgroup=(n, 1, 1))
    held = {"x": x, "y": y, "z": z, "out": np.zeros(n, d.numpy)}
    through_ptx(kernel, held)
    want = [oracle.rounded(d, Fraction(float(a)) * Fraction(float(c)) + Fraction(float(e)))
            for a, c, e in zip(x, y, z, strict=True)]
    np.testing.assert_array_equal(held["out"], np.array(want))


def test_division_and_square_root_without_calls() -> None:
    """The words of sm_90a round once, also below the least normal number and beside NaN."""
    n, rng = 20_000, np.random.default_rng(0)
    x, y = (rng.integers(0, 1 << 32, n, np.uint32).view(np.float32) for _ in range(2))
    special = np.array(edges(f32), np.float32)
    pairs_of = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    x[:pairs_of.shape[1]], y[:pairs_of.shape[1]] = pairs_of
    x[-n // 4:] = rng.integers(1, 1 << 24, n // 4) * np.float32(2.0**-149)  # halves of the least numbers
    y[-n // 4:] = rng.integers(1, 200, n // 4) * np.float32(2.0) ** rng.integers(0, 8, n // 4)
    b = Builder("rounded", i32)
    for name in ("x", "y", "quotient", "root"):
        b.memory(name, f32, n, access="r" if name in "xy" else "w")
    with b.loop(0, n) as i:
        b.store("quotient", i, b.div(b.load("x", i), b.load("y", i)))
        b.store("root", i, b.sqrt(b.load("x", i)))
    held = {"x": x, "y": y, "quotient": np.zeros(n, np.float32), "root": np.zeros(n, np.float32)}
    through_ptx(threaded(b.kernel()), held, "sm_90a")
    text = rendered([b.kernel()], "sm_90a")
    assert "div.rn" not in text and "sqrt.rn" not in text
    with np.errstate(all="ignore"):
        want = {"quotient": x / y, "root": np.sqrt(x)}
    for name, w in want.items():
        number = ~np.isnan(w)
        np.testing.assert_array_equal(np.isnan(held[name]), ~number)
        assert held[name][number].tobytes() == w[number].tobytes(), name


@pytest.mark.parametrize("source", [d for d in ALL if d not in (f16, bf16)], ids=repr)
def test_casts_against_plain_python(source: DType) -> None:
    """A second opinion on saturation, wrapping and rounding."""
    values = edges(source)
    for d in ALL:
        if d in (source, f16, bf16):
            continue
        b = Builder("cast", i32)
        b.memory("x", u8 if source is boolean else source, len(values))
        b.memory("y", u8 if d is boolean else d, len(values), access="w")
        with b.loop(0, len(values)) as i:
            x = b.load("x", i)
            y = b.cast(b.ne(x, 0) if source is boolean else x, dtype=d)
            b.store("y", i, b.cast(y, dtype=u8) if d is boolean else y)
        held = {"x": array(values, source), "y": np.zeros(len(values), u8.numpy if d is boolean else d.numpy)}
        through_ptx(threaded(b.kernel()), held)
        want = array([oracle.cast(v, source, d) for v in values], d)
        np.testing.assert_array_equal(held["y"], want, err_msg=f"{source} to {d}")


@together()
@pytest.mark.parametrize("d", [d for d in ALL if d is not boolean], ids=repr)
@pytest.mark.parametrize("distance", [1, 16, 31])
def test_shuffles(d: DType, distance: int) -> None:
    b = Builder("swap", i32)
    b.memory("x", d, 64)
    b.memory("y", d, 64, access="w")
    b.workgroup = (64, 1, 1)
    with b.loop(0, 64, kind="block") as t:
        b.store("y", t, b.shuffle_xor(b.load("x", t), distance))
    held = random_buffers(b.kernel(), Random(1))
    through_ptx(b.kernel(), held)
    assert held["y"].tobytes() == held["x"][np.arange(64) ^ distance].tobytes()


@together()
@pytest.mark.parametrize("d", [d for d in ALL if d is not boolean], ids=repr)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_neighbors_loaded_together(d: DType, space: str) -> None:
    """Two and four at once, aligned and not, from either memory."""
    for lanes, align in ((2, 0), (2, 2 * d.bytes), (4, 0), (4, 4 * d.bytes)):
        b = Builder("neighbors", i32)
        b.memory("x", d, 260)
        b.memory("y", d, 256, access="w")
        b.workgroup = (64, 1, 1)
        if space == "shared":
            b.memory("s", d, 260, "shared", "rw")
        with b.loop(0, 64, kind="block") as t:
            at = b.mul(t, 4)
            if space == "shared":
                for k in range(4):
                    b.store("s", at, b.load("x", at, off=k), off=k)
                b.store("s", 256, b.const(0, d), mask=b.eq(t, 0))
                b.barrier()
            for k in range(0, 4, lanes):
                result = b.load("s" if space == "shared" else "x", at, off=k, lanes=lanes, align=align)
                for j in range(lanes):
                    b.store("y", at, b.extract(result, j), off=k + j)
        held = random_buffers(b.kernel(), Random(2))
        through_ptx(b.kernel(), held)
        assert held["y"].tobytes() == held["x"][:256].tobytes()
        assert (f".v{lanes}." in rendered([b.kernel()], "sm_80")) == bool(align and lanes * d.bytes <= 16)


@together()
@pytest.mark.parametrize("d", [d for d in ALL if d is not boolean], ids=repr)
@pytest.mark.parametrize("aligned", [True, False])
def test_neighbors_stored_together(d: DType, aligned: bool) -> None:
    kernel = stores(d, aligned)
    got = random_buffers(kernel, Random(3))
    want = {n: a.copy() for n, a in got.items()}
    through_ptx(kernel, got)
    interpret(kernel, want)
    assert got["y"].tobytes() == want["y"].tobytes()
    assert ("st.global.v" in rendered([kernel], "sm_80")) == aligned


@pytest.mark.parametrize("name", ["a row for all", "aligned parts", "compared", "as other types", "wide"])
def test_elements_four_by_four(name: str) -> None:
    make, *shapes = ELEMENTWISE[name]
    limits = Limits(0, 16, True, grid=GridLimits(load_width=4))
    [step] = plan_of(job(make, *shapes).alone("j"), limits)[0].steps
    got = random_buffers(step.kernel, Random(4))
    want = {n: a.copy() for n, a in got.items()}
    through_ptx(step.kernel, got)
    interpret(step.kernel, want)
    same(got, want, name)
    text = rendered([step.kernel], "sm_80")
    assert "ld.global.nc.v" in text and "st.global.v" in text


@pytest.mark.parametrize("subgroup", [0, 32])
@pytest.mark.parametrize("name", ["normal rows", "normal columns", "columns of any", "as other types"])
def test_sums_four_by_four(name: str, subgroup: int) -> None:
    make, *shapes = REDUCING[name]
    limits = Limits(0, 16, True, grid=GridLimits(load_width=4, subgroup=subgroup))
    kernels = [s.kernel for s in plan_of(job(make, *shapes).alone("j"), limits)[0].steps]
    for kernel in kernels:  # a sum of long columns is split: its parts, then their sum
        got = random_buffers(kernel, Random(5))
        want = {n: a.copy() for n, a in got.items()}
        through_ptx(kernel, got)
        interpret(kernel, want, subgroup=32)
        same(got, want, name)
    text = rendered(kernels, "sm_80")
    assert "ld.global.nc.v" in text and "st.global.v" in text
    assert ("ld.shared.v" in text) == (name != "normal rows"), "a row's sum is one number"
