"""Products of dequantized numbers as integer products: within the rounding of their scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import GROUPS, NARROW, SCALAR, WIDE, Job, interpreted, plan_of
from ztorch.dtypes import i8
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits

BYTES = replace(WIDE, byte_dots=True)
MACHINES = {"one lane": SCALAR, "few lanes": NARROW, "many lanes": WIDE, "bytes": BYTES, "groups": GROUPS}
RANDOM = np.random.default_rng(5)
A = RANDOM.integers(0, 256, (9, 22), np.uint8)
B = RANDOM.integers(-128, 128, (22, 19), np.int8)
ROWS = RANDOM.uniform(0.01, 0.1, (9, 1)).astype(np.float32)
COLUMNS = RANDOM.uniform(0.01, 0.1, 19).astype(np.float32)


def _dequantized(x: Value, zero: int, scale: Value | float) -> Value:
    return OPS.cast(OPS.cast(x, "int32") - zero, "float32") * scale


def _job(zero: int = 0, by_row: bool = False, by_column: bool = False, turned: bool = False) -> tuple[Job, np.ndarray]:
    """A product of dequantized matrices, and its numbers in float64. If `turned`, B is transposed afterwards."""
    a, b = leaf("input", "a", A.shape, "uint8"), leaf("input", "b", B.T.shape if turned else B.shape, "int8")
    s, t = ROWS if by_row else np.float32(0.05), COLUMNS if by_column else np.float32(0.03)
    left = _dequantized(a, zero, constant(ROWS) if by_row else 0.05)
    scale = OPS.reshape(constant(COLUMNS), (19, 1) if turned else (19,)) if by_column else 0.03
    right = _dequantized(b, 0, scale)
    job = Job(Graph({"y": OPS.matmul(left, OPS.transpose(right) if turned else right)}), {a: A, b: B.T if turned else B})
    return job, ((A.astype(np.float64) - zero) * s) @ (B * np.asarray(t, np.float64))


def _dots(job: Job, limits: Limits) -> set[str]:
    """The opcodes of dot products in its kernels."""
    return {i.opcode for step in plan_of(job.alone("j"), limits)[0].steps
            for i in step.kernel.body if i.opcode.startswith("dot")}


@pytest.mark.parametrize("options", [
    {}, {"zero": 128}, {"zero": 7, "by_row": True, "by_column": True}, {"zero": 255, "turned": True},
    {"turned": True, "by_column": True}], ids=str)
def test_sums_are_those_of_integers(options: dict) -> None:
    job, wanted = _job(**options)
    for name, limits in MACHINES.items():
        [y] = interpreted(job, limits)
        np.testing.assert_allclose(y, wanted, rtol=2e-6, atol=1e-6 * np.abs(wanted).max(), err_msg=name)
    assert _dots(job, BYTES) == {"dot4"} and _dots(job, WIDE) == {"dot2"}


def test_equal_sums_are_equal() -> None:
    """Sums of floats would differ in the order of the additions; those of integers do not."""
    a = leaf("input", "a", (4, 40), "uint8")
    b = leaf("input", "b", (40, 32), "int8")
    y = OPS.matmul(_dequantized(a, 128, 0.1), _dequantized(b, 0, 0.1))
    x, w = RANDOM.integers(0, 256, (4, 40), np.uint8), RANDOM.integers(-128, 128, (40, 32), np.int8)
    order = RANDOM.permutation(40)
    one, other = (interpreted(Job(Graph({"y": y}), {a: x[:, k], b: w[k]}), WIDE)[0]
                  for k in (np.arange(40), order))
    np.testing.assert_array_equal(one, other)


def _product(left: Value, right: Value) -> Job:
    y = OPS.matmul(left, right)
    feeds = {v: np.ones(v.shape, v.dtype.numpy) for v in Graph({"y": y}).leaves("input")}
    return Job(Graph({"y": y}), feeds)


def test_what_stays_a_product_of_floats() -> None:
    """Scales that vary along k, sums that 32 bits may not hold, and operands that are no integers."""
    a, b = leaf("input", "a", (4, 8), "uint8"), leaf("input", "b", (8, 32), "int8")
    scales = leaf("input", "s", (8,), "float32")
    right = _dequantized(b, 0, 0.1)
    assert _dots(_product(_dequantized(a, 0, 0.1), right), BYTES) == {"dot4"}
    assert not _dots(_product(_dequantized(a, 0, scales), right), BYTES)
    assert not _dots(_product(leaf("input", "f", (4, 8), "float32"), right), BYTES)
    wide = leaf("input", "a", (4, 66_000), "uint8"), leaf("input", "b", (66_000, 32), "int8")
    assert not _dots(_product(*(_dequantized(x, 0, 0.1) for x in wide)), BYTES)


def test_zero_points_that_are_data() -> None:
    """One for each row: the difference takes nine bits, but bytes are multiplied."""
    a, z = leaf("input", "a", A.shape, "uint8"), leaf("input", "z", (9, 1), "uint8")
    b = leaf("input", "b", B.shape, "int8")
    y = OPS.matmul(OPS.cast(a, "int32") - OPS.cast(z, "int32"), OPS.cast(b, "int32"))
    zeros = RANDOM.integers(0, 256, (9, 1), np.uint8)
    job = Job(Graph({"y": y}), {a: A, z: zeros, b: B})
    for limits in (WIDE, BYTES):
        [got] = interpreted(job, limits)
        np.testing.assert_array_equal(got, (A.astype(np.int64) - zeros) @ B)
    assert _dots(job, BYTES) == {"dot4"} and _dots(job, WIDE) == {"dot2"}


def test_constants_are_packed_while_the_program_is_compiled() -> None:
    """Where no function runs once, as in a C library: no step reads the bytes of B."""
    a, b = leaf("input", "a", (3, 300), "uint8"), RANDOM.integers(-128, 128, (300, 64), np.int8)
    x = RANDOM.integers(0, 256, (3, 300), np.uint8)
    y = OPS.matmul(_dequantized(a, 5, 0.1), _dequantized(constant(b), 0, 0.1))
    job = Job(Graph({"y": y}), {a: x})
    for limits in (WIDE, BYTES, SCALAR):
        [got] = interpreted(job, limits)
        np.testing.assert_allclose(got, (x.astype(np.float64) - 5) @ b * 0.01, rtol=2e-6, atol=1e-3)
        read = {m.dtype for step in plan_of(job.alone("j"), limits)[0].steps for m in step.kernel.memories}
        assert i8 not in read
