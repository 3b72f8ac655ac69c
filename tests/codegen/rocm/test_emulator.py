"""Machine code for AMD's GPUs in an emulator of their instructions, of which no line is ours: which lane
holds what of a matrix, and what each instruction does, by somebody else's reading of AMD's documents.

    ZTORCH_TINYGRAD=FOLDER python -m pytest tests/codegen/rocm/test_emulator.py

takes minutes. Its last results are in docs/devices.md.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
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
from ztorch.backends import hip, registry
from ztorch.backends.drivers import rocm
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import ALL, bf16, f64
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


@emulators
def test_ops(device: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((5, 200), (200, 17)))
    image, kernel = (rng.normal(size=s).astype(np.float32) for s in ((2, 9, 9, 3), (3, 3, 3, 8)))
    given: list[tuple[Any, tuple]] = [(ops.softmax, (x,)), (ops.matmul, (x, w)), (lambda x: ops.cumsum(x, axis=1), (x,)),
                                      (lambda i, k: ops.conv(i, k, stride=2), (image, kernel))]
    for op, arrays in given:
        want = op(*map(zt.tensor, arrays)).numpy()
        with zt.device(device):
            got = zt.compiled(op)(*map(zt.tensor, arrays)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


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
