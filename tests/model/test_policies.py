"""Policies of dtypes and schedules of rates as Keras spells them."""

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L


def test_a_policy_is_the_dtype_of_models_that_are_made_under_it():
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
    with pytest.raises(zt.errors.Unsupported, match="give compile its dtype="):
        L.Dense(1, dtype="float32")


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
