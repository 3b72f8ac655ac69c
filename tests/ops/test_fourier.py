"""Fourier transforms of all kinds of lengths beside NumPy and Keras, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import pairs
from tests.references import keras, torch
from ztorch.errors import DataError, ShapeError
from ztorch.graph.op import leaf
from ztorch.ops.passes import roots
from ztorch.ops.radix import DIRECT, RADIX, first_factor

# powers of two, mixed lengths, primes as a matrix and by Bluestein, and a multiple of such a prime
LENGTHS = [1, 2, 3, 7, 31, 32, 33, 60, 127, 131, 243, 360, 1009, 1024, 2 * 1009, 4096]
BOUND = {"float64": 1e-14, "float32": 5e-6}  # of the largest element, as the docstring says


def signal(*shape: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=shape), random.normal(size=shape)


def near(got: Any, want: Any, dtype: str = "float64") -> None:
    got = got[0] + 1j * got[1] if isinstance(got, tuple) else got
    assert got.shape == want.shape
    assert abs(got - want).max() <= BOUND[dtype] * max(abs(want).max(), 1e-300)


@pytest.mark.parametrize(("n", "dtype"), pairs(LENGTHS, ["float64", "float32"]))
def test_transforms_are_numpys(n: int, dtype: str) -> None:
    real, imag = (x.astype(dtype) for x in signal(2, n))
    x = real.astype(float) + 1j * imag
    got = zt.ops.fft((real, imag))
    assert [y.dtype for y in got] == [dtype, dtype]
    near(got, np.fft.fft(x), dtype)
    near(zt.ops.ifft((real, imag)), np.fft.ifft(x), dtype)
    half = zt.ops.rfft(real)
    near(half, np.fft.rfft(real.astype(float)), dtype)
    near(zt.ops.irfft(half, n), real, dtype)


def test_a_million_elements() -> None:
    real, imag = signal(1 << 20)
    near(zt.ops.fft((real, imag)), np.fft.fft(real + 1j * imag))


def test_one_frequency_is_one_element() -> None:
    k = np.arange(48)
    real, imag = zt.ops.fft((np.cos(2 * np.pi * 5 * k / 48), np.sin(2 * np.pi * 5 * k / 48)))
    np.testing.assert_allclose(real, np.where(k == 5, 48, 0), atol=1e-13)
    np.testing.assert_allclose(imag, 0, atol=1e-13)


def test_roots_are_exact_where_they_can_be() -> None:
    assert roots(4).tolist() == [1, -1j, -1, 1j]
    for n in (5, 12, 1000, 1024):
        np.testing.assert_allclose(roots(n), np.exp(-2j * np.pi * np.arange(n) / n), atol=2e-15)


def test_lengths_are_split_into_factors_that_are_matrices_or_large_primes() -> None:
    for n in range(2, 3000):
        first = first_factor(n)
        assert n % first == 0
        prime = all(n % k for k in range(2, int(n**0.5) + 1))
        small = all(first % k for k in range(2, int(first**0.5) + 1)) and first <= DIRECT
        assert first <= RADIX or small or (first == n and prime)


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 5), (1, 1)])
def test_two_axes(shape: tuple[int, ...]) -> None:
    real, imag = signal(*shape)
    near(zt.ops.fft2((real, imag)), np.fft.fft2(real + 1j * imag))
    near(zt.ops.ifft2((real, imag)), np.fft.ifft2(real + 1j * imag))


@pytest.mark.parametrize("n", [1, 4, 7, 8, 9, 20])
def test_lengths_that_crop_or_pad(n: int) -> None:
    real, imag = signal(3, 8)
    near(zt.ops.rfft(real, fft_length=n), np.fft.rfft(real, n))
    near(zt.ops.irfft((real, imag), fft_length=n), np.fft.irfft(real + 1j * imag, n))


def test_sixteen_bits_and_integers() -> None:
    half = zt.ops.fft((np.ones(4, np.float16), np.zeros(4, np.float16)))
    assert half[0].dtype == np.float16 and half[0].tolist() == [4, 0, 0, 0]
    whole = zt.ops.rfft(np.array([1, 2, 3, 4]))
    assert whole[0].dtype == np.float64 and whole[0].tolist() == [10, -2, -2]


def test_tensors_are_recorded_and_differentiated() -> None:
    x = zt.tensor(signal(16)[0])

    def power(x: Any) -> Any:
        real, imag = zt.ops.rfft(x)
        return (real**2 + imag**2).sum()

    # Parseval: of the elements without a conjugate, each counts once, of the others twice
    mean = x.numpy().sum(), (x.numpy() * (-1.0) ** np.arange(16)).sum()
    gradient = 16 * x.numpy() + mean[0] + mean[1] * (-1.0) ** np.arange(16)
    np.testing.assert_allclose(zt.grad(power)(x).numpy(), gradient, rtol=1e-12)
    pair = zt.ops.fft((x, zt.zeros_like(x)))
    assert all(isinstance(y, zt.Tensor) for y in pair)
    near(tuple(y.numpy() for y in pair), np.fft.fft(x.numpy()))


@pytest.mark.parametrize("n", [6, 9, 33, 40, 64, 98, 134])
def test_gradients_are_pytorchs(n: int) -> None:
    """Lengths of small factors, of a matrix and of Bluestein's way, even and odd ones."""
    t = torch()
    real, imag = signal(2, n)
    half = [x[:, :n // 2 + 1] for x in (real, imag)]
    first, second = signal(2, n, seed=1)

    def check(ours: Any, theirs: Any, *arrays: np.ndarray) -> None:
        leaves = [t.tensor(x, requires_grad=True) for x in arrays]
        theirs(*leaves).sum().backward()
        slopes = zt.grad(lambda *xs: ours(*xs).sum(), argnums=tuple(range(len(arrays))))(
            *map(zt.tensor, arrays))
        for got, x in zip(slopes, leaves, strict=True):
            np.testing.assert_allclose(got.numpy(), x.grad.numpy(), atol=1e-11)

    def weighted(real: Any, imag: Any, tensor: Any) -> Any:
        size = real.shape[-1]
        return real**2 * tensor(first[:, :size]) + imag**2 * tensor(second[:, :size])

    def theirs(y: Any) -> Any:
        return weighted(y.real, y.imag, t.tensor)

    check(lambda x, y: weighted(*zt.ops.fft((x, y)), zt.tensor),
          lambda x, y: theirs(t.fft.fft(t.complex(x, y))), real, imag)
    check(lambda x: weighted(*zt.ops.rfft(x), zt.tensor), lambda x: theirs(t.fft.rfft(x)), real)
    check(lambda x, y: zt.ops.irfft((x, y), n)**2 * zt.tensor(first),
          lambda x, y: t.fft.irfft(t.complex(x, y), n)**2 * t.tensor(first), *half)


FRAMES: list[dict[str, Any]] = [
    {"sequence_length": 8, "sequence_stride": 4, "fft_length": 8},
    {"sequence_length": 6, "sequence_stride": 3, "fft_length": 9, "window": "hamming"},
    {"sequence_length": 4, "sequence_stride": 4, "fft_length": 4, "window": None, "center": False},
    {"sequence_length": 4, "sequence_stride": 1, "fft_length": 6,
     "window": (0.5, 1.0, 1.0, 0.25)}]


@pytest.mark.parametrize("frames", FRAMES, ids=str)
def test_frames_are_those_of_keras_and_give_the_signal_back(frames: dict[str, Any]) -> None:
    x = signal(2, 40)[0]
    got = zt.ops.stft(x, **frames)
    window = frames.get("window", "hann")
    theirs = frames if not isinstance(window, tuple) else {**frames, "window": np.array(window)}
    want = keras().ops.stft(x, **theirs)
    near(got, want[0].numpy() + 1j * want[1].numpy())
    back = zt.ops.istft(got, **frames)
    covered = back.shape[-1]
    assert covered >= 36
    np.testing.assert_allclose(back, x[:, :covered], atol=1e-13)
    assert zt.ops.istft(got, **frames, length=20).shape == (2, 20)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies_are_numpys(name: str, n: int) -> None:
    got = getattr(zt.ops, name)(n, 0.25, "float64").numpy()
    np.testing.assert_allclose(got, getattr(np.fft, name)(n, 0.25))


def test_what_cannot_be_transformed_is_refused() -> None:
    x = np.ones(4)
    with pytest.raises(DataError, match=r"fft: x is a pair of arrays \(real, imag\), or complex, not ndarray"):
        zt.ops.fft(x)
    with pytest.raises(ShapeError, match=r"one shape, not \(4,\) and \(3,\)"):
        zt.ops.fft((x, np.ones(3)))
    with pytest.raises(ShapeError, match=r"length of 1 or more, not 0"):
        zt.ops.rfft(x, fft_length=0)
    with pytest.raises(ShapeError, match=r"length of 1 or more, not 0"):
        zt.ops.irfft((x[:1], x[:1]))
    with pytest.raises(ShapeError, match=r"missing or empty in \(2, 0\)"):
        zt.ops.ifft((np.ones((2, 0)), np.ones((2, 0))))
    with pytest.raises(ShapeError, match="frames of 5 elements into a transform of 4"):
        zt.ops.stft(x, 5, 1, 4)
    with pytest.raises(ShapeError, match=r"hanning'\) is neither 'hann' nor 'hamming'"):
        zt.ops.stft(x, 4, 1, 4, window="hanning")
    with pytest.raises(ShapeError, match="mirrors 4 elements at both ends"):
        zt.ops.stft(x, 4, 1, 8)
    with pytest.raises(ShapeError, match=r"takes 3 elements of each frame, not \(2, 4\)"):
        zt.ops.istft((np.ones((2, 4)), np.ones((2, 4))), 4, 2, 4)
    with pytest.raises(ShapeError, match=r"pair \(real, imag\), not"):
        zt.ops.fft(leaf("input", "x", (4,), "float32"))
