"""The text of Metal Shading Language kernels, and their results when they run as C++.

`--update-goldens` writes the texts anew; read the difference before you keep it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available
from tests.cases.covering import full, share, today
from tests.cases.device_programs import Module
from tests.cases.jobs import Jobs, jobs, sharing
from tests.machines.metal.compiling import COMPILER
from tests.machines.metal.fake import Mac, playing
from tests.parity import Job, agree
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import f16, f32, f64
from ztorch.errors import Unsupported
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value

GOLDENS = Path(__file__).with_name("goldens")
ROOT = Path(__file__).parents[3]
METAL = TARGETS["metal"]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="kernels run as C++, by g++")


def _input(name: str, *shape: int) -> Value:
    return leaf("input", name, shape, f32)


KERNELS = {
    "elementwise": lambda: ops.where(_input("x", 300) > 0.5, ops.sqrt(_input("y", 300)), -1e-30),
    "softmax": lambda: ops.softmax(_input("x", 6, 100)),
    "product": lambda: ops.relu(ops.matmul(_input("x", 33, 20), _input("w", 20, 40))),
    "halves": lambda: ops.cast(ops.cast(_input("x", 8), f16) * 2.0, f32),
}


@pytest.mark.parametrize("name", KERNELS)
def test_goldens(name: str, request: pytest.FixtureRequest) -> None:
    text = compile_functions({"f": Graph({"y": KERNELS[name]()})}, METAL, name).text
    golden = GOLDENS / f"{name}.metal"
    if request.config.getoption("--update-goldens"):
        GOLDENS.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_what_every_text_says() -> None:
    made = compile_functions({"f": Graph({"y": KERNELS["softmax"]()})}, METAL, "f")
    assert "#pragma METAL fp contract(off)" in made.text
    assert "simd_shuffle_xor" in made.text and "fast::" not in made.text
    for name, *_, group in made.spec.entries:
        count = " * ".join(map(str, group))
        assert f"[[max_total_threads_per_threadgroup({count})]]\nkernel void {name}(" in made.text
    alone = compile_functions({"f": Graph({"y": KERNELS["softmax"]()})}, METAL.on_device({"subgroup": 0}), "f")
    assert "simd_" not in alone.text and "threadgroup float" in alone.text
    assert not re.search(r"\b(double|0x[0-9a-f.]+p)", made.text)  # C++14 has no such number


def test_there_are_no_doubles() -> None:
    x = leaf("input", "x", (3,), f64)
    with pytest.raises(Unsupported, match="metal has no float64"):
        compile_functions({"f": Graph({"y": x + 1.0})}, METAL, "f")


# -- numbers ---------------------------------------------------------------------------------------


@pytest.fixture
def mac() -> Iterator[Mac]:
    available.device.cache_clear()
    with playing(Mac()) as result:
        yield result
    available.device.cache_clear()


@pytest.fixture(scope="module")
def able() -> list[Job]:
    """Made before there is a Metal to play, which has no float64."""
    def without(some: Jobs) -> list[Job]:
        return [job for job in some if not any(v.dtype == f64 for v in job.graph.nodes())]

    return [job for op, some in sharing(2, 3, doubles=False).items() if some
            for job in without(some) or without(jobs()[op])[:1]]


@needs_compiler
@pytest.mark.parametrize("part", [
    pytest.param(slice(0, None, 40), id="some"),
    *(pytest.param(slice(k, None, 6), id=f"{k}", marks=pytest.mark.slow) for k in range(6))])
def test_every_op(able: list[Job], mac: Mac, part: slice) -> None:
    module = Module(able[part], "metal")
    for k, job in enumerate(able[part]):
        agree(job, module.run(k), terms=20)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("families", [{1006}, {2002}], ids=["subgroups", "memory alone"])
def test_a_model_trains(families: set[int]) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 64)).astype(np.float32)
    y = random.integers(0, 10, 64)
    losses, actual = [], []
    available.device.cache_clear()
    with playing(Mac(families=families)):
        for device in ("cpu", "metal"):
            model = zt.Sequential([zt.layers.Input((64,)), zt.layers.Dense(32, activation="relu"),
                                   zt.layers.LayerNormalization(), zt.layers.Dropout(0.2),
                                   zt.layers.Dense(10, activation="softmax")], seed=3)
            program = model.compile(device, batch_size=16, optimizer="adam",
                                    loss="sparse_categorical_crossentropy")
            losses.append(program.fit(x, y, epochs=2, verbose=0).history["loss"])
            actual.append(program.predict(x))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    np.testing.assert_allclose(actual[1], actual[0], rtol=0, atol=1e-5)


@needs_compiler
@pytest.mark.slow
def test_what_every_device_promises() -> None:
    """The suite of devices, in a process in which this machine has a Mac's GPU: its contract each day, and
    opcodes or a model in turn."""
    several = {"opcodes": "" if full() else " and f32", "zoo": " and digits_mlp"}
    suites = {"contract": "", **{name: several[name] for name in share([*several], today(), 2)}}
    chosen = " or ".join(f"(test_{name} and metal{only})" for name, only in suites.items())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.machines.metal.plugin", "-k", chosen,
         "-m", "not slow", *(f"tests/backends/test_{name}.py" for name in suites)], cwd=ROOT,
        capture_output=True, text=True, check=False,
        env={**os.environ, "ZTORCH_REQUIRE_BACKENDS": "metal"})
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout
