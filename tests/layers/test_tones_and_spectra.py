"""Layers of tones and of frequencies beside Keras, and those that mix images or choose by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from tests.layers.image_draws import draws, seen
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant

random = np.random.default_rng(11)
BYTES = random.integers(0, 256, (2, 9, 11, 3)).astype(np.float32)
SIGNAL = random.normal(size=(2, 30, 2)).astype(np.float32)


def in_keras(name: str, how: dict[str, Any], x: np.ndarray, **call: Any) -> np.ndarray:
    keras = references.keras()
    return np.asarray(keras.ops.convert_to_numpy(getattr(keras.layers, name)(**how)(x, **call)))


@pytest.mark.parametrize("how", [{}, {"bins": 16}, {"value_range": (0, 1)}], ids=str)
def test_equalization_is_that_of_keras_for_each_image(how: dict[str, Any]) -> None:
    x = BYTES / 255 if how.get("value_range") == (0, 1) else BYTES.copy()
    x[1, ..., 0] = x[1, 0, 0, 0]  # a channel of one tone stays
    want = np.concatenate([in_keras("Equalization", how, x[k:k + 1], training=True) for k in (0, 1)])
    np.testing.assert_allclose(seen(L.Equalization(**how), x), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(seen(L.Equalization(**how), x, training=False), x)


@pytest.mark.parametrize(("shape", "grid", "limit"), [
    ((16, 24), (2, 3), 4.0), ((16, 24), (2, 3), 8.0), ((9, 11), (3, 2), 0.0)])
def test_tiles_are_equalized_as_in_keras(shape: tuple[int, int], grid: tuple[int, int],
                                         limit: float) -> None:
    """Tiles of 64 pixels have limits of whole numbers, to which Keras on PyTorch rounds them."""
    name = "ContrastLimitedAdaptiveHistogramEqualization"
    how = {"tile_grid_size": grid, "clip_limit": limit}
    x = random.integers(0, 256, (2, *shape, 1)).astype(np.float32)
    np.testing.assert_allclose(seen(getattr(L, name)(**how), x), in_keras(name, how, x), rtol=1e-5,
                               atol=1e-3)


def window(name: str | None, length: int, periodic: bool) -> np.ndarray | None:
    """A window in numbers: Keras needs SciPy for names."""
    if name is None:
        return None
    made = {"hann": np.hanning, "hamming": np.hamming}[name]
    return made(length + 1)[:-1] if periodic else made(length)


@together()
@pytest.mark.parametrize("how", [
    *({"mode": mode} for mode in ("log", "magnitude", "psd", "real", "imag", "stft")),
    {"mode": "magnitude", "frame_step": 3, "fft_length": 16, "padding": "same", "expand_dims": True,
     "window": "hamming", "periodic": True, "scaling": "spectrum"},
    {"mode": "real", "data_format": "channels_first"},
    {"mode": "real", "data_format": "channels_first", "expand_dims": True, "window": None,
     "scaling": None}], ids=lambda how: ", ".join(map(str, how.values())))
def test_frequencies_are_those_of_keras(how: dict[str, Any]) -> None:
    x = SIGNAL.transpose(0, 2, 1) if "data_format" in how else SIGNAL
    how = {"frame_length": 8, **how}
    numbers = window(how.get("window", "hann"), 8, how.get("periodic", False))
    want = in_keras("STFTSpectrogram", {**how, "window": numbers}, x)
    np.testing.assert_allclose(L.STFTSpectrogram(**how)(x).numpy(), want, rtol=1e-4, atol=1e-4)


@together()
@pytest.mark.parametrize("how", [
    {}, {"sequence_length": 12, "power_to_db": False, "mag_exp": 1.0, "sampling_rate": 8000,
         "min_freq": 100.0}, {"top_db": 5.0, "ref_power": 2.0, "window": "hamming"}], ids=str)
def test_pitches_are_those_of_keras_for_each_signal(how: dict[str, Any]) -> None:
    how = {"fft_length": 32, "sequence_stride": 8, "num_mel_bins": 5, **how}
    x = SIGNAL[..., 0].repeat(2, 1)
    want = np.concatenate([in_keras("MelSpectrogram", how, x[k:k + 1]) for k in (0, 1)])
    np.testing.assert_allclose(seen(L.MelSpectrogram(**how), x, training=False), want, rtol=1e-3,
                               atol=1e-3)


@pytest.mark.parametrize("tied", [True, False])
def test_a_reversible_embedding_equals_keras(tied: bool) -> None:
    keras = references.keras()
    how = {"input_dim": 7, "output_dim": 3, "tie_weights": tied, "logit_soft_cap": 0.5}
    ours, theirs = L.ReversibleEmbedding(**how), keras.layers.ReversibleEmbedding(**how)
    ids = np.array([[1, 6, 2]])
    ours(ids), theirs(ids)
    weights = [random.normal(size=w.shape).astype(np.float32) for w in theirs.weights]
    ours.set_weights(weights), theirs.set_weights(weights)
    want = keras.ops.convert_to_numpy(theirs(theirs(ids), reverse=True))
    np.testing.assert_allclose(ours(ours(ids), reverse=True).numpy(), want, rtol=1e-5)
    with pytest.raises(ShapeError, match="with reverse=True, takes vectors of 3 numbers"):
        ours(np.ones((1, 3, 4), np.float32), reverse=True)


ROWS = 48
NUMBERED = {"images": np.broadcast_to(np.arange(ROWS, dtype=np.float32)[:, None, None, None],
                                      (ROWS, 6, 8, 1)).copy(), "labels": np.eye(ROWS, dtype=np.float32)}


@pytest.mark.parametrize("alpha", [0.2, 3.0])
def test_mixed_images_have_mixed_labels_and_shares_of_the_beta_distribution(alpha: float) -> None:
    shares = []
    for seed in range(8):
        mixed = L.MixUp(alpha, seed=seed)(NUMBERED, training=True)
        labels = mixed["labels"].numpy()
        np.testing.assert_allclose(labels.sum(-1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(labels @ np.arange(ROWS), mixed["images"].numpy()[:, 0, 0, 0],
                                   atol=1e-3)
        shares.append(np.diag(labels)[(labels > 0).sum(-1) == 2])
    spread = 1 / (4 * (2 * alpha + 1))  # the variance of that distribution
    assert abs(np.concatenate(shares).mean() - 0.5) < 4 * np.sqrt(spread / (6 * ROWS))
    assert np.concatenate(shares).var() == pytest.approx(spread, rel=0.25)


def test_boxes_of_other_images_have_their_share_of_the_label() -> None:
    mixed = L.CutMix(seed=5)(NUMBERED, training=True)
    images, labels = mixed["images"].numpy()[..., 0], mixed["labels"].numpy()
    for k, image in enumerate(images):
        rows, columns = np.nonzero(image != k)
        if not len(rows):
            continue
        box = image[rows.min():rows.max() + 1, columns.min():columns.max() + 1]
        assert (box == box[0, 0]).all() and box.size == len(rows), "one box, of one image"
        edges = (np.ptp(rows) + np.ptp(columns) + 6) / image.size  # rounding to whole pixels
        assert abs(labels[k, int(box[0, 0])] - len(rows) / image.size) < edges
    assert (images != np.arange(ROWS)[:, None, None]).any((1, 2)).mean() > 0.5
    unchanged = L.CutMix()(NUMBERED, training=False)["labels"].numpy()
    assert unchanged == pytest.approx(NUMBERED["labels"])
    with pytest.raises(ShapeError, match=r"layer 'mix_up': takes images.* not of pictures"):
        L.MixUp()({"pictures": BYTES})
    with pytest.raises(ShapeError, match=r"labels, one number per class.*to_categorical"):
        L.MixUp()({"images": BYTES, "labels": np.ones(2, np.float32)}, training=True)


def test_rand_augment_chooses_among_eleven_changes() -> None:
    """Strength 0 leaves the two that have none, and posterization to one bit, which changes all."""
    x, same = BYTES[:1], 0
    alone = {name: seen(layer, x) for name, layer in (
        ("contrast", L.AutoContrast()), ("even", L.Equalization()),
        ("bits", L.RandomPosterization(1)), ("solar", L.Solarization()))}
    actual = set()
    layer = L.RandAugment(num_ops=1, factor=0.0)
    for _ in range(24):
        y = layer(x, training=True).numpy()
        same += np.allclose(y, x, atol=1e-3)
        actual |= {name for name, want in alone.items() if np.allclose(y, want, atol=1e-3)}
    assert 4 <= same <= 22 and len(actual) >= 2
    np.testing.assert_array_equal(seen(L.RandAugment(), x, training=False), x)


def test_aug_mix_is_the_mean_of_an_image_and_chains_of_changes() -> None:
    """A large alpha gives all the same share. Strength 0 leaves four changes of seven, so that two
    chains of two steps make one of 25 x 25 batches."""
    x = BYTES * 0.5 + 20
    changes = [lambda y: y, *(lambda y, of=layer: seen(of, y) for layer in (
        L.AutoContrast(), L.Equalization(), L.RandomPosterization(1), L.Solarization()))]
    chains = np.stack([two(one(x)) for one in changes for two in changes])
    want = x / 2 + chains[:, None] / 4 + chains / 4
    layer = L.AugMix(num_chains=2, chain_depth=2, factor=0.0, alpha=1e6, all_ops=False)
    actual = set()
    for _ in range(8):
        off = np.abs(want - layer(x, training=True).numpy()).max((2, 3, 4, 5))
        assert off.min() < 1
        actual.add(int(off.argmin()))
    assert len(actual) >= 4, "chains are drawn again"
    some = L.AugMix(num_chains=1, chain_depth=4, factor=1.0)(x, training=True).numpy()
    assert (some != x).any() and some.min() >= 0 and some.max() <= 255
    np.testing.assert_array_equal(seen(layer, x, training=False), x)


def test_elastic_shifts_are_those_of_keras() -> None:
    """Keras' formulas and its reading between pixels, for the numbers that the layer draws."""
    layer = L.RandomElasticTransform(1.0, scale=(0.7, 0.7), fill_mode="nearest")
    x = np.random.default_rng(1).uniform(0, 255, (6, 16, 12, 2))
    chances = draws(6, 3)
    [shifts] = evaluate([ops.random_normal((6, 16, 12, 2), constant(np.zeros(2, np.uint32)), constant(np.uint32(0)), 1)], {})
    got, changed = seen(layer, x), chances[:, 1] < chances[:, 0]
    assert 0 < changed.sum() < 6
    np.testing.assert_array_equal(got[~changed], x[~changed])
    reach, sigma = 16 * 0.1 * 0.7, 12 * 0.05 * 0.7
    size = int(6 * sigma) | 1
    window = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
    even = shifts * sigma
    for axis in (1, 2):
        even = np.apply_along_axis(lambda v: np.convolve(v, window / window.sum(), "same"), axis, even)
    row, column = np.meshgrid(np.arange(16), np.arange(12), indexing="ij")
    keras = references.keras()
    for k in np.flatnonzero(changed):
        at = np.stack([row + reach * even[k, ..., 1], column + reach * even[k, ..., 0]])
        assert abs(at - np.stack([row, column])).max() > 0.2
        for c in range(2):
            want = keras.ops.image.map_coordinates(x[k, ..., c], at, 1, "nearest")
            np.testing.assert_allclose(got[k, ..., c], keras.ops.convert_to_numpy(want), rtol=1e-4, atol=1e-2)
    np.testing.assert_array_equal(seen(layer, x, training=False), x)
