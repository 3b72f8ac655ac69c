"""Reported capabilities of a device, and objects with custom choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.library.devices import library
from ztorch.errors import ConfigError, OutOfMemory, UnknownName, Unsupported

Builder = zt.backends.BackendBuilder


def test_capabilities_match_behavior() -> None:
    """WebGPU has no float64; gemm behaves as the matrix of capabilities says."""
    own = library("webgpu:0")
    able = own.capabilities()
    x = own.alloc(64)
    for dtype, expected in able.matrix(["gemm"], ["float32", "float64", "int32", "int64"])["gemm"].items():
        assert expected == (dtype not in ("float64", "int64"))
        if expected:
            own.gemm(2, 2, 2, x, x, x, dtype=dtype)
        else:
            with pytest.raises(Unsupported, match=f"backend webgpu:0 cannot do gemm of {dtype}"):
                own.gemm(2, 2, 2, x, x, x, dtype=dtype)
    assert able.why_not("exp", "float64").startswith("backend webgpu:0 cannot do exp of float64")
    assert able.languages == ("wgsl",) and able.limits["threads"] >= 64 and able.memory_bytes > 0


def test_capabilities_of_the_cpu() -> None:
    able = library("cpu").capabilities()
    assert able.limits["threads"] >= 1 and able.limits["simd_bits"] in (0, 128, 256, 512)
    scalar = zt.backends.BackendBuilder("cpu", threads=1, simd="scalar").build().capabilities()
    assert scalar.limits == {"threads": 1, "simd_bits": 0}
    assert able.kind == "cpu" and "conv2d_forward" in able.routines and "cumsum" in able.ops
    assert able.matrix(["reduce argmax", "attention", "bitwise_and"], ["float16", "int8", "bool"]) == {
        "reduce argmax": {"float16": True, "int8": True, "bool": False},
        "attention": {"float16": True, "int8": False, "bool": False},
        "bitwise_and": {"float16": False, "int8": True, "bool": True}}
    with pytest.raises(UnknownName, match="unknown op or routine 'sofmax'; did you mean 'softmax'"):
        able.supports("sofmax", "float32")


def test_custom_choices() -> None:
    own = Builder("cpu", threads=1, simd="scalar", memory_limit="1 kB").build()
    x = np.arange(6, dtype=np.float32)
    own.unary("neg", own.wrap(x).tensor((6,)), own.wrap(x).tensor((6,)))
    np.testing.assert_array_equal(x, -np.arange(6))
    buffer = own.alloc(600)
    with pytest.raises(OutOfMemory, match="401 bytes, and 400 are left of the limit of 1,000"):
        own.alloc(401)
    own.free(buffer)
    own.free(own.alloc(1000))
    with pytest.raises(OutOfMemory, match="limit of 0"):
        Builder("cpu", threads=1, memory_limit=0).build().alloc(1)
    assert Builder("vulkan", device_id=0, tensor_cores=False, precision="tf32").build().name == "vulkan:0"
    assert not Builder("opencl", device_id=99).build().is_available


def test_choices_reach_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("ztorch.library.programs.build", lambda functions, *rest: seen.append(rest) or 1 / 0)
    own = Builder("cpu", threads=3, simd="scalar", precision="tf32", tensor_cores=False).build()
    with pytest.raises(ZeroDivisionError):
        own.gemm(1, 1, 1, *[own.alloc(4)] * 3)
    assert seen == [("cpu:scalar", "gemm", 3, "tf32", False)]


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"backend": "cudda"}, UnknownName, "unknown backend 'cudda'; did you mean 'cuda'"),
    ({"backend": "cpu", "device_id": 1}, ConfigError, "there is one cpu, number 0"),
    ({"backend": "opencl", "device_id": -1}, ConfigError, "must be a number from 0"),
    ({"backend": "opencl", "threads": 2}, ConfigError, "is for the cpu, not for opencl"),
    ({"backend": "opencl", "simd": "avx2"}, ConfigError, "is for the cpu, not for opencl"),
    ({"backend": "cpu", "simd": "avx3"}, UnknownName, "unknown SIMD level 'avx3'; did you mean 'avx2'"),
    ({"backend": "cpu", "threads": 0}, ConfigError, "threads"),
    ({"backend": "cpu", "memory_limit": "much"}, ConfigError, "a string such as '512MB'"),
    ({"backend": "cpu", "precision": "float8"}, UnknownName, "unknown precision 'float8'"),
])
def test_impossible_choices(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Builder(**arguments).build()
