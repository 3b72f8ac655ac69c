"""Images that are turned, distorted and recolored by chance: each layer gives the result of Keras' layer of
the same name for the same draws."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from tests.layers.image_draws import IMAGES, draws, seen
from tests.layers.running import Traced
from tests.parity import HERE, Job, agree, compiled
from ztorch import layers as L
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, first_value, leaf
from ztorch.graph.value import Graph
from ztorch.layers import Context, Layer, States

# Our draws, (batch, count), as the transformation that Keras' layer would draw.
Transformation = Callable[[np.ndarray], Any]


def between(u: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + u * (high - low)


def rotation(u: np.ndarray) -> dict[str, np.ndarray]:
    """The matrix of a turn around the middle of the image."""
    angle = between(u[:, 0], -0.2, 0.2) * 2 * np.pi
    cos, sin = np.cos(angle), np.sin(angle)
    cy, cx = (n / 2 - 0.5 for n in IMAGES.shape[1:3])
    none = np.zeros(len(u))
    return {"rotation_matrix": np.stack([
        cos, -sin, cx - cx * cos + cy * sin, sin, cos, cy - cx * sin - cy * cos, none, none], 1)}


def perspective(u: np.ndarray) -> dict[str, np.ndarray]:
    right, bottom = IMAGES.shape[2] - 1.0, IMAGES.shape[1] - 1.0
    start = np.array([[0, 0], [right, 0], [0, bottom], [right, bottom]])
    moves = between(u[:, 2:].reshape(-1, 4, 2), -0.3, 0.3)
    return {"apply_perspective": u[:, 1] < u[:, 0], "end_points": start * (1 + moves),
            "start_points": np.broadcast_to(start, moves.shape), "input_shape": IMAGES.shape}


def zoom(u: np.ndarray) -> dict[str, np.ndarray]:
    return {"height_zoom": 1 + between(u[:, :1], -0.5, 0.1),
            "width_zoom": 1 + between(u[:, 1:], -0.4, 0.4)}


def shear(u: np.ndarray) -> dict[str, np.ndarray]:
    side = np.where(u[:, :1] > 0.5, -1, 1)
    return {"shear_factor": side * np.concatenate(
        [between(u[:, 1:2], 0.2, 0.6), between(u[:, 2:], -0.3, 0.3)], 1)}


def hue(u: np.ndarray) -> dict[str, np.ndarray]:
    return {"factor": np.where(u[:, 0] > 0.5, -0.5, 0.5) * u[:, 1] * 0.8}


def saturation(u: np.ndarray) -> dict[str, np.ndarray]:
    factor = between(u[:, 0], 0.1, 0.7)
    return {"factor": factor / (1 - factor + 1e-7)}


UNIT = {"value_range": (0, 1)}
CASES: dict[str, tuple[str, dict[str, Any], int, Transformation]] = {
    "rotation": ("RandomRotation", {"factor": 0.2}, 1, rotation),
    "rotation, wrap": ("RandomRotation", {"factor": 0.2, "fill_mode": "wrap"}, 1, rotation),
    "rotation, nearest": ("RandomRotation", {
        "factor": 0.2, "fill_mode": "nearest", "interpolation": "nearest"}, 1, rotation),
    "rotation, constant": ("RandomRotation", {
        "factor": 0.2, "fill_mode": "constant", "fill_value": 0.5}, 1, rotation),
    "zoom": ("RandomZoom", {"height_factor": (-0.5, 0.1), "width_factor": 0.4}, 2, zoom),
    "zoom, alike": ("RandomZoom", {"height_factor": 0.3, "fill_mode": "constant"}, 1, lambda u: {
        "height_zoom": 1 + between(u, -0.3, 0.3), "width_zoom": 1 + between(u, -0.3, 0.3)}),
    "shear": ("RandomShear", {"x_factor": (0.2, 0.6), "y_factor": 0.3}, 3, shear),
    "perspective": ("RandomPerspective", {"scale": 0.6, "fill_value": 0.25}, 10, perspective),
    "hue": ("RandomHue", {"factor": 0.8, **UNIT}, 2, hue),
    "saturation": ("RandomSaturation", {"factor": (0.1, 0.7), **UNIT}, 1, saturation),
    "gray shares": ("RandomColorDegeneration", {"factor": (0.2, 0.9), **UNIT}, 1, lambda u: {
        "factor": between(u, 0.2, 0.9).reshape(-1, 1, 1, 1)}),
    "gray": ("RandomGrayscale", {"factor": 0.4}, 1, lambda u: references.torch().tensor(
        (u < 0.4).reshape(-1, 1, 1, 1))),
    "invert": ("RandomInvert", {"factor": (0.3, 0.9), **UNIT}, 2, lambda u: {
        "apply_inversion": u[:, 1] < between(u[:, 0], 0.3, 0.9)}),
    "posterization": ("RandomPosterization", {"factor": (2, 6), **UNIT}, 1, lambda u: {
        "shift_factor": (8 - (2 + np.floor(u[:, 0] * 4))).astype(np.uint8)}),
    "sharpness": ("RandomSharpness", {"factor": 0.9, **UNIT}, 1, lambda u: {
        "factor": u[:, 0] * 0.9}),
    "solarization": ("Solarization", {"addition_factor": 0.3, "threshold_factor": (0.2, 0.8), **UNIT},
                     2, lambda u: {"additions": u[:, :1].reshape(-1, 1, 1, 1) * 0.3 * 255,
                                   "thresholds": between(u[:, 1:], 0.2, 0.8).reshape(
                                       -1, 1, 1, 1) * 255}),
}


def ours(name: str) -> Layer:
    layer, how, _, _ = CASES[name]
    return getattr(L, layer)(**how)


def tensors(transformation: Any) -> Any:
    torch = references.torch()
    if not isinstance(transformation, dict):
        return transformation
    return {k: torch.tensor(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else v
            for k, v in transformation.items()}


@together()
@pytest.mark.parametrize("name", CASES)
def test_images_are_those_of_keras(name: str) -> None:
    layer, how, count, transformation = CASES[name]
    theirs = getattr(references.keras().layers, layer)(**how, dtype="float64")
    want = theirs.transform_images(references.torch().tensor(IMAGES), tensors(
        transformation(draws(len(IMAGES), count)))).numpy()
    assert not np.array_equal(want, IMAGES)
    got = seen(ours(name))
    if "nearest" not in how.values():
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)  # Keras takes float32 in places
    else:  # positions in the middle between two pixels may go to either
        assert (np.abs(got - want) > 1e-5).mean() < 0.01
    np.testing.assert_array_equal(seen(ours(name), training=False), IMAGES)


@together()
@pytest.mark.parametrize("name", [name for name in CASES if name != "posterization"])
def test_gradients_are_differences(name: str) -> None:
    case = Traced(ours(name), IMAGES, True)
    step = np.random.default_rng(2).normal(size=IMAGES.shape) * 1e-7
    [y, slope] = case.oracle()
    [later, _] = Traced(ours(name), IMAGES + step, True).oracle()
    np.testing.assert_allclose((slope * step).sum(), ((later - y) * case.slope).sum(), rtol=1e-5)


@pytest.mark.parametrize("names", [
    [n for n in CASES if CASES[n][3] in (rotation, zoom, shear)], ["perspective"],
    [n for n in CASES if CASES[n][3] not in (rotation, zoom, shear, perspective)]])
def test_compiled_code_agrees(names: list[str]) -> None:
    x = leaf("input", "x", IMAGES.shape, "float32")
    context = Context(True, States(f32))
    outputs = {name: ours(name)(x, context) for name in names}
    [slope] = gradients(OPS.sum(OPS.square(outputs[names[-1]])), [x])
    counters = {v: first_value(v) for v in context.states.leaves.values()}
    feeds = {x: IMAGES.astype(np.float32), **counters}
    job = Job(Graph({**outputs, "slope": slope}), {
        v: np.asarray(a, v.dtype.numpy) for v, a in feeds.items()})
    agree(job, compiled(job, HERE[-1]), terms=1000)


@together()
@pytest.mark.parametrize("name", ["zoom", "perspective", "hue", "sharpness"])
def test_channels_first(name: str) -> None:
    layer = ours(name)
    first = type(layer).from_config({**layer.get_config(), "data_format": "channels_first"})
    x = IMAGES.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(seen(first, x).transpose(0, 2, 3, 1), seen(layer), rtol=1e-12)


def test_a_quarter_rotation_equals_numpy() -> None:
    square = IMAGES[:, :, :8]
    turned = seen(L.RandomRotation((0.25, 0.25)), square)
    np.testing.assert_allclose(turned, np.rot90(square, 1, (1, 2)), atol=1e-12)


def test_blur_is_that_of_keras_for_each_image() -> None:
    keras, torch = references.keras(), references.torch()
    u = draws(len(IMAGES), 4)
    got = seen(L.RandomGaussianBlur(0.8, 5, (0.3, 0.9), (0, 1)))
    for image, y, row in zip(IMAGES, got, u, strict=True):
        sigma = torch.tensor(between(row[[3, 2]], 0.3, 0.9))
        want = keras.ops.image.gaussian_blur(torch.tensor(image[None]), (5, 5), sigma,
                                             data_format="channels_last")[0].numpy()
        np.testing.assert_allclose(y, want if row[1] < row[0] * 0.8 else image, rtol=1e-5)
    np.testing.assert_array_equal(seen(L.RandomGaussianBlur(), training=False), IMAGES)


def test_jitter_is_its_parts_one_after_another() -> None:
    layer = L.RandomColorJitter((0, 1), 0.3, 0.5, (0.3, 0.6), 0.2)
    assert layer.draws == 5
    x = leaf("input", "x", IMAGES.shape, "float64")
    parts = (L.RandomBrightness(0.3, (0, 1)), L.RandomContrast(0.5, (0, 1)),
             L.RandomSaturation((0.3, 0.6), (0, 1)), L.RandomHue(0.2, (0, 1)))
    y, u = x, draws(len(IMAGES), 5)
    columns = [leaf("input", f"u{k}", (len(u), 1, 1, 1), "float64") for k in range(5)]
    left = list(columns)
    for part in parts:
        y = part.transformed(y, *left[:part.draws])
        left = left[part.draws:]
    feeds = {x: IMAGES, **{c: u[:, k].reshape(-1, 1, 1, 1) for k, c in enumerate(columns)}}
    np.testing.assert_allclose(seen(layer), evaluate([y], feeds)[0], rtol=1e-12)
    assert np.array_equal(seen(L.RandomColorJitter()), IMAGES)
    assert np.array_equal(seen(layer, training=False), IMAGES)


@pytest.mark.parametrize("training", [False, True])
def test_auto_contrast_is_that_of_keras(training: bool) -> None:
    x = IMAGES * 0.5 + 0.2
    x[1, ..., 2] = 0.4  # a channel without contrast
    theirs = references.keras().layers.AutoContrast((0, 1), dtype="float64")
    want = theirs(references.torch().tensor(x)).numpy()
    np.testing.assert_allclose(seen(L.AutoContrast((0, 1)), x, training), want, rtol=1e-9)


NAMES = sorted({layer for layer, *_ in CASES.values()} | {
    "RandomColorJitter", "RandomGaussianBlur", "AutoContrast"})


@together()
@pytest.mark.parametrize("name", NAMES)
def test_factors_of_all_ranges_keep_pixels_in_range(name: str) -> None:
    """Bytes, with the largest factors, while training."""
    how = {"RandomZoom": {"height_factor": 0.9}, "RandomPosterization": {"factor": 8},
           "RandomShear": {"x_factor": 1.0, "y_factor": 1.0}, "RandomColorJitter": {
               "brightness_factor": 1.0, "contrast_factor": 1.0, "saturation_factor": 1.0,
               "hue_factor": 1.0}}
    kind = getattr(L, name)
    needs = [p for p in inspect.signature(kind.__init__).parameters.values()
             if p.name == "factor" and p.default is p.empty]
    layer = kind(**how.get(name, {"factor": 1.0} if needs else {}))
    y = seen(layer, np.round(IMAGES * 255))
    assert np.isfinite(y).all() and y.min() >= -1e-9 and y.max() <= 255 + 1e-9
    assert (y != np.round(IMAGES * 255)).any()


def test_each_image_has_its_own_angle_with_mean_zero() -> None:
    x = np.arange(2.0 * 3).reshape(1, 2, 3, 1).repeat(300, 0)
    ways = np.unique(seen(L.RandomRotation(0.1), x).reshape(300, -1), axis=0)
    assert len(ways) > 290
    lucky = (seen(L.RandomInvert((0.25, 0.25), (0, 5)), x) != x).any((1, 2, 3)).mean()
    assert abs(lucky - 0.25) < 0.1


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"RandomRotation\(factor=...\).*-1 to 1"):
        L.RandomRotation(1.5)
    with pytest.raises(ConfigError, match=r"RandomRotation\(fill_mode='mirror'\) must be"):
        L.RandomRotation(0.1, "mirror")
    with pytest.raises(ConfigError, match="-1 shows nothing"):
        L.RandomZoom((-1.0, 0.5))
    with pytest.raises(ConfigError, match=r"RandomPosterization\(factor=...\).*1 to 8"):
        L.RandomPosterization(9)
    with pytest.raises(ConfigError, match="must be odd"):
        L.RandomGaussianBlur(kernel_size=4)
    with pytest.raises(ShapeError, match="red, green and blue"):
        zt.Sequential([L.Input((8, 8, 1)), L.RandomHue(0.5)]).build()
