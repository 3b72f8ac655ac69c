"""Dtypes of models by the policy that they were made under."""

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
