"""ztorch export --web."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.commands.web_data import page_options
from ztorch.sources.find import find


def test_a_page_is_written(run: Run, tmp_path: Path) -> None:
    output = ok(run("export", "digits_mlp", "--web", "--random", "-o", "my page"))
    assert "predict for webgpu and wasm" in output and "Open my page/index.html in a browser" in output
    assert {p.name for p in (tmp_path / "my page").iterdir()} == {"digits_mlp.zt", "ztorch.js",
                                                                  "index.html"}
    taken = run("export", "digits_mlp", "--web", "--train", "--device", "webgpu", "-o", "my page")
    assert ok(taken) and taken.stderr == "digits_mlp: takes the trained weights that come with it\n"
    with zipfile.ZipFile(tmp_path / "my page" / "digits_mlp.zt") as file:
        spec = json.loads(file.read("manifest.json"))["targets"][0]["spec"]
    assert [f["name"] for f in spec["functions"]] == ["predict", "train", "evaluate"]
    assert "For webgpu" in ok(run("inspect", "my page/digits_mlp.zt"))


@pytest.mark.parametrize("words, message", [
    (["-o", "page", "--so"], "--so is for C programs and --web for browsers: export twice"),
    (["-o", "page", "--device", "cpu"], "a web page runs on WebGPU and WebAssembly: omit device 'cpu'"),
    (["-o", "page", "--random", "--samples", "digits_28"], "samples have rows of shape"),
    (["-o", "index.html"], "format 'web' writes several files to a folder, and 'index.html'"),
])
def test_what_is_no_page_is_named(run: Run, words: list[str], message: str) -> None:
    fails(run("export", "digits_mlp", "--web", *words), message)


def test_samples_are_for_pages(run: Run) -> None:
    fails(run("export", "digits_mlp", "--samples", "digits", "-o", "digits.zt"), "--samples is for a page: add --web")


def test_the_samples_of_a_page(tmp_path: Path) -> None:
    """Those of the options, of the model's file, or of the model of the zoo that has its name."""
    recipe = find("digits_mlp")
    for own in (recipe, replace(recipe, data=None)):
        assert page_options(own, None)["samples"][0].shape == (364, 8, 8, 1)
    net = zt.Sequential([zt.Input((8, 8, 1)), zt.layers.Flatten(), zt.layers.Dense(10)], name="net")
    unknown = replace(recipe, model=net, data=None, stand_in=None)
    assert page_options(unknown, None) == {}
    assert page_options(unknown, "digits")["samples"][0].shape == (364, 8, 8, 1)
    flat = zt.Sequential([zt.Input((5,)), zt.layers.Dense(10)], name="net")
    assert page_options(replace(unknown, model=flat, data="digits"), None) == {}  # they do not fit
