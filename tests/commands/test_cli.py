"""The command line: output, files and error messages of each command."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.runtime.devices import best_level


def digits(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    x, y = zt.data.load("digits")[1]
    return x[:rows], y[:rows]


# -- the story -------------------------------------------------------------------------------------


def test_demo(run: Run) -> None:
    output = ok(run("demo", "--out", "kept.zt", "--threads", 1))
    assert float(re.search(r"accuracy ([\d.]+)%", output).group(1)) >= 97  # type: ignore[union-attr]
    assert "predicts the same, bit for bit" in output and "Next: ztorch inspect kept.zt" in output
    assert zt.load("kept.zt").name == "digits_mlp"


def test_run_equals_predict(run: Run, artifact: Path) -> None:
    x, _ = digits()
    expected = zt.load(artifact).predict(x)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    np.savetxt("x.csv", x.reshape(12, -1), "%.9g", ",")
    for file in ("x.npy", "x.npz", "x.csv"):
        assert "12 rows" in ok(run("run", artifact, file, "-o", "y.npy"))
        assert np.array_equal(np.load("y.npy"), expected)
    ok(run("export", artifact, "-o", "m.keras"))
    ok(run("run", "m.keras", "x.npy", "--out", "y.npy"))
    assert np.array_equal(np.load("y.npy"), expected)
    ok(run("run", artifact, "x.npy", "--out", "y.csv"))
    assert np.array_equal(np.loadtxt("y.csv", np.float32, delimiter=","), expected)
    printed = ok(run("run", artifact, "x.npy", "--classes")).split()
    assert list(map(int, printed)) == expected.argmax(1).tolist()


def test_train_continues_from_an_artifact(run: Run, artifact: Path) -> None:
    output = ok(run("train", artifact, "--data", "digits", "--epochs", 1, "--out", "more.zt"))
    assert "Epoch 1/1" in output and "On 364 rows it was not trained on: loss" in output
    assert zt.load("more.zt").epochs_trained == 3
    ok(run("train", "autoencoder", "--epochs", 1, "--val", "digits", "--out", "a.zt", "-q"))
    ok(run("train", "a.zt", "--data", "digits", "--target", "x", "--epochs", 1, "--lr", "0.01"))
    ok(run("train", artifact, "--data", "digits", "--epochs", 1, "--optimizer", "sgd", "--out", "s.zt"))
    assert zt.load("s.zt").metadata.declaration.optimizer.name == "SGD"
    fails(run("train", artifact), "add --data")


@pytest.mark.slow
def test_models_in_16_bits(run: Run) -> None:
    ok(run("train", "digits_mlp", "--epochs", 1, "--dtype", "mixed_bfloat16", "--out", "m.zt", "-q"))
    assert zt.load("m.zt").metadata.dtype == "mixed_bfloat16"
    ok(run("export", "digits_mlp", "--random", "--dtype", "mixed_float16", "-o", "half.zt"))
    assert re.search(r"digit/kernel .*float16", ok(run("inspect", "half.zt")))
    assert "rounded_to" in ok(run("show", "digits_mlp", "--dtype", "mixed_bfloat16"))
    assert "verified" in ok(run("verify", "digits_mlp", "--dtype", "mixed_float16", "--steps", 1))
    fails(run("export", "digits_mlp", "--dtype", "mixed_float16", "--random", "-o", "m.onnx"), "float32 or float64")
    fails(run("bench", "digits_mlp", "--dtype", "mixed_bf16"), "did you mean 'mixed_bfloat16'")
    assert "float64" in ok(run("show", "m.zt", "--dtype", "float64"))
    assert "verified" in ok(run("verify", "m.zt", "--dtype", "float64", "--steps", 1))


FLOWERS = ["iris", "rose", "tulip, wild"]


def test_labels_that_are_texts(run: Run, own: Path) -> None:
    """They are told with their numbers, and the same text is the same number in --val, also where
    that lacks some."""
    own.write_text(own.read_text().replace("Dense(1)", "Dense(3, activation='softmax')"))
    (own.parent / "own_part.py").write_text("HIDDEN = 32\n")
    x = np.eye(3, dtype=np.float32).repeat(20, 0)
    y = np.arange(3).repeat(20)

    def table(name: str, rows: np.ndarray) -> str:
        lines = [f'{a},{b},{c},"{FLOWERS[k]}"' for (a, b, c), k in zip(x[rows], y[rows], strict=True)]
        Path(name).write_text("a,b,c,kind\n" + "\n".join(lines))
        return name

    some = ["--loss", "sparse_categorical_crossentropy", "--lr", "0.1", "--metrics", "accuracy", "--val",
            table("VAL.CSV", np.arange(20, 60))]
    np.save("x.npy", x)
    np.save("y.npy", np.array(FLOWERS)[y])
    for data in (table("all.csv", np.arange(60)), "x.npy,y.npy"):
        output = ok(run("train", own, "--data", data, "--epochs", "30", *some))
        assert "Labels: 0 is iris, 1 is rose, 2 is tulip, wild\n" in output
        assert output.split("val_accuracy: ")[-1].startswith("1.0000")
    fails(run("train", own, "--data", "VAL.CSV", *some[:-1], "all.csv"),
          "labels to validate on include 'iris', which is not among those to train on: rose, tulip, wild")
    np.savez("numbers.npz", x=x, y=y)
    fails(run("train", own, "--data", "all.csv", *some[:-1], "numbers.npz"),
          "labels to validate on are numbers, those to train on texts")


@pytest.mark.slow
def test_files_of_keras_bring_their_test(run: Run) -> None:
    x, y = digits(300)
    pixels = (x[..., 0] * 16).astype(np.uint8)
    np.savez("d.npz", x_train=pixels[:200], y_train=y[:200], x_test=pixels[200:], y_test=y[200:])
    Path("flat.py").write_text("from ztorch import Sequential, layers as L\n"
                               "LOSS = 'sparse_categorical_crossentropy'\nMETRICS = ['accuracy']\n"
                               "model = Sequential([L.Input((64,)), L.Dense(10, 'softmax')])\n")
    for model in ("digits_cnn", "flat.py:model"):  # (8, 8) becomes (8, 8, 1) and (64,)
        output = ok(run("train", model, "--data", "d.npz", "--epochs", 3, "--out", "m.zt"))
        scores = re.search(r"On 100 rows it was not trained on: loss [\d.]+, accuracy ([\d.]+)%", output)
        shape = (8, 8, 1) if model == "digits_cnn" else (64,)
        _, accuracy = zt.load("m.zt").evaluate(pixels[200:].reshape(-1, *shape), y[200:])
        assert scores and float(scores[1]) == pytest.approx(100 * accuracy, abs=0.006)


@pytest.mark.parametrize("data", ["table.csv", "x.npy,y.npy", "both.npz"])
def test_train_an_own_model(run: Run, own: Path, data: str) -> None:
    output = ok(run("train", f"{own}:build", "--data", data, "--epochs", 2, "--val", "0.25",
                    "--optimizer", "sgd", "--lr", "0.05", "--batch-size", 8, "--metrics", "mae",
                    "--seed", 3, "--out", "w.safetensors"))
    assert "val_loss" in output and "mae" in output and "Wrote w.safetensors" in output
    output = ok(run("export", own, "--weights", "w.safetensors", "-o", "own.zt", "--batch-size", 4))
    assert "predict" in output
    assert zt.load("own.zt").weight_names == ["dense/kernel", "dense/bias", "dense_1/kernel",
                                              "dense_1/bias"]
    ok(run("train", own, "--data", data, "--val", data, "--weights", "w.safetensors",
           "--epochs", 1))


DOUBLED = """
import ztorch as zt
class Doubled(zt.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(64, 10))
    def call(self, x):
        return x @ (self.kernel + self.kernel)
model = zt.Sequential([zt.layers.Input((64,)), Doubled()])
"""


def test_what_runs_by_itself_is_not_offered(run: Run) -> None:
    """Values that depend only on weights are a function of the program, hidden from users."""
    Path("own.py").write_text(DOUBLED)
    level = best_level()
    assert f"Wrote d.zt: predict for cpu:{level}, " in ok(run(
        "export", "own.py:model", "-o", "d.zt", "--device", "cpu", "--random"))
    program, said = zt.load("d.zt"), []
    assert "prepare" in program.executable.functions
    program.summary(said.append)
    assert said[-1].startswith("Functions: predict; ")
    page = ok(run("inspect", "d.zt"))
    assert "predict  x (32, 64) float32  y (32, 10) float32" in page and "prepare" not in page
    with pytest.raises(zt.errors.UnknownName, match=r"function 'none'\. Known: predict$"):
        program.plot(function="none")


def test_export_to_train_elsewhere(run: Run, own: Path) -> None:
    ok(run("export", f"{own}:nets.made", "--train", "-o", "t.zt", "--device", "cpu:scalar"))
    program = zt.load("t.zt")
    program.fit(np.ones((4, 3)), np.ones(4), verbose=0)
    assert program.device == "cpu:scalar"


def test_export_for_another_machine(run: Run, own: Path) -> None:
    assert "cpu:neon" in ok(run("export", own, "-o", "arm.zt", "--device", "cpu:neon", "--random"))
    assert "does not run here" in ok(run("inspect", "arm.zt"))
    np.save("x.npy", np.ones((2, 3)))
    fails(run("run", "arm.zt", "x.npy"), "does not run on this machine")


def test_export_a_c_library(run: Run) -> None:
    output = ok(run("export", "digits_mlp", "--so", "-o", "c", "--batch-size", 1, "--random"))
    assert "libdigits_mlp.so" in output and {"digits_mlp.h", "libdigits_mlp.so"} <= set(
        os.listdir("c"))


# -- as a process ----------------------------------------------------------------------------------


def test_several_sizes(run: Run, tmp_path: Path) -> None:
    """Batches and sequences of several sizes, from a model's file to predictions."""
    (tmp_path / "words.py").write_text(
        "import ztorch as zt\nfrom ztorch import layers as L\nLOSS = 'mse'\n"
        "def build():\n    return zt.Sequential([L.Input(('time', 3)), L.Dense(4), "
        "L.GlobalMaxPooling1D(), L.Dense(2)], seed=1)\n")
    ok(run("export", "words.py", "--train", "--batch-size", "1,4", "--sizes", "time=2", "--sizes",
           "time=5", "-o", "words.zt"))
    output = ok(run("inspect", "words.zt"))
    assert re.search(r"batch +1, 4\n +time +2, 5\n", output)
    assert re.search(r"predict@1x2 +x \(1, 2, 3\) float32, lengths/time \(1\) int32", output)
    assert "train@4x2" in ok(run("inspect", "words.zt", "--json"))
    assert "float32[1, 2, 3]" in ok(run("show", "words.zt", "--function", "predict@1x2"))
    assert "step 1@1x2" in ok(run("verify", "words.zt", "--steps", 1))
    x = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    np.save("x.npy", x)
    ok(run("run", "words.zt", "x.npy", "-o", "y.npy"))
    exact = zt.Sequential([zt.layers.Input((4, 3)), zt.layers.Dense(4),
                           zt.layers.GlobalMaxPooling1D(), zt.layers.Dense(2)], seed=1)
    np.testing.assert_allclose(np.load("y.npy"), exact.compile("cpu").predict(x), atol=1e-6)
    for arguments, message in (
        (["--sizes", "time"], "'time' is not AXIS=N,N, such as time=64,128"),
        (["--sizes", "tome=4"], "unknown axis 'tome'; did you mean 'time'"),
        (["--batch-size", "1,x"], "'1,x': pass one integer above zero, or several"),
        ([], "choose its largest size, or several: --sizes time=64,128"),
    ):
        result = run("export", "words.py", *arguments, "-o", "other.zt", "--random")
        assert result.exit_code and message in result.output


def test_tune_takes_a_time_that_is_not_negative(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(zt.Sequential, "tune", lambda model, *_, **how: calls.append(how))
    for words, seconds in (([], 60.0), (["--seconds", "0.5"], 0.5), (["--seconds", "0"], 0.0)):
        ok(run("tune", "digits_mlp", *words))
        assert calls[-1]["seconds"] == seconds and calls[-1]["again"] is False
    fails(run("tune", "digits_mlp", "--seconds", "-1"), "--seconds", 2)
    assert len(calls) == 3
