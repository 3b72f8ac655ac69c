"""A small network compiled with mixed precision."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.dtypes import bf16, f16

MIXED = {"mixed_bfloat16": bf16, "mixed_float16": f16}
each = pytest.mark.parametrize("policy", MIXED)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 7)).astype(np.float32)


def mlp(seed: int = 1) -> zt.Sequential:
    return zt.Sequential([L.Input((7,)), L.Dense(11, activation="tanh"), L.Dense(3)], seed=seed)
