"""Attention against PyTorch, and its definition where PyTorch's gives NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.parity import HERE, Job, agree, compiled
from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

random = np.random.default_rng(4)


class Case:
    """Attention of random tensors, with the gradients of its weighted sum by q, k and v."""

    def __init__(self, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...] | None = None,
                 mask: np.ndarray | None = None, size: float = 1.0, d: str = "float64",
                 **how: Any):
        arrays = [random.normal(size=s) * size for s in (q, k, v or k)]
        leaves = [leaf("input", n, a.shape, d) for n, a in zip("qkv", arrays, strict=True)]
        self.mask, self.how, self.arrays = mask, how, arrays
        self.feeds: dict[Value, Any] = dict(zip(leaves, arrays, strict=True))
        seen = None
        if mask is not None:
            seen = leaf("input", "mask", mask.shape, "bool")
            self.feeds[seen] = mask
        y = ops.attention(*leaves, seen, **how)
        self.slope = random.normal(size=y.shape)
        slope = leaf("input", "slope", y.shape, d)
        self.feeds[slope] = self.slope
        result = gradients(ops.sum(y * slope), leaves)
        self.graph = Graph({"y": y, "dq": result[0], "dk": result[1], "dv": result[2]})

    def oracle(self) -> list[np.ndarray]:
        return evaluate(self.graph.roots, self.feeds, oracle=True)

    def torch(self) -> list[np.ndarray]:
        t = references.torch()
        q, k, v = (t.tensor(a, requires_grad=True) for a in self.arrays)
        mask = None if self.mask is None else t.tensor(self.mask)
        y = t.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=self.how.get("causal", False), scale=self.how.get("scale"),
            enable_gqa=q.ndim > 2 and q.shape[-3] != k.shape[-3])
        (y * t.tensor(self.slope)).sum().backward()
        return [a.detach().numpy() for a in (y, q.grad, k.grad, v.grad)]


MASK = random.random((6, 9)) < 0.6
MASK[:, 0] = True  # nobody sees nothing
CASES: dict[str, dict[str, Any]] = {
    "self": {"q": (2, 3, 6, 4), "k": (2, 3, 6, 4)},
    "no heads": {"q": (6, 4), "k": (9, 4)},
    "other lengths and widths": {"q": (2, 3, 6, 4), "k": (2, 3, 9, 4), "v": (2, 3, 9, 5)},
    "causal": {"q": (2, 3, 6, 4), "k": (2, 3, 6, 4), "causal": True},
    "causal, more queries": {"q": (2, 9, 4), "k": (2, 6, 4), "causal": True},
    "causal, more keys": {"q": (2, 6, 4), "k": (2, 9, 4), "causal": True},
    "mask": {"q": (2, 3, 6, 4), "k": (2, 3, 9, 4), "mask": MASK},
    "mask for each row of the batch": {
        "q": (2, 3, 6, 4), "k": (2, 3, 9, 4), "mask": np.stack([MASK, MASK[:, [0, *range(8, 0, -1)]]])[:, None]},
    "keys hidden from all": {"q": (2, 3, 6, 4), "k": (2, 3, 9, 4), "mask": MASK[:1]},
    "shared heads": {"q": (2, 6, 5, 4), "k": (2, 2, 5, 4), "causal": True},
    "one shared head": {"q": (3, 5, 4), "k": (1, 7, 4), "v": (1, 7, 2)},
    "scale": {"q": (2, 6, 4), "k": (2, 6, 4), "scale": 0.125},
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_pytorchs(name: str) -> None:
    case = Case(**CASES[name])
    for got, want in zip(case.oracle(), case.torch(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str) -> None:
    case = Case(**CASES[name], d="float32")
    job = Job(case.graph, {v: np.asarray(a, v.dtype.numpy) for v, a in case.feeds.items()})
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=20)


def narrow(case: Case) -> list[list[np.ndarray]]:
    """In float32, by NumPy and by compiled code."""
    feeds = {v: np.asarray(a, v.dtype.numpy) for v, a in case.feeds.items()}
    return [evaluate(case.graph.roots, feeds), compiled(Job(case.graph, feeds), HERE[-1])]


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient() -> None:
    mask = np.ones((6, 9), bool)
    mask[2] = False
    for y, dq, dk, dv in narrow(Case((2, 6, 4), (2, 9, 4), mask=mask, d="float32")):
        assert not y[:, 2].any() and not dq[:, 2].any() and y[:, 3].any()
        assert np.isfinite(dk).all() and np.isfinite(dv).all()
    nobody = Case((2, 6, 4), (2, 9, 4), mask=np.zeros((6, 9), bool), d="float32")
    for results in narrow(nobody):
        assert not any(a.any() for a in results)


@pytest.mark.parametrize("size", [1e4, 1e-20])
def test_safe_for_large_and_tiny_inputs(size: float) -> None:
    for how in ({}, {"causal": True}, {"mask": MASK}):
        q = (2, 9, 4) if how == {"causal": True} else (2, 6, 4)
        for results in narrow(Case(q, (2, 9, 4), size=size, d="float32", **how)):
            assert all(np.isfinite(a).all() for a in results)


def test_masked_values_have_no_influence() -> None:
    mask = np.ones((6, 9), bool)
    mask[:, 4] = False
    case = Case((2, 6, 4), (2, 9, 4), mask=mask, d="float32")
    calm = [a for results in narrow(case) for a in results]
    k = next(v for v in case.feeds if v.attrs["name"] == "k")
    case.feeds[k] = case.arrays[1].copy()
    case.feeds[k][:, 4] = 1e18  # e to its power is infinite
    for a, b in zip([a for results in narrow(case) for a in results], calm, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_sum_to_one() -> None:
    q = leaf("input", "q", (2, 5, 4), "float32")
    weights = ops.attention_weights(q, q, causal=True)
    [w] = evaluate([weights], {q: random.normal(size=q.shape).astype(np.float32)})
    np.testing.assert_allclose(w.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(w, np.tril(w))


@pytest.mark.parametrize(("shapes", "message"), [
    (((2, 6, 4), (2, 9, 5), (2, 9, 5)), r"queries and keys do not fit: \(2, 6, 4\) and \(2, 9, 5\)"),
    (((2, 6, 4), (6, 4), (6, 4)), r"queries and keys do not fit"),
    (((2, 6, 4), (2, 9, 4), (2, 8, 4)), r"keys and values do not fit: \(2, 9, 4\) and \(2, 8, 4\)"),
    (((3, 6, 4), (2, 9, 4), (2, 9, 4)), r"heads or batches.*\(3, 6, 4\) and \(2, 9, 4\)"),
    (((3, 2, 6, 4), (2, 2, 9, 4), (2, 2, 9, 4)), r"heads or batches"),
    (((2, 6, 4), (2, 9, 4), (2, 9, 4), (6, 8)), r"mask does not fit the scores: \(6, 8\) and \(2, 6, 9\)"),
    (((2, 6, 4), (2, 9, 4), (2, 9, 4), (1, 2, 6, 9)), r"mask does not fit the scores"),
])
def test_shapes_that_do_not_fit(shapes: tuple, message: str) -> None:
    q, k, v = (leaf("input", n, s, "float32") for n, s in zip("qkv", shapes, strict=False))
    mask = leaf("input", "m", shapes[3], "bool") if len(shapes) > 3 else None
    with pytest.raises(ShapeError, match=message):
        ops.attention(q, k, v, mask)


def test_masks_are_bool() -> None:
    q, m = leaf("input", "q", (2, 6, 4), "float32"), leaf("input", "m", (6, 6), "float32")
    with pytest.raises(ShapeError, match=r"must be bool, not float32; use true"):
        ops.attention(q, q, q, m)
