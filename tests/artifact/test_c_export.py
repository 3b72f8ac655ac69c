"""C libraries against what Python computes with the same program: every bit has to be the same."""

from __future__ import annotations

import functools
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch.compile
from ztorch import layers as L
from ztorch.artifact.c_export import CLibrary
from ztorch.artifact.c_interface import describe, identifier
from ztorch.backends.host import features
from ztorch.codegen.cpuid import questions
from ztorch.codegen.elf import undefined_symbols
from ztorch.codegen.targets import TARGETS
from ztorch.compile import build, compile_c, export_c
from ztorch.dtypes import f32, i32
from ztorch.errors import ConfigError, Unsupported, WeightsError
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec, TensorSpec
from ztorch.sequential import Sequential
from ztorch.tracing import Functions

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or platform.system() != "Linux",
                                reason="needs gcc, and runs ELF libraries")
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 assembly")
WARN = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
STRICT = (*WARN, "-Wstrict-prototypes", "-Wconversion", "-Wc++-compat", "-Wundef")
LANGUAGES = {"c89": ("gcc", "-std=c89"), "c11": ("gcc", "-std=c11"), "c++": ("g++", "-x", "c++")}
DRIVER = Path(__file__).with_name("c_driver.c")
STEPS = 5


def net(dtype: str = "float32", batch: int = 5, trains: bool = True) -> Functions:
    """Uneven in all its sizes; its first product is one that Python's own programs pack."""
    model = Sequential([L.Input((101,)), L.Dense(83, activation="relu"), L.Dropout(0.2),
                        L.Dense(7, activation="softmax")], name="net", seed=5)
    if not trains:
        return model.trace(batch, dtype=dtype)
    return model.trace(batch, "adam", "sparse_categorical_crossentropy", ["accuracy"], dtype)


@dataclass(frozen=True)
class Exported:
    folder: Path
    expected: bytes
    states: str  # as the driver wants to hear of them
    real: str


def run(*command: str | Path, cwd: Path, ok: int | None = 0) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True,
                          timeout=120)
    assert ok is None or done.returncode == ok, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def call(executable: Any, function: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    bound = executable.bind(function)
    for name, array in inputs.items():
        bound.inputs[name][...] = array
    bound()
    return {name: array.copy() for name, array in bound.outputs.items()}


@pytest.fixture(scope="module", params=["float32", "float64"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The library, and what the driver must write; the same steps are made in Python."""
    folder = tmp_path_factory.mktemp("net")
    traced = net(request.param)
    export_c(traced, folder)
    executable = build(traced.functions, "cpu", "net")
    random = np.random.default_rng(1)
    given, expected = b"", b""
    for step in range(STEPS):
        x = random.normal(size=(5, 101)).astype(request.param)
        t = random.integers(0, 7, 5).astype(np.int32)
        w = random.uniform(0, 2, 5).astype(request.param)
        given += x.tobytes() + t.tobytes() + w.tobytes()
        y = call(executable, "predict", x=x)["y"]
        if step == 0:
            untrained = executable.states_snapshot()
        scores = call(executable, "train", x=x, y=t, w=w if step % 2 else np.ones(5))
        if step == 0:
            scores["accuracy"][...] = 0  # the driver did not ask for it
        after = call(executable, "evaluate", x=x, y=t, w=w)
        expected += b"".join(a.tobytes() for a in (
            y, scores["loss"], scores["accuracy"], after["loss"], after["accuracy"]))
    trained = executable.states_snapshot()
    expected += b"".join(a.tobytes() for a in trained.values())
    (folder / "static.bin").write_bytes(expected + call(executable, "predict", x=x)["y"].tobytes())
    executable.restore(untrained)
    (folder / "caller.bin").write_bytes(expected + call(executable, "predict", x=x)["y"].tobytes())
    assert len({(folder / f"{f}.bin").read_bytes() for f in ("static", "caller")}) == 2
    (folder / "in.bin").write_bytes(given)
    states = "".join(f" STATE(NET_OFFSET_{identifier(name.upper())}, "
                     f"NET_SIZE_{identifier(name.upper())}, "
                     f"{'int' if a.dtype.kind in 'iu' else 'real'})" for name, a in trained.items())
    return Exported(folder, expected, states, {"float32": "float", "float64": "double"}[
        request.param])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("library", ["so", "a"])
@pytest.mark.parametrize("flavour", ["static", "caller"])
def test_a_c_program_computes_the_same_bits(exported: Exported, language: str, library: str,
                                            flavour: str) -> None:
    folder, label = exported.folder, f"{language}_{library}_{flavour}"
    compiler, *standard = LANGUAGES[language]
    linked = ("libnet.a",) if library == "a" else ("-L.", "-l:libnet.so", "-Wl,-rpath,$ORIGIN")
    run(compiler, *standard, *WARN, f"-Dreal={exported.real}", f"-DALL_STATES={exported.states}",
        f'-DOUT="{label}.out"', *(["-DCALLER"] if flavour == "caller" else []), f"-I{folder}",
        DRIVER, "-x", "none", *linked, "-o", label, cwd=folder)
    run(folder / label, cwd=folder)
    assert (folder / f"{label}.out").read_bytes() == (folder / f"{flavour}.bin").read_bytes()


def test_nothing_is_imported_and_only_functions_are_exported(exported: Exported) -> None:
    folder = exported.folder
    assert run("nm", "-D", "-u", "libnet.so", cwd=folder) == ""
    assert "NEEDED" not in run("readelf", "-d", "libnet.so", cwd=folder)
    names = [line.split() for line in run("nm", "-D", "libnet.so", cwd=folder).splitlines()]
    declared = set(re.findall(r"(net_\w+)\(", (folder / "net.h").read_text()))
    assert {kind for _, kind, _ in names} == {"T"} and {name for _, _, name in names} == declared
    inside = run("nm", "libnet.a", cwd=folder)  # one object wants the weights, the other has them
    assert [line.split()[-1] for line in inside.splitlines() if " U " in line] == ["net.params"]


def test_the_header_compiles_alone_whatever_the_language(exported: Exported) -> None:
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


# -- where it runs ---------------------------------------------------------------------------------

TWO = """
#include <stdio.h>
#include "net.h"
#include "bytes.h"
static float x[NET_BATCH * NET_INPUT_SIZE], y[NET_BATCH * NET_OUTPUT_SIZE];
static unsigned char b[BYTES_BATCH * BYTES_INPUT_SIZE];
static float z[BYTES_BATCH * BYTES_OUTPUT_SIZE];
int main(void)
{
    unsigned long i;
    for (i = 0; i < sizeof b; i++)
        b[i] = (unsigned char)(i * 37);
    bytes_predict(b, z);
    net_predict(x, y);
    fwrite(z, sizeof *z, BYTES_BATCH * BYTES_OUTPUT_SIZE, stdout);
    fwrite(y, sizeof *y, NET_BATCH * NET_OUTPUT_SIZE, stdout);
    return 0;
}
"""


@pytest.mark.parametrize("library", ["so", "a"])
def test_two_models_in_one_program_and_integer_inputs(tmp_path: Path, library: str) -> None:
    model = Sequential([L.Input((3, 5), dtype="uint8"), L.Rescaling(1 / 255), L.Flatten(),
                        L.Dense(3)], name="bytes", seed=2)
    one, two = net(trains=False), model.trace(3)
    x = (np.arange(45) * 37 % 256).astype(np.uint8).reshape(3, 3, 5)
    expected = call(build(two.functions, "cpu", "bytes"), "predict", x=x)["y"].tobytes()
    expected += call(build(one.functions, "cpu", "net"), "predict", x=np.zeros((5, 101)))[
        "y"].tobytes()
    export_c(one, tmp_path)
    export_c(two, tmp_path)
    (tmp_path / "two.c").write_text(TWO)
    files = [f"lib{n}.{library}" for n in ("net", "bytes")]
    run("gcc", *WARN, "two.c", *files, "-Wl,-rpath,$ORIGIN", "-o", "two", cwd=tmp_path)
    assert subprocess.run([tmp_path / "two"], capture_output=True, check=True).stdout == expected


BARE = """
#include "net.h"
static float x[NET_BATCH * NET_INPUT_SIZE], y[NET_BATCH * NET_OUTPUT_SIZE];
static const unsigned int expected[] = {%s};
__attribute__((force_align_arg_pointer, noreturn)) void _start(void)
{
    const unsigned int *bits = (const unsigned int *)(void *)y;
    unsigned long i;
    long wrong = net_supported() ? 0 : 3;
    for (i = 0; i < NET_BATCH * NET_INPUT_SIZE; i++)
        x[i] = (float)i / 64;
    if (!wrong)
        net_predict(x, y);
    for (i = 0; i < NET_BATCH * NET_OUTPUT_SIZE; i++)
        wrong |= bits[i] != expected[i];
    for (;;)
        __asm__ volatile("syscall" : : "a"(60L), "D"(wrong) : "rcx", "r11", "memory");
}
"""


@x86
def test_a_program_without_any_c_library(tmp_path: Path) -> None:
    traced = net(trains=False)
    x = (np.arange(5 * 101, dtype=np.float32) / 64).reshape(5, 101)
    y = call(build(traced.functions, "cpu", "net"), "predict", x=x)["y"]
    export_c(traced, tmp_path)
    (tmp_path / "bare.c").write_text(BARE % ", ".join(f"{b}U" for b in y.view(np.uint32).flat))
    run("gcc", *WARN, "-O1", "-fno-strict-aliasing", "-nostdlib", "-ffreestanding", "-static",
        "-fno-stack-protector", "bare.c", "libnet.a", "-o", "bare", cwd=tmp_path)
    run(tmp_path / "bare", cwd=tmp_path)


HEAP = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static void *zeros(unsigned long count)
{
    return calloc(count, sizeof(float));
}
int main(void)
{
    float *x = zeros(NET_BATCH * NET_INPUT_SIZE), *w = zeros(NET_BATCH), *loss = zeros(1);
    float *y = malloc(NET_BATCH * NET_OUTPUT_SIZE * sizeof *y);
    int *t = zeros(NET_BATCH);
    void *params = aligned_alloc(NET_ALIGN, NET_PARAMS_BYTES);
    void *arena = aligned_alloc(NET_ALIGN, NET_ARENA_BYTES);
    if (!net_supported())
        return 7;
    net_init(params);
    net_train_step_in(x, t, w, loss, 0, params, arena);
    net_evaluate_in(x, t, 0, loss, 0, params, arena);
    net_predict_in(x, y, params, arena);
    if (*loss > 0 && y[0] > 0 && y[NET_BATCH * NET_OUTPUT_SIZE - 1] > 0)
        puts("fine");
    return 0;
}
"""


@x86
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.parametrize(("level", "code"), [("sse4.1", 0), ("avx2", 0), ("avx512", 7)])
def test_memory_is_respected_and_a_lesser_processor_refused(tmp_path: Path, level: str,
                                                            code: int) -> None:
    """Every access past a buffer, and every use of what nobody wrote, shows in valgrind; and the
    processor that it plays has no AVX-512."""
    if not set(TARGETS["avx2"].needs) <= features():
        pytest.skip("this processor lacks AVX2")
    export_c(net(), tmp_path, device=f"cpu:{level}")
    (tmp_path / "heap.c").write_text(HEAP)
    run("gcc", "-std=c11", *WARN, "heap.c", "libnet.a", "-o", "heap", cwd=tmp_path)
    said = run("valgrind", "--error-exitcode=9", "./heap", cwd=tmp_path, ok=code)
    assert "ERROR SUMMARY: 0 errors" in said and ("fine" in said) is (code == 0)


@x86
def test_supported_agrees_with_the_system(tmp_path: Path) -> None:
    for level in ("scalar", "sse4.1", "avx2", "avx512"):
        export_c(net(trains=False), tmp_path, device=f"cpu:{level}")
        (tmp_path / "s.c").write_text('#include "net.h"\nint main(void) '
                                      '{ return net_supported(); }')
        run("gcc", "s.c", "libnet.a", "-o", "s", cwd=tmp_path)
        run(tmp_path / "s", cwd=tmp_path, ok=int(set(TARGETS[level].needs) <= features()))


def test_features_nobody_can_ask_for_are_refused() -> None:
    assert questions([]) == ((), 0)
    assert all(questions(t.needs)[0] for t in TARGETS.values() if t.arch == "x86_64")
    with pytest.raises(Unsupported, match="'amx-tile'"):
        questions(["amx-tile"])


def test_a_library_for_another_architecture(tmp_path: Path) -> None:
    folder = export_c(net(), tmp_path, device="cpu:neon")[0].parent
    assert "AArch64" in run("readelf", "-h", "libnet.so", cwd=folder)
    assert run("nm", "-D", "-u", "libnet.so", cwd=folder) == ""
    run("gcc", *STRICT, "-std=c89", "-fsyntax-only", "net_example.c", cwd=folder)


def test_questions_for_x86_cannot_be_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ztorch.compile, "architecture", lambda: "aarch64")
    with pytest.raises(Unsupported, match="only be made on x86-64"):
        compile_c(net().functions, TARGETS["avx2"], "net")


# -- names -----------------------------------------------------------------------------------------

HOSTILE = ['a"; drop\n', "größe 3", "3 bears", "int", "*/ #error", "a\\\n#error", "??/", "名前",
           "%s%n", "x" * 300, "zt", "llvm.fma", "_start", "../../etc"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_makes_a_valid_library(tmp_path: Path, name: str) -> None:
    model = Sequential([L.Input((3,)), L.Dense(2)], name="plain")
    files = export_c(model.trace(1, "sgd", "mse"), tmp_path, name=name)
    assert {f.parent for f in files} == {tmp_path}
    example = next(f for f in files if f.suffix == ".c")
    for compiler, *standard in LANGUAGES.values():
        run(compiler, *standard, *WARN, example, "-x", "none", files[1], "-o", "example",
            cwd=tmp_path)
    run(tmp_path / "example", cwd=tmp_path)


def test_names_of_layers_and_metrics_stay_apart(tmp_path: Path) -> None:
    """Names that C would take for the same, for keywords, for the end of a comment."""
    layers = ["a b", "a-b", "A_B", "a_b", "ä", "ö", "*", "__", 'q"', "\\", "??", "a_b_2"]
    states = {n: StateSpec(f"{n}/kernel", (2, 3), f32, 64 * k, "weight", True)
              for k, n in enumerate(layers)}
    x, y, w = (TensorSpec(n, (4, 2), f32) for n in "xyw")
    scores = ["loss", "int", "x", "params", "arena", "*/", "a b", "a_b", "größe", "this", "w"]
    train = FunctionSpec("train", "zt_train", {"x": x, "y": replace(y, dtype=i32), "w": w},
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


def test_two_scores_of_one_value_are_both_written(tmp_path: Path) -> None:
    """A metric that is the loss again, and a model without weights."""
    model = Sequential([L.Input((3,)), L.ReLU()], name="net")
    export_c(model.trace(2, None, "mse", ["mse"]), tmp_path)
    (tmp_path / "p.c").write_text("""
#include "net.h"
int main(void)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0, 0, 0, 0, 0, 0}, loss = -1, again = -2;
    net_evaluate(x, y, 0, &loss, &again);
    return loss != again || loss < 15 || loss > 16;
}
""")
    run("gcc", *WARN, "p.c", "libnet.a", "-o", "p", cwd=tmp_path)
    run(tmp_path / "p", cwd=tmp_path)


@functools.cache
def compiled() -> CLibrary:
    return compile_c(net(trains=False).functions, TARGETS["neon"], "net")


def test_the_object_wants_its_weights_and_nothing_else() -> None:
    assert undefined_symbols(compiled().object) == ["net.params"]


def test_the_abi_changes_with_what_the_header_promises() -> None:
    other = compile_c(net(batch=6, trains=False).functions, TARGETS["neon"], "net")
    again = compile_c(net(trains=False).functions, TARGETS["neon"], "net",
                      {"dense/bias": np.ones(83)})
    assert other.interface.abi != compiled().interface.abi == again.interface.abi
