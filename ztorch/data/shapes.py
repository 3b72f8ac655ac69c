"""Pictures of shapes, computed: for classification and segmentation.

The background is a gradient of two colours with noise. It contains shapes in other colours, of any
size and at any position. Only its outline identifies a shape: all shapes draw from the same
colours.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set

SHAPES = ("disc", "ring", "square", "frame", "triangle", "diamond", "plus", "cross")
SOLID = ("disc", "square", "triangle")  # those that `shape_masks` draws, as classes 1, 2, 3


class _Random:
    """Uniform random numbers. They are made of raw numbers, which are the same in every version of
    NumPy; the distributions of its generators may change."""

    def __init__(self, seed: int):
        self.generator = np.random.PCG64(seed)

    def between(self, low: float, high: float, *shape: int) -> np.ndarray:
        raw = self.generator.random_raw(int(np.prod(shape)))
        return low + (high - low) * (raw.astype(np.float64) / 2.0**64).reshape(shape)

    def below(self, n: int, *shape: int) -> np.ndarray:
        return self.between(0, n, *shape).astype(np.int32)

    def noise(self, level: float, *shape: int) -> np.ndarray:
        """Numbers around zero in float32, with no more bits than the pixels of a picture."""
        count = int(np.prod(shape))
        words = self.generator.random_raw(-(-count // 8)).astype("<u8")
        return (words.view(np.uint8)[:count].reshape(shape) - np.float32(127.5)) * np.float32(
            level / 127.5)


def _inside(u: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    """The points of a plane that each shape covers. It spans about -1 to 1 along u and v."""
    p, q = (u + v) * 0.5**0.5, (u - v) * 0.5**0.5
    square, disc = np.maximum(abs(u), abs(v)), np.hypot(u, v)
    return {
        "disc": disc < 1, "ring": (disc < 1) & (disc > 0.6),
        "square": square < 0.85, "frame": (square < 0.9) & (square > 0.5),
        "triangle": (v < 0.75) & (abs(u) < 0.6 * (v + 0.95)), "diamond": abs(u) + abs(v) < 1.1,
        "plus": (np.minimum(abs(u), abs(v)) < 0.3) & (square < 1),
        "cross": (np.minimum(abs(p), abs(q)) < 0.3) & (np.maximum(abs(p), abs(q)) < 1),
    }


def _backgrounds(numbers: _Random, rows: int, size: int, noise: float) -> np.ndarray:
    slope = np.linspace(0.0, 1.0, size, dtype=np.float32)[None, :, None, None]
    first, second = (numbers.between(0, 1, rows, 1, 1, 3).astype(np.float32) for _ in range(2))
    return numbers.noise(noise, rows, size, size, 3) + (first * slope + second * (1 - slope))


def _place(numbers: _Random, rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates u and v of one shape in each picture: its random place and size."""
    radius = numbers.between(0.19, 0.4, rows, 1, 1) * size
    x, y = (radius + (size - 1 - 2 * radius) * numbers.between(0, 1, rows, 1, 1) for _ in range(2))
    across = np.arange(size)
    u, v = (across[None, None, :] - x) / radius, (across[None, :, None] - y) / radius
    return u.astype(np.float32), v.astype(np.float32)


def _colours(numbers: _Random, drawn: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """A colour for the shape of each picture, in contrast to its background."""
    beneath = np.einsum("nyxc,nyx->nc", drawn, covered) / covered.sum((1, 2)).clip(1)[:, None]
    away = numbers.between(0.35, 0.5, len(drawn), 3)
    colours = beneath + np.where(beneath < 0.5, away, -away)
    return colours[:, None, None, :].astype(np.float32)


def _split(x: np.ndarray, y: np.ndarray) -> Split:
    first = len(x) - len(x) // 5
    np.clip(x, 0, 1, out=x)
    return (x[:first], y[:first]), (x[first:], y[first:])


@data_set("shapes", SHAPES)
def load_shapes(rows: int = 2500, size: int = 32) -> Split:
    """Pictures of shape (size, size, 3), and which of SHAPES each one shows; a fifth for the test.

    >>> (x, y), (x_test, y_test) = load_shapes(rows=50)
    >>> x.shape, sorted(set(y.tolist()))
    ((40, 32, 32, 3), [0, 1, 2, 3, 4, 5, 6, 7])
    """
    numbers = _Random(1)
    drawn = _backgrounds(numbers, rows, size, noise=0.1)
    kind = np.arange(rows, dtype=np.int32) % len(SHAPES)
    covers = _inside(*_place(numbers, rows, size))
    covered = np.stack([covers[name] for name in SHAPES])[kind, np.arange(rows)]
    colours = _colours(numbers, drawn, covered)
    return _split(np.where(covered[..., None], colours, drawn), kind)


@data_set("shapes_64", SHAPES)
def load_shapes_64(rows: int = 2500) -> Split:
    """The pictures of `shapes` at twice the size."""
    return load_shapes(rows, 64)


@data_set("shape_masks")
def load_shape_masks(rows: int = 750, size: int = 32) -> Split:
    """Pictures of shape (size, size, 3) with three shapes each, and for each pixel 0 or the class
    of the shape it belongs to, 1 and so on in the order of SOLID; a fifth for the test.

    >>> (x, y), _ = load_shape_masks(rows=50)
    >>> x.shape, y.shape, sorted(set(y.ravel().tolist()))
    ((40, 32, 32, 3), (40, 32, 32), [0, 1, 2, 3])
    """
    numbers = _Random(2)
    drawn = _backgrounds(numbers, rows, size, noise=0.1)
    classes = np.zeros((rows, size, size), np.int32)
    for _ in range(3):
        kind = numbers.below(len(SOLID), rows)
        covers = _inside(*_place(numbers, rows, size))
        covered = np.stack([covers[name] for name in SOLID])[kind, np.arange(rows)]
        colours = _colours(numbers, drawn, covered)
        drawn = np.where(covered[..., None], colours, drawn)
        classes = np.where(covered, kind[:, None, None] + 1, classes)
    return _split(drawn, classes)
