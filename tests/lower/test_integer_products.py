"""Products of integers by dot products of words: the sums of int32, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import HERE, NARROW, SCALAR, WIDE, Job, Module, interpreted, plan_of
from ztorch.codegen.targets import TARGETS, Target
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.host import processor
from ztorch.ir.limits import Limits
from ztorch.lower.rewrites.integer_products import bounds
from ztorch.lower.schedule import ProductSchedule

BYTES = replace(WIDE, byte_dots=True)
INTERPRETED = {"one lane": SCALAR, "few lanes": NARROW, "many lanes": WIDE, "bytes": BYTES}
# Sizes around those of tiles and of words, and a product whose right operand is packed.
SIZES = ((2, 1, 2), (3, 5, 7), (5, 17, 9), (13, 33, 64), (33, 40, 31), (3, 200, 101))
DTYPES = (("uint8", "int8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "uint8"),
          ("int16", "int16"), ("int16", "uint8"))


def _numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random numbers; the first row and the first column are at the ends of the range."""
    info, random = np.iinfo(dtype), np.random.default_rng(seed)
    x = random.integers(info.min, info.max, shape, dtype, True)
    x[..., 0, :], x[..., :, 0] = info.min, info.max
    return x


def _job(a: np.ndarray, b: np.ndarray, zero: int | None = None, weight: bool = False) -> Job:
    """a @ b in int32; with a zero point of a, which is subtracted."""
    left = leaf("input", "a", a.shape, str(a.dtype))
    right = leaf("state" if weight else "input", "b", b.shape, str(b.dtype))
    wide = OPS.cast(left, "int32")
    y = OPS.matmul(wide if zero is None else wide - zero, OPS.cast(right, "int32"))
    return Job(Graph({"y": y}), {left: a, right: b}, f"{a.dtype} {a.shape} @ {b.dtype} {b.shape}")


def _wanted(a: np.ndarray, b: np.ndarray, zero: int = 0) -> np.ndarray:
    """The sums modulo 2 ** 32."""
    return ((a.astype(np.int64) - zero) @ b.astype(np.int64)).astype(np.int32)


def _machines() -> list[str | Target]:
    """The levels of this processor, and its best one with products of bytes if it has them."""
    best = TARGETS[HERE[-1]]
    return [*HERE, *([best.with_byte_dots()] if best.byte_dots in processor.features() else [])]


def _dots(job: Job, limits: Limits) -> set[str]:
    """The opcodes of dot products in its kernels."""
    return {i.opcode for step in plan_of(job.alone("j"), limits)[0].steps
            for i in step.kernel.body if i.opcode.startswith("dot")}


@pytest.mark.parametrize("name", INTERPRETED)
def test_sums_are_exact_on_the_interpreter(name: str) -> None:
    for (m, n, k), (left, right) in zip(SIZES, DTYPES, strict=True):
        a, b = _numbers((m, min(k, 33)), left, m), _numbers((min(k, 33), min(n, 33)), right, n)
        [y] = interpreted(_job(a, b), INTERPRETED[name])
        np.testing.assert_array_equal(y, _wanted(a, b), err_msg=f"{left} {right} {m} {n} {k}")


@pytest.mark.parametrize("machine", _machines(), ids=lambda m: m if isinstance(m, str) else m.byte_dots)
def test_sums_are_exact_on_processors(machine: str | Target) -> None:
    cases = [(_numbers((m, k), left, m), _numbers((k, n), right, n))
             for (m, n, k), (left, right) in zip(SIZES, DTYPES, strict=True)]
    module = Module([_job(a, b, weight=b.shape[1] == 200) for a, b in cases], machine)
    for number, (a, b) in enumerate(cases):
        [y] = module.run(number)
        np.testing.assert_array_equal(y, _wanted(a, b), err_msg=f"{a.dtype} {b.dtype} {a.shape} {b.shape}")


@pytest.mark.parametrize("zero", [128, 3, -130])
def test_zero_points_are_subtracted(zero: int) -> None:
    """Those of one number, where bytes hold the differences from another one."""
    a, b = _numbers((5, 11), "uint8", 1), _numbers((11, 18), "int8", 2)
    for limits in (WIDE, BYTES):
        [y] = interpreted(_job(a, b, zero), limits)
        np.testing.assert_array_equal(y, _wanted(a, b, zero))


def test_stacks_of_matrices() -> None:
    a, b = _numbers((2, 5, 10), "uint8", 1), _numbers((2, 10, 17), "uint8", 2)
    for limits in (WIDE, BYTES):
        [y] = interpreted(_job(a, b), limits)
        np.testing.assert_array_equal(y, _wanted(a, b))


def test_words_hold_what_fits() -> None:
    """Bytes where the machine multiplies them and both operands are bytes, else 16 bits, or the
    numbers themselves."""
    def of(left: str, right: str, zero: int | None = None) -> list[set[str]]:
        job = _job(_numbers((4, 8), left, 1), _numbers((8, 32), right, 2), zero)
        return [_dots(job, limits) for limits in (BYTES, WIDE, SCALAR)]

    assert of("uint8", "int8") == [{"dot4"}, {"dot2"}, set()]
    assert of("uint8", "int8", 7) == [{"dot4"}, {"dot2"}, set()]
    assert of("int16", "int8") == [{"dot2"}, {"dot2"}, set()]
    assert of("int16", "int8", 1) == [set(), set(), set()]  # -2 ** 15 - 1 takes 17 bits
    assert of("uint16", "int8") == [set(), set(), set()]


def test_bounds_follow_the_ops() -> None:
    x: Value = leaf("input", "x", (3, 4), "uint8")
    wide = OPS.cast(x, "int32")
    assert bounds(OPS.transpose(wide - 128)) == (-128, 127)
    assert bounds(wide + constant(np.array([-5, 9], np.int32)[[0, 1, 0, 1]])) == (-5, 264)
    assert bounds(OPS.pad(wide + 3, (1, 0), (0, 0))) == (0, 258)
    assert bounds(wide * 2) == bounds(OPS.cast(leaf("input", "f", (2,), "float32"), "int32")) == (
        -(1 << 31), (1 << 31) - 1)
    assert bounds(OPS.cast(wide - 1, "uint8")) == (0, 255)  # it wraps


@pytest.mark.parametrize(("channels", "stride", "dilation", "zero"), [
    (8, 1, 1, 0), (4, 2, 1, 128), (8, 1, 2, 7), (6, 1, 1, 200), (3, 2, 1, 128)], ids=str)
def test_windows_of_images(channels: int, stride: int, dilation: int, zero: int) -> None:
    """Their borders are zeros of the numbers, which are others of the bytes."""
    image, kernel = _numbers((2, 7, 9, channels), "uint8", 1), _numbers((3, 2, channels, 20), "int8", 2)
    x, w = leaf("input", "x", image.shape, "uint8"), leaf("input", "w", kernel.shape, "int8")
    y = OPS.conv(OPS.cast(x, "int32") - zero, OPS.cast(w, "int32"), stride, [(1, 1), (0, 1)], dilation)
    wide = np.pad(image.astype(np.int64) - zero, [(0, 0), (1, 1), (0, 1), (0, 0)])
    rows, columns = y.shape[1:3]
    wanted = sum(wide[:, i * dilation:][:, :(rows - 1) * stride + 1:stride, j * dilation:][
        :, :, :(columns - 1) * stride + 1:stride] @ kernel[i, j].astype(np.int64) for i in range(3) for j in range(2))
    job = Job(Graph({"y": y}), {x: image, w: kernel})
    for limits in (WIDE, BYTES):
        [got] = interpreted(job, limits)
        np.testing.assert_array_equal(got, wanted)
    if channels % 4 == 0:  # no step stores all windows
        sizes = [m.size for step in plan_of(job.alone("j"), BYTES)[0].steps for m in step.kernel.memories]
        assert max(sizes) <= max(image.size, y.size, kernel.size)


@pytest.mark.parametrize(("k", "zero"), [(8, 128), (12, 0), (8, -130), (6, 7)], ids=str)
def test_transposed_operands_are_packed_where_they_lie(k: int, zero: int) -> None:
    """No number is stored in 32 bits, and words of neighboring rows are one vector."""
    a, b = _numbers((k, 33), "uint8", 1), _numbers((k, 18), "int8", 2)
    left, right = leaf("input", "a", a.shape, "uint8"), leaf("input", "b", b.shape, "int8")
    y = OPS.matmul(OPS.transpose(OPS.cast(left, "int32") - zero), OPS.cast(right, "int32"))
    job = Job(Graph({"y": y}), {left: a, right: b})
    for limits in (WIDE, BYTES):
        [got] = interpreted(job, limits)
        np.testing.assert_array_equal(got, _wanted(a.T, b, zero))
    if k % 4 == 0:
        packing = next(s.kernel for s in plan_of(job.alone("j"), BYTES)[0].steps if any(
            i.opcode == "or" for i in s.kernel.body))
        read, written = packing.memories
        assert (read.dtype.bits, read.size, written.size) == (8, a.size, a.size // 4)
        assert not any(i.opcode in ("gather", "scatter") for i in packing.body)


@pytest.mark.parametrize("border", [0, 1])
def test_images_with_channels_first(border: int) -> None:
    image, kernel = _numbers((2, 8, 5, 6), "uint8", 1), _numbers((3, 3, 8, 20), "int8", 2)
    x, w = leaf("input", "x", image.shape, "uint8"), leaf("input", "w", kernel.shape, "int8")
    last = OPS.transpose(OPS.cast(x, "int32") - 7, (0, 2, 3, 1))
    y = OPS.conv(last, OPS.cast(w, "int32"), 1, [(border, border)] * 2, 1)
    wide = np.pad(image.astype(np.int64).transpose(0, 2, 3, 1) - 7,
                  [(0, 0), (border, border), (border, border), (0, 0)])
    rows, columns = y.shape[1:3]
    wanted = sum(wide[:, i:i + rows, j:j + columns] @ kernel[i, j].astype(np.int64)
                 for i in range(3) for j in range(3))
    job = Job(Graph({"y": y}), {x: image, w: kernel})
    for limits in (WIDE, BYTES):
        [got] = interpreted(job, limits)
        np.testing.assert_array_equal(got, wanted)


def test_codes_are_stored_as_bytes() -> None:
    """Rounded floats whose bytes are read in words are not stored as floats."""
    x = np.random.default_rng(1).uniform(-9, 300, (16, 8)).astype(np.float32)
    w = _numbers((8, 32), "int8", 2)
    left, right = leaf("input", "x", x.shape, "float32"), leaf("state", "w", w.shape, "int8")
    codes = OPS.cast(OPS.round(OPS.clip(left, 0.0, 255.0)), "uint8")
    y = OPS.matmul(OPS.cast(codes, "int32"), OPS.cast(right, "int32"))
    job = Job(Graph({"y": y}), {left: x, right: w})
    [got] = interpreted(job, BYTES)
    np.testing.assert_array_equal(got, np.rint(x.clip(0, 255)).astype(np.int64) @ w)
    written = {m.name: m.dtype for s in plan_of(job.alone("j"), BYTES)[0].steps
               for m in s.kernel.memories if m.access != "r"}
    assert all(d.is_int for d in written.values())


def test_sums_leave_a_register_for_products() -> None:
    """Without an instruction that multiplies and adds, a product waits for its sum."""
    job = _job(_numbers((256, 256), "uint8", 1), _numbers((256, 256), "int8", 2))
    narrow = replace(TARGETS["avx2"].limits, byte_dots=False)
    for limits, free in ((narrow, 1), (replace(narrow, byte_dots=True), 0)):
        s = plan_of(job.alone("j"), limits)[0].steps[-1].schedule
        assert isinstance(s, ProductSchedule)
        used = s.tile_rows * s.tile_vectors + s.tile_vectors + 1
        assert used + free < limits.vector_registers
        assert s.unroll == (2 if free else 4)
