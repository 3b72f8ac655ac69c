"""Products of matrices by AMD's own words, against the interpreter of the IR, which lays matrices out in
another way: equal only if each thread has the elements that AMD specifies."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.cases.covering import pairs
from tests.cases.grouping import together
from tests.cases.matrices import numbers, products
from tests.cases.products import Make, bound, job, plain
from tests.machines.rocm import code_object, machine
from tests.machines.rocm.tensor import INSTRUCTIONS
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import amdgcn, assemble
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import DType, bf16, f16, f32, f64, from_storage
from ztorch.errors import Unsupported
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel, MmaShape
from ztorch.ir.verify import verify

ROWS = [t for t in TARGETS.values() if t.assembler == "amdgcn"]
CASES = [pytest.param(t, s, id=f"{t.chip} {s}") for t in ROWS for s in t.limits.grid.mma_shapes]
TURNS = tuple(itertools.product((False, True), repeat=3))
each = pytest.mark.parametrize(("target", "shape"), CASES)


def kernel_for(target: Target, shape: MmaShape, **more) -> Kernel:
    kernel = products(shape, subgroup=target.limits.grid.subgroup, **more)
    verify(kernel)
    return kernel


def compare(kernel: Kernel, shape: MmaShape, got: dict, want: dict) -> None:
    if shape.into is f64:  # sums are of another order
        np.testing.assert_allclose(got["y"], want["y"], rtol=0, atol=shape.k * 2.0**-50)
    else:
        np.testing.assert_array_equal(got["y"], want["y"])


@together(of=48)
@each
@pytest.mark.parametrize(("transposed", "place"), pairs(TURNS, [("shared", 16), ("shared", 0), ("global", 0)]))
def test_products(target: Target, shape: MmaShape, transposed: tuple[bool, bool, bool],
                  place: tuple[str, int]) -> None:
    space, align = place
    kernel = kernel_for(target, shape, transposed=transposed, space=space, align=align)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=target.limits.grid.subgroup)
    machine.run([kernel], [got], target)
    compare(kernel, shape, got, want)


def test_every_instruction_is_rendered() -> None:
    said: set[str] = set()
    for target in ROWS:
        for shape in target.limits.grid.mma_shapes:
            text = machine.rendered([kernel_for(target, shape)], target)[0]
            actual = set(re.findall(r"@llvm\.amdgcn\.((?:mfma|wmma)[\w.]+)\(", text))
            assert len(actual) == 1
            said |= actual
    assert said == set(INSTRUCTIONS)


LANE = r"(\.l = and i32 %\S+), 15"  # of the line that a thread holds; above it, of the part of the line
PART = r"(\.h = lshr i32 %\S+), 4"
FIRST = r"(call <.*?> @llvm\.amdgcn\.(?:mfma|wmma)\S+?\((?:<.*?>|\w+) )%\w+"


def broken(target: Target, shape: MmaShape, old: str, new: str) -> str:
    """How it shows that a word was replaced; the new word may access too much."""
    kernel = kernel_for(target, shape, align=16)
    want = numbers(kernel)
    got = {n: np.concatenate([a, np.zeros(1 << 14, a.dtype)])[:len(a)] for n, a in want.items()}
    interpret(kernel, want, subgroup=target.limits.grid.subgroup)
    text, [(symbol, _, grid)] = machine.rendered([kernel], target)
    changed = re.sub(old, new, text)
    assert changed != text
    hosted = machine.hosted_ir(changed, target.limits.grid.subgroup)
    with pytest.raises(AssertionError) as caught:
        hosted.launch(symbol, grid, kernel.workgroup, [got[m.name].ctypes.data for m in kernel.memories
                                                       if m.space == "global"])
        compare(kernel, shape, got, want)
    return str(caught.value)


@together()
@each
@pytest.mark.parametrize(("old", "new"), [
    (LANE, r"\1, 31"), (LANE, r"\1, 7"), (PART, r"\1, 3"), (PART, r"\1, 5"), (FIRST, r"\1zeroinitializer")])
def test_a_changed_instruction_is_detected(target: Target, shape: MmaShape, old: str, new: str) -> None:
    broken(target, shape, old, new)


def test_faults_raise_errors() -> None:
    """The machine knows the operands of an instruction besides numbers."""
    halves, xf32 = TARGETS["rocm:gfx1100"], TARGETS["rocm:gfx942"]
    [shape] = [s for s in xf32.limits.grid.mma_shapes if s.mantissa_bits]
    assert "same part of a matrix" in broken(halves, halves.limits.grid.mma_shapes[0], r"(\.f = mul i32 %\S+), 0", r"\1, 1")
    assert "too many bits" in broken(xf32, shape, "splat .i32 -8192.", "splat (i32 -1)")


@pytest.mark.parametrize("name", ["rocm:gfx90a", "rocm:gfx1100"])
def test_a_partly_active_wave_is_detected(name: str) -> None:
    target = TARGETS[name]
    kernel = kernel_for(target, target.limits.grid.mma_shapes[0])
    text, [(symbol, _, grid)] = machine.rendered([kernel], target)
    held = numbers(kernel)
    pointers = [held[m.name].ctypes.data for m in kernel.memories if m.space == "global"]
    with pytest.raises(AssertionError, match="met in part only"):
        machine.hosted_ir(text, target.limits.grid.subgroup).launch(
            symbol, grid, (target.limits.grid.subgroup + 8, 1, 1), pointers)


@each
def test_chips_without_it_refuse(target: Target, shape: MmaShape) -> None:
    kernel = kernel_for(target, shape)
    for other in (*ROWS, TARGETS["rocm:hip"]):
        if shape in other.limits.grid.mma_shapes and other.limits.grid.subgroup == target.limits.grid.subgroup:
            machine.rendered([kernel], other)
            continue
        with pytest.raises(Unsupported, match="lacks mma_load"):
            machine.rendered([kernel], other)


# -- code objects --------------------------------------------------------------------------------------

MNEMONIC = {"f16 64": "v_mfma_f32_16x16x16_?f16", "bf16 64": "v_mfma_f32_16x16x16_?bf16",
            "f32 64": "v_mfma_f32_16x16x4_?f32", "xf32 64": "v_mfma_f32_16x16x8_xf32",
            "f64 64": "v_mfma_f64_16x16x4_?f64", "f16 32": "v_wmma_f32_16x16x16_f16",
            "bf16 32": "v_wmma_f32_16x16x16_bf16"}


@each
def test_llvm_assembles_them(target: Target, shape: MmaShape) -> None:
    """Each product is one instruction, and nothing is kept in memory between them."""
    text = machine.rendered([kernel_for(target, shape, align=16)], target)[0]
    [kernel] = code_object.kernels(amdgcn.assemble(text, target)).values()
    assert not kernel[".private_segment_fixed_size"] and not kernel[".vgpr_spill_count"]
    of = "xf32" if shape.mantissa_bits else repr(shape.of)
    output = re.findall(r"v_w?mf?ma_\w+", assemble.assembly(text, target))
    assert output and len(output) == len(re.findall("call <.*(?:mfma|wmma)", text)) - 1  # of 0 + a b, which nothing reads
    assert all(re.fullmatch(f"{MNEMONIC[f'{of} {target.limits.grid.subgroup}']}(_1k)?", s) for s in output)


# -- whole products ------------------------------------------------------------------------------------

DTYPES = (f16, bf16, f32, f64)
ODD = [(16, 64, 32), (70, 130, 37), (33, 75, 217), (65, 16, 33), (17, 129, 1), (128, 64, 16)]


def of_plan(target: Target, d: DType, make: Make, *shapes: tuple[int, ...]) -> tuple[Job, str, np.ndarray]:
    """A product planned for a machine of one unit, its text, and the results of the text."""
    one = job(make, *shapes, d=d)
    [step] = plan_of(one.alone("j"), target.on_device({"compute_units": 1}).limits)[0].steps
    held, out = buffers_of(step, one)
    machine.run([step.kernel], [held], target)
    return one, machine.rendered([step.kernel], target)[0], from_storage(d, held[out]).reshape(one.oracle()[0].shape)


def spoken(target: Target, d: DType) -> bool:
    return any(s.of in (d, f32) and not s.mantissa_bits for s in target.limits.grid.mma_shapes) if d is not f64 else any(
        s.of is d for s in target.limits.grid.mma_shapes)


# Each chip multiplies each dtype in two of the sizes, which go round; in a full run in all.
WHOLE = [pytest.param(t, d, *sizes, id=f"{t.chip}-{d!r}-{sizes}",
                      marks=() if (at - i - j) % 3 == 0 else pytest.mark.full)
         for i, t in enumerate(ROWS) for j, d in enumerate(DTYPES) for at, sizes in enumerate(ODD)]


@pytest.mark.parametrize(("target", "d", "m", "n", "k"), WHOLE)
def test_whole_products(target: Target, d: DType, m: int, n: int, k: int) -> None:
    """By matrices where the chip has them in that dtype, else by threads; within what the dtype and k
    promise, and for numbers of 16 bits what the interpreter says to the bit."""
    one, text, got = of_plan(target, d, plain, (m, k), (k, n))
    assert bool(re.search("mfma|wmma", text)) == spoken(target, d)
    want = one.oracle()[0]
    size = Job(one.graph, {v: np.abs(a) for v, a in one.feeds.items()}).oracle()[0]
    of_result = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[d.name]
    of_sums = k * 2.0 ** (-53 if d is f64 else -24)
    assert (np.abs(got.astype(np.float64) - want) <= of_result * np.abs(want) + of_sums * size + 2.0**-24 * (
        d is f16)).all()
    if d.bits == 16:
        np.testing.assert_array_equal(got, interpreted(one, target.on_device({"compute_units": 1}).limits)[0])


@pytest.mark.parametrize("target", ROWS, ids=lambda t: t.chip)
@pytest.mark.parametrize(("make", "shapes"), [
    (lambda a, b: ops.relu(ops.matmul(a, ops.transpose(b))), ((33, 64), (128, 64))),
    (lambda a, b: ops.matmul(ops.transpose(a), b), ((40, 80), (40, 24))),
    (lambda a, b: ops.matmul(ops.transpose(a), ops.transpose(b)), ((64, 72), (128, 64))),
    (lambda a, b: ops.matmul(ops.transpose(a, (0, 2, 1)), b), ((3, 40, 72), (3, 40, 33)))])
def test_views_and_epilogues(target: Target, make: Make, shapes: tuple) -> None:
    for d in (f16, bf16, f32):
        one, text, got = of_plan(target, d, make, *shapes)
        assert bool(re.search("mfma|wmma", text)) == spoken(target, d)
        assert (np.abs(got.astype(np.float64) - one.oracle()[0]) <= bound(one, d, 72)).all()


def test_tf32_needs_the_users_permission() -> None:
    by = {name: of_plan(TARGETS["rocm:gfx942"].with_precision(name), f32, plain, (64, 40), (40, 64))
          for name in ("float32", "tf32")}
    assert "xf32" in by["tf32"][1] and "xf32" not in by["float32"][1]
    one, _, got = by["tf32"]
    off = np.abs(got.astype(np.float64) - one.oracle()[0])
    assert (off <= bound(one, f32, 40)).all() and off.max() > 1e-4


def test_the_smallest_numbers_are_no_zeros() -> None:
    """gfx90a's own products of float16 would take them for zeros, by its documentation."""
    target = TARGETS["rocm:gfx90a"]
    _, text, _ = of_plan(target, f16, plain, (64, 40), (40, 64))
    assert "mfma.f32.16x16x4f32" in text and "16x16x16f16" not in text
    assert f16 not in [s.of for s in target.limits.grid.mma_shapes]


def test_numbers_cut_to_ten_bits_are_rounded_to_the_nearest() -> None:
    target, shape = next((t, s) for t in ROWS for s in t.limits.grid.mma_shapes if s.mantissa_bits)
    kernel = kernel_for(target, shape, transposed=(False, False, False), space="shared", align=16)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=target.limits.grid.subgroup)
    machine.run([kernel], [got], target)
    compare(kernel, shape, got, want)
