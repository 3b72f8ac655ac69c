"""Machine code for AMD's GPUs in an emulator of their instructions, of which no line is ours: which lane
holds what of a matrix, and what each instruction does, by somebody else's reading of AMD's documents.

    ZTORCH_TINYGRAD=FOLDER python -m pytest tests/codegen/rocm/test_emulator.py

takes minutes. Its last results are in docs/devices.md.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.matrices import numbers, products
from tests.cases.random_kernels import EXACT, random_buffers, random_kernel
from tests.machines.fake_hip import FakeHip
from tests.machines.rocm import machine
from tests.machines.rocm.emulator import FAMILIES, FOLDER, Emulated, emulated
from ztorch import ops
from ztorch.arrays.placement import default_device
from ztorch.backends import hip, registry
from ztorch.backends.drivers import rocm
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import ALL, DType, bf16, f16, f32, f64, from_storage, to_storage
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import MmaShape

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800),
              pytest.mark.skipif(not FOLDER, reason="needs a checkout of tinygrad's repository: ZTORCH_TINYGRAD=FOLDER")]
CHIPS = tuple(FAMILIES)
chips = pytest.mark.parametrize("chip", CHIPS)


def test_each_chip_is_of_a_family() -> None:
    assert [t.chip for t in TARGETS.values() if t.assembler == "amdgcn"] == list(CHIPS)


@pytest.mark.parametrize(("target", "shape"), [
    pytest.param(t, s, id=f"{t.chip} {s}") for t in (TARGETS[f"rocm:{c}"] for c in CHIPS) for s in t.limits.grid.mma_shapes])
def test_products(target: Target, shape: MmaShape) -> None:
    if shape.of is f64 or shape.mantissa_bits:
        pytest.skip("the emulator takes operands of float64 and xf32 for numbers of 16 bits")
    if target.chip == "gfx90a" and shape.of is bf16:
        pytest.skip("the emulator reads CDNA 3, which numbers CDNA 2's bf16_1k anew")
    kernel = products(shape, subgroup=target.limits.grid.subgroup, align=16)
    want, got = numbers(kernel), numbers(kernel)
    interpret(kernel, want, subgroup=target.limits.grid.subgroup)
    machine.run([kernel], [got], target, emulated)
    # it adds the products one by one, each sum rounded
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5, atol=1e-5)


@chips
def test_random_kernels(chip: str) -> None:
    target, able = TARGETS[f"rocm:{chip}"], tuple(d for d in ALL if d.bits in (16, 32))
    opcodes = tuple(o for o in EXACT if o != "bitcast")
    kernels = [random_kernel(Random(seed), 10, able, opcodes, (1,), ("serial",)) for seed in range(4)]
    want = [random_buffers(k, Random(seed)) for seed, k in enumerate(kernels)]
    got = [{n: a.copy() for n, a in held.items()} for held in want]
    for kernel, had, wanted in zip(machine.run(kernels, got, target, emulated), got, want, strict=True):
        interpret(kernel, wanted)
        for name, array in wanted.items():
            np.testing.assert_array_equal(had[name], array, f"{kernel.name} on {chip}")


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """HIP's library on a pretended device of a chip, whose machine code is emulated."""
    default_device()  # which a process asks for once: the real device, not the pretended one
    target = TARGETS[f"rocm:{request.param}"]
    fake = FakeHip(lambda code: Emulated(code, target.chip), target.chip, target.limits.grid.subgroup)
    monkeypatch.setattr(hip, "library", lambda: fake)
    monkeypatch.setattr(hip, "compiler", lambda: None)
    monkeypatch.setattr(rocm, "BACKEND", rocm.Rocm())
    monkeypatch.setattr(registry, "_opened", {})
    yield "rocm:0"
    gc.collect()
    for opened in registry._opened.values():
        opened.close()


emulators = pytest.mark.parametrize("device", CHIPS, indirect=True)


def slopes(op: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradients of an op in all of its arguments."""
    def weighted(*arguments: Any) -> Any:
        y = ops.cast(op(*arguments), "float32")
        return ops.sum(y * zt.tensor(np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)))
    return zt.grad(weighted, tuple(range(count)))


def causal(q: Any, k: Any, v: Any) -> Any:
    return ops.attention(q, k, v, causal=True)


def same(x: Any, w: Any) -> Any:
    return ops.conv(x, w, padding="same")


TURNED = (72, 64), (136, 64)
IMAGES = (1, 8, 8, 32), (3, 3, 32, 32)
HEADS = (1, 1, 48, 32), (1, 1, 80, 32), (1, 1, 80, 32)
# An op, shapes and a dtype; how far its results may be off, as a share of the largest number.
OPS: list[tuple[Callable[..., Any], tuple, DType, float]] = [
    (ops.softmax, ((5, 200),), f32, 1e-5), (slopes(ops.softmax, 1), ((6, 300),), f32, 1e-5),
    (ops.layer_norm, ((5, 200), (200,), (200,)), f16, 2e-3),
    (ops.matmul, ((5, 200), (200, 17)), f32, 1e-5), (ops.matmul, ((32, 1024), (1024, 32)), f16, 2e-3),
    (lambda a, b: ops.matmul(a, ops.transpose(b)), TURNED, f16, 2e-3),
    (lambda a, b: ops.matmul(a, ops.transpose(b)), TURNED, bf16, 1e-2),
    (lambda x: ops.cumsum(x, axis=1), ((5, 200),), f32, 1e-5), (lambda x: ops.sum(x, axis=0), ((700, 40),), f32, 1e-5),
    (lambda x: ops.sort(x, axis=-1), ((4, 100),), f32, 0.0), (lambda x: ops.argmax(x, axis=-1), ((4, 1000),), f32, 0.0),
    (slopes(lambda x: ops.take(x, np.array([1, 3, 3, 7, 1]), axis=0), 1), ((9, 16),), f32, 1e-5),
    (ops.gelu, ((3, 1000),), f16, 2e-3),
    (lambda x, w: ops.conv(x, w, stride=2), ((2, 9, 9, 3), (3, 3, 3, 8)), f32, 1e-5),
    (same, IMAGES, f16, 2e-3), (slopes(same, 2), IMAGES, f16, 2e-3),
    (ops.attention, HEADS, f32, 1e-5), (causal, HEADS, f16, 3e-3),
    (slopes(causal, 3), HEADS, f16, 3e-3), (slopes(ops.attention, 3), HEADS, bf16, 3e-2)]


@emulators
@pytest.mark.parametrize(("op", "shapes", "d", "share"), OPS)
def test_ops(op: Callable[..., Any], shapes: tuple, d: DType, share: float, device: str) -> None:
    """Beside the same in float64 on a processor."""
    if d is bf16 and registry.open_device("rocm").info.chip == "gfx90a":
        pytest.skip("the emulator reads CDNA 3, which numbers CDNA 2's bf16_1k anew")
    rng = np.random.default_rng(0)
    arrays = [from_storage(d, to_storage(d, rng.normal(size=s).astype(np.float32))) for s in shapes]
    with zt.device("cpu"):
        want = zt.compiled(op)(*(zt.tensor(a.astype(np.float64)) for a in arrays))
    with zt.device(device):
        got = zt.compiled(op)(*(zt.tensor(a, dtype=d.name) for a in arrays))
    for y, exact in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        assert y.device == device
        off = np.abs(ops.cast(y, "float32").numpy() - exact.numpy()).max()
        assert off <= share * np.abs(exact.numpy()).max()


@emulators
def test_training_steps(device: str) -> None:
    """Convolution, normalization, pooling, dropout, Adam: losses and weights of the CPU's."""
    def trained(where: str) -> tuple[list[float], list[np.ndarray]]:
        model = zt.Sequential([
            zt.Input((8, 8, 2)), zt.layers.Conv2D(6, 3, strides=2, activation="relu"), zt.layers.BatchNormalization(),
            zt.layers.MaxPooling2D(2, strides=1), zt.layers.Flatten(), zt.layers.LayerNormalization(),
            zt.layers.Dropout(0.2), zt.layers.Dense(4)], seed=3)
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(8, 8, 8, 2)).astype(np.float32), rng.integers(0, 4, 8)
        program = model.compile(where, batch_size=4, loss=zt.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer="adam")
        history = program.fit(x, y, epochs=1, shuffle=False, verbose=0)
        return history.history["loss"], program.get_weights()

    losses, weights = trained(device)
    wanted, exact = trained("cpu")
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for got, want in zip(weights, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-5)
