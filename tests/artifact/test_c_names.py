"""C libraries of models whose names, and whose layers' names, C would choke on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases.c_programs import HOSTILE, LANGUAGES, WARN, needs_gcc, run
from ztorch import layers as L
from ztorch.artifact.c_export import CLibrary
from ztorch.artifact.c_interface import describe
from ztorch.compile.c_library import export_c
from ztorch.dtypes import f32, i32
from ztorch.model.sequential import Sequential
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec, TensorSpec

pytestmark = needs_gcc


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_gives_a_valid_library(tmp_path: Path, name: str) -> None:
    model = Sequential([L.Input((3,)), L.Dense(2)], name="plain")
    files = export_c(model.trace(1, "sgd", "mse"), tmp_path, name=name)
    assert {f.parent for f in files} == {tmp_path}
    example = next(f for f in files if f.suffix == ".c")
    for compiler, *standard in LANGUAGES.values():
        run(compiler, *standard, *WARN, "-fsyntax-only", example, cwd=tmp_path)
    run("gcc", example, files[1], "-o", "example", cwd=tmp_path)
    run(tmp_path / "example", cwd=tmp_path)


def test_names_of_layers_and_metrics_do_not_collide(tmp_path: Path) -> None:
    """Names that C would take for the same, for keywords, for the end of a comment."""
    layers = ["a b", "a-b", "A_B", "a_b", "ä", "ö", "*", "__", 'q"', "\\", "??", "a_b_2"]
    states = {n: StateSpec(f"{n}/kernel", (2, 3), f32, 64 * k, "weight", True)
              for k, n in enumerate(layers)}
    x, y, w = (TensorSpec(n, (4, 2), f32) for n in "xyw")
    scores = ["loss", "int", "x", "params", "arena", "*/", "a b", "a_b", "größe", "this", "w"]
    train = FunctionSpec("train", "zt_train", {"x": x, "y": TensorSpec("y", (4, 2), i32), "w": w},
                         {s: TensorSpec(s, (), f32) for s in scores}, 1.0)
    predict = FunctionSpec("predict", "zt_predict", {"x": x}, {"y": y}, 1.0)
    spec = ProgramSpec("odd", "neon", "aarch64", ("neon",), {"predict": predict, "train": train},
                       states, 64 * len(layers), 0, ())
    c = describe(spec, "odd", {"train"})
    assert len({s.macro for s in c.states}) == len(layers)
    assert len({t.name for f in c.functions[1:] for t in (*f.inputs, *f.outputs)}) == 14
    library = CLibrary(c, "aarch64", b"", np.zeros(0, np.uint8))
    for template in ("model.h", "example.c"):
        (tmp_path / template.replace("model", "odd")).write_bytes(library.text(template))
    for compiler, *standard in LANGUAGES.values():
        run(compiler, *standard, *WARN, "-fsyntax-only", "example.c", cwd=tmp_path)


def test_the_abi_checksum_covers_the_callers_buffers() -> None:
    x, y = TensorSpec("x", (2, 3), f32), TensorSpec("y", (2, 3), f32)
    spec = ProgramSpec("net", "scalar", "x86_64", (), {
        "predict": FunctionSpec("predict", "f", {"x": x}, {"y": y}, 1.0)}, {}, 64, 64, ())
    sizes = [spec, spec.replace(arena_bytes=65), spec.replace(params_bytes=65)]
    assert len({describe(s, "net", ()).abi for s in sizes}) == 3
    assert describe(spec.replace(arena_bytes=63), "net", ()).abi == describe(spec, "net", ()).abi


def test_two_scores_of_one_value_are_both_written(tmp_path: Path) -> None:
    """A metric that is the loss again, and a model without weights."""
    model = Sequential([L.Input((3,)), L.ReLU()], name="net")
    export_c(model.trace(2, None, "mse", ["mse"]), tmp_path)
    (tmp_path / "p.c").write_text("""
#include "net.h"
int main(void)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0, 0, 0, 0, 0, 0}, loss = -1, again = -2;
    net_evaluate(x, y, 0, 0, &loss, &again);
    return loss != again || loss < 15 || loss > 16;
}
""")
    run("gcc", *WARN, "p.c", "libnet.a", "-o", "p", cwd=tmp_path)
    run(tmp_path / "p", cwd=tmp_path)
