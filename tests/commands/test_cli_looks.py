"""Commands that look at models, artifacts, kernels and devices."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.backends import registry
from ztorch.commands.group import examples

# -- looking ---------------------------------------------------------------------------------------


def test_inspect(run: Run, artifact: Path) -> None:
    page = ok(run("inspect", artifact))
    for word in ("hidden_1/kernel", "(64, 128)", "train", "arena", "runs here",
                 "Trained for 2 epochs", "weights.safetensors"):
        assert word in page
    data = json.loads(ok(run("inspect", artifact, "--json")))
    assert data["targets"][0]["functions"][0]["name"] == "predict" and data["targets"][0][
        "runs_here"]


@pytest.mark.parametrize(("stage", "word"), [
    ("graph", "matmul"), ("plan", "kernels, arena"), ("ir", "kernel"), ("text", "define"),
    ("asm", ".globl")])
@pytest.mark.parametrize("device", ["cpu:scalar", "cpu:neon"])
def test_show(run: Run, stage: str, word: str, device: str) -> None:
    how = ("--stage", stage, "--device", device, "--batch-size", 2)
    assert word in ok(run("show", "digits_mlp", *how))
    if device == "cpu:scalar":
        assert "optimizer" in ok(run("show", "digits_mlp", *how, "--function", "train"))


def test_explain(run: Run) -> None:
    """Times of kernels on GPUs that are not here: a table, or JSON that it is made from."""
    how = ("explain", "digits_mlp", "--function", "train", "--batch-size", 4)
    page = ok(run(*how, "--device", "cuda:sm_90a", "--rows", 3))
    lines = page.splitlines()
    assert lines[0] == "train of digits_mlp on H200 (cuda:sm_90a), predicted, not measured"
    assert lines[2].split()[:2] == ["kernel", "launches"] and "matmul" in "".join(lines[3:7])
    known = json.loads(ok(run(*how, "--gpu", "h200", "--json")))
    assert known["launches"] == len(known["kernels"]) <= 60
    assert f"launches  {known['launches']} in {known['waves']} waves" in page
    each = sum(k["launches"] * k["l2_bytes"] for k in known["kernels"]) / known["launches"]
    assert f"waves, which read and write {each / 1e3:,.4g} KB each on average" in page
    assert f"{known['seconds'] * 1e6:,.1f} µs" in page
    longest = max(known["kernels"], key=lambda k: k["seconds"])
    assert lines[3].split()[:3] == [longest["kernel"], "1", f"{longest['seconds'] * 1e6:.2f}"]
    assert f"... and {known['launches'] - 3} more kernels" in page


def test_show_of_an_artifact_is_of_its_model_and_device(run: Run, own: Path) -> None:
    ok(run("export", own, "-o", "own.zt", "--train", "--device", "cpu:scalar", "--batch-size", 3))
    for stage, function in (("graph", "train"), ("ir", "predict"), ("text", "predict")):
        how = ("--stage", stage, "--function", function)
        assert ok(run("show", "own.zt", *how)) == ok(run(
            "show", own, *how, "--device", "cpu:scalar", "--batch-size", 3))
    assert ok(run("show", "own.zt", "--stage", "text", "--device", "cpu:neon")) == ok(run(
        "show", own, "--stage", "text", "--device", "cpu:neon", "--batch-size", 3))
    assert "float32[7, 3]" in ok(run("show", "own.zt", "--batch-size", 7))
    assert "abs" in ok(run("show", "own.zt", "--loss", "mae", "--function", "train"))
    fails(run("show", "own.zt", "--function", "trian"), "did you mean 'train'")


def test_anything_that_holds_a_model(run: Run, own: Path, artifact: Path) -> None:
    for words in (["run", "lenet", "x.npy"], ["export", own, "-o", "x.zt"],
                  ["export", "lenet", "--so", "-o", "c"], ["generate", "lenet"]):
        fails(run(*words), r"its weights are random; train it first: ztorch train \S+ (--data DATA )?--out")
    assert "--weights FILE; or write the random ones: --random" in run(
        "export", own, "-o", "x.onnx").stderr
    assert "loss        sparse_categorical" in ok(run("inspect", "digits_mlp"))
    Path("digits_mlp").write_bytes(artifact.read_bytes())  # an artifact may have any name
    assert "Trained for 2 epochs" in ok(run("inspect", "digits_mlp"))


def test_devices(run: Run) -> None:
    assert ok(run("devices")).startswith("cpu: ")
    actual = json.loads(ok(run("devices", "--json")))
    assert actual[0]["id"] == "cpu" and actual[0]["threads"] >= 1
    assert {d["id"].split(":")[0] for d in actual} == {"cpu", "c", *registry.names()} - {"dummy"}
    assert all(d["available"] != bool(d["reason"]) for d in actual)
    assert any(level["available"] for level in actual[0]["levels"])
    assert all(level["reason"] for level in actual[0]["levels"] if not level["available"])


def test_devices_lists_the_c_compiler(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def row() -> dict[str, object]:
        return json.loads(ok(run("devices", "--json")))[1]

    monkeypatch.setenv("CC", sys.executable)  # it need only be there
    assert f"\nc: C99 compiled by {sys.executable} (cpu), " in ok(run("devices"))
    assert row()["id"] == "c" and row()["available"] and row()["kind"] == "cpu"
    for wrong in ("no-such-cc -v", "gcc '"):
        monkeypatch.setenv("CC", wrong)
        assert re.search(r"Not here:\n  c +CC=.* is not a command that can be run", ok(run("devices")))
        assert not row()["available"] and f"CC={wrong!r} is not a command that can be run" in str(row()["reason"])


def test_bench(run: Run, own: Path) -> None:
    output = ok(run("bench", own, "--batch-sizes", "2,4", "--seconds", "0.01", "--threads", 1))
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["batch", "2", "4"]


def test_bench_profiles_kernels(run: Run, own: Path) -> None:
    output = ok(run("bench", own, "--batch-sizes", "2", "--seconds", "0.01", "--threads", 1, "--profile"))
    tables = output.split("\nbatch 2: ")[1:]
    assert [t.split()[0] for t in tables] == ["predict", "train"]
    assert all(re.search(r"\d us: .* GFLOP/s; at best .* us, \d+%\n.* GFLOP/s; GB/s: ", t) for t in tables)


@pytest.mark.parametrize(("count", "end"), [(20, "c18, c19"), (21, "c18, c19, ...")])
def test_many_classes_are_cut(run: Run, count: int, end: str) -> None:
    model = zt.Sequential([zt.Input((2,)), zt.layers.Dense(count, activation="softmax")])
    model.pipeline = zt.Pipeline.of_classes([f"c{k:02}" for k in range(count)])
    model.compile("cpu:scalar", batch_size=1).save("m.zt")
    [line] = [line for line in ok(run("inspect", "m.zt")).splitlines() if line.startswith("Predicts")]
    assert line.startswith("Predicts one of: c00, c01, ") and line.endswith(end)


def test_commands_without_docstrings_have_examples() -> None:
    """Python leaves docstrings out with -OO."""
    def command() -> None:
        pass

    assert "ztorch zoo" in examples("ztorch zoo")(command).__doc__
