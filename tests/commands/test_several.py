"""The command line on models of several inputs and outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.commands import named_arrays
from ztorch.commands.named_arrays import PortShapes

TWO = """
from ztorch import Model, layers as L
LOSS = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
METRICS = {"kind": ["accuracy"]}

def build():
    image, meta = L.Input((2, 2), name="image"), L.Input((3,), name="meta")
    h = L.Concatenate()([L.Dense(4, activation="relu")(L.Flatten()(image)), meta])
    return Model([image, meta], {"kind": L.Dense(3, activation="softmax")(h),
                                 "size": L.Dense(1)(h)}, name="two")
"""


def test_several_inputs_and_outputs_have_names_in_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    random = np.random.default_rng(0)
    x = {"image": random.random((20, 4)), "meta": random.random((20, 3))}  # image in flat rows
    np.savez("d.npz", **x, kind=random.integers(0, 3, 20), size=random.random(20))
    np.savez("x.npz", **x)
    np.savez("half.npz", meta=x["meta"])
    output = ok(run("train", "two.py", "--data", "d.npz", "--epochs", 2, "--val", 0.2, "--out", "a.zt"))
    assert "kind_loss" in output and "val_kind_accuracy" in output
    ok(run("train", "a.zt", "--data", "d.npz", "--epochs", 1, "-q", "--out", "a.zt"))
    assert "20 rows" in ok(run("run", "a.zt", "x.npz", "-o", "y.npz"))
    expected = zt.load("a.zt").predict([x["image"].reshape(20, 2, 2), x["meta"]])
    with np.load("y.npz") as actual:
        assert list(actual) == ["kind", "size"]
        for name, y in expected.items():
            assert np.array_equal(actual[name], y)
    ok(run("run", "a.zt", "x.npz", "-o", "k.npz", "--classes"))
    with np.load("k.npz") as actual:
        assert np.array_equal(actual["kind"], expected["kind"].argmax(-1))
    assert "x/image (32, 2, 2)" in ok(run("inspect", "a.zt"))
    ok(run("export", "two.py", "--so", "--batch-size", 1, "-o", "c", "--random"))
    assert "x_image" in (tmp_path / "c" / "two.h").read_text()
    how = r"numpy\.savez\(path, image=\.\.\., meta=\.\.\., kind=\.\.\., size=\.\.\.\)"
    fails(run("run", "a.zt", "x.npz"), "several outputs \\(kind, size\\); .*-o FILE.npz")
    fails(run("run", "a.zt", "half.npz", "-o", "y.npz"), f"no array 'image'; it has meta: {how}")
    fails(run("run", "a.zt", "x.csv", "-o", "y.npz"), f"x.csv has no names for them.*{how}")
    fails(run("train", "two.py", "--data", "x.npz"), f"x.npz holds nothing to learn: {how}")


def test_losses_and_metrics_by_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO.replace("LOSS", "_A").replace("METRICS", "_B"))
    random = np.random.default_rng(0)
    x = {"x/image": random.random((20, 2, 2)), "meta": random.random((20, 3))}
    kind, size = random.integers(0, 3, 20), random.random(20)
    np.savez("d.npz", **x, **{"y/kind": kind, "size": size})
    loss = ("--loss", "kind=sparse_categorical_crossentropy, size=mse")
    how = ("two.py", "--data", "d.npz", "--epochs", 2, "--seed", 5)
    ok(run("train", *how, *loss, "--metrics", "kind=accuracy,size=mae,size=mse", "--out", "a.zt"))
    from ztorch.sources.find import find

    expected = find("two.py").model.compile(
        batch_size=32, optimizer="adam", seed=5,
        loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
        metrics={"kind": ["accuracy"], "size": ["mae", "mse"]})
    expected.fit([x["x/image"], x["meta"]], {"kind": kind, "size": size}, epochs=2, verbose=0)
    program = zt.load("a.zt")
    assert program.metrics_names == expected.metrics_names == [
        "loss", "kind_loss", "size_loss", "kind_accuracy", "size_mae", "size_mse"]
    for a, b in zip(program.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    # Outputs that are left out have no loss, and their data are left alone.
    ok(run("train", *how, "--loss", "size=mae", "--val", "d.npz", "--out", "b.zt"))
    assert zt.load("b.zt").metrics_names == ["loss"]
    ok(run("export", "two.py", "--train", *loss, "-o", "c.zt"))
    assert zt.load("c.zt").metrics_names == ["loss", "kind_loss", "size_loss"]
    assert "log" in ok(run("show", "two.py", "--function", "train", *loss))


def test_an_input_and_an_output_may_share_a_name(tmp_path: Path) -> None:
    """Then the file says which is which, and an array that does not say is neither."""
    a, b, other = np.ones((2, 3)), np.zeros((2, 1)), np.full((2, 3), 7.0)
    np.savez(tmp_path / "d.npz", **{"x/same": a, "y/same": b, "same": other})
    x, y = named_arrays.read(str(tmp_path / "d.npz"), PortShapes({"same": (3,)}, {"same": (1,)}))
    np.testing.assert_array_equal(x["same"], a)
    np.testing.assert_array_equal(y["same"], b)


WRONG_NAMES = [
    ("--loss", "kinf=mse", "unknown output 'kinf'; did you mean 'kind'. Known: kind, size"),
    ("--loss", "mse,mae", r"'mse,mae' names 2 losses; .*--loss kind=mse,size=mae"),
    ("--loss", "kind=mse,kind=mae", "output 'kind' 2 losses; it takes one"),
    ("--loss", "kind=mse,mae", "which output 'mae' is for; write kind=mae"),
    ("--loss", "kind=", "has an empty name"),
    ("--loss", "kind=msee", "unknown loss 'msee'; did you mean 'mse'"),
    ("--metrics", "mae", "which output it is for; write --metrics kind=mae,size=mae"),
    ("--metrics", "siz=mae", "unknown output 'siz'; did you mean 'size'"),
    ("--metrics", "", "has an empty name"),
]


def test_wrong_losses_and_metrics_by_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    np.savez("d.npz", image=np.ones((4, 4)), meta=np.ones((4, 3)), kind=[0, 1, 2, 0], size=np.ones(4))
    for option, given, message in WRONG_NAMES:
        fails(run("train", "two.py", "--data", "d.npz", option, given), message)


def test_the_only_output_has_no_name(run: Run, own: Path) -> None:
    fails(run("train", own, "--data", "both.npz", "--loss", "y=mse"),
          "one that needs no name: --loss mse")
    fails(run("train", own, "--data", "both.npz", "--loss", "mse,mae"), "names 2 losses")
    fails(run("export", own, "--loss", "mse", "-o", "x.zt"), "--loss is for an artifact that trains")
