"""Sizes in a file that disagree with its code are refused before anything runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ztorch as zt
from tests.cases.artifacts import (
    Manifest,
    apart,
    changed,
    together,
    trainer,
    whole,
)
from tests.runtime.damaged import refuse, spec
from ztorch.runtime.load import open_artifact, read_artifact
from ztorch.runtime.spec import TensorSpec, entry_point

# -- sizes that the code relies on -----------------------------------------------------------------


@cache
def saved(several: bool) -> bytes:
    """An artifact that trains; of one input and output, or of several of other dtypes."""
    if not several:
        program = trainer()
    else:
        a, b = zt.layers.Input((4,), name="a"), zt.layers.Input((3,), dtype="int32", name="b")
        words = zt.layers.Flatten()(zt.layers.Embedding(7, 2)(b))
        y = zt.layers.Dense(2, name="y")(zt.layers.Concatenate()([a, words]))
        program = zt.Model([a, b], [y, zt.layers.Dense(3, name="z")(a)], name="two").compile(
            "cpu:scalar", batch_size=4, optimizer="adam", loss="mse")
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "t.zt")
        return (Path(folder) / "t.zt").read_bytes()


def renamed(manifest: Manifest, files: dict[str, bytes]) -> bytes:
    """An artifact whose code has the symbols that the manifest requires, for any sizes in it."""
    result = spec(manifest)
    code = files["code/scalar.so"]
    for f in result["functions"]:
        inputs, outputs = ([TensorSpec.from_json(t) for t in f[k]] for k in ("inputs", "outputs"))
        symbol = entry_point(f["name"], inputs, outputs, result["params_bytes"],
                             result["arena_bytes"])
        code = code.replace(f["symbol"].encode(), symbol.encode())
        f["symbol"] = symbol
    return together(manifest, {**files, "code/scalar.so": code})


@pytest.mark.parametrize("several", (False, True))
def test_tensors_have_the_sizes_that_the_code_expects(several: bool, tmp_path: Path) -> None:
    """If it is smaller, code would write beyond it; larger, or of another dtype, is as wrong."""
    functions = spec(apart(saved(several))[0])["functions"]
    assert len(functions) == 3
    for number, f in enumerate(functions):
        for which in ("inputs", "outputs"):
            assert f[which]
            for k in range(len(f[which])):
                lie_about(several, number, which, k, tmp_path)


def lie_about(several: bool, function: int, which: str, k: int, tmp_path: Path) -> None:
    def one(m: Manifest) -> dict[str, Any]:
        return spec(m)["functions"][function][which][k]

    shape, d = (one(apart(saved(several))[0])[key] for key in ("shape", "dtype"))
    lies: list[dict[str, Any]] = [{"shape": [*shape[:-1], n]}
                                  for n in ((shape[-1:] or [1])[0] + 1, 1 << 20)]
    lies += [{"shape": [*shape[:-1], shape[-1] - 1]}] if shape and shape[-1] > 1 else []
    lies += [{"shape": shape[::-1]}] if shape != shape[::-1] else []
    lies.append({"dtype": "uint8" if d != "uint8" else "bool"})
    for lie in lies:
        manifest, files = apart(saved(several))
        one(manifest).update(lie)
        refuse(tmp_path, together(manifest, files, rehash=False),
               r"symbol is 'zt_\w+'; it must be 'zt_\w+', for code that takes the inputs, outputs")


@pytest.mark.parametrize("change", [
    lambda m: spec(m)["functions"][0]["inputs"].reverse(),
    lambda m: spec(m)["functions"][-1]["outputs"].pop(),
    lambda m: spec(m).update(arena_bytes=0),
    lambda m: spec(m).update(arena_bytes=spec(m)["arena_bytes"] + 64),
    lambda m: spec(m)["functions"][0].update(symbol=spec(m)["functions"][1]["symbol"]),
], ids=["swapped inputs", "an output less", "no arena", "a larger arena", "another function"])
def test_no_function_is_handed_other_memory(change: Callable[[Manifest], object],
                                            tmp_path: Path) -> None:
    refuse(tmp_path, changed(change, saved(True)), "symbol is 'zt_.*it must be 'zt_")


@cache
def on_a_device() -> bytes:
    """An artifact whose code is kernels: it trains, on the device that computes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        trainer("dummy").save(Path(folder) / "t.zt")
        return (Path(folder) / "t.zt").read_bytes()


def launches(m: Manifest) -> list[list[Any]]:
    return [launch for f in spec(m)["functions"] for launch in f["launches"]]


def other_kernel(m: Manifest) -> None:
    first = launches(m)[0]
    first[0] = next(x[0] for x in launches(m) if x[1:3] != first[1:3])


@pytest.mark.parametrize("change", [
    lambda m: launches(m)[0][2][0].__setitem__(2, launches(m)[0][2][0][2] - 4),
    lambda m: launches(m)[0][2][-1].__setitem__(2, 1),
    lambda m: launches(m)[0][2][-1].__setitem__(3, not launches(m)[0][2][-1][3]),
    lambda m: launches(m)[0][2].pop(),
    lambda m: launches(m)[-1][1].__setitem__(0, launches(m)[-1][1][0] + 1),
    lambda m: spec(m)["entries"][launches(m)[0][0]][3].__setitem__(0, 1),
    lambda m: spec(m)["entries"][launches(m)[0][0]].__setitem__(0, "other"),
    other_kernel,
], ids=["a byte less", "a byte in all", "written or not", "a memory less", "a larger grid",
        "fewer threads", "another name", "another kernel"])
def test_no_kernel_is_handed_other_memory(change: Callable[[Manifest], object],
                                          tmp_path: Path) -> None:
    (tmp_path / "right.zt").write_bytes(on_a_device())
    read_artifact(tmp_path / "right.zt")
    refuse(tmp_path, changed(change, on_a_device()), r"launches\[\d+\]\[0\] is \d+; it must be the "
           r"number of a kernel whose code takes such a grid and such memories; '\w+' does not")


def test_kernels_must_be_inside_the_code(tmp_path: Path) -> None:
    """The last one ends where the code does."""
    manifest, files = apart(on_a_device())
    last = len(spec(manifest)["entries"]) - 1
    _, start, size, _ = spec(manifest)["entries"][last]
    assert start + size == len(files["code/dummy.bin"])
    message = rf"targets\[0\]\.spec\.entries\[{last}\]\[2\] is \d+; it must be a part of the \d+ bytes"
    for key in (1, 2):
        def further(m: Manifest, key: int = key) -> None:
            spec(m)["entries"][last][key] += 1
        refuse(tmp_path, changed(further, on_a_device()), message)


def test_constants_are_as_long_as_the_spec_says(tmp_path: Path) -> None:
    """Beside the states of a program that has none of its own."""
    def with_constants(nbytes: int) -> bytes:
        manifest, files = apart(whole())
        start = spec(manifest)["params_bytes"]
        spec(manifest).update(constants=[[start, 40], [start + 64, 7]], params_bytes=start + 128)
        manifest["targets"][0]["constants"] = "constants/scalar.bin"
        return renamed(manifest, {**files, "constants/scalar.bin": bytes(range(nbytes))})

    (tmp_path / "right.zt").write_bytes(with_constants(47))
    artifact = open_artifact(tmp_path / "right.zt")
    params, (first, second) = (artifact.params(artifact.targets[0]),
                               artifact.targets[0].spec.constants)
    assert params[first[0]:first[0] + 40].tolist() == list(range(40))
    assert params[second[0]:second[0] + 7].tolist() == list(range(40, 47))
    for nbytes in (0, 46, 48):
        refuse(tmp_path, with_constants(nbytes), r"targets\[0\]\.constants is 'constants/scalar.bin'; "
                                                 "it must be the name of a member of 47 bytes")


def test_code_without_the_symbol_is_not_called(tmp_path: Path) -> None:
    """Where the manifest lies about sizes and says the symbol for them, too."""
    manifest, files = apart(whole())
    spec(manifest)["functions"][0]["inputs"][0].update(shape=[2, 2])
    refuse(tmp_path, renamed(manifest, files), "its contents do not match its own hash")
    refuse(tmp_path, together(manifest, files), "a symbol of code/scalar.so")


def test_the_memory_of_a_program_is_compared_with_the_machine(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    spec(manifest)["arena_bytes"] = 1 << 39
    refuse(tmp_path, renamed(manifest, files), r"claims 549,\d+,\d+,\d+ bytes to run")


def test_states_are_those_of_the_weights(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    spec(manifest)["params_bytes"] = spec(manifest)["states"].pop()["offset"]
    refuse(tmp_path, renamed(manifest, files), "holds 'out/bias', which the manifest does not list")


@pytest.mark.parametrize(("change", "message"), [
    ({"epoch": "x"}, r"training\.epoch is 'x'; it must be an integer from 0"),
    ({"epoch": -5}, r"training\.epoch is -5; it must be an integer from 0"),
    ({"seed": 1 << 64}, r"training\.seed is \d+; it must be an integer from 0"),
    ({"resumed": 1}, r"training\.resumed is 1; it must be true or false"),
    ({"version": 2}, r"training\.version is 2"),
    ({"history": []}, r"training\.history is \[\]; it must be an object"),
    ({"history": {"history": {"loss": ["x"]}, "epoch": [0], "epochs_of": {"loss": [0]}}},
     r"training\.history\.history\.loss\[0\] is 'x'; it must be a number, one of 'nan'"),
    ({"history": {"history": {"loss": [1.0]}, "epoch": [0], "epochs_of": {}}},
     r"training\.history\.epochs_of\.loss is \[\]; it must be as many epochs as the metric"),
])
def test_where_training_stood(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    refuse(tmp_path, changed(lambda m: m["training"].update(change), saved(False)), message)


def test_training_metadata_must_be_complete(tmp_path: Path) -> None:
    refuse(tmp_path, changed(lambda m: m.update(training=3)), "training is 3; it must be an object")
    for key in ("version", "epoch", "passes", "seed", "history"):
        refuse(tmp_path, changed(lambda m, key=key: m["training"].pop(key), saved(False)),
               rf"training\.{key} is missing; it must be")
