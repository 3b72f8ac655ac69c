"""zt.save_tensors and zt.load_tensors, and optimizers that go on from saved states."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ztorch as zt
from ztorch.dtypes import ALL
from ztorch.errors import ConfigError, DataError, ShapeError, WeightsError
from ztorch.files import safetensors

Point = namedtuple("Point", "x y")
random = np.random.default_rng(8)
START = {"w": random.normal(size=(3, 2)), "b": [random.normal(size=2)]}
SLOPES = [{"w": random.normal(size=(3, 2)), "b": [random.normal(size=2)]} for _ in range(5)]


def trained(optimizer: Any, params: Any, slopes: list[Any]) -> Any:
    for s in slopes:
        params = optimizer.update(params, zt.tree.map_structure(zt.tensor, s))
    return params


class TestTrees:
    @pytest.mark.parametrize("dtype", [d.long for d in ALL])
    def test_each_dtype_comes_back(self, tmp_path: Path, dtype: str) -> None:
        x = zt.tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype)
        zt.save_tensors(x, tmp_path / "x.safetensors")
        back = zt.load_tensors(tmp_path / "x.safetensors")
        assert back.dtype == x.dtype
        assert back.shape == (2, 3)
        assert (back.numpy() == x.numpy()).all()

    def test_bfloat16_keeps_its_bits(self, tmp_path: Path) -> None:
        x = zt.tensor([1.0, 1e30, -0.0, float("inf")], dtype="bfloat16") / 3
        zt.save_tensors({"x": x}, tmp_path / "x.safetensors")
        np.testing.assert_array_equal(zt.load_tensors(tmp_path / "x.safetensors")["x"].astype("float32").numpy(),
                                      x.astype("float32").numpy())

    def test_trees_keep_their_form_order_and_numbers(self, tmp_path: Path) -> None:
        tree = {"z": (zt.arange(3), [None, True, 7]), 4: "run", "a": {}, "rate": 0.1, "top": float("inf"),
                "c": zt.tensor([1 + 2j]), "n": np.float64(2.5), "e": zt.zeros((0, 2))}
        zt.save_tensors(tree, tmp_path / "t.safetensors")
        back = zt.load_tensors(tmp_path / "t.safetensors")
        assert list(back) == list(tree)
        assert [back[k] for k in (4, "a", "rate", "top")] == ["run", {}, 0.1, float("inf")]
        assert type(back["z"]) is tuple
        assert back["z"][1] == [None, True, 7]
        assert back["z"][0].tolist() == [0, 1, 2]
        assert back["c"].tolist() == [1 + 2j]
        assert (back["n"].dtype, back["n"].item()) == ("float64", 2.5)
        assert back["e"].shape == (0, 2)

    def test_names_that_coincide_are_told_apart(self, tmp_path: Path) -> None:
        tree = {"a/b": zt.tensor(1), "a": {"b": zt.tensor(2)}, "__metadata__": zt.tensor(3), 1: zt.tensor(4),
                "1": zt.tensor(5)}
        zt.save_tensors(tree, tmp_path / "t.safetensors")
        back = zt.load_tensors(tmp_path / "t.safetensors")
        assert [back["a/b"].item(), back["a"]["b"].item(), back["__metadata__"].item(), back[1].item(),
                back["1"].item()] == [1, 2, 3, 4, 5]

    def test_other_libraries_read_and_write_these_files(self, tmp_path: Path) -> None:
        zt.save_tensors({"dense": [zt.arange(2), zt.ones(3)], "epoch": 2}, tmp_path / "t.safetensors")
        theirs = load_file(tmp_path / "t.safetensors")
        assert sorted(theirs) == ["dense/0", "dense/1"]
        np.testing.assert_array_equal(theirs["dense/0"], [0, 1])
        save_file({"x.y": np.eye(2, dtype=np.float32)}, tmp_path / "theirs.safetensors")
        np.testing.assert_array_equal(zt.load_tensors(tmp_path / "theirs.safetensors")["x.y"].numpy(), np.eye(2))

    def test_pending_tensors_are_computed(self, tmp_path: Path) -> None:
        x = zt.arange(4) * 2 + 1
        zt.save_tensors([x, x * x], tmp_path / "t.safetensors")
        assert [a.tolist() for a in zt.load_tensors(tmp_path / "t.safetensors")] == [[1, 3, 5, 7], [1, 9, 25, 49]]


class TestRefusals:
    @pytest.mark.parametrize(("tree", "message"), [
        ({"a": [zt.optimizers.Adam()]}, r"tree at 'a/0' is an optimizer; save its get_state\(\)"),
        ({"a": {1, 2}}, "tree at 'a' is a set"), ({(1, 2): 0}, r"the tree has the key \(1, 2\)"),
        ([Point(1, 2)], r"tree at '0' is a Point, .* use \._asdict\(\)"),
        ({"s": np.array(["x"])}, "an array of <U1")])
    def test_what_a_file_cannot_hold(self, tmp_path: Path, tree: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            zt.save_tensors(tree, tmp_path / "t.safetensors")
        assert not list(tmp_path.iterdir())

    def test_a_name_of_another_kind(self) -> None:
        with pytest.raises(ConfigError, match=r"cannot write tensors to 'run\.npz'.*name it \.safetensors"):
            zt.save_tensors([], "run.npz")

    @pytest.mark.parametrize("described", [
        ["tensor", "y"], ["value", [1]], ["set", []], ["dict", [[[1], ["value", 1]]]], ["list", 3], [], "x",
        ["complex", [["value", 1], ["value", 2]]]])
    def test_damaged_trees(self, tmp_path: Path, described: Any) -> None:
        x = zt.zeros(1)
        safetensors.write(tmp_path / "t.safetensors", {"x": (x.dtype, x.numpy())}, {"ztorch tree": json.dumps(described)})
        with pytest.raises(WeightsError, match=r"t\.safetensors describes no tree"):
            zt.load_tensors(tmp_path / "t.safetensors")

    def test_deep_trees_are_refused(self, tmp_path: Path) -> None:
        safetensors.write(tmp_path / "t.safetensors", {}, {"ztorch tree": '["list",[' * 100_000 + "]]" * 100_000})
        with pytest.raises(WeightsError, match="describes no tree"):
            zt.load_tensors(tmp_path / "t.safetensors")

    def test_files_that_are_not_there(self) -> None:
        with pytest.raises(WeightsError, match="cannot read nowhere"):
            zt.load_tensors("nowhere.safetensors")


@pytest.mark.usefixtures("by_numpy")
class TestOptimizers:
    @pytest.mark.parametrize("make", [lambda: zt.optimizers.Adam(0.1), lambda: zt.optimizers.SGD(0.1, momentum=0.9),
                                      lambda: zt.optimizers.SGD(zt.schedules.ExponentialDecay(0.5, 1, 0.5))])
    @pytest.mark.parametrize("wrap", [lambda f: f, zt.compiled], ids=["eager", "compiled"])
    def test_a_resumed_run_has_the_same_bits(self, tmp_path: Path, make: Any, wrap: Any) -> None:
        one, two = make(), make()
        params = trained(one, zt.tree.map_structure(zt.tensor, START), SLOPES[:3])
        zt.save_tensors({"params": params, "optimizer": one.get_state()}, tmp_path / "run.safetensors")
        params = trained(one, params, SLOPES[3:])
        saved = zt.load_tensors(tmp_path / "run.safetensors")
        two.set_state(saved["optimizer"])
        step = wrap(lambda p, g: two.update(p, g))
        others = saved["params"]
        for s in SLOPES[3:]:
            others = step(others, zt.tree.map_structure(zt.tensor, s))
        for a, b in zip(zt.tree.flatten(params), zt.tree.flatten(others), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())

    def test_set_state_goes_back(self) -> None:
        """Also in a function that is compiled already."""
        adam = zt.optimizers.Adam(0.1)
        step = zt.compiled(lambda p, g: adam.update(p, g))
        start, slopes = zt.tensor([1.0, 2.0]), [zt.tensor([3.0, -1.0]), zt.tensor([-5.0, 1.0])]
        kept = step(start, slopes[0])
        state = adam.get_state()
        first = step(kept, slopes[1])
        adam.set_state(state)
        np.testing.assert_array_equal(step(kept, slopes[1]).numpy(), first.numpy())

    def test_states_of_two_trees_find_theirs(self) -> None:
        """In whichever order they come; the counter alone fits both."""
        one, two = zt.optimizers.SGD(0.1, momentum=0.9), zt.optimizers.SGD(0.1, momentum=0.9)
        small, large = zt.ones(2), {"w": zt.ones(3)}
        for _ in range(2):
            small, large = one.update(small, zt.ones(2)), one.update(large, {"w": zt.full(3, 2.0)})
        two.set_state(one.get_state())
        want = one.update(large, {"w": zt.ones(3)})["w"].numpy()
        np.testing.assert_array_equal(two.update(large, {"w": zt.ones(3)})["w"].numpy(), want)
        np.testing.assert_array_equal(two.update(small, zt.ones(2)).numpy(), one.update(small, zt.ones(2)).numpy())

    def test_saved_states_are_returned_before_they_are_used(self) -> None:
        one, two = zt.optimizers.Adam(0.1), zt.optimizers.Adam(0.1)
        one.update(zt.ones(2), zt.full(2, 3.0))
        two.set_state(one.get_state())
        (state,) = two.get_state()
        np.testing.assert_allclose(state["optimizer/w/m"].numpy(), [0.3, 0.3], rtol=1e-6)

    def test_states_of_other_parameters(self) -> None:
        one, two = zt.optimizers.Adam(0.1), zt.optimizers.Adam(0.1)
        one.update({"w": zt.ones(2)}, {"w": zt.ones(2)})
        two.set_state(one.get_state())
        with pytest.raises(ShapeError, match=r"other parameters: 'optimizer/w/m' has shape \(2,\), and \(3,\) is needed"):
            two.update({"w": zt.ones(3)}, {"w": zt.ones(3)})
        with pytest.raises(ShapeError, match=r"other parameters: they lack 'optimizer/v/m' of shape \(2,\)"):
            two.update({"v": zt.ones(2)}, {"v": zt.ones(2)})
        with pytest.raises(ConfigError, match="set_state takes a list of dicts, as get_state returns it"):
            two.set_state(one.get_state()[0])  # type: ignore[arg-type]

    def test_set_state_inside_a_compiled_function(self) -> None:
        adam = zt.optimizers.Adam(0.1)
        with pytest.raises(ConfigError, match="call it outside the function that is compiled"):
            zt.compiled(lambda x: [adam.set_state([]), x])(zt.ones(1))
