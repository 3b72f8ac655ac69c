"""PNG images that we write are those that others read."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ztorch.files.png import png


def test_pixels_come_back() -> None:
    image = pytest.importorskip("PIL.Image")
    for channels in (1, 3, 4):
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
        read = np.asarray(image.open(io.BytesIO(png(pixels)))).reshape(pixels.shape)
        assert np.array_equal(read, pixels)
