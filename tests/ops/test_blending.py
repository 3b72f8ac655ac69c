"""Sums of few neighbors along an axis, beside the product with a matrix that is mostly zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.parity import HERE, Job, agree, compiled
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value, topological
from ztorch.ops.blending import blend
from ztorch.ops.images import weights_between

random = np.random.default_rng(7)

# lengths before and after, interpolation, whether neighbors are few enough to blend
CASES = {"up": (9, 17, "bilinear", True), "down": (33, 9, "bilinear", True),
         "far up": (12, 65, "bilinear", True), "cubic": (24, 29, "bicubic", True),
         "short": (3, 5, "bilinear", False), "lanczos": (16, 24, "lanczos5", False)}


def product(x: Value, matrix: np.ndarray, axis: int) -> Value:
    y = OPS.matmul(constant(matrix, x.dtype), OPS.moveaxis(x, axis, -2))
    return OPS.moveaxis(y, -2, axis)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_blends_are_products(name: str, axis: int) -> None:
    """Values, gradients, and gradients of gradients."""
    n, new, interpolation, blends = CASES[name]
    shape = (2, n, 3) if axis == 1 else (2, 3, n)
    matrix = weights_between(n, new, False, interpolation)

    def graph(function: Callable[..., Value], d: str) -> tuple[Graph, Value]:
        x = leaf("input", "x", shape, d)
        y = function(x, matrix, axis)
        [slope] = gradients(OPS.sum(y * y * y), [x])
        [twice] = gradients(OPS.sum(slope * slope), [x])
        return Graph({"y": y, "slope": slope, "twice": twice}), x

    data = random.normal(size=shape)
    (ours, x), (theirs, x2) = graph(blend, "float64"), graph(product, "float64")
    for a, b in zip(evaluate(ours.roots, {x: data}), evaluate(theirs.roots, {x2: data}),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    has_product = any(v.op.kind == "contract" for v in topological(ours.roots))
    assert has_product != blends
    short, x = graph(blend, "float32")
    job = Job(short, {x: data.astype(np.float32)})
    for machine in ("scalar", HERE[-1]):
        agree(job, compiled(job, machine), terms=200)


def test_many_examples_share_the_neighbors() -> None:
    one = zt.vmap(lambda image: zt.ops.resize(image, (9, 11)))
    images = random.normal(size=(2, 16, 20, 3)).astype(np.float32)
    np.testing.assert_allclose(one(zt.tensor(images)).numpy(), zt.ops.resize(images, (9, 11)),
                               rtol=1e-5, atol=1e-6)


def test_a_resized_image_as_onnx(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = zt.Sequential([zt.layers.Input((16, 12, 3)), zt.layers.Resizing(40, 50)], seed=0)
    images = random.normal(size=(2, 16, 12, 3)).astype(np.float32)
    path = tmp_path / "resized.onnx"
    zt.onnx.save(model, path)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [y] = session.run(None, {session.get_inputs()[0].name: images})
    np.testing.assert_allclose(y, zt.ops.resize(images, (40, 50)), rtol=1e-4, atol=1e-5)
