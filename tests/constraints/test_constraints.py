"""Constraints beside Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.numpy_executable import compile_numpy
from ztorch import constraints
from ztorch import layers as L
from ztorch.errors import ConfigError, UnknownName
from ztorch.model.sequential import Sequential

WEIGHT = np.random.default_rng(5).normal(size=(3, 4, 2)).astype("f")


@pytest.mark.cheap
@pytest.mark.parametrize(("name", "how"), [
    ("MaxNorm", {"max_value": 0.7}), ("MaxNorm", {"axis": (0, 1)}), ("NonNeg", {}),
    ("UnitNorm", {"axis": 2}), ("MinMaxNorm", {"min_value": 0.5, "max_value": 0.6, "rate": 0.3})])
def test_weights_are_those_of_keras(name: str, how: dict[str, Any]) -> None:
    ours = getattr(constraints, name)(**how)
    theirs = getattr(references.keras().constraints, name)(**how)
    expected = theirs(references.torch().tensor(WEIGHT)).numpy()
    np.testing.assert_allclose(ours(zt.tensor(WEIGHT)).numpy(), expected, rtol=1e-6)
    config = ours.get_config()
    assert list(config) == list(theirs.get_config())
    assert repr(constraints.get({"class_name": name, "config": config})) == repr(ours)


def test_wrong_constraints() -> None:
    with pytest.raises(UnknownName, match="unknown constraint 'max_nrom'; did you mean 'max_norm'"):
        constraints.get("max_nrom")
    for wrong in ("MaxNorm(-1)", "UnitNorm(axis='a')", "MinMaxNorm(2, 1)", "MinMaxNorm(rate=2)"):
        with pytest.raises(ConfigError, match=wrong.partition("(")[0]):
            eval(f"constraints.{wrong}")
    model = Sequential([L.Input((2,)), L.Dense(1, kernel_constraint=lambda w: w[0])])
    with pytest.raises(ConfigError, match="constraint '<lambda>' returned"):
        compile_numpy(model, 4, optimizer="sgd", loss="mse")
