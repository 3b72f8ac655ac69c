"""Models as C source: one file and a header, which any compiler takes in any C, to the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases.c_programs import DRIVER, HOSTILE, STEPS, call, net
from tests.cases.covering import pairs
from tests.codegen.c.compilers import (
    COMPILERS,
    SANITIZED,
    STRICT,
    every_compiler,
    needs_compiler,
    run,
)
from ztorch import layers as L
from ztorch.artifact.c_interface import identifier
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile.c_library import compile_c, export_c
from ztorch.compile.pipeline import build
from ztorch.errors import Unsupported
from ztorch.model.sequential import Sequential

pytestmark = needs_compiler
OPTIONS = [(), ("-O3", "-march=native"), ("-O2", "-fno-math-errno"), SANITIZED]


def option_words(options: str | tuple[str, ...]) -> str:
    return options if isinstance(options, str) else " ".join(options) or "plain"


@pytest.fixture(scope="module", params=["float32", "float64"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, and the driver with the options and answers it takes; scalar code makes them."""
    folder, traced = tmp_path_factory.mktemp("net"), net(request.param)
    paths = export_c(traced, folder, device="c")
    assert [p.name for p in paths] == ["net.c", "net_example.c", "net.h"]
    executable = build(traced.functions, "cpu:scalar", "net")
    random = np.random.default_rng(1)
    inputs, expected = b"", b""
    for step in range(STEPS):
        x = random.normal(size=(5, 101)).astype(request.param)
        t = random.integers(0, 7, 5).astype(np.int32)
        w = random.uniform(0, 2, 5).astype(request.param)
        inputs += x.tobytes() + t.tobytes() + w.tobytes()
        y = call(executable, "predict", x=x)["y"]
        scores = call(executable, "train", x=x, y=t, w=w if step % 2 else np.ones(5),
                      real=np.ones(5))
        if step == 0:
            scores["accuracy"][...] = 0  # the driver did not ask for it
        after = call(executable, "evaluate", x=x, y=t, w=w, real=np.ones(5))
        expected += b"".join(a.tobytes() for a in (
            y, scores["loss"], scores["accuracy"], after["loss"], after["accuracy"]))
    trained = executable.states_snapshot()
    expected += b"".join(a.tobytes() for a in trained.values())
    expected += call(executable, "predict", x=x)["y"].tobytes()
    (folder / "in.bin").write_bytes(inputs)
    (folder / "expected.bin").write_bytes(expected)
    states = "".join(f" STATE(NET_OFFSET_{identifier(n.upper())}, NET_SIZE_{identifier(n.upper())}, "
                     f"{'int' if a.dtype.kind in 'iu' else 'number'})" for n, a in trained.items())
    number = {"float32": "float", "float64": "double"}[request.param]
    (folder / "driver.c").write_text(
        f"#define number {number}\n#define ALL_STATES {states}\n#define OUT \"out.bin\"\n"
        f'#include "{DRIVER}"\n')
    return folder


# Each run takes all options by one of the compilers, in turn, and test_programs.py all ops by both.
@pytest.mark.parametrize(("compiler", "options"), pairs(COMPILERS, OPTIONS), ids=option_words)
def test_it_computes_the_same_bits(exported: Path, compiler: str, options: tuple[str, ...]) -> None:
    run(compiler, *STRICT, *options, f"-I{exported}", "driver.c", "net.c", "-o", "program",
        cwd=exported)
    run(exported / "program", cwd=exported)
    assert (exported / "out.bin").read_bytes() == (exported / "expected.bin").read_bytes()


def test_the_caller_s_memory_is_where_it_works(tmp_path: Path) -> None:
    """Two models in turns, each with params and an arena of exactly the size that it asks for."""
    traced = net()
    export_c(traced, tmp_path, device="c")
    (tmp_path / "two.c").write_text(TWO)
    run("cc", *STRICT, *SANITIZED, "two.c", "net.c", "-o", "two", cwd=tmp_path)
    executable = build(traced.functions, "cpu:scalar", "net")
    x = np.full((5, 101), 0.25, np.float32)
    first = call(executable, "predict", x=x)["y"]
    ones = np.ones(5, np.float32)
    call(executable, "train", x=x, y=np.zeros(5, np.int32), w=ones, real=ones)
    second = call(executable, "predict", x=x)["y"]
    run(tmp_path / "two", cwd=tmp_path)
    assert (tmp_path / "two.bin").read_bytes() == first.tobytes() + second.tobytes()


TWO = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static float x[NET_BATCH * NET_INPUT_SIZE], y[NET_BATCH * NET_OUTPUT_SIZE];
static int t[NET_BATCH];
int main(void)
{
    void *one = malloc(net_params_bytes()), *other = malloc(net_params_bytes());
    void *arena = malloc(net_arena_bytes());
    FILE *out = fopen("two.bin", "wb");
    unsigned long k;
    for (k = 0; k < NET_BATCH * NET_INPUT_SIZE; k++)
        x[k] = 0.25f;
    net_init(one);
    net_init(other);
    net_train_step_in(x, t, 0, 0, 0, 0, one, arena);
    net_predict_in(x, y, other, arena);
    fwrite(y, 1, sizeof y, out);
    net_predict_in(x, y, one, arena);
    fwrite(y, 1, sizeof y, out);
    free(one);
    free(other);
    free(arena);
    return fclose(out);
}
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_gives_a_valid_file(tmp_path: Path, name: str) -> None:
    model = Sequential([L.Input((3,)), L.Dense(2)], name="plain")
    source, example, header = export_c(model.trace(1, "sgd", "mse"), tmp_path, name=name, device="c")
    assert {source.parent, example.parent, header.parent} == {tmp_path}
    run("cc", *STRICT, example, source, "-o", "example", cwd=tmp_path)
    run(tmp_path / "example", cwd=tmp_path)


@pytest.mark.parametrize("target", [t for t in TARGETS.values() if t.limits.grid],
                         ids=lambda t: t.name)
def test_other_devices_have_no_c_library(target: Target) -> None:
    with pytest.raises(Unsupported, match=f"{target.name} is not one; export it for the device cpu"):
        compile_c(net(trains=False).functions, target, "net")


@every_compiler
def test_sums_that_would_round_otherwise_do_not_compile(exported: Path, compiler: str) -> None:
    with pytest.raises(AssertionError, match="Every operation rounds to its own type"):
        run(compiler, "-ffast-math", "-c", "net.c", "-o", "net.o", cwd=exported)
