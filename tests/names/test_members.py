"""Members of a room load when they are first named."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.graph.op import REGISTRY
from ztorch.names.members import Members
from ztorch.names.own_classes import known_as
from ztorch.names.places import OTHER_NAMES, PLACES

MODEL = """
import sys
import numpy as np
import ztorch as zt
from ztorch import layers as L
model = zt.Sequential([L.Input((4,)), L.Dense(3, activation="relu"), L.Dense(2)])
assert model(np.ones((2, 4), np.float32)).shape == (2, 2)
for module in sys.modules:
    print(module.removeprefix("ztorch."))
"""
NO_PART = {  # files that such a model has no use for
    "layers.convolution", "layers.gated", "layers.attention", "layers.spectrograms",
    "losses.ctc", "metrics.accuracy", "optimizers.adam", "ops.images", "ops.fourier",
    "regularizers.norms", "tabular.vectorization", "model.generation", "decimal", "statistics"}


def test_a_model_imports_the_files_of_its_layers_alone() -> None:
    run = subprocess.run([sys.executable, "-c", MODEL], capture_output=True, text=True, check=True)
    modules = {*run.stdout.split()}
    assert {"layers.core", "ops.rectifiers", "ops.linear"} <= modules
    assert not modules & NO_PART


def test_names_are_known_before_their_files() -> None:
    losses = Members("ztorch.losses.loss")
    assert "mse" in losses and "dense" not in losses and not losses.loaded
    assert {*losses} == {name for names in PLACES["losses"].values() for name in names.split()}
    assert len(losses) == len([*losses]) and losses.get("nobody") is None
    assert not Members("elsewhere.losses") and not Members("ztorch.schedules")


def test_own_members_are_like_any_other() -> None:
    family = Members("ztorch.nowhere")
    family["two"] = int
    assert {**family} == {"two": int} and family.ours("two") is int
    del family["two"]
    with pytest.raises(KeyError):
        family["two"]


def test_the_class_of_the_package_stays_where_a_users_has_its_name() -> None:
    class Softmax(L.Layer):
        pass

    with known_as({"Softmax": L.Softmax}):
        L.LAYERS["Softmax"] = Softmax
        assert L.LAYERS["Softmax"] is Softmax
        assert L.Softmax.__module__ == "ztorch.layers.activation"
    assert L.LAYERS["Softmax"] is L.Softmax
    del L.LAYERS[Softmax.config_name]


@pytest.mark.parametrize("room", [
    "callbacks", "constraints", "initializers", "layers", "losses", "metrics", "ops", "optimizers",
    "regularizers"])
def test_each_listed_name_is_there(room: str) -> None:
    package = getattr(zt, room)
    assert dir(package) == [*dict.fromkeys(dir(package))]
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("name", ["attention", "einsum"])
def test_an_op_is_no_file_of_its_name(name: str) -> None:
    __import__(f"ztorch.ops.{name}")
    assert not isinstance(getattr(zt.ops, name, None), types.ModuleType)


def test_other_names_of_ops() -> None:
    x = np.array([-1.5, 2.0])
    assert zt.ops.absolute(x).tolist() == [1.5, 2.0] == zt.ops.abs(x).tolist()
    for pair in OTHER_NAMES.split():
        other, name = pair.split(":")
        assert other in REGISTRY[name].aliases


def test_files_of_a_room_are_found_without_advice() -> None:
    from ztorch.layers import convolution

    assert convolution.Conv2D is L.Conv2D
    with pytest.raises(AttributeError, match="Dense"):
        L.Dens  # noqa: B018


def test_files_are_attributes_before_and_after_they_load() -> None:
    """A file may have the name of a member, as `initializers.constant` has."""
    code = "import ztorch as zt; print(zt.initializers.constant, zt.losses.ctc, zt.layers.core, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in run.stdout.splitlines()] == [
        f"'ztorch.{name}'" for name in ("initializers.constant", "losses.ctc", "layers.core")]
