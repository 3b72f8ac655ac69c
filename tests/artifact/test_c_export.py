"""C libraries compared with the same program in Python: every bit must be the same."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.cases.c_programs import DRIVER, LANGUAGES, STEPS, STRICT, WARN, call, needs_gcc, net, run
from ztorch.artifact.c_interface import identifier
from ztorch.compile.c_library import export_c
from ztorch.compile.pipeline import build
from ztorch.errors import ConfigError, WeightsError

pytestmark = needs_gcc


@dataclass(frozen=True)
class Exported:
    folder: Path
    expected: bytes
    states: str  # as the driver wants to hear of them
    real: str


@pytest.fixture(scope="module", params=["float32", "float64"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The library, and the expected output of the driver; the same steps are made in Python."""
    folder = tmp_path_factory.mktemp("net")
    traced = net(request.param)
    export_c(traced, folder)
    executable = build(traced.functions, "cpu", "net")
    random = np.random.default_rng(1)
    inputs, expected = b"", b""
    for step in range(STEPS):
        x = random.normal(size=(5, 101)).astype(request.param)
        t = random.integers(0, 7, 5).astype(np.int32)
        w = random.uniform(0, 2, 5).astype(request.param)
        inputs += x.tobytes() + t.tobytes() + w.tobytes()
        y = call(executable, "predict", x=x)["y"]
        if step == 0:
            untrained = executable.states_snapshot()
        scores = call(executable, "train", x=x, y=t, w=w if step % 2 else np.ones(5),
                      real=np.ones(5))
        if step == 0:
            scores["accuracy"][...] = 0  # the driver did not ask for it
        after = call(executable, "evaluate", x=x, y=t, w=w, real=np.ones(5))
        expected += b"".join(a.tobytes() for a in (
            y, scores["loss"], scores["accuracy"], after["loss"], after["accuracy"]))
    trained = executable.states_snapshot()
    expected += b"".join(a.tobytes() for a in trained.values())
    (folder / "static.bin").write_bytes(expected + call(executable, "predict", x=x)["y"].tobytes())
    executable.restore(untrained)
    (folder / "caller.bin").write_bytes(expected + call(executable, "predict", x=x)["y"].tobytes())
    assert len({(folder / f"{f}.bin").read_bytes() for f in ("static", "caller")}) == 2
    (folder / "in.bin").write_bytes(inputs)
    states = "".join(f" STATE(NET_OFFSET_{identifier(name.upper())}, "
                     f"NET_SIZE_{identifier(name.upper())}, "
                     f"{'int' if a.dtype.kind in 'iu' else 'number'})" for name, a in trained.items())
    return Exported(folder, expected, states, {"float32": "float", "float64": "double"}[
        request.param])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("library", ["so", "a"])
@pytest.mark.parametrize("flavor", ["static", "caller"])
def test_a_c_program_computes_the_same_bits(exported: Exported, language: str, library: str,
                                            flavor: str) -> None:
    folder, label = exported.folder, f"{language}_{library}_{flavor}"
    compiler, *standard = LANGUAGES[language]
    linked = ("libnet.a",) if library == "a" else ("-L.", "-l:libnet.so", "-Wl,-rpath,$ORIGIN")
    run(compiler, *standard, *WARN, f"-Dnumber={exported.real}", f"-DALL_STATES={exported.states}",
        f'-DOUT="{label}.out"', *(["-DCALLER"] if flavor == "caller" else []), f"-I{folder}",
        DRIVER, "-x", "none", *linked, "-o", label, cwd=folder)
    run(folder / label, cwd=folder)
    assert (folder / f"{label}.out").read_bytes() == (folder / f"{flavor}.bin").read_bytes()


def test_nothing_is_imported_and_only_functions_are_exported(exported: Exported) -> None:
    folder = exported.folder
    assert run("nm", "-D", "-u", "libnet.so", cwd=folder) == ""
    assert "NEEDED" not in run("readelf", "-d", "libnet.so", cwd=folder)
    names = [line.split() for line in run("nm", "-D", "libnet.so", cwd=folder).splitlines()]
    declared = set(re.findall(r"(net_\w+)\(", (folder / "net.h").read_text()))
    assert {kind for _, kind, _ in names} == {"T"} and {name for _, _, name in names} == declared
    inside = run("nm", "libnet.a", cwd=folder)  # one object wants the weights, the other has them
    assert [line.split()[-1] for line in inside.splitlines() if " U " in line] == ["net.params"]


def test_the_header_compiles_alone_in_c_and_cpp(exported: Exported) -> None:
    for std in ("c89", "c99", "c11", "c17"):
        run("gcc", f"-std={std}", *STRICT, "-fsyntax-only", "-x", "c", "net.h", cwd=exported.folder)
    for std in ("c++98", "c++20"):
        run("g++", f"-std={std}", *WARN, "-fsyntax-only", "-x", "c++", "net.h",
            cwd=exported.folder)


@pytest.mark.parametrize("trains", [False, True])
def test_the_example_compiles_and_runs(tmp_path: Path, trains: bool) -> None:
    export_c(net(trains=trains), tmp_path)
    for compiler, *standard in LANGUAGES.values():
        run(compiler, *standard, *WARN, "net_example.c", "-x", "none", "libnet.a", "-o", "example",
            cwd=tmp_path)
        assert ("loss" in run(tmp_path / "example", cwd=tmp_path)) is trains


# -- weights ---------------------------------------------------------------------------------------

PRINT = """
#include <stdio.h>
#include "net.h"
static float x[NET_BATCH * NET_INPUT_SIZE], y[NET_BATCH * NET_OUTPUT_SIZE];
int main(void)
{
    const void *params = net_params();
    unsigned long i;
    for (i = 0; i < NET_BATCH * NET_INPUT_SIZE; i++)
        x[i] = (float)i / 64;
    net_predict(x, y);
    fwrite(y, sizeof *y, NET_BATCH * NET_OUTPUT_SIZE, stdout);
    return params == 0;
}
"""


def test_weights_of_a_trained_program_are_embedded_and_read_only(tmp_path: Path) -> None:
    traced = net(trains=False)
    executable = build(traced.functions, "cpu", "net")
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=s.shape).astype(np.float32)
               for name, s in executable.states.items() if s.role == "weight"}
    for name, array in weights.items():
        executable.set_state(name, array)
    x = (np.arange(5 * 101, dtype=np.float32) / 64).reshape(5, 101)
    expected = call(executable, "predict", x=x)["y"].tobytes()
    export_c(traced, tmp_path, weights=weights)
    (tmp_path / "p.c").write_text(PRINT)
    run("gcc", *WARN, "p.c", "libnet.a", "-o", "p", cwd=tmp_path)
    assert subprocess.run([tmp_path / "p"], capture_output=True, check=True).stdout == expected
    for library in ("libnet.so", "libnet.a"):  # name, type, address, place, size
        sections = run("readelf", "-SW", library, cwd=tmp_path)
        assert not re.search(r" \.data +\S+ +\S+ +\S+ +0*[1-9a-f]", sections)
        assert re.search(r" \.rodata +\S+ +\S+ +\S+ +0*[1-9a-f]", sections)
    assert sorted(f.name for f in tmp_path.glob("*net*")) == [
        "libnet.a", "libnet.so", "net.h", "net_example.c"]


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no state 'dense/colonel'; it has dense/kernel"):
        export_c(net(trains=False), tmp_path, weights={"dense/colonel": np.zeros(3)})
    with pytest.raises(WeightsError, match=r"dense/bias has shape \(83,\)"):
        export_c(net(trains=False), tmp_path, weights={"dense/bias": np.zeros(84)})
    assert not list(tmp_path.iterdir())


def test_the_path_must_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        export_c(net(trains=False), tmp_path / "net")


def test_equal_exports_are_equal_byte_for_byte(tmp_path: Path) -> None:
    first, second = (export_c(net(), tmp_path / part) for part in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
