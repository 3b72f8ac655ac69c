"""Sounds in WAV files: every form of numbers, damaged files, folders, other rates."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.sounds import write
from ztorch.data.sounds import read_sounds, read_wav, resampled
from ztorch.errors import ConfigError, DataError

WAVE = np.sin(np.arange(400) * 0.2)[:, None] * 0.9


def riff(kind: int, bits: int, data: bytes, channels: int = 1, rate: int = 8000, before: bytes = b"",
         size: int | None = None) -> bytes:
    """A file of any form."""
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + before + b"data" + struct.pack(
        "<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize("bytes_each", [1, 2, 3])
def test_whole_numbers_of_any_size(tmp_path: Path, bytes_each: int) -> None:
    stereo = np.concatenate([WAVE, -WAVE], 1)
    sound, rate = read_wav(write(tmp_path / "a.wav", stereo, 11025, bytes_each))
    assert rate == 11025 and sound.dtype == np.float32
    np.testing.assert_allclose(sound, stereo, atol=0.51 / (1 << (8 * bytes_each - 1)) + 1e-7)


@pytest.mark.cheap
@pytest.mark.parametrize(("kind", "bits", "dtype"), [(1, 32, "<i4"), (3, 32, "<f4"), (3, 64, "<f8")])
def test_wide_numbers(tmp_path: Path, kind: int, bits: int, dtype: str) -> None:
    numbers = WAVE * (2.0**31 if kind == 1 else 1)
    note = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # chunks of other kinds, of odd sizes
    for size in (None, 0xFFFFFFFF):  # a stream does not know its size
        (tmp_path / "a.wav").write_bytes(riff(kind, bits, numbers.astype(dtype).tobytes(), before=note, size=size))
        np.testing.assert_allclose(read_wav(tmp_path / "a.wav")[0], WAVE, atol=1e-6)


@pytest.mark.cheap
@pytest.mark.parametrize(("data", "said"), [
    (b"", "starts with"), (b"RIFF\0\0\0\0WAVE", "has no samples"), (riff(1, 16, b"")[:-8], "has no samples"),
    (riff(1, 16, b"\0\0", size=9), "should have 9 bytes"), (riff(7, 8, b"\0"), "numbers of format 7 with 8 bits"),
    (riff(1, 16, b"\0\0", channels=0), "0 channels"), (riff(1, 16, b"\0\0", rate=0), "0 samples per second"),
    (riff(3, 32, struct.pack("<f", np.nan)), "not finite")])
def test_damaged_files_are_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "bad.wav"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"bad.wav cannot be read as a sound \(.*{said}"):
        read_wav(path)


def test_resampling_keeps_frequencies() -> None:
    def tone(rate: int, hertz: float) -> np.ndarray:
        return np.cos(np.arange(rate) * 2 * np.pi * hertz / rate)[:, None].astype(np.float32)

    for rate in (4000, 16000):
        np.testing.assert_allclose(resampled(tone(8000, 440), 8000, rate), tone(rate, 440), atol=1e-5)
    assert np.abs(resampled(tone(8000, 3000), 8000, 4000)).max() < 1e-5  # not heard as another tone
    assert resampled(np.zeros((0, 1), np.float32), 8000, 1).shape == (0, 1)


def test_folders_of_sounds(tmp_path: Path) -> None:
    write(tmp_path / "high" / "a.wav", WAVE)
    write(tmp_path / "low" / "b.wav", np.concatenate([WAVE, WAVE], 1), 16000)
    sounds = zt.data.sound_folder(tmp_path, 500, batch_size=2)
    [(x, y)] = list(sounds)
    assert sounds.rate == 8000 and sounds.classes == ("high", "low") and y.tolist() == [0, 1]
    assert x.shape == (2, 500, 1) and not x[0, 400:].any() and not x[1, 200:].any()
    np.testing.assert_allclose(x[0, :400], WAVE, atol=1e-4)
    np.testing.assert_array_equal(read_sounds([str(tmp_path)], 300, 8000, 1)[0], x[:, :300])
    both = zt.utils.audio_dataset_from_directory(tmp_path, shuffle=False, label_mode="categorical")
    [(x, y)] = list(both)
    assert x.shape == (2, 400, 1) and y.tolist() == [[1, 0], [0, 1]] and both.class_names == ["high", "low"]
    with pytest.raises(DataError, match=r"a.wav has 1 channels, not 2"):
        read_sounds([str(tmp_path / "high")], 10, None, 2)
    with pytest.raises(ConfigError, match="length"):
        zt.data.sound_folder(tmp_path, 0)
    with pytest.raises(DataError, match="no folder"):
        zt.data.sound_folder(tmp_path / "none", 10)
