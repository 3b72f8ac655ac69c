"""Gradients of kernels keep values or compute them again: by cost, and as they report."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import ztorch as zt
from models.kernels.flash_attention import attention_and_sums, attention_gradient, flash_attention
from tests.cases.gallery import EVERY
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.thread_copies import MAX_UNROLLED
from ztorch.kernels import block_loops, ordered_loops


@zt.kernel
def dear_or_cheap(x, dear):
    out = np.empty_like(x)
    for _, thread in zt.threads(1, x.shape[0]):
        total = 0.0
        for k in range(3):
            y = x[thread] * (k + 1.0)
            for _step in tuple(range(9 if dear else 1)):
                y = math.sin(y) + 0.3
            total += y * y
            y = y * 0.5
            total += math.exp(y)
        out[thread] = total
    return out


def test_expensive_values_are_kept_and_cheap_ones_recomputed() -> None:
    """Of nine sines in a row, two are kept in each of three turns: others are near enough to one."""
    x, way, h = np.linspace(-0.3, 0.9, 8), np.linspace(1, 2, 8), 1e-6
    for dear, said in ((False, "keeps nothing of each thread's forward pass"), (True, "keeps 48 bytes")):
        slope = zt.grad(lambda x, dear=dear: zt.ops.sum(dear_or_cheap(x, dear)))
        ends = [dear_or_cheap.debug(x + s * h * way, dear).sum() for s in (1, -1)]
        np.testing.assert_allclose(slope(zt.tensor(x)).numpy() @ way, (ends[0] - ends[1]) / (2 * h),
                                   rtol=1e-8)
        assert said in zt.explain(slope, "f64[8]", device="cpu")


def test_turns_with_large_products_are_computed_again() -> None:
    heads = np.ones((1, 2, 40, 4), np.float32)
    assert re.search(r"a gradient computes iterations again: products of \d+ elements, a state of \d+",
                     flash_attention.explain(heads, heads, heads, block=4))


def test_few_states_are_kept_where_all_would_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations between them run again: every number stays the same."""
    case = next(c for c in EVERY if str(c) == "flash_attention.flash_attention causal")
    leaf_case = next(c for c in EVERY if c.path == "scans.leaky_sum")

    def results() -> list[np.ndarray]:
        return [y for c in (case, leaf_case) for j in (c.job(), c.gradient_job()) for y in j.oracle()]

    q = np.ones((1, 2, 40, 4))
    assert "keeps every" not in flash_attention.explain(q, q, q, block=4)
    before = results()
    monkeypatch.setattr(ordered_loops, "STATES_KEPT", 0)
    monkeypatch.setattr(ordered_loops, "MIN_TRIP_COUNT", 2)
    assert "a gradient keeps every 5th state" in flash_attention.explain(q, q, q, block=4)
    for a, b in zip(results(), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_go_back_in_order_where_states_of_all_blocks_would_take_much_memory(
        causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(block_loops, "MOST_STATES", 0)
    arrays = np.random.default_rng(3).normal(size=(4, 3, 1, 2, 192, 4))  # three examples
    said = flash_attention.explain(*(x[0] for x in arrays[:3]), 16, causal)
    assert re.search("12 iterations at once; a gradient goes back in order: at once, it would keep", said), said

    def loss(q: zt.Tensor, k: zt.Tensor, v: zt.Tensor, up: zt.Tensor) -> zt.Tensor:
        return zt.vmap(lambda *x: zt.ops.sum(flash_attention(*x[:3], 16, causal) * x[3]))(q, k, v, up).sum()

    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    (torch.nn.functional.scaled_dot_product_attention(*leaves[:3], is_causal=causal) * leaves[3]).sum().backward()
    for got, want in zip(zt.grad(loss, argnums=(0, 1, 2, 3))(*map(zt.tensor, arrays)), leaves, strict=True):
        np.testing.assert_allclose(got.numpy(), want.grad.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_run_in_order_where_all_at_once_would_take_much_memory(
        causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    q, k, v, up = random.normal(size=(4, 1, 2, 96, 4))
    args = (q, k, v, *attention_and_sums.debug(q, k, v, 16, causal), up, 16, causal)
    in_order = r"6 iterations in order.*; at once, its products would take"
    assert not re.search(in_order, attention_gradient.explain(*args))
    monkeypatch.setattr(block_loops, "MOST_AT_ONCE", 0)
    said = attention_gradient.explain(*args)
    assert re.search(in_order, said), said
    for got, want in zip(attention_gradient(*args), attention_gradient.debug(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [MAX_UNROLLED, MAX_UNROLLED + 1])
def test_known_iterations_are_unrolled_up_to_a_limit(count: int) -> None:
    @zt.kernel
    def power(x):
        out = np.zeros(x.shape[0], x.dtype)
        for _, thread in zt.threads(1, x.shape[0]):
            y, left = x[thread], count
            while left > 0:
                y = y * x[thread]
                left -= 1
            out[thread] = y
        return out

    x = leaf("input", "x", (2,), "float64")
    y = power.trace(power.bind([x], {}))
    if count > MAX_UNROLLED:
        with pytest.raises(Unsupported, match="its iterations are not known"):
            gradients(OPS.sum(y), [x])
        return
    [slope] = evaluate(gradients(OPS.sum(y), [x]), {x: np.array([1.0, 0.9])})
    np.testing.assert_allclose(slope, [count + 1, (count + 1) * 0.9**count], rtol=1e-12)
