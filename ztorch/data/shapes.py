"""Computed pictures of shapes, for classification and segmentation.

The background is a gradient of two colors with noise. Shapes have random sizes, positions and
colors, so that only their outline tells them apart.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Split, data_set
from ztorch.data.stable_random import StableRandom

SHAPES = ("disc", "ring", "square", "frame", "triangle", "diamond", "plus", "cross")
SOLID = ("disc", "square", "triangle")  # the shapes of `shape_masks`, which are classes 1, 2, 3


def _inside(u: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    """The points of a plane that each shape covers, from about -1 to 1 along u and v."""
    p, q = (u + v) * 0.5**0.5, (u - v) * 0.5**0.5
    square, disc = np.maximum(abs(u), abs(v)), np.hypot(u, v)
    return {
        "disc": disc < 1, "ring": (disc < 1) & (disc > 0.6),
        "square": square < 0.85, "frame": (square < 0.9) & (square > 0.5),
        "triangle": (v < 0.75) & (abs(u) < 0.6 * (v + 0.95)), "diamond": abs(u) + abs(v) < 1.1,
        "plus": (np.minimum(abs(u), abs(v)) < 0.3) & (square < 1),
        "cross": (np.minimum(abs(p), abs(q)) < 0.3) & (np.maximum(abs(p), abs(q)) < 1),
    }


def _backgrounds(numbers: StableRandom, rows: int, size: int, noise: float) -> np.ndarray:
    slope = np.linspace(0.0, 1.0, size, dtype=np.float32)[None, :, None, None]
    first, second = (numbers.between(0, 1, rows, 1, 1, 3).astype(np.float32) for _ in range(2))
    return numbers.noise(noise, rows, size, size, 3) + (first * slope + second * (1 - slope))


def _coordinates(numbers: StableRandom, rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates u and v of a shape of random position and size in each picture."""
    radius = numbers.between(0.19, 0.4, rows, 1, 1) * size
    x, y = (radius + (size - 1 - 2 * radius) * numbers.between(0, 1, rows, 1, 1) for _ in range(2))
    across = np.arange(size)
    u, v = (across[None, None, :] - x) / radius, (across[None, :, None] - y) / radius
    return u.astype(np.float32), v.astype(np.float32)


def _colors(numbers: StableRandom, pictures: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """A color for the shape of each picture that contrasts with its background."""
    beneath = np.einsum("nyxc,nyx->nc", pictures, covered) / covered.sum((1, 2)).clip(1)[:, None]
    away = numbers.between(0.35, 0.5, len(pictures), 3)
    colors = beneath + np.where(beneath < 0.5, away, -away)
    return colors[:, None, None, :].astype(np.float32)


def _train_and_test(x: np.ndarray, y: np.ndarray) -> Split:
    first = len(x) - len(x) // 5
    np.clip(x, 0, 1, out=x)
    return (x[:first], y[:first]), (x[first:], y[first:])


@data_set("shapes", SHAPES)
def load_shapes(rows: int = 2500, size: int = 32) -> Split:
    """Pictures of shape (size, size, 3), and which of SHAPES each shows; a fifth is the test set.

    >>> (x, y), (x_test, y_test) = load_shapes(rows=50)
    >>> x.shape, sorted(set(y.tolist()))
    ((40, 32, 32, 3), [0, 1, 2, 3, 4, 5, 6, 7])
    """
    numbers = StableRandom(1)
    pictures = _backgrounds(numbers, rows, size, noise=0.1)
    kind = np.arange(rows, dtype=np.int32) % len(SHAPES)
    covers = _inside(*_coordinates(numbers, rows, size))
    covered = np.stack([covers[name] for name in SHAPES])[kind, np.arange(rows)]
    colors = _colors(numbers, pictures, covered)
    return _train_and_test(np.where(covered[..., None], colors, pictures), kind)


@data_set("shapes_64", SHAPES)
def load_shapes_64(rows: int = 2500) -> Split:
    """The pictures of `shapes` at twice the size."""
    return load_shapes(rows, 64)


@data_set("shape_masks")
def load_shape_masks(rows: int = 750, size: int = 32) -> Split:
    """Pictures of shape (size, size, 3) with three shapes each, and for each pixel 0 or the class
    of the shape it belongs to, 1 and so on in the order of SOLID; a fifth is the test set.

    >>> (x, y), _ = load_shape_masks(rows=50)
    >>> x.shape, y.shape, sorted(set(y.ravel().tolist()))
    ((40, 32, 32, 3), (40, 32, 32), [0, 1, 2, 3])
    """
    numbers = StableRandom(2)
    pictures = _backgrounds(numbers, rows, size, noise=0.1)
    classes = np.zeros((rows, size, size), np.int32)
    for _ in range(3):
        kind = numbers.below(len(SOLID), rows)
        covers = _inside(*_coordinates(numbers, rows, size))
        covered = np.stack([covers[name] for name in SOLID])[kind, np.arange(rows)]
        colors = _colors(numbers, pictures, covered)
        pictures = np.where(covered[..., None], colors, pictures)
        classes = np.where(covered, kind[:, None, None] + 1, classes)
    return _train_and_test(pictures, classes)
