"""Names of other libraries: the names in errors exist, and no name of ours is hidden."""

from __future__ import annotations

import re

import pytest

import ztorch as zt
from ztorch.errors import unknown
from ztorch.layers import LAYERS, Layer
from ztorch.layers.activation import ACTIVATIONS
from ztorch.losses import Loss
from ztorch.metrics import Metric
from ztorch.optimizers import Optimizer
from ztorch.other_names import OTHER_NAMES

FAMILIES = {"layer": Layer, "loss": Loss, "metric": Metric, "optimizer": Optimizer}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_suggested_is_there(family: str) -> None:
    known = {name: kind for name, kind in FAMILIES[family].known.items()
             if kind.__module__.startswith("ztorch.")}  # without those of other tests
    for name, here in OTHER_NAMES[family].items():
        assert name not in {k.lower() for k in known}, "it is known"
        without_arguments = re.sub(r"\w+=[\w.]+", "", here.partition(", with")[0])
        suggested = re.findall(r"[A-Z]\w+|'\w+'", without_arguments)
        assert suggested
        for word in suggested:
            bare = word.strip("'")
            assert bare in (ACTIVATIONS if "Activation" in here and word != bare else known), here
        said = str(unknown(family, name.upper(), known))
        assert said.startswith(f"unknown {family} {name.upper()!r}; here it is {here}. Known: ")
    assert {*OTHER_NAMES} == {*FAMILIES, "device"}


def test_layers_that_are_asked_for_as_attributes() -> None:
    for name, here in (("LayerNorm", "LayerNormalization"), ("GELU", "Activation('gelu')")):
        with pytest.raises(AttributeError, match=re.escape(f"; here it is {here}. Known: ")) as caught:
            getattr(zt.layers, name)
        known = str(caught.value).partition("Known: ")[2].partition(" and ")[0].split(", ")
        assert len(known) == 8 and {*known} <= {*zt.layers.__all__} - {"LAYERS", "Layer", "Context"}
    assert "Dense" in LAYERS


@pytest.mark.parametrize(("module", "name", "here"), [
    (zt.metrics, "TopKAccuracy", "TopKCategoricalAccuracy for one-hot rows"), (zt.losses, "MSELoss", "'mse'"),
    (zt.optimizers, "RAdam", "Adam, with a warmup of the rate")])
def test_names_that_modules_are_asked_for(module: object, name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=f"unknown .*{name}.*; here it is {here}"):
        getattr(module, name)
    assert not hasattr(module, "_hidden")
