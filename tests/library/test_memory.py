"""Memory, order, limits, and custom kernels."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.library.devices import library, sampled
from ztorch.codegen import spirv
from ztorch.errors import (
    ConfigError,
    DeviceError,
    LinkError,
    OutOfMemory,
    ShapeError,
    UnknownName,
    Unsupported,
)
from ztorch.library.device_library import DeviceLibrary


@sampled
def test_bytes_come_back(name: str) -> None:
    own, numbers = library(name), np.arange(100, dtype=np.int32)
    a, b, out = own.alloc(400), own.alloc(400), np.zeros(40, np.int32)
    own.upload(a, numbers)
    own.upload(b, np.zeros(100, np.int32))
    own.copy(a.at(40), b.at(80), 160)
    own.synchronize()
    own.download(b.at(80), out)
    np.testing.assert_array_equal(out, numbers[10:50])
    free, total = own.memory()
    assert 0 < free <= total


@sampled
def test_memory_returns(name: str) -> None:
    own = library(name)
    gc.collect()
    before = own.allocated
    a, b = own.alloc(1000), own.alloc(24)
    assert own.allocated == before + 1024
    own.free(a)
    del b
    gc.collect()
    assert own.allocated == before
    for use in (lambda: own.free(a), lambda: own.upload(a, np.zeros(1)), lambda: own.download(a, np.zeros(1))):
        with pytest.raises(DeviceError, match="this buffer of 1000 bytes was freed"):
            use()


def test_buffers_of_others_and_bytes_outside() -> None:
    cpu, other = library("cpu"), library("opencl:0")
    buffer = other.alloc(64)
    with pytest.raises(DeviceError, match="this buffer is on opencl:0"):
        cpu.upload(buffer, np.zeros(4))
    with pytest.raises(DeviceError, match="bytes 32 to 72 of a buffer of 64"):
        other.upload(buffer.at(32), np.zeros(5))
    with pytest.raises(DeviceError, match="byte 65 is outside a buffer of 64"):
        buffer.at(65)
    with pytest.raises(DeviceError, match="opencl:0 has memory of its own"):
        other.wrap(np.zeros(4))
    with pytest.raises(DeviceError, match="ranges overlap"):
        other.copy(buffer, buffer.at(8), 32)
    with pytest.raises(ConfigError, match="in C order that can be written"):
        cpu.download(cpu.alloc(64), np.zeros((2, 2)).T[::2])
    with pytest.raises(ConfigError, match="the bytes of a buffer must be an integer of at least 0, not -1"):
        cpu.alloc(-1)
    with pytest.raises(OutOfMemory):
        cpu.alloc(1 << 50)


def test_devices_that_are_not_here() -> None:
    assert zt.backends.get("cpu") is zt.backends.get("cpu")
    with pytest.raises(UnknownName, match="unknown device 'vulcan:0'; did you mean"):
        zt.backends.get("vulcan:0")
    absent = zt.backends.get("dummy:77")
    assert not absent.is_available and "there is no device dummy:77" in absent.reason
    with pytest.raises(DeviceError, match="there is no device dummy:77"):
        absent.alloc(4)


def test_artifacts_need_no_compiler() -> None:
    """Who imports the drivers imports neither the compiler nor this room."""
    code = ("import sys, ztorch.backends.registry, ztorch.runtime.load; "
            "assert not {'ztorch.library', 'ztorch.compile', 'ztorch.codegen'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads() -> None:
    """Twenty threads use one routine, each on separate memory."""
    own = library("cpu")

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(size=(9, 9)).astype(np.float32)
        y, c = x.copy(), np.zeros_like(x)
        for _ in range(10):
            own.gemm(9, 9, 9, own.wrap(y), own.wrap(y), own.wrap(c), alpha=float(seed + 2))
        return bool(np.allclose(c, (seed + 2) * (x @ x), atol=1e-3))

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(work, range(20)))


# -- custom kernels ------------------------------------------------------------------------------

C = "void add(const float *x, float *y, long n, long ny, long nz) { for (long i = 0; i < n; i++) y[i] += x[i]; }"
OPENCL = """__kernel void add(__global const float *x, __global float *y) {
    y[get_global_id(0)] += x[get_global_id(0)];
}"""
WGSL = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4) fn add(@builtin(global_invocation_id) at: vec3<u32>) { y[at.x] += x[at.x]; }
"""
SPIRV = """
OpCapability Shader
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "add" %global
OpExecutionMode %main LocalSize 4 1 1
OpDecorate %global BuiltIn GlobalInvocationId
OpDecorate %array ArrayStride 4
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
OpDecorate %x DescriptorSet 0
OpDecorate %x Binding 0
OpDecorate %y DescriptorSet 0
OpDecorate %y Binding 1
%void = OpTypeVoid
%function = OpTypeFunction %void
%float = OpTypeFloat 32
%uint = OpTypeInt 32 0
%three = OpTypeVector %uint 3
%in = OpTypePointer Input %three
%array = OpTypeRuntimeArray %float
%block = OpTypeStruct %array
%buffer = OpTypePointer StorageBuffer %block
%element = OpTypePointer StorageBuffer %float
%zero = OpConstant %uint 0
%global = OpVariable %in Input
%x = OpVariable %buffer StorageBuffer
%y = OpVariable %buffer StorageBuffer
%main = OpFunction %void None %function
%entry = OpLabel
%ids = OpLoad %three %global
%at = OpCompositeExtract %uint %ids 0
%px = OpAccessChain %element %x %zero %at
%py = OpAccessChain %element %y %zero %at
%vx = OpLoad %float %px
%vy = OpLoad %float %py
%sum = OpFAdd %float %vx %vy
OpStore %py %sum
OpReturn
OpFunctionEnd
"""
OWN: dict[str, Callable[[], Any]] = {"cpu": lambda: C, "opencl:0": lambda: OPENCL, "webgpu:0": lambda: WGSL,
                                     "vulkan:0": lambda: spirv.assemble(SPIRV)}


def loaded(own: DeviceLibrary, name: str) -> Any:
    return own.load(OWN[name](), ["add"] if name == "cpu" else {"add": (4, 1, 1)})


@sampled
def test_own_kernels(name: str) -> None:
    """Again and again with the same buffers, then with others, in a stream too."""
    own = library(name)
    x, y, z = (own.alloc(1024) for _ in range(3))
    numbers, out = np.arange(256, dtype=np.float32), np.empty(256, np.float32)
    for b in (x, y, z):
        own.upload(b, numbers)
    code, grid = loaded(own, name), ((256,) if name == "cpu" else (64,))
    for _ in range(3):
        own.launch(code, "add", [x, y], grid)
    own.download(y, out)
    np.testing.assert_array_equal(out, 4 * numbers)
    stream, other = own.stream(), own.stream()
    own.launch(code, "add", [y, z], grid, stream)
    event = stream.event()
    other.wait(event)
    own.launch(code, "add", [x.tensor((256,)), z], grid, other)
    other.synchronize()
    stream.synchronize()
    assert event.done()
    own.download(z, out)
    np.testing.assert_array_equal(out, 6 * numbers)
    own.free(x)
    with pytest.raises(DeviceError, match="was freed"):
        own.launch(code, "add", [x, y], grid)
    own.unload(code)
    for use in (lambda: own.launch(code, "add", [y, z], grid), lambda: own.unload(code)):
        with pytest.raises(DeviceError, match="this code was unloaded"):
            use()


def test_wrong_code() -> None:
    cpu, opencl = library("cpu"), library("opencl:0")
    with pytest.raises(Unsupported, match="backend cpu takes kernels in c, not in ptx"):
        cpu.load(".version 7.0", ["add"], language="ptx")
    with pytest.raises(LinkError, match="sinf"):
        cpu.load("float sinf(float); void f(float *x, long a, long b, long c) { *x = sinf(*x); }", ["f"])
    with pytest.raises(DeviceError, match=r"cpu does not take this code: .*refused"):
        cpu.load("this is not C", ["f"])
    with pytest.raises(DeviceError, match="opencl:0"):
        opencl.load("__kernel void add(", {"add": (1, 1, 1)})
    with pytest.raises(DeviceError, match="clCreateKernel of 'sub'"):
        opencl.load(OPENCL, {"sub": (4, 1, 1)})
    code = loaded(opencl, "opencl:0")
    part = opencl.alloc(1024).at(opencl.capabilities().limits["buffer_align"] + 4)
    with pytest.raises(DeviceError, match=r"argument 1 of add begins at byte \d+ of its buffer, and must at a mult"):
        opencl.launch(code, "add", [part.buffer, part])
    with pytest.raises(UnknownName, match="unknown kernel 'sub'"):
        opencl.launch(code, "sub", [])
    with pytest.raises(DeviceError, match="this code was loaded on opencl:0"):
        cpu.launch(code, "add", [])
    with pytest.raises(ConfigError, match="a grid has up to three sizes"):
        opencl.launch(code, "add", [part.buffer] * 2, (-1,))
    opencl.launch(code, "add", [part.buffer] * 2, (0,))  # and nothing happens
    with pytest.raises(DeviceError, match="exceeds the limit of 2,147,483,647"):
        opencl.launch(code, "add", [part.buffer] * 2, (1 << 40,))
    with pytest.raises(DeviceError, match="is not a stream of this object"):
        opencl.launch(code, "add", [part.buffer] * 2, stream=cpu.stream())
    with pytest.raises(DeviceError, match="this code was loaded on opencl:0"):
        cpu.unload(code)


@sampled
def test_a_kernel_needs_as_many_buffers_as_its_text_declares(name: str) -> None:
    """A wrong number would have it read addresses that nobody gave."""
    own = library(name)
    code, buffer = loaded(own, name), own.alloc(256)
    for count in (0, 1, 3):
        with pytest.raises(DeviceError, match=f"kernel 'add' takes 2 buffers, not {count}"):
            own.launch(code, "add", [buffer] * count)


def test_wrong_operands() -> None:
    own = library("cpu")
    buffer = own.alloc(64)
    four = buffer.tensor((4,))
    images = buffer.tensor((1, 2, 2, 1))
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: own.unary("exp", buffer, four), "unary exp: x is not a tensor in a buffer"),
        (lambda: own.softmax(four, np.zeros(4)), "softmax: y is not a tensor in a buffer"),
        (lambda: own.attention(four, four, four, None), "attention: y is not a tensor"),
        (lambda: own.fused_adam_step([four], [four], [four], [None], step=1), r"v\[0\] is not a tensor"),
        (lambda: own.fused_adam_step([four], [four], [four], [four], step=1.5), "step must be a positive integer"),
        (lambda: own.gemm(2.5, 2, 2, buffer, buffer, buffer), "gemm: m must be an integer of at least 0, not 2.5"),
        (lambda: own.gemm(2, 2, 2, buffer, buffer, buffer, ldc=2.5), "ldc must be an integer"),
        (lambda: own.gemm(1, 1, 1, buffer, buffer, buffer, dtype="int8", alpha=1000), "alpha=1000 is not a factor of int8"),
        (lambda: own.gemm(1, 1, 1, buffer, buffer, buffer, dtype="uint8", beta=-1), "beta=-1 is not a factor of uint8"),
        (lambda: own.conv2d_forward(images, images, images, buffer.tensor((2,))),
         r"bias has shape \(2,\), and must have \(1,\)"),
        (lambda: own.upload(buffer, ["text"]), "upload copies numbers, not NumPy's <U4"),
        (lambda: own.upload(buffer, [[1], [1, 2]]), "upload: setting an array element"),
        (lambda: own.copy(buffer, buffer, 1.5), "the bytes of a copy must be an integer"),
        (lambda: own.free(buffer.at(4)), "free takes a buffer, not"),
        (lambda: buffer.tensor("ab"), "a shape has whole numbers, not 'ab'"),
        (lambda: buffer.at(1.5), "an offset has whole numbers"),
        (lambda: own.stream().wait(None), "a stream waits for an event, not for None"),
        (lambda: own.load(None, ["f"]), "load takes text or bytes, not NoneType")]
    for call, message in calls:
        with pytest.raises((ConfigError, ShapeError), match=message):
            call()
