"""Every op of the registry on every sample: value, shape, dtype and gradient."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.jobs import has_gradient
from tests.cases.samples import UNSAMPLED, Case, cases, stored
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, public_ops
from ztorch.graph.value import topological

EVERY = list(cases())
FLOATS = list(cases("f"))


def test_every_op_has_samples_or_a_reason() -> None:
    bare = {p.name for p in public_ops() if not p.samples}
    assert bare == set(UNSAMPLED)


def test_every_op_has_a_docstring() -> None:
    assert [p.name for p in public_ops() if not p.call.__doc__] == []


@together(of=200)
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_float64_value_is_numpys(case: Case) -> None:
    leaves, arrays = case.leaves(f64), case.arrays()
    [got] = evaluate([case.call(*leaves)], dict(zip(leaves, arrays, strict=True)), oracle=True)
    want = case.reference(*arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


@together(of=200)
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_value_shape_and_dtype_in_its_own_dtype(case: Case) -> None:
    leaves = case.leaves()
    feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
    y = case.call(*leaves)
    [got] = evaluate([y], feeds)
    own = case.reference(*feeds.values())
    assert y.shape == got.shape == own.shape
    assert y.dtype.numpy == got.dtype
    assert got.dtype.kind == own.dtype.kind
    if got.dtype.kind == "f":
        wide = case.reference(*(a.astype(np.float64) if a.dtype.kind == "f" else a
                                for a in feeds.values()))
        np.testing.assert_allclose(got, wide, rtol=2e-5, atol=2e-6)
    else:
        np.testing.assert_array_equal(got, own)


@together(of=200)
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_narrow_floats_keep_their_dtype(case: Case) -> None:
    for narrow in ("float16", "bfloat16"):
        leaves = case.leaves(narrow)
        feeds = {v: stored(v, a) for v, a in zip(leaves, case.arrays(), strict=True)}
        y = case.call(*leaves)
        if y.dtype.is_float and leaves and "dtype" not in case.sample.attrs:
            assert str(y.dtype) == narrow or case.public.name == "one_hot"
        [got] = evaluate([y], feeds)
        assert got.shape == y.shape and np.isfinite(got).all()


@together(of=100)
@pytest.mark.parametrize("case", [c for c in (*FLOATS, *cases("f", composed=True)) if has_gradient(c)], ids=str)
def test_gradient_is_the_finite_difference(case: Case) -> None:
    leaves, arrays = case.leaves(f64), case.arrays()
    floats = [v for v in leaves if v.dtype == f64]
    y = case.call(*leaves)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, y.shape)
    total = ops.sum(ops.cast(y, f64) * constant(weights, f64))
    feeds = dict(zip(leaves, arrays, strict=True))
    result = evaluate(gradients(total, floats), feeds, oracle=True)
    nodes = topological([total])
    for v, got in zip(floats, result, strict=True):
        moving = {v}  # values that do not depend on it are computed once
        for node in nodes:
            if node.op.kind in ("loop", "threads") or any(a in moving for a in node.args):
                moving.add(node)
        fixed = [node for node in nodes if node not in moving]
        known = {**feeds, **dict(zip(fixed, evaluate(fixed, feeds, oracle=True), strict=True))}
        want = np.empty(v.shape)
        for at in np.ndindex(v.shape):
            ends = []
            for h in (1e-6, -1e-6):
                moved = feeds[v].copy()
                moved[at] += h
                ends.append(evaluate([total], {**known, v: moved}, oracle=True)[0])
            want[at] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
