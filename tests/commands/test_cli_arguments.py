"""The command line: help, completion and error messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import ShellComplete

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.cli import main

ROOT = Path(zt.__file__).parents[1]


def digits(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    x, y = zt.data.load("digits")[1]
    return x[:rows], y[:rows]


def test_every_command_teaches(run: Run) -> None:
    for name, command in main.commands.items():
        text = ok(run(name, "--help"))
        assert f"ztorch {name}" in text and "Examples:" in text
        short = command.get_short_help_str(200)
        assert len(short) < 60 and short in ok(run("--help"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run: Run, shell: str) -> None:
    script = ok(run("completion", shell))
    assert "_ZTORCH_COMPLETE" in script
    assert ("COMP_WORDBREAKS//:" in script) == (shell == "bash")  # cuda:sm_90 is one word


@pytest.mark.parametrize(("words", "some"), [
    ("train m --loss kind=mean_squared_e", ["kind=mean_squared_error"]),
    ("train m --metrics accuracy,auc", ["accuracy,auc"]),
    ("train m --optimizer ada", ["adam", "adamw", "adagrad"]),
    ("export m --device cuda:sm_9", ["cuda:sm_90", "cuda:sm_90a"]),
    ("export m --device cpu:ze", ["cpu:zen3"]), ("export m --dtype mixed", ["mixed_bfloat16"]),
    ("train m --data frie", ["friedman"]), ("show n", ["net.py", "net.zt"]), ("show d", ["digits_mlp"]),
    ("train t", ["t.csv", "text_classifier"]), ("report t", ["text_classifier"]), ("tune l", ["list", "lenet"]),
    ("bench sub/", ["sub/other.onnx"])])
def test_shells_complete(words: str, some: list[str], tmp_path: Path,
                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for file in ("net.py", "net.zt", "notes.txt", "sub/other.onnx", "t.csv"):
        (tmp_path / file).write_text("")
    *before, typed = words.split()
    offered = [item.value for item in ShellComplete(main, {}, "ztorch", "_X").get_completions(
        before, typed)]
    assert set(some) <= {*offered} and all(name.startswith(typed) for name in offered)


def test_zoo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztorch.sources.find.zoo", lambda: ["autoencoder", "digits_mlp", "unet"])
    page = ok(run("zoo"))
    assert re.search(r"digits_mlp +17,226 +8 x 8 x 1 +digits +accuracy 0.97 +yes\n", page)
    assert page.endswith("as NAME:small: unet\n")
    rows = json.loads(ok(run("zoo", "--json")))
    assert rows[0] == {"name": "autoencoder", "parameters": 10448, "input_shape": [8, 8, 1],
                       "data": "digits", "bar": {"loss": 0.012}, "small": False, "trained": True}


def test_custom_layers_on_the_command_line(run: Run, tmp_path: Path) -> None:
    """In a new process, which does not know them."""
    (tmp_path / "own.py").write_text(
        "import ztorch as zt\nclass Odd(zt.layers.Layer):\n    def call(self, x):\n        return x * 3.0\n"
        "def build():\n    return zt.Sequential([zt.layers.Input((2,)), Odd(), zt.layers.Dense(1)])\n")
    ok(run("export", "own.py", "--random", "-o", "own.zt", "--device", "cpu:scalar"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for more, status, word in ((), 1, "--custom FILE.py"), (("--custom", "own.py"), 0, "matmul"):
        ran = subprocess.run([sys.executable, "-m", "ztorch", "show", "own.zt", *more], text=True,
                             capture_output=True, env=environment, check=False)
        assert ran.returncode == status and word in ran.stdout + ran.stderr


def test_completion_lists_the_models() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_ZTORCH_COMPLETE": "bash_complete",
                   "COMP_WORDS": "ztorch train dig", "COMP_CWORD": "2"}
    code = "from ztorch.cli import main; main(prog_name='ztorch')"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, text=True,
                         capture_output=True, check=False)
    assert ran.stdout == "dir,dig\nplain,digits_cnn\nplain,digits_mlp\n"


@pytest.mark.parametrize(("words", "message"), [
    (["train", "digts_mlp"], "unknown model 'digts_mlp'; did you mean 'digits_mlp'"),
    (["train", "none.py"], "no model file none.py"),
    (["train", "digits_mlp", "--data", "digit"], "data set 'digit'; did you mean 'digits'"),
    (["train", "digits_mlp", "--data", "none.csv"], "there is no file none.csv"),
    (["train", "digits_mlp", "--data", "a.npy,b.npy,c.npy"], r"3 file\(s\)"),
    (["train", "digits_mlp", "--data", "a.npy,b.npy"], "cannot read a.npy"),
    (["train", "digits_mlp", "--out", "model.pkl"], "must end in .zt or .safetensors"),
    (["train", "digits_mlp", "--out", "no/such/model.zt"], "no folder .*such"),
    (["train", "digits_mlp", "--optimizer", "adan"], "did you mean 'adam'"),
    (["train", "digits_mlp", "--loss", "crossentropy"], "unknown loss"),
    (["train", "digits_mlp", "--metrics", "acuracy"], "did you mean 'accuracy'"),
    (["train", "digits_mlp", "--device", "cpu:avx3"], "unknown device 'cpu:avx3'"),
    (["train", "digits_mlp", "--val", "2"], "--val must be .* not 2.0"),
    (["train", "mnist_mlp", "--data", "mnist"], "no mnist files"),
    (["train", "digits_mlp", "--data", "."], r"\. should hold a folder of images for each class"),
    (["train", "digits_mlp", "--data", "x.npy,"], r"'x.npy,' names 1 file\(s\); pass x.npy,y.npy"),
    (["train", "digits_mlp", "--val", ""], "the name of the data is empty"),
    (["train", "digits_mlp", "--optimizer", ""], "unknown optimizer ''"),
    (["train", "digits_mlp", "--loss", "a=mse"], "needs no name: --loss mse"),
    (["train", "digits_mlp", "--out", ""], r"'' must end in \.zt"),
    (["export", "digits_mlp", "--so", "-o", ""], "'' does not look like one"),
    (["export", "digits_mlp", "--so", "-o", "d.zt"], "writes several files to a folder, and 'd.zt'"),
    (["export", "digits_mlp", "--optimizer", "sgd", "-o", "d.zt"], "--optimizer is for .* --train"),
    (["bench", "digits_mlp", "--device", "cuda:sm_90"], "names a chip, .* not run on"),
    (["export", "digits_mlp", "-o", "x.zip"], "must end in .zt"),
    (["export", "digits_mlp", "--batch-size", "8", "-o", "x.keras"], "--batch-size is for a compiled program"),
    (["export", "digits_mlp", "-o", "x.zt", "--weights", "none"], "cannot read none"),
    (["run", "none.zt", "x.npy"], "cannot read none.zt"),
    (["inspect", "none.zt"], "cannot read none.zt"),
    (["explain", "digits_mlp", "--device", "c"], "there are no figures for"),
    (["explain", "digits_mlp", "--gpu", "H20"], "unknown GPU 'H20'; did you mean 'H200'?"),
    (["explain", "digits_mlp", "--gpu", "M2 Max", "--assemble"], "omit --assemble"),
    (["show", "digits_mlp", "--function", "trian"], "did you mean 'train'"),
])
def test_errors(run: Run, words: list[str], message: str) -> None:
    fails(run(*words), message)


@pytest.mark.parametrize(("words", "message"), [
    (["trian"], "there is no command 'trian'; did you mean 'train'"),
    (["train"], "Missing argument 'MODEL'"),
    (["export", "digits_mlp", "--format", "c"], "No such option.*--format.*the suffix of --out"),
    (["train", "digits_mlp", "--epoch", "3"], "No such option.*--epoch.*--epochs"),
    (["train", "digits_mlp", "--epochs", "0"], "0 is not in the range"),
    (["show", "digits_mlp", "--stage", "ptx"], "'ptx' is not one of"),
    (["bench", "digits_mlp", "--batch-sizes", "1,x"], "integers with commas"),
    (["bench", "digits_mlp", "--device", "c", "--profile"], "--profile is for CPUs, not c"),
    (["completion", "cmd"], "is not one of"),
])
def test_wrong_usage(run: Run, words: list[str], message: str) -> None:
    fails(run(*words), message, status=2)


@pytest.mark.parametrize(("source", "attribute", "message"), [
    ("number = ", "build", r"bad.py, line 1: SyntaxError"),
    ("x = 1\nx / 0\n", "build", r"bad.py, line 2: ZeroDivisionError"),
    ("import not_there\n", "build", r"ModuleNotFoundError"),
    ("def biuld(): pass\n", "build", r"unknown attribute 'build'; did you mean 'biuld'"),
    ("build = 3\n", "build", "build is a int, not a ztorch.Sequential"),
    ("from ztorch import Sequential\nnet = Sequential([])\n", "", "has no layers"),
    ("from ztorch import Sequential\na, b = Sequential([]), Sequential([])\n", "",
     r"bad\.py has several models \(a, b\); name one: bad\.py:a"),
    ("number = 3\n", "build", r"bad\.py has no model; write a function build\(\) that returns"),
    ("def build(): pass\n", "build", r"build\(\) returned None, not a ztorch.Sequential"),
    ("def build(): pass\n", "", r"build\(\) returned None"),
    ("import sys\nsys.exit(3)\n", "build", r"bad\.py ended with sys\.exit\(3\) before it returned a mod"),
    ("def build(n): pass\n", "build", r"build\(\) cannot be called without arguments"),
    ("from ztorch import Sequential\nnet = Sequential([])\n", "net", "has no layers"),
])
def test_bad_model_files(run: Run, tmp_path: Path, source: str, attribute: str,
                         message: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    fails(run("show", f"{tmp_path}/bad.py:{attribute}"), message)


def test_unsupported_uses_of_artifacts(run: Run, artifact: Path) -> None:
    x, y = digits()
    np.savez("d.npz", x=x, y=y)
    Path("folder.csv").mkdir()
    ok(run("export", "digits_mlp", "-o", "p.zt", "--random"))
    fails(run("train", "p.zt", "--data", "d.npz"), "p.zt only predicts; .* add --loss")
    fails(run("run", artifact, "d.npz", "-o", "y.npz"), r"the only output has no name; .* \.npy or")
    fails(run("run", artifact, "folder.csv"), "folder.csv is a folder; pass a file in it")
    fails(run("run", artifact, ""), "the name of the file is empty")
    fails(run("export", "digits_mlp", "--weights", artifact, "-o", "x.zt"),
          r"is a ztorch artifact: .*zt\.load\(path\)\.save_weights")
    assert sorted(os.listdir()) == ["d.npz", "folder.csv", "p.zt"]


def test_the_default_device_is_named_where_it_is_wrong(run: Run,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZTORCH_DEVICE", "banana")
    fails(run("bench", "digits_mlp"), "default device of ZTORCH_DEVICE or .*unknown device 'banana'")


def test_export_trains_with_the_schedule_of_the_file(run: Run, own: Path) -> None:
    schedule = "\nfrom ztorch.schedules import ExponentialDecay\nSCHEDULE = ExponentialDecay(0.1, 10, 0.5)\n"
    own.write_text(own.read_text() + schedule)
    for words, scheduled in (((), True), (("--lr", 0.2), False), (("--optimizer", "sgd"), False)):
        ok(run("export", own, "--train", "-o", "s.zt", *words))
        rate = zt.load("s.zt").metadata.declaration.optimizer.config["learning_rate"]
        assert isinstance(rate, dict) is scheduled
