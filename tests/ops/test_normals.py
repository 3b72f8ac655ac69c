"""Normally distributed numbers: the law they follow, and the same bits from every machine."""

from __future__ import annotations

import functools
import math
import zlib
from statistics import NormalDist

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import PLAYED
from tests.cases.available import device as available
from tests.parity import HERE, NARROW, SCALAR, SUBGROUPS, WIDE, C, Job, compiled, interpreted
from ztorch import ops
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph
from ztorch.ops.normals import normals, polynomials

LAW = NormalDist()
SEED = leaf("input", "seed", (2,), "uint32")
STEP = leaf("input", "step", (), "uint32")
FEEDS = {SEED: np.array([0x12345678, 0x9ABCDEF0], np.uint32), STEP: np.array(7, np.uint32)}
MACHINES = {"scalar": SCALAR, "narrow": NARROW, "wide": WIDE, "subgroups": SUBGROUPS}
DTYPES = ["float32", "float64", "float16", "bfloat16"]


@functools.cache
def drawn(dtype: str, n: int) -> np.ndarray:
    """By NumPy, op by op."""
    [x] = evaluate([ops.random_normal((n,), SEED, STEP, 3, dtype)], FEEDS)
    return x


def numbers(words: np.ndarray, d: DType) -> np.ndarray:
    [x] = evaluate([normals(constant(words), d)], {})
    return x


def edges(bits: int) -> np.ndarray:
    """Words around the ends of all polynomials, and some within."""
    octaves = [(1 << k) + (part << k >> 4) + more for k in range(bits - 1) for part in range(16)
               for more in (-1, 0, 1)]
    random = np.random.default_rng(0).integers(0, 1 << bits, 2000, np.uint64)
    return np.array([w % (1 << (bits - 1)) for w in octaves] + [w >> 64 - bits if bits < 64 else w
                                                                for w in random.tolist()],
                    f"u{bits // 8}")


@pytest.mark.parametrize("d", [f32, f64])
def test_random_bits_map_to_quantiles(d: DType) -> None:
    words = edges(d.bits)
    for word, got in zip(words.tolist(), numbers(words, d).tolist(), strict=True):
        size = 2 * (word % (1 << (d.bits - 1))) + 1  # of the probability, without the sign
        want = -LAW.inv_cdf(size / 2.0 ** (d.bits + 1))
        want = want if word < 1 << (d.bits - 1) else -want
        assert abs(got - want) <= (4e-15 + 1e-15 * abs(want) if d is f64 else
                                   6e-9 + 6e-8 * abs(want)), hex(word)


@pytest.mark.parametrize(("d", "largest"), [(f32, 6.338), (f64, 9.155)])
def test_tails_end_where_the_docstring_says(d: DType, largest: float) -> None:
    least = numbers(np.array([0, 1 << (d.bits - 1)], f"u{d.bits // 8}"), d)
    assert least[0] == -least[1] and round(float(least[0]), 3) == largest


def test_the_coefficients_are_those_of_every_machine() -> None:
    assert [zlib.crc32(polynomials(d).tobytes()) for d in (f32, f64)] == [3163384437, 2847506983]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_they_follow_the_law(dtype: str) -> None:
    n = 1 << 17
    x = np.sort(drawn(dtype, n).astype(float))
    law = np.vectorize(LAW.cdf)(x)
    places = np.arange(n) / n
    distance = max((law - places).max(), (places + 1 / n - law).max())  # of Kolmogorov and Smirnov
    assert distance < 1.95 / math.sqrt(n)  # one in a thousand is further
    for power, want in enumerate((0, 1, 0, 3, 0, 15), 1):
        deviation = math.sqrt(math.prod(range(1, 2 * power, 2)))
        assert abs((x**power).mean() - want) < 4 * deviation / math.sqrt(n)
    for beyond in (2.0, 3.0, 4.0):
        expected = 2 * n * LAW.cdf(-beyond)
        assert abs((abs(x) > beyond).sum() - expected) < 4 * math.sqrt(expected)


def test_neighbors_are_independent() -> None:
    x = drawn("float32", 1 << 17).astype(float)
    for apart in (1, 2, 64):
        assert abs(np.corrcoef(x[:-apart], x[apart:])[0, 1]) < 4 / math.sqrt(len(x))


def same_bits(got: np.ndarray, dtype: str) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), drawn(dtype, 300).astype(float))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", [*HERE, *C, *MACHINES])
def test_processors_give_the_same_bits(machine: str, dtype: str) -> None:
    job = Job(Graph({"y": ops.random_normal((300,), SEED, STEP, 3, dtype)}), FEEDS)
    [got] = interpreted(job, MACHINES[machine]) if machine in MACHINES else compiled(job, machine)
    same_bits(got, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", PLAYED)
def test_devices_give_the_same_bits(backend: str, dtype: str) -> None:
    if (backend, dtype) == ("webgpu", "float64"):
        pytest.skip("WGSL has no float64")
    available(backend)
    x = zt.randn(300, dtype=dtype, device=f"{backend}:0", seed=5).to("cpu")
    want = zt.randn(300, dtype=dtype, seed=5)
    np.testing.assert_array_equal(np.asarray(x.astype("float64")), want.astype("float64").numpy())
