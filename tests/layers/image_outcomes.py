"""The same changes of images by other means, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests import references
from ztorch import layers as L
from ztorch.layers import Layer

Outcome = Callable[[np.ndarray, np.ndarray], np.ndarray]


# -- the same by other means -----------------------------------------------------------------------


def flipped(horizontal: bool, vertical: bool) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = x.copy()
        for k, row in enumerate(u):
            chances = list(row)
            if horizontal and chances.pop(0) < 0.5:
                out[k] = out[k, :, ::-1]
            if vertical and chances.pop(0) < 0.5:
                out[k] = out[k, ::-1]
        return out

    return apply


def cropped(height: int, width: int) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = []
        for image, (a, b) in zip(x, u, strict=True):
            top = int(a * (x.shape[1] - height + 1))
            left = int(b * (x.shape[2] - width + 1))
            out.append(image[top:top + height, left:left + width])
        return np.stack(out)

    return apply


def moved(height: tuple[float, float], width: tuple[float, float], fill_mode: str = "reflect",
          interpolation: str = "bilinear", fill_value: float = 0.0) -> Outcome:
    """Keras' affine transformation: output (row, column) is input (row - dy, column - dx)."""

    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        dy, dx = ((low + u[:, k] * (high - low)) * x.shape[k + 1]
                  for k, (low, high) in enumerate((height, width)))
        one, none = np.ones(len(x)), np.zeros(len(x))
        transform = np.stack([one, none, -dx, none, one, -dy, none, none], 1)
        y = references.keras().ops.image.affine_transform(
            x, transform, interpolation, fill_mode, fill_value)
        return y.numpy()

    return apply


def contrasted(lower: float, upper: float, high: float) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        mean = x.mean((1, 2), keepdims=True)
        factor = (1 - lower + u * (lower + upper)).reshape(-1, 1, 1, 1)
        return np.clip(mean + (x - mean) * factor, 0, high)

    return apply


def brightened(lower: float, upper: float, high: float) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.clip(x + ((lower + u * (upper - lower)) * high).reshape(-1, 1, 1, 1), 0, high)

    return apply


def erased(chances: tuple[float, float], areas: tuple[float, float], fill: Any) -> Outcome:
    def apply(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        out = x.copy()
        for k, (chance, luck, tall, down, wide, right) in enumerate(u):
            if luck >= chances[0] + chance * (chances[1] - chances[0]):
                continue
            inside = []
            for n, share, place in ((x.shape[1], tall, down), (x.shape[2], wide, right)):
                length = n * np.sqrt(areas[0] + share * (areas[1] - areas[0]))
                start = place * (n - length)
                inside.append((np.arange(n) >= start) & (np.arange(n) < start + length))
            out[k][np.outer(*inside)] = fill
        return out

    return apply


CASES: dict[str, tuple[Layer, int, Outcome]] = {
    "flip": (L.RandomFlip(), 2, flipped(True, True)),
    "flip, horizontal": (L.RandomFlip("horizontal"), 1, flipped(True, False)),
    "flip, vertical": (L.RandomFlip("vertical"), 1, flipped(False, True)),
    "crop": (L.RandomCrop(5, 6), 2, cropped(5, 6)),
    "crop, rows only": (L.RandomCrop(3, 10), 2, cropped(3, 10)),
    "move": (L.RandomTranslation(0.4, 0.3), 2, moved((-0.4, 0.4), (-0.3, 0.3))),
    "move all the way": (L.RandomTranslation(1.0, 1.0), 2, moved((-1, 1), (-1, 1))),
    "move, wrap": (L.RandomTranslation((0.1, 0.5), 0.7, "wrap"), 2,
                   moved((0.1, 0.5), (-0.7, 0.7), "wrap")),
    "move, constant": (L.RandomTranslation(0.5, (-0.6, -0.2), "constant", fill_value=0.25), 2,
                       moved((-0.5, 0.5), (-0.6, -0.2), "constant", fill_value=0.25)),
    "move, border": (L.RandomTranslation(0.5, 0.0, "nearest"), 2,
                     moved((-0.5, 0.5), (0, 0), "nearest")),
    "move, rounded": (L.RandomTranslation(0.5, 0.4, interpolation="nearest"), 2,
                      moved((-0.5, 0.5), (-0.4, 0.4), interpolation="nearest")),
    "contrast": (L.RandomContrast(0.8, (0, 1)), 1, contrasted(0.8, 0.8, 1)),
    "contrast, pair": (L.RandomContrast((0.9, 0.1), (0, 1)), 1, contrasted(0.9, 0.1, 1)),
    "brightness": (L.RandomBrightness(0.5, (0, 1)), 1, brightened(-0.5, 0.5, 1)),
    "brightness, pair": (L.RandomBrightness((0.1, 0.2)), 1, brightened(0.1, 0.2, 255)),
    "erase": (L.RandomErasing(fill_value=0.5), 6, erased((0, 1), (0.02, 0.33), 0.5)),
    "erase, color": (L.RandomErasing((0.9, 1.0), 0.5, (0.1, 0.2, 0.3)), 6,
                     erased((0.9, 1), (0, 0.5), (0.1, 0.2, 0.3))),
}
