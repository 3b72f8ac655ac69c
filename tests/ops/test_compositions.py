"""Ops that are functions of others, by Keras' names: each gives the numbers of Keras."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch.errors import ShapeError, Unsupported
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.value import Value
from ztorch.ops import signature

random = np.random.default_rng(4)
X, Y = random.normal(size=(2, 3, 4)) * 3
HOLES = np.where(random.random((3, 4)) < 0.3, np.nan, X)
EMPTY = np.array([[np.nan, np.nan], [1.0, np.nan]])
ODD = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
CUBE, IMAGES = random.normal(size=(2, 3, 4)), random.normal(size=(2, 5, 7, 3))
WHOLE, IDS = np.array([12, -18, 0, 7], np.int32), np.array([0, 2, 2], np.int32)
COLORS = random.random((2, 5, 4, 3))
CORNERS = np.array([[0.0, 0.0], [0.0, 5.0], [4.0, 0.0], [4.0, 5.0]])
PLACES = np.array([[0, 1], [2, 0], [1, 1], [0, 1]], np.int32)
HEADS = random.normal(size=(3, 1, 5, 2, 4))
SEEN = np.array([True, True, False, True, True]).reshape(1, 1, 1, 5)
P = random.dirichlet(np.ones(4), 3)
LOGITS = random.normal(size=(2, 6, 4)) * 2
MATRIX = np.array([[4.0, 1.0], [1.0, 3.0]])
OF_NUMPY = ["convolve", "cov", "float_power", "gradient", "interp", "polyval"]

# The arguments that each op is tried with; tensors by position.
CASES: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "adaptive_average_pool": [((IMAGES,), {"output_size": (2, 3)}), ((IMAGES,), {"output_size": 1})],
    "adaptive_max_pool": [((IMAGES,), {"output_size": (2, 3)}),
                          ((IMAGES.transpose(0, 3, 1, 2).copy(),), {"output_size": 2, "data_format": "channels_first"})],
    "affine_transform": [((COLORS, random.normal(size=(2, 8)) * ([1, 0.3, 2] * 2 + [0, 0]) + ([1, 0, 0, 0, 1, 0, 0, 0])), {
        "interpolation": how, "fill_mode": fill}) for how, fill in (("bilinear", "constant"), ("nearest", "wrap"), ("bilinear", "reflect"))],
    "crop_images": [((COLORS,), {"top_cropping": 1, "right_cropping": 1, "target_height": 3, "target_width": 2}),
                    ((COLORS[0],), {"bottom_cropping": 0, "top_cropping": 2, "left_cropping": 1, "right_cropping": 1})],
    "extract_patches": [((IMAGES,), {"size": 2}), ((IMAGES,), {"size": (2, 3), "strides": 1, "padding": "same"})],
    "gaussian_blur": [((COLORS,), {"data_format": "channels_last"}),
                      ((COLORS[0],), {"kernel_size": (5, 5), "sigma": (2.0, 2.0), "data_format": "channels_last"})],
    "sobel_edges": [((COLORS,), {"data_format": "channels_last"}),
                    ((COLORS.transpose(0, 3, 1, 2).copy(),), {"data_format": "channels_first"})],
    "ssim": [((COLORS, COLORS[::-1].copy()), {"filter_size": 3, "data_format": "channels_last"}),
             ((COLORS[0], COLORS[1]), {"filter_size": 3, "max_val": 2.0, "data_format": "channels_last"})],
    "extract_patches_3d": [((random.normal(size=(2, 4, 5, 3, 2)),), {"size": 2, "data_format": "channels_last"}),
                           ((random.normal(size=(4, 5, 3, 2)),), {"size": (3, 2, 1), "strides": 1, "padding": "same",
                                                                  "data_format": "channels_last"})],
    "perspective_transform": [((COLORS, CORNERS, CORNERS + random.normal(size=(4, 2)) / 3), {"data_format": "channels_last", **more})
                              for more in ({}, {"interpolation": "nearest", "fill_value": 0.5})],
    "scale_and_translate": [((COLORS,), {"output_shape": (2, 9, 3, 3), "scale": np.array([1.7, 0.6]), "spatial_dims": (1, 2),
                                         "translation": np.array([-0.4, 1.2]), "method": method, "antialias": smooth})
                            for method, smooth in (("linear", True), ("cubic", False), ("lanczos3", True), ("lanczos5", False))],
    "hsv_to_rgb": [((COLORS,), {})], "rgb_to_hsv": [((COLORS,), {}), ((COLORS.transpose(0, 3, 1, 2).copy(),), {"data_format": "channels_first"})],
    "rgb_to_grayscale": [((COLORS,), {})],
    "map_coordinates": [((X, random.uniform(-3, 6, (2, 3, 5))), {"order": order, "fill_mode": fill})
                        for order, fill in ((0, "constant"), (1, "constant"), (1, "wrap"), (1, "mirror"), (1, "nearest"), (0, "reflect"))],
    "pad_images": [((COLORS,), {"top_padding": 1, "left_padding": 2, "bottom_padding": 0, "target_width": 9})],
    "resize": [((COLORS,), {"size": (7, 9)}), ((COLORS[0],), {"size": (3, 8), "interpolation": "nearest"}),
               ((COLORS,), {"size": (4, 4), "crop_to_aspect_ratio": True}), ((COLORS,), {"size": (9, 4), "pad_to_aspect_ratio": True, "fill_value": 0.5}),
               *(((COLORS,), {"size": size, "pad_to_aspect_ratio": True, "fill_value": 2.0}) for size in ((6, 6), (3, 8))),
               ((COLORS,), {"size": (3, 2), "antialias": True})],
    "angle": [((X,), {})], "append": [((X, Y), {}), ((X, Y), {"axis": 0})],
    "average": [((X,), {}), ((X,), {"axis": 1, "weights": random.random(4)})],
    **{name: [((), {"x": n}) for n in (1, 2, 7)] for name in ("bartlett", "blackman", "hamming", "hanning")},
    "batch_normalization": [((X, X.mean(0), X.var(0)), {"axis": 1}), ((X, X[:, 0], abs(X[:, 1])), {"axis": 0, "offset": X[:, 2], "scale": X[:, 3]})],
    "binary_crossentropy": [((P.round(), P), {}), ((P, X), {"from_logits": True})],
    "categorical_crossentropy": [((P, P[::-1].copy()), {}), ((P, X), {"from_logits": True}), ((P, X), {"from_logits": True, "axis": 0})],
    "cbrt": [((ODD,), {}), ((X * 1e6,), {})], "cdist": [((X, Y[:2]), {}), ((CUBE, CUBE[:, :1]), {})],
    "corrcoef": [((X,), {}), ((X[0],), {})],
    "correlate": [((X[0], Y[0, :3]), {"mode": mode}) for mode in ("valid", "same", "full")],
    "ctc_decode": [((LOGITS, np.array([6, 4], np.int32)), {}), ((LOGITS, np.array([3, 6], np.int32)), {"merge_repeated": False, "mask_index": 2}),
                   *(((LOGITS, np.array([6, 4], np.int32)), {"strategy": "beam_search", "mask_index": mask, **more})
                     for mask, more in ((0, {"beam_width": 4, "top_paths": 3}), (2, {"beam_width": 9}), (None, {"beam_width": 1})))],
    "ctc_loss": [((np.array([[1, 2, 3], [2, 2, 1]], np.int32), LOGITS, np.array([3, 1], np.int32), np.array([6, 4], np.int32)), {}),
                 ((np.array([[1, 3, 0], [2, 2, 1]], np.int32), LOGITS[..., ::-1].copy(), np.array([2, 3], np.int32),
                   np.array([5, 6], np.int32)), {})],
    "deg2rad": [((X,), {})],
    "depth_to_space": [((random.normal(size=(1, 2, 3, 8)),), {"block_size": 2}),
                       ((random.normal(size=(1, 8, 2, 3)),), {"block_size": 2, "data_format": "channels_first"})],
    "depthwise_conv": [((IMAGES, random.normal(size=(3, 2, 3, 2))), {"padding": "same", "strides": 2}),
                       ((IMAGES[:, 0], random.normal(size=(3, 3, 2))), {"dilation_rate": 2})],
    "diagflat": [((X[:, 0],), {}), ((X[:2, :2],), {"k": -1})], "digitize": [((X, np.array([-1.0, 0.0, 2.0])), {})],
    "divide_no_nan": [((X, np.array([0.0, 1.0, 2.0, 0.0])), {})],
    "dot_product_attention": [((*HEADS,), {}), ((*HEADS,), {"is_causal": True, "scale": 0.3}),
                              ((*HEADS, random.normal(size=(1, 2, 5, 5))), {}), ((*HEADS,), {"mask": SEEN})],
    **{name: [((CUBE,), {"indices_or_sections": (1,)})] for name in ("dsplit", "hsplit", "vsplit")},
    "erfc": [((X,), {}), ((ODD,), {})], "erfinv": [((np.linspace(-0.999, 0.999, 21),), {}), ((np.array([1.0, -1.0, 2.0, 0.0, 1e-9]),), {})],
    "extract_sequences": [((X,), {"sequence_length": 3, "sequence_stride": 1})],
    "fliplr": [((X,), {})], "flipud": [((X,), {})], "fmax": [((HOLES, Y), {}), ((Y, HOLES), {})], "fmin": [((HOLES, Y), {}), ((Y, HOLES), {})],
    "fold": [((CUBE[:1].repeat(4, 1),), {"output_size": (2, 7), "kernel_size": (2, 2), "padding": (0, 1), "stride": 2, "dilation": (1, 2)})],
    "gcd": [((WHOLE, np.array([8, 12, 5, 0], np.int32)), {})], "lcm": [((WHOLE, np.array([8, 12, 5, 0], np.int32)), {})],
    "geomspace": [((), {"start": 1.0, "stop": 64.0, "num": 5}), ((), {"start": 2.0, "stop": 3.0, "num": 4, "endpoint": False})],
    "heaviside": [((ODD[:6], np.full(6, 0.5)), {})],
    "histogram": [((X[0],), {"bins": 5}), ((Y[1],), {"bins": 4, "range": (-2.0, 2.0)})],
    "i0": [((X * 4,), {})], "in_top_k": [((IDS, X), {"k": 2})],
    "isneginf": [((ODD,), {})], "isposinf": [((ODD,), {})], "isreal": [((X,), {})],
    "kaiser": [((), {"x": 7, "beta": 5.0})],
    "layer_normalization": [((X, X[0], Y[0]), {}), ((X,), {"epsilon": 0.1})],
    "ldexp": [((X, np.array([1, 0, -3, 5], np.int32)), {})], "logaddexp2": [((X, Y), {})],
    "logdet": [((MATRIX,), {})], "logspace": [((), {"start": 0.0, "stop": 2.0, "num": 4}), ((), {"start": 0.0, "stop": 2.0, "num": 4, "base": 2})],
    "median": [((X,), {}), ((X,), {"axis": 1, "keepdims": True}), ((CUBE,), {"axis": (0, 2)})],
    "moments": [((X,), {"axes": (0,)})], "multi_hot": [((np.array([[0, 2], [1, 1]], np.int32),), {"num_classes": 4})],
    **{name: [((HOLES,), {}), ((HOLES,), {"axis": 1})] for name in (
        "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanprod", "nanstd", "nansum", "nanvar",
        "nanargmax", "nanargmin")},
    "nanpercentile": [((HOLES,), {"q": 30, "axis": 1}), ((EMPTY,), {"q": 30, "axis": 1})],
    "nanquantile": [((HOLES,), {"q": np.array([0.1, 0.5]), "axis": 0, "keepdims": True})],
    "normalize": [((X,), {}), ((X,), {"axis": 0, "order": 1})], "percentile": [((X,), {"q": np.array([0, 30, 100])})],
    "psnr": [((X, Y), {"max_val": 3.0})], "ptp": [((X,), {}), ((X,), {"axis": 0})],
    "quantile": [((X,), {"q": 0.3, "method": method, "axis": 1}) for method in ("linear", "lower", "higher", "midpoint", "nearest")],
    "rad2deg": [((X,), {})], "real": [((X,), {})], "conj": [((X,), {})],
    "rearrange": [((CUBE,), {"pattern": "a b (c d) -> (c a) d b", "c": 2}), ((CUBE,), {"pattern": "b h w -> b (h w)"})],
    "rms_normalization": [((X, X[0]), {}), ((X,), {"epsilon": 0.1})],
    "saturate_cast": [((X * 200,), {"dtype": "int8"}), ((WHOLE * 100,), {"dtype": "uint8"}),
                      ((ODD[[0, 2, 3, 4, 5, 6]] * 1e6,), {"dtype": "float16"}), ((WHOLE,), {"dtype": "bool"})],
    "norm": [((X,), {}), ((X,), {"ord": 3, "axis": 1}), ((CUBE,), {"axis": (2, 0)}), *(((X,), {"ord": ord, "keepdims": kept})
             for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf) for kept in (False, True))],
    "scatter": [((PLACES, X[0]), {"shape": (3, 2)}), ((PLACES[:, :1].copy(), random.normal(size=(4, 2))), {"shape": (3, 2)})],
    "scatter_update": [((X, PLACES, Y[0]), {}), ((X, PLACES - [3, 4], Y[0]), {}), *(((X, PLACES[:3, :1].copy(), Y), {"reduction": how})
                       for how in (None, "add", "max", "min", "mul"))],
    **{name: [((X, IDS), {"num_segments": 3})] for name in ("segment_max", "segment_min", "segment_prod", "segment_sum")},
    "separable_conv": [((IMAGES, random.normal(size=(3, 2, 3, 2)), random.normal(size=(1, 1, 6, 4))), {"strides": 2})],
    "sinc": [((X,), {}), ((ODD[:4],), {})], "slice_update": [((X, np.array([1, 2], np.int32), Y[:2, :2]), {})],
    "space_to_depth": [((random.normal(size=(1, 4, 6, 2)),), {"block_size": 2}),
                       ((random.normal(size=(1, 2, 4, 6)),), {"block_size": 2, "data_format": "channels_first"})],
    "sparse_categorical_crossentropy": [((IDS, P), {}), ((IDS, X), {"from_logits": True})],
    "trapezoid": [((X,), {"dx": 0.5}), ((X, np.array([0.0, 1.0, 1.5, 4.0])), {}), ((X, Y), {"axis": 0})],
    "tri": [((), {"N": 3}), ((), {"N": 3, "M": 4, "k": 1})],
    "unfold": [((IMAGES,), {"kernel_size": (2, 3), "padding": 1, "stride": 2}), ((IMAGES,), {"kernel_size": 2, "dilation": (1, 2)})],
    "unravel_index": [((np.array([5, 0, 11], np.int32),), {"shape": (3, 4)})],
    "vander": [((X[0],), {}), ((X[0],), {"N": 2, "increasing": True})], "vdot": [((X[0], Y[0]), {})],
}
OTHERWISE = {"view": "bits depend on the dtype", "argpartition": "any order is right that puts one element at its place: below",
             **dict.fromkeys(OF_NUMPY, "NumPy's: below"),
             "dstack": "takes a list in Keras: below", "imag": "Keras refuses it by PyTorch"}


def parts(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def ours(name: str, tensors: tuple[Any, ...], attrs: dict[str, Any]) -> list[np.ndarray]:
    """An op's result, by NumPy's meaning of the ops it is composed of."""
    leaves = [leaf("input", f"x{k}", a.shape, str(a.dtype)) for k, a in enumerate(tensors)]
    feeds = dict(zip(leaves, tensors, strict=True))
    named = {}
    for key, x in attrs.items():
        if isinstance(x, np.ndarray) and key in signature(name)[1]:
            named[key] = leaf("input", key, x.shape, str(x.dtype))
            feeds[named[key]] = x
    results = parts(REGISTRY[name].call(*leaves, **{**attrs, **named}))
    assert all(isinstance(y, Value) for y in results)
    return evaluate(results, feeds, oracle=True)


def test_all_are_tried() -> None:
    composed = {name for name, public in REGISTRY.items() if public.composed}
    assert composed == {*CASES, *OTHERWISE}


@together()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_each_gives_the_numbers_of_keras(name: str) -> None:
    keras = references.keras()
    named = getattr(keras.ops, name, None) or getattr(keras.ops.image, name)
    for tensors, attrs in CASES[name]:
        theirs = parts(named(*map(keras.ops.convert_to_tensor, tensors), **attrs))
        got = ours(name, tensors, attrs)
        for mine, other in zip(got, theirs, strict=True):
            want = keras.ops.convert_to_numpy(other)
            assert mine.shape == want.shape and (mine.dtype.kind == want.dtype.kind or name in ("histogram", "unravel_index"))
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-6)


def test_parts_and_orders() -> None:
    order = zt.ops.argpartition(X, 2, axis=1)
    ordered = np.take_along_axis(X, order, 1)
    np.testing.assert_array_equal(ordered[:, 2], np.sort(X, 1)[:, 2])
    assert (ordered[:, :2] <= ordered[:, 2:3]).all() and (ordered[:, 3:] >= ordered[:, 2:3]).all()
    np.testing.assert_array_equal(zt.ops.dstack([X, Y]), np.dstack([X, Y]))
    np.testing.assert_array_equal(zt.ops.imag(X), 0 * X)
    np.testing.assert_allclose(zt.ops.average(X, axis=0, weights=abs(Y)), np.average(X, 0, abs(Y)))
    np.testing.assert_array_equal(zt.ops.heaviside(ODD, 0.5), np.heaviside(ODD, 0.5))
    np.testing.assert_array_equal(zt.ops.saturate_cast(WHOLE, "float32"), WHOLE)  # Keras overflows


def test_beams_find_the_most_likely_continuations() -> None:
    """Against the sum over all ways, compiled; with beams enough for all label sequences, and with more paths than those."""
    logits, lengths = LOGITS[[0, 1, 1], :4, :3].astype(np.float32), np.array([4, 3, 1], np.int32)
    logs = np.asarray(zt.ops.log_softmax(logits.astype(np.float64)))
    labels, scores = (a.numpy() for a in zt.ops.ctc_decode(
        zt.tensor(logits), zt.tensor(lengths), strategy="beam_search", beam_width=31, top_paths=5, mask_index=1))
    for row, steps in enumerate(lengths):
        likely: dict[tuple[int, ...], float] = {}
        for way in itertools.product(range(3), repeat=int(steps)):
            path = tuple(c for c, _ in itertools.groupby(way) if c != 1)
            likely[path] = likely.get(path, 0.0) + np.exp(sum(logs[row, t, c] for t, c in enumerate(way)))
        best = sorted(likely, key=lambda path: -likely[path])[:5]
        assert [tuple(p[p >= 0]) for p in labels[:len(best), row]] == best
        np.testing.assert_allclose(scores[row, :len(best)], np.log([likely[p] for p in best]), rtol=1e-5)
        assert (scores[row, len(best):] == -np.inf).all() and (labels[len(best):, row] == -1).all()


def test_results_of_unknown_shape_are_refused() -> None:
    for call, error, message in (
            (lambda: zt.ops.segment_sum(X, IDS), ShapeError, "needs num_segments="),
            (lambda: zt.ops.multi_hot(IDS), ShapeError, "needs num_segments="),
            (lambda: zt.ops.quantile(X, 1.5), ShapeError, "q from 0 to 1"),
            (lambda: zt.ops.ctc_decode(LOGITS, IDS[:2], strategy="best"), ShapeError, "must be 'greedy' or 'beam_search'"),
            (lambda: zt.ops.ctc_decode(LOGITS, IDS[:2], strategy="beam_search", top_paths=3, beam_width=2), ShapeError, "at most beam_width"),
            (lambda: zt.ops.rearrange(X, "a b -> a c"), ShapeError, "each axis once on both sides")):
        with pytest.raises(error, match=message):
            call()


def test_they_compile_and_train() -> None:
    """On arrays, on tensors with a gradient, in a model, and as an activation."""
    np.testing.assert_allclose(zt.ops.erfc(X.astype("f")), ours("erfc", (X,), {})[0], rtol=1e-4)
    slope = zt.grad(lambda x: zt.ops.sum(zt.ops.nanmean(x, axis=1)))(zt.tensor(HOLES))
    assert np.isfinite(slope.numpy()[~np.isnan(HOLES)]).all()
    x = zt.layers.Input((4,))
    model = zt.Model(x, zt.layers.Dense(2, activation=zt.ops.cbrt)(zt.ops.sinc(x)))
    assert model.predict(X.astype("f")).shape == (3, 2)


def test_functions_that_are_no_ops_give_the_numbers_of_keras() -> None:
    keras = references.keras()
    vector = np.array([3.0, 1.0, 2.0, 1.0], np.float32)
    calls: dict[str, Any] = {
        "array": lambda o: o.array([[1.0, 2.0]]), "copy": lambda o: o.copy(vector),
        "associative_scan": lambda o: o.associative_scan(lambda a, b: a + b, o.convert_to_tensor(CUBE), axis=1),
        "associative_scan, reverse": lambda o: o.associative_scan(o.maximum, o.convert_to_tensor(X), reverse=True),
        "bincount": lambda o: o.bincount(np.array([2, 0, 2, 5], np.int32), minlength=3),
        "bincount of weights": lambda o: o.bincount(np.array([2, 0, 2, 5], np.int32), vector, 8),
        "fori_loop": lambda o: o.fori_loop(1, 4, lambda k, x: x * 2.0 + o.cast(k, "float32"), o.convert_to_tensor(vector)),
        "get_item": lambda o: o.get_item(o.convert_to_tensor(X), (slice(1, 3), 0)),
        "map": lambda o: o.map(lambda x: o.sum(x) * 2.0, o.convert_to_tensor(X)),
        "nonzero": lambda o: o.stack(list(o.nonzero(np.array([[0, 2], [3, 0]], np.int32)))),
        "select": lambda o: o.select([o.convert_to_tensor(X > 2), o.convert_to_tensor(X < -1)], [
            o.convert_to_tensor(X), o.convert_to_tensor(Y)], 0.5),
        **{f"switch {k}": lambda o, k=k: o.switch(k, [lambda x: x, lambda x: x * 2.0, lambda x: x - 1.0], o.convert_to_tensor(
            vector)) for k in (0, 1, 2)},
        "unique": lambda o: o.unique(vector), "unique of a size": lambda o: o.unique(vector, size=5, fill_value=9.0),
        "vectorized_map": lambda o: o.vectorized_map(lambda x: o.sum(x * x), o.convert_to_tensor(X)),
        "vectorize": lambda o: o.vectorize(lambda a, b: a * b)(o.convert_to_tensor(X), o.convert_to_tensor(X[0])),
    }
    for name, call in calls.items():
        for mine, other in zip(parts(call(zt.ops)), parts(call(keras.ops)), strict=True):
            np.testing.assert_allclose(zt.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(other), rtol=1e-6, err_msg=name)
    square = random.normal(size=(2, 4, 4)).astype(np.float32)
    values, vectors = (x.numpy() for x in zt.ops.eig(square))
    assert values.dtype == vectors.dtype == np.complex64
    np.testing.assert_allclose(square @ vectors, vectors * values[:, None], atol=1e-5)
    moved = zt.ops.elastic_transform(COLORS, sigma=0.5, seed=1)
    np.testing.assert_array_equal(moved, zt.ops.elastic_transform(COLORS, sigma=0.5, seed=1))
    assert moved.shape == COLORS.shape and (moved != COLORS).any() and moved.numpy().max() <= COLORS.max()
    for function in (zt.ops.eig, zt.ops.elastic_transform):
        with pytest.raises(zt.errors.Unsupported, match=r"eigh|RandomElasticTransform"):
            function(zt.Input((4, 4, 3)))
    values, at, inverse, counts = zt.ops.unique(vector, return_index=True, return_inverse=True, return_counts=True)
    for mine, want in zip((values, at, inverse, counts), np.unique(vector, True, True, True), strict=True):
        np.testing.assert_array_equal(mine.numpy(), want)
    assert zt.ops.is_tensor(zt.ones(2)) and not zt.ops.is_tensor(vector)
    assert zt.ops.dtype(zt.ones(2, "int8")) == "int8" == zt.ops.dtype(np.ones(2, np.int8))
    assert zt.ops.dtype(zt.ops.convert_to_tensor(zt.ones(2), "float64")) == "float64"
    with pytest.raises(Unsupported, match=r"ops\.unique compares single elements and has no axis="):
        zt.ops.unique(X, axis=0)
    with pytest.raises(Unsupported, match=r"ops\.vectorize .* is not here; zt\.vmap takes the axes"):
        zt.ops.vectorize(abs, signature="()->()")
    with pytest.raises(ShapeError, match="as many choices as conditions"):
        zt.ops.select([X > 0], [])


@pytest.mark.parametrize("name", OF_NUMPY)
def test_names_of_numpy_that_keras_lacks(name: str) -> None:
    cases: dict[str, list[tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]]] = {
        "convolve": [((X[0], Y[0, :k]), {"mode": m}, {"mode": m}) for k in (1, 2, 3) for m in ("full", "same", "valid")]
        + [((Y[0, :2], X[0]), {}, {})],
        "cov": [((X,), {}, {}), ((X[0],), {}, {}), ((X,), {"rowvar": False, "correction": 0}, {"rowvar": False, "ddof": 0})],
        "gradient": [((X[0],), {}, {}), ((X[0, :2],), {}, {}), ((X,), {"dx": 0.5, "axis": 0}, {"axis": 0})],
        "interp": [((X, np.array([-2.0, 0.0, 0.5, 3.0]), Y[0]), {}, {}), ((0.25, np.array([0.0, 1.0]), Y[0, :2]), {}, {}),
                   ((np.array([-1.0, 0.0, 0.5, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]), Y[0, :3]), {}, {})],
        "float_power": [((WHOLE, np.array([-2, 3, 2, -1])), {}, {}), ((np.abs(X), Y), {}, {})],
        "polyval": [((Y[0], X), {}, {}), ((Y[0, :1], X), {}, {}), ((Y[0], 2.0), {}, {})]}
    for args, ours, theirs in cases[name]:
        want = np.gradient(args[0], 0.5, **theirs) if "dx" in ours else getattr(np, name)(*args, **theirs)
        got = getattr(zt.ops, name)(*args, **ours)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=f"{name} {ours}")
    wrong: dict[str, tuple[Any, ...]] = {"convolve": (X, X), "cov": (CUBE,), "float_power": (X, Y[0, :3]), "gradient": (X,), "interp": (X, X, X), "polyval": (X, X)}
    with pytest.raises(ShapeError):
        getattr(zt.ops, name)(*wrong[name])
