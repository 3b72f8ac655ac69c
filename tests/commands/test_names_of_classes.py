"""Names of classes and columns go from a trained artifact into C libraries and pages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.artifact.c_interface import literal
from ztorch.errors import ConfigError

NAMES = ['cat "Tom"', "größe ??/", "back\\slash"]
PROGRAM = """
#include <stdio.h>
#include "named.h"
static const char *const names[] = NAMED_CLASS_NAMES;
static const char *const columns[] = NAMED_FEATURE_NAMES;
static const char *const units[] = NAMED_FEATURE_UNITS;
int main(void)
{
    for (unsigned k = 0; k < NAMED_OUTPUT_SIZE; k++) printf("%s|", names[k]);
    for (unsigned k = 0; k < NAMED_INPUT_SIZE; k++) printf("%s|%s|", columns[k], units[k]);
    printf("%s|", NAMED_TARGET_NAME);
    return 0;
}
"""


@pytest.fixture
def artifact(run: Run) -> str:
    table = zt.data.table({"size [mm]": [1.0, 2, 3], "kind": NAMES}, "kind", category=["kind"])
    model = zt.Sequential([zt.layers.Input((1,)), zt.layers.Dense(3, "softmax")], name="named")
    model.pipeline = zt.Pipeline(table)
    model.compile("cpu:scalar", batch_size=1).save("named.zt")
    return "named.zt"


def test_a_c_program_has_the_names(run: Run, artifact: str) -> None:
    loaded = zt.load_model(artifact)
    assert sorted(loaded.pipeline.classes) == sorted(NAMES)
    ok(run("export", artifact, "--random", "--so", "--device", "c", "-o", "c"))
    Path("c/main.c").write_text(PROGRAM)
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    subprocess.run([compiler, "-Wall", "-Werror", "-std=c99", "main.c", "-o", "main"], cwd="c", check=True)
    text = subprocess.run(["c/main"], capture_output=True, check=True).stdout.decode()
    assert text.split("|")[:-1] == [*loaded.pipeline.classes, "size [mm]", "mm", "kind"]


def test_a_page_has_the_names(run: Run, artifact: str) -> None:
    ok(run("export", artifact, "--random", "--web", "-o", "page"))
    record = zt.load_model("page/named.zt").pipeline.record
    assert sorted(record.classes) == sorted(NAMES)


def test_a_pipeline_must_fit_its_model() -> None:
    model = zt.Sequential([zt.layers.Input((1,)), zt.layers.Dense(2, "softmax")])
    model.pipeline = zt.Pipeline.of_classes(["a", "b", "c"])
    with pytest.raises(ConfigError, match="as many classes as the model has outputs"):
        model.compile("cpu:scalar", batch_size=1)
    model.pipeline = None
    program = model.compile("cpu:scalar", batch_size=1)
    with pytest.raises(ConfigError, match="as many classes as the model has outputs"):
        model.pipeline = zt.Pipeline.of_classes(["a", "b", "c"])
    model.pipeline = zt.Pipeline.of_classes(["a", "b"])  # after compile, too
    assert model.pipeline.classes == program.pipeline.classes == ("a", "b")


def test_literals_are_ascii() -> None:
    assert literal('é"?\\') == '"\\303\\251\\"\\?\\\\"'


def test_more_classes_than_outputs_are_named(run: Run) -> None:
    Path("three.csv").write_text("size,kind\n" + "1,cat\n2,dog\n3,bird\n" * 2)
    Path("two.py").write_text("from ztorch import Sequential, layers as L\n"
                              "LOSS = 'sparse_categorical_crossentropy'\n"
                              "model = Sequential([L.Input((1,)), L.Dense(2, 'softmax')])\n")
    fails(run("train", "two.py", "--data", "three.csv", "--device", "cpu:scalar"),
          r"3 classes \(.*cat.*\), and the model 2 outputs; its last layer needs 3")
