"""PNG images that we write are those that others read."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ztorch.files.png import png


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_come_back(channels: int) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    read = np.asarray(image.open(io.BytesIO(png(pixels)))).reshape(pixels.shape)
    assert np.array_equal(read, pixels)
