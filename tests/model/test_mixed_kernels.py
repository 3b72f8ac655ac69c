"""Mixed precision in kernels: matrix instructions, the zoo, and devices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING, device
from tests.cases.covering import among_devices
from tests.cases.zoo import BATCH, small
from tests.model.mixed_programs import MIXED, RNG, X, each, mlp
from tests.parity import Job, interpreted, plan_of
from ztorch import layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.commands import verify
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, f32
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.narrow import products_of, rounded
from ztorch.graph.op import leaf
from ztorch.graph.passes import run
from ztorch.graph.value import Graph, Value

# -- kernels ---------------------------------------------------------------------------------------


def product(d: DType, m: int, n: int, k: int) -> Job:
    a, b, c = (leaf("input", name, shape, f32) for name, shape in
               (("a", (m, k)), ("b", (n, k)), ("c", (n,))))
    with products_of(d):
        y = ops.relu(ops.matmul(a, ops.transpose(b)) + c)
    feeds: dict[Value, Any] = {v: RNG.normal(size=v.shape).astype(np.float32) for v in (a, b, c)}
    return Job(run(Graph({"y": y})), feeds)


@pytest.mark.parametrize("chip", ("cuda:sm_80", "rocm:gfx942", "rocm:gfx1100"))
@pytest.mark.parametrize("d", MIXED.values(), ids=repr)
def test_matrix_units_are_used_by_default(chip: str, d: DType) -> None:
    one, limits = product(d, 70, 130, 37), TARGETS[chip].on_device({"compute_units": 1}).limits
    plan = plan_of(one.alone("j"), limits)[0]
    assert any("mma" in s.kernel.opcodes() for s in plan.steps)
    [got] = interpreted(one, limits)
    a, b, c = (one.feeds[v].astype(np.float64) for v in one.feeds)
    a, b = (rounded(x.astype(np.float32), d).astype(np.float64) for x in (a, b))
    np.testing.assert_allclose(got, np.maximum(a @ b.T + c, 0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("d", MIXED.values(), ids=repr)
def test_gradients_of_products_are_products_of_rounded_numbers(d: DType) -> None:
    a, b = (leaf("input", n, s, f32) for n, s in (("a", (5, 7)), ("b", (7, 3))))
    with products_of(d):
        y = ops.matmul(a, b)
        da, db = gradients(ops.sum(y * y), [a, b])
    feeds: dict[Value, Any] = {a: X[:5], b: X[5:12, :3]}
    got = Job(run(Graph({"y": y, "da": da, "db": db})), feeds).oracle()
    want_y = rounded(feeds[a], d) @ rounded(feeds[b], d)
    g = rounded((2 * want_y).astype(np.float32), d)
    want = [want_y, g @ rounded(feeds[b], d).T, rounded(feeds[a], d).T @ g]
    assert da.dtype is f32
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "policy"), among_devices(list(MIXED)))
def test_the_zoo(backend: str, policy: str) -> None:
    """As `ztorch verify` compares them with float64: rounding to 16 bits explains all that is
    off."""
    subject = verify.of_recipe(small("digits_cnn"), device(backend).id, BATCH, policy)
    checks = list(verify.compare(subject, 2, seed=1, layers=False))
    assert [c for c in checks if not c.passed] == []
    assert max(c.bound for c in checks if c.part == "predict") < 0.1


@each
@pytest.mark.parametrize("backend", COMPUTING)
def test_devices_agree(backend: str, policy: str) -> None:
    here = device(backend)
    made, reference = [], []
    try:
        made = trained(policy, here.id)
    except Unsupported as refusal:  # no 16-bit numbers there: said, by name
        assert backend in str(refusal) and policy.removeprefix("mixed_") in str(refusal)
        return
    reference = trained(policy, "cpu")
    for a, b in zip(made, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-3)


@functools.cache
def trained(policy: str, where: str) -> list[np.ndarray]:
    model = zt.Sequential([
        L.Input((6, 6, 2)), L.Conv2D(5, 3, activation="relu", padding="same"), L.MaxPooling2D(),
        L.Flatten(), L.LayerNormalization(), L.Dense(4, activation="softmax")], seed=5)
    program = model.compile(where, batch_size=8, dtype=policy, optimizer=zt.optimizers.SGD(0.05),
                            loss="sparse_categorical_crossentropy")
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(24, 6, 6, 2)).astype(np.float32), rng.integers(0, 4, 24)
    program.fit(x, y, shuffle=False, verbose=0)
    return [program.predict(x), *program.get_weights()]


def test_code_for_devices_that_are_not_here() -> None:
    traced = mlp().trace(batch_size=64, dtype="mixed_bfloat16")
    made = compile_functions(traced.functions, TARGETS["cuda:sm_90"].on_device({"compute_units": 1}), "m")
    assert "mma.sync" in made.text and "bf16" in made.text
