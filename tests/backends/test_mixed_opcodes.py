"""A kernel of all cheap opcodes computes the same as the interpreter, to the bit, in each language: what
`test_opcodes.py` tries at length, in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.device_programs import run_kernels, target_of
from tests.cases.mixed_opcodes import mixed_kernel
from tests.cases.opcodes import Buffers, numbers, same
from tests.codegen.c.compilers import needs_compiler
from tests.machines.ptx import running
from tests.machines.ptx.parse import parse
from tests.machines.rocm import machine
from tests.parity import HERE, answer
from tests.parity import run_kernels as run_on_processor
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32, i32, u32
from ztorch.ir.kernel import Kernel
from ztorch.lower.passes import decompose


def copied(held: Buffers) -> Buffers:
    return {n: a.copy() for n, a in held.items()}


def agrees(kernel: Kernel, got: Buffers, held: Buffers, name: str) -> None:
    same(numbers(kernel, got), numbers(kernel, answer(kernel, held)), name)


def on_processor(name: str) -> None:
    kernel, held = mixed_kernel("serial")
    got = copied(held)
    run_on_processor([decompose(kernel, renderer(TARGETS[name]).supports, name)], [got], name)
    agrees(kernel, got, held, name)


def test_here() -> None:
    on_processor(HERE[-1])


@needs_compiler
def test_in_c() -> None:
    on_processor("c")


@pytest.mark.parametrize("chip", ["sm_75", "sm_90"])
def test_in_ptx(chip: str) -> None:
    kernel, held = mixed_kernel("block", exchanged=(i32, u32, f32))
    ready, got = running.spoken(kernel, chip), copied(held)
    running.run(ready, got, parse(running.rendered([ready], chip)))
    agrees(kernel, got, held, chip)


@pytest.mark.parametrize("name", ["rocm:gfx90a", "rocm:gfx1100", "rocm:hip"])
def test_for_amd(name: str) -> None:
    kernel, held = mixed_kernel("block", exchanged=(i32, u32, f32))
    got = copied(held)
    machine.run([kernel], [got], TARGETS[name])
    agrees(kernel, got, held, name)


def on_device(backend: str, without: Collection[str] = ()) -> None:
    words = renderer(target_of(device(backend)))
    kernel, held = mixed_kernel("block", without)
    got = copied(held)
    run_kernels([kernel], [got], backend)
    agrees(decompose(kernel, words.supports, backend), got, held, backend)


def test_on_opencl() -> None:
    on_device("opencl")


def test_on_vulkan() -> None:
    on_device("vulkan")


def test_on_webgpu() -> None:
    on_device("webgpu", ("add", "sub", "mul", "div"))  # of no float that is infinite or NaN


@pytest.mark.parametrize("backend", [n for n in COMPUTING if n not in PLAYED])
def test_on_other_devices(backend: str) -> None:
    on_device(backend)


# Words that are wrong where no machine of these tests shows it: a rounding that drivers may choose, the scope of an
# atomic update, and a second try of one that may fail without a reason.
WORDS = {
    "vulkan": (r"OpExtInst %\w+ %glsl RoundEven ", ),
    "rocm:gfx90a": (r'atomicrmw umin ptr addrspace\(1\) .* syncscope\("agent"\) monotonic',
                    r'cmpxchg ptr addrspace\(1\) .* syncscope\("agent"\) monotonic monotonic'),
    "metal": (r"int (\w+) = (\w+);\n  while \(!atomic_compare_exchange_weak_explicit\(\(device atomic_int \*\)&.*, &\1, "
              r"77, memory_order_relaxed, memory_order_relaxed\) && \1 == \2\) { }", r"rint\("),
}


def test_words_of_the_text() -> None:
    kernel, _ = mixed_kernel("block")
    for name, patterns in WORDS.items():
        text = machine.rendered([kernel], TARGETS[name])[0]
        assert all(re.search(pattern, text) for pattern in patterns), name
