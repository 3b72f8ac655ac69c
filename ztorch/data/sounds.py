"""Sounds in WAV files, in folders, one for each class."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.data.batches import Batches
from ztorch.data.class_folders import LabeledFiles, files_in, labeled_files
from ztorch.data.registry import Pair
from ztorch.errors import DataError
from ztorch.files.parsing import parsing

SOUNDS = (".wav",)
_INTEGER, _FLOAT, _BY_GUID = 1, 3, 0xFFFE  # number formats of WAV files
_DTYPES = {(_INTEGER, 8): "u1", (_INTEGER, 16): "<i2", (_INTEGER, 24): "u1", (_INTEGER, 32): "<i4",
           (_FLOAT, 32): "<f4", (_FLOAT, 64): "<f8"}
_UNTIL_END = 0xFFFFFFFF  # a size of programs that write before they know it
_RATES = range(1, 1 << 20)  # samples per second


class _WavFormat(NamedTuple):
    """The number format of a file."""

    kind: int
    bits: int
    channels: int
    rate: int  # samples per second

    @property
    def frame(self) -> int:
        """The bytes of one sample of all channels."""
        return self.channels * self.bits // 8


@checked
def sound_folder(path: str | os.PathLike[str], length: int, *, rate: int | None = None,
                 channels: int = 1, batch_size: int = 32, seed: int | None = None) -> SoundFolder:
    """Reads batches of sounds from a folder of WAV files, in which each folder is a class.

    A file is read with its batch. Files are in the order of their names, unless there is a seed.

    Args:
        path: The folder. Its folders are the classes, in the order of their names.
        length: The samples of a row: longer sounds are cut, and shorter ones padded with zeros.
        rate: Samples per second, to which all sounds are resampled; None: the rate of the first
            file. Default: `None`.
        channels: The number of channels of each file, or 1, for their mean. Default: `1`.
        batch_size: The sounds of a batch. Default: `32`.
        seed: Shuffles the sounds in each epoch; None keeps their order. Default: `None`.

    Returns:
        A SoundFolder: iterates over (x, y), x of shape (batch_size, length, channels) in float32,
        -1 to 1, y the number of the class.

    Raises:
        DataError: There is no such folder, or no sound in it, or a file cannot be read.

    Examples:
        ```python
        sounds = zt.data.sound_folder("words", length=16000, rate=16000, seed=0)
        program.fit(sounds, epochs=5)
        ```
    """
    return SoundFolder(path, length, rate, channels, batch_size, seed)


class SoundFolder(Batches):
    """The batches of a folder of sounds, as `sound_folder` returns them.

    `classes` are the names of the folders, `files` the sounds, `labels` the class of each, `rate`
    the samples per second.
    """

    def __init__(self, path: str | os.PathLike[str], length: int, rate: int | None, channels: int,
                 batch_size: int, seed: int | None, labeled: LabeledFiles | None = None):
        self.length = positive("sound_folder(length=...)", length)
        self.channels = positive("sound_folder(channels=...)", channels)
        self.files, self.labels, self.classes = labeled or labeled_files(path, SOUNDS, "sound")
        self.rate = rate_of(self.files[0]) if rate is None else positive(
            "sound_folder(rate=...)", rate)
        super().__init__(len(self.files), batch_size, seed)

    def read(self, rows: np.ndarray) -> Pair:
        files = [self.files[row] for row in rows]
        return _rows(files, self.length, self.rate, self.channels), self.labels[rows]


def read_sounds(paths: Sequence[str], length: int, rate: int | None, channels: int
                ) -> tuple[np.ndarray, list[Path]]:
    """Reads sounds from files, and from folders at any depth.

    Args:
        paths: Files and folders.
        length: The samples of each row.
        rate: Samples per second, to which sounds are resampled; None: each keeps its own.
        channels: The number of channels of each file, or 1, for their mean.

    Returns:
        A float32 array of shape (sounds, length, channels), and the files.
    """
    files = files_in(paths, SOUNDS, "sound")
    return _rows(files, length, rate, channels), files


def is_sound(path: str) -> bool:
    """Whether a path has the suffix of a sound, or is a folder.

    >>> is_sound("bark.wav"), is_sound("bark.png")
    (True, False)
    """
    return bool(path) and (Path(path).suffix.lower() in SOUNDS or Path(path).is_dir())


def rate_of(path: str | os.PathLike[str]) -> int:
    """The samples per second of a WAV file."""
    with _open(path) as (_, form, _frames):
        return form.rate


def samples_of(path: str | os.PathLike[str], rate: int) -> int:
    """The number of samples of a WAV file after it is resampled to a rate."""
    with _open(path) as (_, form, frames):
        return max(1, round(frames * rate / form.rate))


def read_wav(path: str | os.PathLike[str], most: int | None = None) -> tuple[np.ndarray, int]:
    """The sound in a WAV file.

    Args:
        path: The file, with integers of 8 to 32 bits or floats.
        most: The number of samples to read; None: all. Default: `None`.

    Returns:
        A float32 array of shape (samples, channels), -1 to 1, and the samples per second.

    Raises:
        DataError: There is no such file, or it cannot be read.
    """
    with _open(path) as (file, form, frames):
        count = frames if most is None else min(frames, most)
        data = np.frombuffer(file.read(count * form.frame), _DTYPES[form.kind, form.bits])
        return _scaled(data, form).reshape(count, form.channels), form.rate


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, _WavFormat, int]]:
    """A WAV file, open at its first sample, with its format and its number of samples."""
    name = os.fspath(path)
    if not Path(path).is_file():
        raise DataError(f"there is no file {name}")
    with parsing(name, DataError, "cannot be read as a sound", "save it as WAV with 16 bits"), (
            open(path, "rb")) as file:
        form, size = _begin(file)
        rest = os.fstat(file.fileno()).st_size - file.tell()
        if size != _UNTIL_END and size > rest:
            raise ValueError(f"it should have {size:,} bytes of samples, but has {rest:,}")
        yield file, form, min(size, rest) // form.frame


def _begin(file: BinaryIO) -> tuple[_WavFormat, int]:
    """Reads the header of a file. Returns the format, and the size of the samples in bytes."""
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise ValueError(f"it starts with {head[:12]!r}")
    form: _WavFormat | None = None
    while len(head := file.read(8)) == 8:
        size = int.from_bytes(head[4:], "little")
        if head[:4] == b"data" and form is not None:
            return form, size
        if head[:4] == b"fmt ":
            form = _parse_format(file.read(min(size, 40)).ljust(40, b"\0"))
            file.seek(max(size - 40, 0) + size % 2, os.SEEK_CUR)
        else:
            file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError("it has no samples")


def _parse_format(record: bytes) -> _WavFormat:
    kind, channels, rate, bits, by_guid = (
        int.from_bytes(record[a:b], "little")
        for a, b in ((0, 2), (2, 4), (4, 8), (14, 16), (24, 26)))
    form = _WavFormat(by_guid if kind == _BY_GUID else kind, bits, channels, rate)
    if (form.kind, bits) not in _DTYPES:
        raise ValueError(f"it holds numbers of format {form.kind} with {bits} bits")
    if not channels or rate not in _RATES:
        raise ValueError(f"it claims {channels} channels and {rate} samples per second")
    return form


def _scaled(data: np.ndarray, form: _WavFormat) -> np.ndarray:
    """The numbers of a file as float32, -1 to 1."""
    if form.kind == _FLOAT:
        if not np.isfinite(data).all():
            raise ValueError("it holds numbers that are not finite")
        return data.astype(np.float32)
    if form.bits == 24:
        wide = np.zeros((data.size // 3, 4), np.uint8)
        wide[:, 1:] = data.reshape(-1, 3)
        data = wide.view("<i4").reshape(-1)
    integers = data.astype(np.float32) - np.float32(128 if form.bits == 8 else 0)
    return integers / np.float32(1 << (31 if form.bits == 24 else form.bits - 1))


def resampled(sound: np.ndarray, old: int, rate: int) -> np.ndarray:
    """A sound at another rate; frequencies above half the new rate are removed.

    >>> resampled(np.ones((4, 1), np.float32), 4, 8).shape
    (8, 1)
    """
    count = round(len(sound) * rate / old)
    if rate == old or not len(sound) or not count:
        return sound[:count]
    waves = np.fft.rfft(sound, axis=0)[:count // 2 + 1]
    return (np.fft.irfft(waves, count, axis=0) * (count / len(sound))).astype(np.float32)


def _rows(files: Sequence[Path], length: int, rate: int | None, channels: int) -> np.ndarray:
    x = np.zeros((len(files), length, channels), np.float32)
    for row, file in zip(x, files, strict=True):
        file_rate = rate_of(file)
        sound, _ = read_wav(file, most=math.ceil(length * file_rate / (rate or file_rate)))
        if channels == 1:
            sound = sound.mean(1, keepdims=True)
        elif sound.shape[1] != channels:
            raise DataError(f"{file} has {sound.shape[1]} channels, not {channels}; pass "
                            "channels=1, for their mean")
        sound = resampled(sound, file_rate, rate or file_rate)[:length]
        row[:len(sound)] = sound
    return x
