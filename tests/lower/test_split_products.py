"""Products of float32 whose operands are split as they are loaded: nearly all bits of the result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.products import Make, job, plain, step_of, through_text
from tests.machines.ptx.parse import PtxError
from tests.parity import Job, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.ir.matrices import parts
from ztorch.lower.plan import KernelStep

CHIPS = ("sm_80", "sm_90a")


def high(chip: str, precision: str = "high") -> Limits:
    return target(f"cuda:{chip}").with_precision(precision).on_device({"compute_units": 1}).limits


def gradient(of: int, **options: object) -> Make:
    """The gradient of a convolution with respect to its images (0) or its weights (1)."""
    def make(*operands: Value) -> Value:
        y = ops.conv2d(*operands[:2], **options)
        return gradients(ops.sum(ops.mul(y, operands[2])), [operands[of]])[0]
    return make


def convolution(**options: object) -> Make:
    return lambda x, w: ops.conv2d(x, w, **options)


SAME = {"padding": "same"}
MAKES: dict[str, tuple[Make, tuple[tuple[int, ...], ...]]] = {
    "product": (plain, ((40, 67), (67, 35))),
    "forward": (convolution(**SAME), ((2, 5, 7, 12), (3, 3, 12, 20))),
    "forward, in steps": (convolution(strides=2), ((2, 7, 5, 12), (3, 3, 12, 20))),
    "forward, odd channels": (convolution(**SAME), ((2, 5, 7, 3), (3, 3, 3, 17))),
    "images": (gradient(0, **SAME), ((2, 5, 7, 12), (3, 3, 12, 20), (2, 5, 7, 20))),
    "images, in steps": (gradient(0, strides=2), ((2, 7, 5, 12), (3, 3, 12, 20), (2, 3, 2, 20))),
    "weights": (gradient(1, **SAME), ((2, 5, 7, 12), (3, 3, 12, 20), (2, 5, 7, 20))),
    "weights, in steps": (gradient(1, strides=2), ((2, 7, 5, 12), (3, 3, 12, 20), (2, 3, 2, 20))),
}


def kind_of(step: KernelStep) -> str:
    return step.schedule.kind if step.schedule else ""


def error(one: Job, limits: Limits) -> float:
    """The largest error beside the sum of the sizes of all products."""
    (got,), (want,) = interpreted(one, limits), one.oracle()
    (size,) = Job(one.graph, {v: np.abs(x) for v, x in one.feeds.items()}).oracle()
    return float((np.abs(got.reshape(want.shape) - want) / size).max())


@together()
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", MAKES)
def test_nearly_all_bits_are_kept(chip: str, name: str) -> None:
    make, shapes = MAKES[name]
    one = job(make, *shapes, d=f32)
    kinds = [kind_of(s) for s in plan_of(one.graph, high(chip))[0].parts]
    assert kinds.count("grid_matrix") >= 1 and "grid_product" not in kinds
    # Both operands lose a bit in 2 ** 21, and the product of both rests is left out; sums round.
    by_parts = error(one, high(chip))
    assert by_parts < 3 * 2.0**-21 + 100 * 2.0**-24
    if name == "forward":
        assert error(one, high(chip, "tf32")) > 20 * by_parts


@pytest.mark.parametrize("chip", CHIPS)
def test_machines_compute_the_same_bits(chip: str) -> None:
    make, shapes = MAKES["forward"]
    one = job(make, *shapes, d=f32)
    step = step_of(one, high(chip))
    np.testing.assert_array_equal(through_text(one, step, chip),
                                  interpreted(one, high(chip))[0].reshape(-1))


@together()
@pytest.mark.parametrize(("old", "new"), [
    (r"sub\.rn\.f32 (%r, %s), %r", r"add.rn.f32 \1, %r"),
    (r"0xFFFFE000; selp\.b32 (%v\w+), 0, (%v\w+), %p", r"0xFFFFE000; selp.b32 \1, \2, 0, %p"),
    (r"cp\.async\.wait_group \d", "cp.async.wait_group 9"), (r"bar\.sync 0;", "")])
def test_a_fault_is_detected(old: str, new: str) -> None:
    make, shapes = MAKES["forward"]
    one = job(make, *shapes, d=f32)
    step = step_of(one, high("sm_80"))
    with pytest.raises((PtxError, AssertionError)):
        got = through_text(one, step, "sm_80", old, new)
        np.testing.assert_array_equal(got, interpreted(one, high("sm_80"))[0].reshape(-1))


def test_infinities_stay_what_they_are() -> None:
    """Times numbers with and without a rest, of both signs, and zero."""
    one = job(plain, (24, 20), (20, 24), d=f32)
    a, b = one.feeds.values()
    a[0, 2], a[1, 3], a[2, 4], b[5, 6], b[6, 7], b[8, 0] = np.inf, -np.inf, np.nan, np.inf, -np.inf, np.nan
    b[2, :4], b[3, 5], a[4, 5] = (1.0, -2.0, 0.0, 1.0 / 3), 0.0, 0.0
    with np.errstate(invalid="ignore"):
        (got,), want = interpreted(one, high("sm_80")), a.astype(np.float64) @ b
        by_text = through_text(one, step_of(one, high("sm_80")), "sm_80")
    np.testing.assert_array_equal(by_text, got.reshape(-1))
    assert np.isinf(want).sum() > 50 and 40 < np.isnan(want).sum() < 100
    np.testing.assert_allclose(got, want, rtol=0, atol=9 * 2.0**-21 * np.abs(want[np.isfinite(want)]).max())


def test_parts_of_numbers() -> None:
    """Each has ten bits of mantissa, and both give all but the last of 22."""
    x = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    x[:4] = np.inf, -np.inf, np.nan, np.finfo(np.float32).max
    first, finite, rest = parts(x)
    for part in (first, finite, rest):
        assert not (part.view(np.uint32)[~np.isnan(part)] & 0x1FFF).any()
    np.testing.assert_array_equal(first[:2], x[:2])
    assert np.isnan(first[2]) and not finite[:2].any() and not rest[:2].any()
    np.testing.assert_array_equal(first[3:], finite[3:])
    assert (np.abs(x[3:] - first[3:].astype(np.float64) - rest[3:]) <= 2.0**-21 * np.abs(x[3:])).all()


@pytest.mark.parametrize(("chip", "precision", "kind"), [
    ("sm_80", "high", "grid_matrix"), ("sm_90a", "high", "grid_matrix"), ("sm_80", "float32", "grid_product"),
    ("sm_75", "high", "grid_product"), ("sm_89", "high", "grid_product")])  # where threads are as fast
def test_only_where_it_is_faster(chip: str, precision: str, kind: str) -> None:
    x, w = (leaf("input", n, s, f32) for n, s in (("x", (4, 14, 14, 64)), ("w", (3, 3, 64, 64))))
    graph = Graph({"y": ops.conv2d(x, w, padding="same")})
    steps = plan_of(graph, target(f"cuda:{chip}").with_precision(precision).limits)[0].parts
    assert [kind_of(s) for s in steps if "matmul" in s.kernel.name] == [kind]
