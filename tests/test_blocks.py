"""The code on the pages that tests/test_docs.py does not run from top to bottom: the reader's earlier
objects (a trained program, a file of another framework) are created first."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch.cli import main
from ztorch.host import settings
from ztorch.host.choices import choices
from ztorch.host.plugins import GROUP
from ztorch.sources.find import find

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN_FROM_THE_TOP = ("index", "tutorial")  # by tests/test_docs.py, as all guides
SKETCHES = "CONTRIBUTING"  # parts to add to files, not programs


def blocks(page: Path, *kinds: str) -> list[str]:
    """The blocks of a page in these languages."""
    return [code for kind, code in BLOCK.findall(page.read_text()) if kind in kinds]


def net(*layers: L.Layer, shape: tuple[int, ...] = (3,)) -> zt.Sequential:
    return zt.Sequential([L.Input(shape), *layers])


def for_data() -> dict[str, Any]:
    """A folder of pictures, and a program for them."""
    image = pytest.importorskip("PIL.Image")
    for k in range(6):
        (kind := Path("flowers", "ab"[k % 2])).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (70, 66), (40 * k, 90, 9)).save(kind / f"{k}.png")
    program = net(L.Flatten(), L.Dense(2, activation="softmax"), shape=(64, 64, 3)).compile(
        "cpu", batch_size=4, optimizer="sgd", loss="sparse_categorical_crossentropy")
    return {"program": program}


def for_weights() -> dict[str, Any]:
    """A file of Keras, and a network of PyTorch."""
    pytest.importorskip("h5py")
    torch, safetensors = references.torch(), pytest.importorskip("safetensors.torch")
    net(L.Dense(2)).save("model.keras")
    n = torch.nn
    lenet = n.Sequential(n.Conv2d(1, 6, 5, padding=2), n.ReLU(), n.MaxPool2d(2), n.Conv2d(6, 16, 5),
                         n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(400, 120), n.ReLU(),
                         n.Linear(120, 10))
    return {"x": np.ones((5, 3), "f"), "torch": torch, "net": lenet,
            "safetensors": __import__(safetensors.__name__.partition(".")[0])}


def for_onnx() -> dict[str, Any]:
    """Files of ONNX, and a network of PyTorch."""
    onnx, torch = pytest.importorskip("onnx"), references.torch()
    zt.onnx.save(net(L.Dense(2)), "resnet.onnx")
    make = onnx.helper
    value = make.make_tensor_value_info
    onnx.save(make.make_model(make.make_graph(
        [make.make_node("Resize", ["x", "", "", "sizes"], ["y"])], "g",
        [value("x", 1, [1, 3, 32, 32]), value("sizes", 7, [4])], [value("y", 1, [1, 3, 64, 64])]),
        opset_imports=[make.make_opsetid("", 17)], ir_version=8), "resize.onnx")
    return {"x": torch.ones(5, 3), "torch": torch, "net": torch.nn.Linear(3, 2),
            "batch": torch.export.Dim("batch")}


def for_hugging_face() -> dict[str, Any]:
    """A folder of GPT-2."""
    shutil.copytree(ROOT / "tests" / "interchange" / "folders" / "GPT2LMHeadModel", "folder")
    return {"ids": [3, 1, 4]}


def for_nothing() -> dict[str, Any]:
    return {}


SMALLER: dict[Any, dict[str, str]] = {  # where the files of tests are
    for_hugging_face: {"64": "8", "20": "4"}}


@pytest.mark.parametrize("page, prepare", [
    ("README.md", for_nothing), ("docs/data.md", for_data), ("docs/weights.md", for_weights),
    ("docs/zoo.md", for_nothing), pytest.param("docs/onnx.md", for_onnx, marks=pytest.mark.full),
    pytest.param("docs/weights.md", for_hugging_face, marks=pytest.mark.full)],
    ids=lambda x: Path(x).stem if isinstance(x, str) else x.__name__)
def test_python_of_a_page_runs(page: str, prepare: Callable[[], dict[str, Any]], tmp_path: Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"zt": zt, "L": L, "np": np, "__name__": "page", **prepare()}
    for code in blocks(ROOT / page, "python"):
        if ("folder/" in code) == (prepare is for_hugging_face):
            for large, small in SMALLER.get(prepare, {}).items():
                code = code.replace(large, small)
            if "program.weights" in code:  # of the model that stands there
                names["program"] = names["model"].compile("cpu:scalar", batch_size=1)
            exec(compile(code, page, "exec"), names)


def test_the_layers_that_the_compiler_page_follows_are_those_of_the_zoo() -> None:
    [code] = blocks(DOCS / "compiler.md", "python")
    layers = eval(f"[{code}]", {"L": L})
    assert zt.Sequential(layers, name="digits_mlp", seed=1).get_config() == find(
        "digits_mlp").model.get_config()


def commands() -> list[tuple[str, list[str]]]:
    """Each call of ztorch on any page, with its words."""
    result = []
    for page in PAGES:
        for code in blocks(page, "sh", "bash"):
            for line in code.replace("\\\n", "").splitlines():
                words = shlex.split(line, comments=True)
                if "ztorch" in words:
                    result.append((page.stem, words[words.index("ztorch") + 1:]))
    return result


def test_commands_of_all_pages_are_accepted() -> None:
    """Names and options; tests/commands runs each command, and the tutorial's are run as they stand."""
    actual = commands()
    assert len(actual) >= 30 and {"web", "tables", "devices", "performance"} <= {p for p, _ in actual}
    for page, words in actual:
        command: Any = main
        name = ""
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            name, command, words = words[0], command.commands[words[0]], words[1:]
        assert name, (page, words)
        words = [word for word in words if word not in ("|", "&&")]
        try:
            command.parse_args(click.Context(command, info_name=name), list(words))
        except click.UsageError as error:
            raise AssertionError(f"{page}: ztorch {name} {shlex.join(words)}: {error}") from error


def test_every_page_is_run_here_or_from_its_top() -> None:
    """No page has Python that nothing runs."""
    here = {"README", "data", "weights", "zoo", "compiler", "onnx", SKETCHES}
    for page in PAGES:
        if blocks(page, "python") and page.parent.name != "guides":
            assert page.stem in {*here, *RUN_FROM_THE_TOP}, page


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads no TOML")
def test_toml_of_pages_is_read(tmp_path: Path) -> None:
    """The choice of devices, and the entry point of a backend."""
    import tomllib

    [choice] = blocks(DOCS / "devices.md", "toml")
    (path := tmp_path / "config.toml").write_text(choice)
    with settings.using(config=str(path)):
        chosen = choices()
    assert chosen.enabled == ("cpu", "cuda", "opencl") and chosen.default == "cuda:0"
    assert chosen.devices == {"cuda": (0, 1)} and chosen.platforms == {"opencl": ("NVIDIA",)}
    [entry] = blocks(DOCS / "guides" / "backends.md", "toml")
    assert tomllib.loads(entry)["project"]["entry-points"][GROUP] == {"mydevice": "my_package"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_lines_of_c_compile_and_run(tmp_path: Path) -> None:
    [lines] = blocks(DOCS / "guides" / "deployment.md", "c")
    model = net(L.Dense(10, activation="softmax"), shape=(64,))
    model.name = "digits"
    model.export(tmp_path / "c", "cpu", format="c", batch_size=1)
    (tmp_path / "main.c").write_text(f"""#include <stdio.h>
#include <string.h>
#include "digits.h"
int main(void) {{
{lines.replace("digits_predict(", "memset(x, 0, sizeof x); digits_predict(")}
  float sum = 0;
  for (int k = 0; k < DIGITS_OUTPUT_SIZE; k++) sum += y[k];
  printf("%.3f", sum);
  return 0;
}}
""")
    subprocess.run(["cc", "main.c", "-Ic", "c/libdigits.a", "-o", "main"], cwd=tmp_path, check=True, timeout=60)
    assert subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout == "1.000"
