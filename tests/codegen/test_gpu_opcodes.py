"""Words for AMD's GPUs, as IR and as HIP's C++: executed thread by thread they compute the same as the interpreter, to
the bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.cases.covering import pairs
from tests.cases.jobs import jobs
from tests.cases.opcodes import kernel_for, opcodes_of, same
from tests.cases.random_kernels import EXACT, random_buffers, random_kernel
from tests.cases.vectors import loads, stores
from tests.machines.rocm.machine import rendered, run
from tests.parity import answer
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import ALL, DType, boolean, f32, i32, u32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.lower.passes import decompose

TARGET = ("rocm:gfx90a", "rocm:gfx1100", "rocm:hip", "cuda:c")
targets = pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.slow if n == "rocm:gfx1100" else ()) for n in TARGET])


# Each run takes each dtype for one of the targets, and f32 as C++ too; clang reads all of it below.
@pytest.mark.parametrize(("name", "d"), pairs(TARGET, ALL, [("rocm:hip", f32)]), ids=str)
def test_every_opcode(name: str, d: DType) -> None:
    target, kernels, wanted = TARGETS[name], [], []
    for opcode in opcodes_of(d):
        kernel, held = kernel_for(opcode, d, 1, i32)
        try:
            decompose(kernel, renderer(target).supports, name)
        except Unsupported as error:
            assert name in str(error)
            continue
        kernels.append(kernel)
        wanted.append(held)
    got = [{n: a.copy() for n, a in held.items()} for held in wanted]
    ran = run(kernels, got, target)
    for kernel, plain, held, actual in zip(ran, kernels, wanted, got, strict=True):
        same(actual, answer(kernel, held), f"{kernel.name} on {name}", plain.name.startswith(("min_", "max_")))


@targets
def test_random_kernels(name: str) -> None:
    able = tuple(d for d in ALL if d.bits in (16, 32))
    opcodes = tuple(o for o in EXACT if o != "bitcast")  # which makes NaNs of any payload
    kernels = [random_kernel(Random(seed), 10, able, opcodes, (1,), ("serial",)) for seed in range(100)]
    wanted = [random_buffers(k, Random(seed)) for seed, k in enumerate(kernels)]
    got = [{n: a.copy() for n, a in held.items()} for held in wanted]
    for seed, kernel in enumerate(run(kernels, got, TARGETS[name])):
        interpret(kernel, wanted[seed])
        same(got[seed], wanted[seed], f"random kernel {seed} on {name}", signless=True)


def exchanging(d: DType, mask: int) -> Builder:
    """Each of 128 threads gets its neighbor's number, twice over, and through shared memory
    another's."""
    b = Builder("exchange", i32)
    b.memory("x", d, 256)
    b.memory("y", d, 256, access="w")
    b.memory("z", d, 256, access="w")
    b.memory("kept", d, 128, "shared", "rw")
    b.workgroup = (128, 1, 1)
    with b.loop(0, 2, kind="grid") as g, b.loop(0, 128, kind="block") as t:
        at = b.add(b.mul(g, 128), t)
        x = b.load("x", at)
        once = b.shuffle_xor(x, mask)
        b.store("y", at, b.sub(once, b.shuffle_xor(b.add(once, once), mask)))
        b.store("kept", t, x)
        b.barrier()
        b.store("z", at, b.load("kept", b.sub(127, t)))
    return b


@pytest.mark.parametrize(("name", "threads"), [("rocm:gfx90a", 64), ("rocm:gfx1100", 32), ("rocm:hip", 64)])
def test_exchanges_and_barriers(name: str, threads: int) -> None:
    """Across each distance, and at one that is no power of 2."""
    target = TARGETS[name]
    if not target.limits.grid.subgroup:  # type: ignore[union-attr]
        target = target.on_device({"subgroup": threads})
    cases = [(d, mask) for d in (f32, i32, u32) for mask in (1, 2, 4, 8, 16, 32, 21) if mask < threads]
    kernels = [exchanging(*case).kernel() for case in cases]
    numbers = [(np.random.default_rng(mask).normal(size=256) * 1e4).astype(d.numpy) for d, mask in cases]
    got, want = ([{"x": x, "y": np.zeros_like(x), "z": np.zeros_like(x)} for x in numbers] for _ in range(2))
    run(kernels, got, target)
    for (d, mask), kernel, ours, theirs in zip(cases, kernels, got, want, strict=True):
        interpret(kernel, theirs, subgroup=threads)
        same(ours, theirs, f"{d} across {mask} on {name}")


@pytest.mark.parametrize("name", ["rocm:gfx90a", "rocm:hip"])
def test_several_together(name: str) -> None:
    kernels = [k for d in ALL if d is not boolean for k in (
        [stores(d, True)] if name == "rocm:hip" else [loads(d, 4), stores(d, True), stores(d, False)])]
    got = [random_buffers(k, Random(5)) for k in kernels]
    want = [{n: a.copy() for n, a in g.items()} for g in got]
    run(kernels, got, TARGETS[name])
    for kernel, g, w in zip(kernels, got, want, strict=True):
        interpret(kernel, w)
        same(g, w, kernel.name)


def test_only_full_registers_are_exchanged() -> None:
    from ztorch.dtypes import f64

    with pytest.raises(Unsupported, match="rocm:gfx90a lacks shuffle_xor on float64"):
        rendered([exchanging(f64, 1).kernel()], TARGETS["rocm:gfx90a"])


def test_barriers_that_some_threads_miss_are_detected() -> None:
    """The machine of these tests is no more patient than a GPU."""
    b = Builder("divergent", i32)
    b.memory("y", i32, 8, access="w")
    b.workgroup = (8, 1, 1)
    with b.loop(0, 8, kind="block") as t:
        with b.if_(b.lt(t, 4)):
            b.barrier()
        b.store("y", t, t)
    for name in ("rocm:gfx90a", "rocm:hip"):
        with pytest.raises(AssertionError, match="met in part only"):
            run([b.kernel()], [{"y": np.zeros(8, np.int32)}], TARGETS[name])


def test_numbers_along_y_and_z() -> None:
    b = Builder("places", i32)
    b.memory("y", i32, 4 * 3 * 2, access="w")
    b.workgroup = (2, 3, 2)
    with b.loop(0, 2, kind="grid", axis=1) as g, b.loop(0, 2, kind="block") as x, \
            b.loop(0, 3, kind="block", axis=1) as y, b.loop(0, 2, kind="block", axis=2) as z:
        at = b.add(b.mul(b.add(b.mul(b.add(b.mul(g, 2), x), 3), y), 2), z)
        b.store("y", at, b.add(at, 100))
    for name in TARGET:
        got = {"y": np.zeros(24, np.int32)}
        run([b.kernel()], [got], TARGETS[name])
        assert got["y"].tolist() == list(range(100, 124))
        text = rendered([b.kernel()], TARGETS[name])[0]
        assert "amdgpu-no-workitem-id-y" not in text


# -- HIP's C++ before its compiler ---------------------------------------------------------------------


def hip_compiles(text: str, chip: str, folder: Path, level: str = "-O3") -> str:
    """The assembly that clang makes of it for a GPU, without ROCm."""
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("needs clang")
    (folder / "kernels.hip").write_text(text)
    done = subprocess.run(
        [clang, "-x", "hip", "--cuda-device-only", f"--offload-arch={chip}", "-nogpulib", "-nogpuinc",
         "-std=c++17", level, "-S", "-o", "kernels.s", "kernels.hip"],
        cwd=folder, capture_output=True, text=True)
    assert not done.returncode and not done.stderr, done.stderr
    return (folder / "kernels.s").read_text()


def test_clang_accepts_every_opcode(tmp_path: Path) -> None:
    kernels = [kernel_for(opcode, d, 1, i32)[0] for d in ALL for opcode in opcodes_of(d)]
    text, actual = rendered(kernels, TARGETS["rocm:hip"])
    assembly = hip_compiles(text, "gfx90a", tmp_path, "-O1")
    assert all(f"{symbol}.kd" in assembly for symbol, *_ in actual)
    assert "s_swappc" not in assembly, "a call of something that no library is there for"


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030"])
def test_clang_accepts_ops(chip: str, tmp_path: Path) -> None:
    quick = ("matmul", "softmax'", "conv'", "layer_norm", "cumsum", "sort", "take'", "random_uniform", "where")
    some = [n for n in quick if n in jobs()]
    made = compile_functions({f"f{k}": jobs()[n][0].alone(f"f{k}") for k, n in enumerate(some)},
                             TARGETS["rocm:hip"], "ops")
    assembly = hip_compiles(made.text, chip, tmp_path)
    assert assembly.count(".private_segment_fixed_size: 0") == len(made.spec.entries)


def test_products_and_sums_are_never_contracted(tmp_path: Path) -> None:
    """Whatever the compiler's options: the text itself forbids it."""
    b = Builder("apart", i32)
    b.memory("x", f32, 4)
    b.memory("y", f32, 1, access="w")
    x = [b.load("x", k) for k in range(4)]
    b.store("y", 0, b.add(b.mul(x[0], x[1]), b.mul(x[2], x[3])))
    assembly = hip_compiles(rendered([b.kernel()], TARGETS["rocm:hip"])[0], "gfx90a", tmp_path)
    assert assembly.count("v_mul_f32") == 2 and "v_fma" not in assembly and "v_mac" not in assembly
