"""WAV files, as Python's own module writes them."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np


def write(path: Path, sound: np.ndarray, rate: int = 8000, bytes_each: int = 2) -> Path:
    """Writes a sound, samples by channels from -1 to 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.round(sound * (1 << (8 * bytes_each - 1))).astype("<i4")
    data = (whole + 128).astype("u1") if bytes_each == 1 else whole[..., None].view("u1")[..., :bytes_each]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(sound.shape[1])
        file.setsampwidth(bytes_each)
        file.setframerate(rate)
        file.writeframes(data.tobytes())
    return path
