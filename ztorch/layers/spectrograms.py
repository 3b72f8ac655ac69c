"""Layers that compute the frequencies in a signal over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import flag, number, positive
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.initializers import STFT, Shape
from ztorch.layers.context import Context
from ztorch.layers.layer import Layer
from ztorch.layers.spatial import SpatialLayer

MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")
LEAST = 1e-7  # lower bound of the argument of a root or a logarithm, as in Keras
MEL_Q, MEL_BREAK = 1127.0, 700.0  # of the mel scale; the latter in hertz


class STFTSpectrogram(SpatialLayer):
    """The short-time Fourier transform of each channel, by kernels that may be trained.

    Args:
        mode: `"log"` and `"magnitude"` of the amplitude, `"psd"` for the power spectral density,
            `"real"` and `"imag"` parts, `"angle"`, or `"stft"` for both parts, concatenated.
            Default: `"log"`.
        frame_length: Number of elements of a frame. Default: `256`.
        frame_step: Distance between the starts of two frames; `None` means half a frame. Default:
            `None`.
        fft_length: Length of the transform; `None` means the power of two that fits a frame.
            Default:
            `None`.
        window: As for the initializer `STFT`. Default: `"hann"`.
        periodic: As for `STFT`. Default: `False`.
        scaling: As for `STFT`. Default: `"density"`.
        padding: `"valid"` for whole frames, `"same"` for as many as there are steps. Default:
            `"valid"`.
        expand_dims: Whether frequencies and channels are separate axes. Default: `False`.
        data_format: `"channels_last"` or `"channels_first"`. `None` means `"channels_last"`.
            Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, time, channels)`, or `(batch, channels, time)` with channels first.

    Output shape:
        `(batch, frames, channels * frequencies)`, or `(batch, channels * frequencies, frames)` with
        channels first; with `expand_dims` `(batch, frames, frequencies, channels)`, or
        `(batch, channels, frames, frequencies)`.

    Examples:
        >>> import ztorch as zt
        >>> STFTSpectrogram("magnitude", frame_length=16)(zt.layers.Input((100, 1))).shape
        (None, 11, 9)
    """

    axes = 1
    needs_floats = True

    def __init__(self, mode: str = "log", frame_length: int = 256, frame_step: int | None = None,
                 fft_length: int | None = None, window: Any = "hann", periodic: bool = False,
                 scaling: str | None = "density", padding: str = "valid",
                 expand_dims: bool = False, data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        self.mode = self.choice("mode", mode, MODES)
        self.frame_length = positive("STFTSpectrogram(frame_length=...)", frame_length)
        self.frame_step, self.fft_length = (
            None if n is None else positive(f"STFTSpectrogram({name}=...)", n)
            for name, n in (("frame_step", frame_step), ("fft_length", fft_length)))
        if self.frame_step is not None and self.frame_step > self.frame_length:
            raise ConfigError(f"STFTSpectrogram(frame_step={frame_step!r}) must be at most "
                              f"frame_length={frame_length}")
        if self.fft_length is not None and self.fft_length < self.frame_length:
            raise ConfigError(f"STFTSpectrogram(fft_length={fft_length!r}) must be at least "
                              f"frame_length={frame_length}")
        self.periodic, self.scaling = periodic, scaling
        self.padding = self.choice("padding", padding, ("valid", "same"))
        self.expand_dims = flag("STFTSpectrogram(expand_dims=...)", expand_dims)
        self._initializers = {side: STFT(side, window, scaling, periodic)
                              for side in ("real", "imag")}
        self.window = self._initializers["real"].window

    def build(self, input_shape: Shape) -> None:
        self.channels(input_shape)
        length = self.fft_length or 1 << (self.frame_length - 1).bit_length()
        self.kernels = {
            side: self.add_weight(f"{side}_kernel", (self.frame_length, 1, length // 2 + 1), fill)
            for side, fill in self._initializers.items()
            if self.mode != {"real": "imag", "imag": "real"}[side]}

    def call(self, x: Value, context: Context) -> Value:
        self.channels(x.shape[1:])
        signal = x if self.channels_first else OPS.transpose(x, (0, 2, 1))
        step = self.frame_step or max(self.frame_length // 2, 1)
        if self.padding == "same":
            steps = signal.shape[-1]
            more = max((-(-steps // step) - 1) * step + self.frame_length - steps, 0)
            signal = OPS.pad(signal, (0, 0, more // 2), (0, 0, more - more // 2))
        frames = OPS.windows(signal, (-1,), self.frame_length, step)
        parts = {side: OPS.matmul(frames, context.read(kernel)[:, 0, :])
                 for side, kernel in self.kernels.items()}
        y = self._shown(parts)  # (batch, channels, frames, frequencies)
        if self.expand_dims:
            return y if self.channels_first else OPS.transpose(y, (0, 2, 3, 1))
        batch, channels, count, frequencies = y.shape
        if self.channels_first:
            return OPS.reshape(OPS.transpose(y, (0, 1, 3, 2)),
                               (batch, channels * frequencies, count))
        return OPS.reshape(OPS.transpose(y, (0, 2, 1, 3)), (batch, count, channels * frequencies))

    def _shown(self, parts: dict[str, Value]) -> Value:
        """Both parts, in the mode of the layer."""
        if self.mode in parts:
            return parts[self.mode]
        real, imag = parts["real"], parts["imag"]
        if self.mode == "angle":
            return OPS.atan2(imag, real)
        if self.mode == "stft":
            return OPS.concat(real, imag, axis=-1)
        power = real * real + imag * imag
        if self.mode == "psd":  # frequencies between the ends also represent negative ones
            twice = np.ones(power.shape[-1])
            twice[1:-1] = 2.0
            return power * constant(twice, power.dtype)
        amplitude = OPS.sqrt(OPS.maximum(power, LEAST))
        return amplitude if self.mode == "magnitude" else OPS.log(OPS.maximum(amplitude, LEAST))


class MelSpectrogram(Layer):
    """The energy of a signal in mel frequency bands, over time.

    Keras limits values to `top_db` below the maximum of all signals of a batch; here the limit is
    relative to each signal.

    Args:
        fft_length: Length of the transform. Default: `2048`.
        sequence_stride: Distance between the starts of two frames. Default: `512`.
        sequence_length: Number of elements of a frame; `None` means `fft_length`. Default: `None`.
        window: The window of a frame: `"hann"`, `"hamming"`, a sequence with one number per
            element, or `None` for ones. Default: `"hann"`.
        sampling_rate: Samples per second. Default: `16000`.
        num_mel_bins: Number of mel bands. Default: `128`.
        min_freq: The lowest frequency, in hertz. Default: `20.0`.
        max_freq: The highest frequency; `None` means half the sampling rate. Default: `None`.
        power_to_db: Whether to convert to decibels. Default: `True`.
        top_db: Largest distance in decibels of a value below the maximum. Default: `80.0`.
        mag_exp: Exponent of the amplitudes. Default: `2.0`.
        min_power: The smallest argument of the logarithm. Default: `1e-10`.
        ref_power: The power at 0 decibels. Default: `1.0`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, time)`.

    Output shape:
        `(batch, num_mel_bins, frames)`.

    Examples:
        >>> import ztorch as zt
        >>> MelSpectrogram(64, 16, num_mel_bins=8)(zt.layers.Input((160,))).shape
        (None, 8, 11)
    """

    needs_floats = True

    def __init__(self, fft_length: int = 2048, sequence_stride: int = 512,
                 sequence_length: int | None = None, window: Any = "hann",
                 sampling_rate: int = 16000, num_mel_bins: int = 128, min_freq: float = 20.0,
                 max_freq: float | None = None, power_to_db: bool = True, top_db: float = 80.0,
                 mag_exp: float = 2.0, min_power: float = 1e-10, ref_power: float = 1.0,
                 **common: Any):
        super().__init__(**common)
        for name, value in (("fft_length", fft_length), ("sequence_stride", sequence_stride),
                            ("sampling_rate", sampling_rate), ("num_mel_bins", num_mel_bins)):
            setattr(self, name, positive(f"MelSpectrogram({name}=...)", value))
        self.fft_length: int
        self.sequence_stride: int
        self.sampling_rate: int
        self.num_mel_bins: int
        self.sequence_length = self.fft_length if sequence_length is None else positive(
            "MelSpectrogram(sequence_length=...)", sequence_length)
        if self.sequence_length > self.fft_length:
            raise ConfigError(f"MelSpectrogram(sequence_length={sequence_length!r}) must be at "
                              f"most fft_length={fft_length}")
        self.window = window if window is None or isinstance(window, str) else [
            number("MelSpectrogram(window=...)", weight) for weight in np.ravel(window).tolist()]
        self.min_freq = number("MelSpectrogram(min_freq=...)", min_freq, least=0)
        self.max_freq = self.sampling_rate // 2 if max_freq is None else number(
            "MelSpectrogram(max_freq=...)", max_freq, above=0)
        if not self.min_freq < self.max_freq:
            raise ConfigError(f"MelSpectrogram(min_freq={min_freq!r}, max_freq={self.max_freq!r}): "
                              "the first must be lower")
        self.power_to_db = flag("MelSpectrogram(power_to_db=...)", power_to_db)
        self.top_db, self.mag_exp = (number(f"MelSpectrogram({name}=...)", value, least=0)
                                     for name, value in (("top_db", top_db), ("mag_exp", mag_exp)))
        self.min_power = number("MelSpectrogram(min_power=...)", min_power, above=0)
        self.ref_power = number("MelSpectrogram(ref_power=...)", ref_power)

    def call(self, x: Value, context: Context) -> Value:
        self.need_rank(x.shape[1:], 1, "(batch, time)", "select one channel")
        real, imag = OPS.stft(x, self.sequence_length, self.sequence_stride, self.fft_length,
                              tuple(self.window) if isinstance(self.window, list) else self.window)
        loud = (real * real + imag * imag) ** (self.mag_exp / 2)
        y = OPS.matmul(loud, constant(self._pitches(loud.shape[-1]), loud.dtype))
        if self.power_to_db:
            scale = 10.0 / np.log(10.0)
            y = OPS.log(OPS.maximum(y, self.min_power)) * scale - scale * float(
                np.log(max(abs(self.ref_power), self.min_power)))
            y = OPS.maximum(y, OPS.max(y, (1, 2), True) - self.top_db)
        return OPS.transpose(y, (0, 2, 1))

    def _pitches(self, frequencies: int) -> np.ndarray:
        """The weight of each frequency (row) in each mel band (column): triangles."""
        hertz = np.linspace(0.0, self.sampling_rate / 2, frequencies)[1:, None]
        low, high = _mels(np.array([self.min_freq, self.max_freq], np.float64))
        edges = np.linspace(low, high, self.num_mel_bins + 2)
        start, middle, end = edges[:-2], edges[1:-1], edges[2:]
        place = _mels(hertz)
        rising, falling = (place - start) / (middle - start), (end - place) / (end - middle)
        return np.concatenate([np.zeros((1, self.num_mel_bins)),
                               np.maximum(0.0, np.minimum(rising, falling))])


def _mels(hertz: np.ndarray) -> np.ndarray:
    """Frequencies on the mel scale."""
    return MEL_Q * np.log1p(hertz / MEL_BREAK)
