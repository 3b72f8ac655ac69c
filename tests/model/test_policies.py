"""Policies of dtypes and schedules of rates as Keras spells them."""

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L


def test_the_global_policy_sets_the_dtype_of_new_models():
    precision = zt.mixed_precision
    try:
        for policy in ("mixed_bfloat16", precision.Policy("mixed_float16")):
            precision.set_global_policy(policy)
            model = zt.Sequential([L.Input((2,)), L.Dense(1, use_bias=False)])
    finally:
        precision.set_global_policy("float32")
    model.set_weights([np.ones((2, 1))])
    assert model.compile("cpu:scalar", dtype="float32").metadata.dtype == "float32"
    fine = np.array([[1.0001, 0.0]], np.float32)  # nearer to 1 than the next float16
    assert model.predict(fine).item() == fine[0, 0]
    assert model.compile("cpu:scalar").metadata.dtype == "mixed_float16"
    assert model.predict(fine).item() == 1.0
    assert model.trace(batch_size=1).metadata.dtype == "mixed_float16"
    assert zt.Sequential([L.Input((2,)), L.Dense(1)]).policy == precision.global_policy().name == "float32"
    with pytest.raises(zt.errors.UnknownName, match="mixed_float16"):
        precision.set_global_policy("mixed_float8")


def dense(x, w, d):
    """x @ w with operands rounded to d, in float64."""
    x, w = (np.asarray(zt.ops.rounded_to(np.float32(a), d) if d else a, np.float64) for a in (x, w))
    return x @ w


@pytest.mark.parametrize("around, own", [("mixed_float16", "float32"), ("float32", "mixed_bfloat16"),
                                         ("mixed_bfloat16", "mixed_float16")])
def test_a_layer_may_have_its_own_dtype_policy(around, own):
    def short(name):
        return name.removeprefix("mixed_") if name.startswith("mixed") else None

    model = zt.Sequential([L.Input((8,)), L.Dense(5, use_bias=False),
                           L.Dense(3, use_bias=False, dtype=own)])
    first, second = (w.value.copy() for w in model.weights)
    x, y = (np.random.default_rng(0).normal(size=(4, n)).astype(np.float32) for n in (8, 3))
    model.compile("cpu:scalar", dtype=around, loss="mse", batch_size=4,
                  optimizer=zt.optimizers.SGD(0.5, loss_scale_factor=1.0))
    hidden = dense(x, first, short(around))
    result = dense(hidden, second, short(own))
    np.testing.assert_allclose(model.predict(x), result, rtol=1e-4, atol=1e-5)
    model.train_on_batch(x, y)
    slope = 2 / 12 * (result - y)
    expected = [dense(x.T, dense(slope, second.T, short(own)), short(around)), dense(hidden.T, slope, short(own))]
    for w, before, g in zip(model.weights, (first, second), expected, strict=True):
        np.testing.assert_allclose((before - w.value) / 0.5, g, rtol=2e-4, atol=2e-5)
    again = zt.Sequential.from_config(model.get_config())
    assert [layer.own_policy and layer.own_policy.name for layer in again.layers] == [None, own]


def test_the_policy_of_a_layer_is_read_set_and_refused():
    layer = L.Dense(2, dtype=zt.mixed_precision.DTypePolicy("mixed_bfloat16"))
    assert (layer.compute_dtype, layer.variable_dtype, layer.dtype) == ("bfloat16", "float32", "float32")
    layer.dtype_policy = "float32"
    assert layer.compute_dtype == "float32" and layer.get_config()["dtype"] == "float32"
    for wrong, words in (("float16", "dtype='mixed_float16' rounds"), ("int32", r"zt.ops.cast\(y, 'int32'\)")):
        with pytest.raises(zt.errors.Unsupported, match=words):
            L.Dense(1, dtype=wrong)
    with pytest.raises(zt.errors.Unsupported, match=r"compile\(dtype='float64'\)"):
        zt.Sequential([L.Input((8,)), L.Dense(3, dtype="float64")]).compile("cpu:scalar")
    with pytest.raises(zt.errors.Unsupported, match="leave out their dtype="):
        zt.Sequential([L.Input((8,)), L.Dense(3, dtype="mixed_float16")]).export("never.onnx")


def test_policies_travel_in_files_of_keras(tmp_path):
    keras = pytest.importorskip("keras")
    theirs = keras.Sequential([keras.Input((8,)), keras.layers.Dense(5, dtype="mixed_bfloat16"),
                               keras.layers.Dense(3, dtype="float32")])
    theirs.save(tmp_path / "theirs.keras")
    model = zt.load_model(tmp_path / "theirs.keras")
    assert model.policy == "mixed_bfloat16"
    assert [layer.dtype_policy.name for layer in model.layers] == ["mixed_bfloat16", "float32"]
    model.save(tmp_path / "ours.keras")
    again = keras.models.load_model(tmp_path / "ours.keras")
    assert [layer.dtype_policy.name for layer in again.layers] == ["mixed_bfloat16", "float32"]


class Inverse(zt.schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return zt.ops.minimum(self.rate / (step + 1.0), 0.5)


class Constant(Inverse):
    def __call__(self, step):
        return self.rate


def test_a_schedule_is_called_on_the_step_as_in_keras():
    for kind, rates in ((Inverse, (0.5, 0.5, 0.8 / 3)), (Constant, (0.8,) * 3)):
        model = zt.Sequential([L.Input((1,)), L.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(kind(0.8)), loss="mse", batch_size=1)
        model.fit(np.ones((3, 1)), np.full((3, 1), 3.0), verbose=0)
        weight = 1.0
        for rate in rates:
            weight -= rate * 2 * (weight - 3.0)
        np.testing.assert_allclose(model.get_weights()[0].item(), weight, rtol=1e-6)
