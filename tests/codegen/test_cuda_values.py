"""Kernels as CUDA C++ compute the same as the interpreter: NVRTC compiles them, and the machine of the tests runs its PTX,
with fragments, copies and barriers as the hardware defines them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.cases.attention import job as attention_job
from tests.cases.attention import off
from tests.cases.convolutions import same as same_padding
from tests.cases.covering import pairs, share
from tests.cases.matrices import SUBGROUP, numbers, products
from tests.cases.opcodes import kernel_for, opcodes_of, same, threaded
from tests.cases.opcodes import numbers as read_numbers
from tests.cases.products import bound, job, plain, step_of, through_text, transposed, with_units
from tests.cases.random_kernels import random_buffers, random_kernel
from tests.machines.ptx.parse import PtxError, parse
from tests.machines.ptx.running import rendered, run, spoken, through_ptx
from tests.parity import Job, answer, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import ALL, DType, bf16, f16, f32, from_storage
from ztorch.graph.value import Value
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import Limits
from ztorch.lower.plan import KernelStep

pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC: pip install 'ztorch[cuda]'")
AMPERE, HOPPER = "c:sm_80", "c:sm_90a"
TF32 = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).with_precision("tf32").limits
IN_PARTS = TARGETS["cuda:sm_80"].on_device({"compute_units": 1}).with_precision("high").limits
ONE = with_units(1)
SHAPES = TARGETS["cuda:c:sm_80"].limits.grid.mma_shapes  # type: ignore[union-attr]
ONE_TF32 = TARGETS["cuda:sm_90a"].on_device({"compute_units": 1}).with_precision("tf32").limits


@pytest.mark.parametrize(("d", "chip"), pairs(ALL, (AMPERE, HOPPER)), ids=str)
def test_every_opcode(d: DType, chip: str) -> None:
    made = []
    for opcode in opcodes_of(d):
        kernel, held = kernel_for(opcode, d, 1)
        made.append((opcode, spoken(threaded(kernel), chip), held))
    program = parse(rendered([k for _, k, _ in made], chip))
    for number, (opcode, kernel, held) in enumerate(made):
        got = {n: a.copy() for n, a in held.items()}
        run(kernel, got, program, f"k{number}")
        same(read_numbers(kernel, got), read_numbers(kernel, answer(kernel, held)), f"{opcode} {d!r} for {chip}",
             opcode in ("min", "max"))


def test_random_kernels() -> None:
    for seed in share(range(60), 0, 3):
        kernel = random_kernel(Random(seed), lanes=(1,), kinds=("serial",))
        want = random_buffers(kernel, Random(seed))
        got = {n: a.copy() for n, a in want.items()}
        through_ptx(kernel, got, AMPERE)
        interpret(spoken(kernel, AMPERE), want)
        same(read_numbers(kernel, got), read_numbers(kernel, want), f"random kernel {seed}", True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("space", "align"), [("shared", 16), ("global", 0)])
def test_matrix_instructions(shape: MmaShape, space: str, align: int) -> None:
    """To the bit, so each thread has the elements that PTX specifies."""
    kernel = products(shape, (False, True, False), space, align)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=SUBGROUP)
    through_ptx(kernel, got, AMPERE)
    np.testing.assert_array_equal(got["y"], want["y"])


def rows(x: Value) -> Value:
    return ops.softmax(x) + ops.log_softmax(x) * 0.25


def adam(w: Value, m: Value, v: Value) -> Value:
    return w - m * 1e-3 / (ops.sqrt(ops.abs(v)) + 1e-7)


PLANNED: dict[str, tuple[Job, Limits, str, str]] = {  # by the schedule of the rules, and a word of its text
    "product, float16": (job(plain, (72, 72), (72, 136), d=f16), TF32, AMPERE, "ldmatrix"),
    "product, tf32": (job(transposed, (33, 64), (128, 64), d=f32), TF32, AMPERE, "cp.async.cg"),
    "product, float32 in parts": (job(plain, (70, 36), (36, 72), d=f32), IN_PARTS, AMPERE, "mma.sync"),
    "convolution": (job(same_padding, (1, 9, 9, 16), (3, 3, 16, 24), d=bf16), TF32, AMPERE, "cp.async"),
    "rows": (job(rows, (3, 201), d=f32), TF32, AMPERE, "shfl.sync"),
    "rows on Hopper": (job(ops.standardize, (2, 130), d=f32), ONE, HOPPER, "rcp.approx"),
    "gelu": (job(ops.gelu, (1000,), d=f16), ONE, HOPPER, "cvt.rn.f16.f32"),
    "Adam": (job(adam, (1000,), (1000,), (1000,), d=f32), TF32, AMPERE, "sqrt.rn"),
}


def agrees(got: np.ndarray, one: Job, d: DType, terms: int) -> None:
    (want,) = one.oracle()
    assert (np.abs(got.astype(np.float64).reshape(want.shape) - want) <= bound(one, d, terms)).all()


@pytest.mark.parametrize("name", PLANNED)
def test_kernels(name: str) -> None:
    one, limits, chip, word = PLANNED[name]
    [root] = one.graph.roots
    [step] = plan_of(one.alone("j"), limits)[0].steps
    text = rendered([step.kernel], chip)
    assert word in text
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(text))
    got, (same_bits,) = from_storage(root.dtype, held[out]), interpreted(one, limits)
    close = 2.0**-20 if root.dtype is f32 else 2.0**-7
    np.testing.assert_allclose(got.astype(np.float64), same_bits.reshape(-1).astype(np.float64), rtol=close, atol=close)


HALF = "stages(2) epilogue(bands=2)"
SCHEDULED: list[tuple[Job, int, DType, str]] = [
    (job(plain, (72, 136), (136, 136), d=f16), 136, f16, f"grid_roles tile(rows=64, columns=64) {HALF} cluster(rows=1, columns=1)"),
    (job(plain, (256, 72), (72, 136), d=f16), 72, f16,
     "grid_roles tile(rows=64, columns=192) stages(2) epilogue(bands=3) cluster(rows=4, columns=1)"),
    (job(transposed, (72, 100), (136, 100), d=f32), 100, f32,
     f"grid_roles tile(rows=64, columns=64) {HALF} cluster(rows=1, columns=1)"),
    (job(same_padding, (2, 12, 12, 64), (3, 3, 64, 64), d=bf16), 576, bf16,
     "grid_windows tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=2, columns=1) taps(3) patch(2, 4, 8)")]


@pytest.mark.parametrize(("one", "terms", "d", "schedule"), SCHEDULED, ids=["plain", "a cluster", "tf32", "windows"])
def test_asynchronous_products(one: Job, terms: int, d: DType, schedule: str) -> None:
    """Tensor maps, rings of barriers, clusters and wgmma."""
    agrees(through_text(one, step_of(one, ONE_TF32 if d is f32 else ONE, schedule), HOPPER), one, d, terms)


def attention_step(limits: Limits, schedule: str = "") -> tuple[Job, KernelStep]:
    one = attention_job(2, 1, 70, 70, 16, (), True, "float16", more=8)
    step = plan_of(one.alone("j"), limits)[0].steps[-1]
    schedules = {step.key: schedule} if schedule else {}
    return one, plan_of(one.alone("j"), limits, schedules=schedules)[0].steps[-1]


@pytest.mark.parametrize(("chip", "limits", "schedule"), [
    (AMPERE, TARGETS["cuda:sm_80"].limits, ""),
    (HOPPER, TARGETS["cuda:sm_90a"].limits, "grid_attention_roles teams(1) block(32) stages(2)")], ids=["matrix", "roles"])
def test_attention(chip: str, limits: Limits, schedule: str) -> None:
    one, step = attention_step(limits, schedule)
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], chip)))
    [root] = one.graph.roots
    assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 4


@pytest.mark.parametrize(("old", "new"), [
    (r"cp\.async\.wait_group 0;", ""), (r"bar\.sync 0;", ""), (r"(ldmatrix\S*) \{ (%\w+), (%\w+)", r"\1 { \3, \2")])
def test_faults_are_detected(old: str, new: str) -> None:
    one, limits, chip, _ = PLANNED["product, float16"]
    with pytest.raises((PtxError, AssertionError)):
        agrees(through_text(one, step_of(one, limits), chip, old, new), one, f16, 72)
