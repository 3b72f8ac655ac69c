"""Initial kernels of a short-time Fourier transform."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import numpy as np

from ztorch.config import flag, number
from ztorch.errors import ConfigError
from ztorch.initializers.initializer import Initializer, Shape

WINDOWS: dict[str, Callable[[int], np.ndarray]] = {
    "bartlett": np.bartlett, "blackman": np.blackman, "boxcar": np.ones,
    "hamming": np.hamming, "hann": np.hanning}
SCALINGS = ("density", "spectrum", None)


class STFT(Initializer, names=("stft",)):
    """Cosines or sines of each frequency, times a window: the initial kernel of `STFTSpectrogram`.

    Args:
        side: `"real"` for cosines, `"imag"` for sines. Default: `"real"`.
        window: `"hann"`, `"hamming"`, `"blackman"`, `"bartlett"`, `"boxcar"`, a sequence with one
            number per element of a frame, or `None` for ones. Default: `"hann"`.
        scaling: `"density"` divides by the root of the sum of the window's squares, `"spectrum"` by
            its sum, `None` does not scale. Default: `"density"`.
        periodic: Whether the window is periodic, not symmetric. Default: `False`.

    Examples:
        >>> STFT(window=None)((2, 1, 2))[:, 0].tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """

    def __init__(self, side: str = "real", window: Any = "hann", scaling: str | None = "density",
                 periodic: bool = False):
        if side not in ("real", "imag"):
            raise ConfigError(f"STFT(side={side!r}) must be 'real' or 'imag'")
        if isinstance(window, str) and window not in WINDOWS:
            raise ConfigError(f"STFT(window={window!r}) must be one of {', '.join(WINDOWS)}, or "
                              "numbers")
        if window is not None and not isinstance(window, str):
            window = [number("STFT(window=...)", weight) for weight in np.ravel(window).tolist()]
        if not isinstance(scaling, (str, NoneType)) or scaling not in SCALINGS:
            raise ConfigError(f"STFT(scaling={scaling!r}) must be 'density', 'spectrum' or None")
        self.side, self.window, self.scaling = side, window, scaling
        self.periodic = flag("STFT(periodic=...)", periodic)

    def fill(self, shape: Shape, random: np.random.Generator) -> np.ndarray:
        length, _, frequencies = shape
        waves = 2 * np.pi / (2 * (frequencies - 1)) * np.outer(
            np.arange(length), np.arange(frequencies)) if frequencies > 1 else np.zeros((length, 1))
        kernel = np.cos(waves) if self.side == "real" else -np.sin(waves)
        return (kernel * self._weights(length)[:, None])[:, None, :]

    def _weights(self, length: int) -> np.ndarray:
        """The window of a frame."""
        if self.window is None:
            return np.ones(length)
        if isinstance(self.window, str):
            weights = WINDOWS[self.window](length + 1)[:-1] if self.periodic and length > 1 else (
                WINDOWS[self.window](length))
        else:
            weights = np.asarray(self.window, np.float64)
        if weights.shape != (length,):
            raise ConfigError(f"STFT(window=...) has {weights.size} numbers, a frame has {length}")
        return weights / {"density": np.sqrt((weights ** 2).sum()),
                          "spectrum": np.abs(weights).sum(), None: 1.0}[self.scaling]
