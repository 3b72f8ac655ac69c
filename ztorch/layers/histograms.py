"""Layers that change tones based on their histogram."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.config import number, positive
from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Value
from ztorch.layers.augmentation import AugmentationLayer, Pair, checked_range
from ztorch.layers.context import Context
from ztorch.layers.encoded import category_counts
from ztorch.layers.spatial import SpatialLayer
from ztorch.layers.tones import BYTES

TONES = 256  # values of a byte
MOST_TILES = 1024  # along an axis: more than there are pixels is useless


def _scaled(x: Value, old: Pair, new: Pair) -> Value:
    """Pixels mapped from one range to another, rounded as in Keras."""
    scale = (new[1] - new[0]) / (old[1] - old[0])
    return x * scale + (new[0] - old[0] * scale)


class Equalization(AugmentationLayer):
    """During training, equalizes the histogram of each channel of each image.

    Keras uses one histogram for all images of a batch; here each image has its own.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        bins: Number of bins of the histogram. Default: `256`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> import ztorch as zt
        >>> image = zt.tensor([[[[100.0], [101.0], [103.0]]]])
        >>> Equalization()(image, training=True).flatten().tolist()
        [0.0, 128.0, 255.0]
    """

    def __init__(self, value_range: Any = (0, 255), bins: int = 256,
                 data_format: str | None = None, **common: Any):
        super().__init__(None, data_format, **common)
        self.value_range = checked_range("Equalization", value_range)
        self.bins = positive("Equalization(bins=...)", bins)

    def changed(self, x: Value, context: Context) -> Value:
        batch, rows, columns, channels = x.shape
        x = _scaled(x, self.value_range, BYTES)
        planes = OPS.reshape(OPS.transpose(x, (0, 3, 1, 2)), (batch * channels, rows * columns))
        last = self.bins - 1
        counted, read = (OPS.clip(OPS.cast(part, "int32"), 0, last)
                         for part in (planes * last / BYTES[1], planes / BYTES[1] * last))
        totals = OPS.cumsum(category_counts(counted, "count", self.bins, d=x.dtype), -1)
        below = OPS.min(OPS.where(totals > 0.0, totals, float(rows * columns)), -1, True)
        span = rows * columns - below  # 0 if there is only one tone
        table = OPS.round((totals - below) * BYTES[1] / OPS.where(span > 0.0, span, 1.0))
        even = OPS.cast(OPS.take_along_axis(OPS.clip(table, *BYTES), read, 1), x.dtype)
        y = OPS.where(span > 0.0, even, planes)
        y = OPS.transpose(OPS.reshape(y, (batch, channels, rows, columns)), (0, 2, 3, 1))
        return _scaled(y, BYTES, self.value_range)


class ContrastLimitedAdaptiveHistogramEqualization(SpatialLayer):
    """Equalizes the histogram of each channel of each image, tile by tile: CLAHE.

    It does so in training and in inference. Between the centers of tiles, their mappings are
    interpolated.

    Args:
        value_range: The smallest and the largest pixel value, `(low, high)`. Default: `(0, 255)`.
        clip_limit: Limit of the count of one tone, as a multiple of the mean count; the excess is
            distributed among all tones. 0 means no limit. Default: `4.0`.
        tile_grid_size: Number of tiles along rows and columns. Default: `(8, 8)`.
        data_format: `"channels_last"` or `"channels_first"`: the position of the channel axis.
            `None` means `"channels_last"`. Default: `None`.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        `(batch, rows, columns, channels)`, or `(batch, channels, rows, columns)` with channels
        first.

    Output shape:
        The same as the input shape.

    Examples:
        >>> import numpy as np
        >>> layer = ContrastLimitedAdaptiveHistogramEqualization((0, 1), tile_grid_size=(2, 2))
        >>> layer(np.random.default_rng(0).random((1, 8, 8, 1), np.float32)).shape
        (1, 8, 8, 1)
    """

    def __init__(self, value_range: Any = (0, 255), clip_limit: float = 4.0,
                 tile_grid_size: Any = (8, 8), data_format: str | None = None, **common: Any):
        super().__init__(data_format, **common)
        name = type(self).__name__
        self.value_range = checked_range(name, value_range)
        self.clip_limit = number(f"{name}(clip_limit=...)", clip_limit, least=0)
        self.tile_grid_size = self.each("tile_grid_size", tile_grid_size)
        if max(self.tile_grid_size) > MOST_TILES:
            raise ConfigError(f"{name}(tile_grid_size={tile_grid_size!r}) may have at most "
                              f"{MOST_TILES} tiles along an axis")

    def last(self, x: Value, context: Context) -> Value:
        x = _scaled(OPS.cast(x, context.dtype), self.value_range, BYTES)
        batch, rows, columns, channels = x.shape
        grid = self.tile_grid_size
        tile = (-(-rows // grid[0]), -(-columns // grid[1]))
        tones = OPS.cast(OPS.clip(self._filled(x, tile), *BYTES), "int32")
        tables = OPS.reshape(self._tables(tones, tile, x.dtype), (batch, -1))
        (top, bottom, down), (left, right, across) = (
            _between_middles(n, size) for n, size in zip(grid, tile, strict=True))
        wide = (grid[1] + 2) * channels * TONES
        base = tones + constant(np.arange(channels) * TONES, "int32")

        def tone(row: np.ndarray, column: np.ndarray) -> Value:
            first = row[:, None] * wide + column[None, :] * channels * TONES
            places = base + constant(first[None, :, :, None], "int32")
            own = OPS.take_along_axis(tables, OPS.reshape(places, (batch, -1)), 1)
            return OPS.reshape(own, places.shape)

        d = x.dtype
        beside = constant(across[None, None, :, None], d)
        above = tone(top, left) * (1.0 - beside) + tone(top, right) * beside
        below = tone(bottom, left) * (1.0 - beside) + tone(bottom, right) * beside
        under = constant(down[None, :, None, None], d)
        y = above * (1.0 - under) + below * under
        return _scaled(y[:, :rows, :columns], BYTES, self.value_range)

    def _filled(self, x: Value, tile: tuple[int, int]) -> Value:
        """The images, padded to whole tiles by reflection."""
        for axis, (grid, size) in enumerate(zip(self.tile_grid_size, tile, strict=True), 1):
            size, real = grid * size, x.shape[axis]
            if size > real:
                position = np.arange(size) % (2 * real)
                position = np.minimum(position, 2 * real - 1 - position)
                x = OPS.take(x, constant(position, "int32"), axis)
        return x

    def _tables(self, tones: Value, tile: tuple[int, int], d: DType) -> Value:
        """The mapping of tones for each tile and channel; border tiles appear twice."""
        (batch, _, _, channels), grid, pixels = tones.shape, self.tile_grid_size, tile[0] * tile[1]
        tiles = OPS.reshape(tones, (batch, grid[0], tile[0], grid[1], tile[1], channels))
        tiles = OPS.reshape(OPS.transpose(tiles, (0, 1, 3, 5, 2, 4)),
                            (batch, *grid, channels, pixels))
        counts = category_counts(tiles, "count", TONES, d=d)
        if self.clip_limit:
            clipped_counts = OPS.minimum(counts, self.clip_limit * pixels / TONES)
            counts = clipped_counts + OPS.sum(counts - clipped_counts, -1, True) / TONES
        totals = OPS.cumsum(counts, -1)
        below = OPS.min(totals, -1, True)
        span = pixels - below
        table = OPS.clip((totals - below) * BYTES[1] / OPS.where(OPS.equal(span, 0.0), 1.0, span),
                         *BYTES)
        for axis, n in enumerate(grid, 1):
            table = OPS.take(table, constant(np.clip(np.arange(-1, n + 1), 0, n - 1), "int32"),
                             axis)
        return table


def _between_middles(grid: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each position along an axis: the tiles whose centers are before and after it (border
    tiles count twice), and the weight of the latter."""
    place = np.arange(grid * size, dtype=np.float32) / size + 0.5
    before = np.floor(place)
    return (np.clip(before, 0, grid + 1).astype(int), np.clip(before + 1, 0, grid + 1).astype(int),
            place - before)
