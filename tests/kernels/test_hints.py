"""Hints: their effects, and the notes on those that a device does not follow."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ConfigError, KernelError
from ztorch.lower.schedule import parse


def test_hints_change_schedules_and_no_result() -> None:
    @zt.kernel(hints=zt.Hints(workgroup=64, tile=(2, 16), unroll=2, vector_width=1, tensor_cores=False))
    def product(x, w):
        out = np.empty((x.shape[0], w.shape[1]), x.dtype)
        for i, j in zt.grid(*out.shape):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[k, j]
            out[i, j] = max(total, 0.0)
        return out

    random = np.random.default_rng(0)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((64, 32), (32, 64)))
    plain = zt.kernel(product.function)
    np.testing.assert_allclose(product(x, w), plain(x, w), rtol=1e-4, atol=1e-5)
    explanation = product.explain(x, w)
    assert "tile(rows=2" in explanation and "unroll(2)" in explanation
    assert "hint workgroup=64 is not followed: product has no such field" in explanation
    assert "product tile" not in plain.explain(x, w)
    assert "    fuses matmul, add, maximum" in explanation

    @zt.kernel
    def twice(x, w):
        y = np.tanh(x @ w) * 2.0
        return y @ w.T

    first, _, last = re.split(r"\n(?=k)", twice.on("cpu").explain(x, w))
    assert "fuses matmul, tanh, mul" in first and "separate" not in first
    assert "separate from k0: matmul reads all of it repeatedly" in last
    explanation = product.on("cuda:sm_90").explain(x, w)
    assert "grid_product" in explanation and "tile(rows=2, columns=16" in explanation
    assert "hint unroll=2 is not followed: grid_product has no such field" in explanation
    plain = zt.kernel(product.function, hints=zt.Hints(tensor_cores=True, workgroup=1 << 20))
    assert "hint tensor_cores=True is not followed" in plain.on("dummy").explain(x, w)

    @zt.kernel(hints=zt.Hints(workgroup=32))
    def halves(x):
        return x * 0.5

    assert "grid_elements threads(32)" in halves.on("cuda:sm_75").explain(x)
    big = zt.kernel(product.function, hints=zt.Hints(shared_memory=6000, kind="grid_product"))
    square = np.ones((256, 256), np.float16)
    [usual] = re.findall(r"grid_\w+ tile.*", plain.on("cuda:sm_80").explain(square, square))
    [explanation] = re.findall(r"grid_\w+ tile.*", big.on("cuda:sm_80").explain(square, square))
    assert usual.startswith("grid_matrix") and explanation.startswith("grid_product") and "not followed" not in explanation
    schedule = parse(explanation)
    bytes_of_strips = 4 * schedule.tile_depth * (schedule.tile_rows + schedule.tile_columns)
    assert 0 < bytes_of_strips <= 6000
    explanation = zt.kernel(product.function, hints=zt.Hints(shared_memory=6000, kind="rows")).explain(x, w)
    assert "hint shared_memory=6000 is not followed: a processor has no shared memory" in explanation
    assert "hint kind=rows is not followed: this can be product" in explanation
    explanation = zt.kernel(product.function, hints=zt.Hints(shared_memory=64)).on("vulkan").explain(x, w)
    assert "hint shared_memory=64 is not followed: the kernel needs more" in explanation
    for wrong in ({"tile": (1,)}, {"workgroup": 0}, {"kind": "two words"}, {"shared_memory": -1}, {"tensor_cores": 2}, {"unroll": 1.5},
                  {"workgroup": (8, 8)}, {"stages": True}):
        with pytest.raises(ConfigError, match=f"the hint {next(iter(wrong))}="):
            zt.Hints(**wrong)  # type: ignore[arg-type]


def test_a_kind_that_no_machine_has_is_an_error() -> None:
    """One that others have is not."""
    @zt.kernel(hints=zt.Hints(kind="grid_row"))
    def halves(x):
        return x * 0.5

    for machine, own in (("cpu", "elements"), ("cuda:sm_90", "grid_elements")):
        with pytest.raises(ConfigError, match=f"'grid_row' is no loop nest; did you mean 'grid_rows'.*; this can be {own}, and others are"):
            halves.on(machine).explain(np.ones(8, np.float32))


def test_arguments_of_the_decorator() -> None:
    def halves(x):
        return x * 0.5

    for wrong in ({"max_steps": 0}, {"max_steps": "many"}, {"max_steps": True}, {"hints": {"tile": (1, 2)}}):
        with pytest.raises(KernelError, match=f"kernel halves: {next(iter(wrong))}=.* must be"):
            zt.kernel(halves, **wrong)


def test_vectors_are_no_longer_than_the_axis() -> None:
    @zt.kernel(hints=zt.Hints(vector_width=4))
    def sums(x):
        out = np.empty_like(x)
        total = 0.0
        for i in range(x.shape[0]):
            out[i] = total
            total = total * 0.5 + x[i]
        return out

    x = np.arange(20, dtype=np.float32)
    np.testing.assert_allclose(sums(x), sums.debug(x), rtol=1e-6)
    assert "hint vector_width=4 is not followed" in sums.explain(x)
