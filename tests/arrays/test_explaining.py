"""`zt.explain`: which kernels a function of tensors becomes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from models.kernels.gelu import bias_gelu
from models.kernels.mandelbrot import mandelbrot
from ztorch.errors import ConfigError, UnknownName


def net(x: Any, w: Any, b: Any) -> Any:
    return zt.ops.softmax(bias_gelu(x @ w, b) * 2.0, axis=-1)


ARGUMENTS = ("f32[64, 128]", np.zeros((128, 96), np.float32), "f32[96]")


@pytest.mark.parametrize("device", ["cpu:avx2", "cuda:sm_90", "rocm:gfx90a"])
def test_kernels_and_ops_are_fused_and_it_says_so(device: str) -> None:
    lines = zt.explain(net, *ARGUMENTS, device=device).splitlines()
    kernels = [line for line in lines if line.startswith("k")]
    assert [line.split("_")[1] for line in kernels] == ["matmul", "max"]
    assert all(device.removeprefix("cpu:") in line for line in kernels)
    assert "    fuses matmul, add, mul, tanh" in lines
    assert "    fuses max, sub, exp, sum, div, mul" in lines
    assert lines[-1] == "    separate from k0: max reads its elements at other positions than they are computed"


def test_functions_of_all_kinds() -> None:
    def kinds(function: Any, *arguments: Any, **how: Any) -> list[str]:
        return re.findall(r"^k\d+_(\w+?)_f32", zt.explain(function, *arguments, device="cpu:avx2", **how), re.M)

    assert kinds(zt.compiled(lambda d: d * 2.0 + 1.0), zt.zeros((3,))) == ["mul_add"]
    assert kinds(zt.compiled(lambda x: {"a": x.sum(), "b": [x.max()]}), "f32[64]") == ["sum", "max"]
    assert kinds(zt.grad(lambda x: (x * x).sum()), "f32[n]", sizes={"n": 8}) == ["add"]  # x + x
    assert kinds(bias_gelu, x="f32[4, 8]", bias="f32[8]") != []
    drawn = zt.explain(lambda x: x * zt.rand(3), "f32[3]", device="cpu:avx2").splitlines()
    assert "random_bits" in drawn[0]  # the state of the generator is its own kernel
    with pytest.raises(ConfigError, match="give sizes="):
        zt.explain(net, "f32[n]", "f32[n]", "f32[n]")
    with pytest.raises(UnknownName, match="unknown device"):
        zt.explain(net, *ARGUMENTS, device="gpu5")


def test_a_while_loop_over_elements_is_one_kernel() -> None:
    for shape in ("f32[16, 16]", "f32[300, 7]"):
        lines = zt.explain(mandelbrot, shape, shape, device="cpu:avx2").splitlines()
        assert [line for line in lines if line.startswith("k")] == lines[:1]
        assert "recurrence lanes(8)" in lines[0] or "recurrence lanes(4)" in lines[0]
