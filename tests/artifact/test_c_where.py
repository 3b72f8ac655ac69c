"""C libraries in the places they end up in: beside others, without a system, on other machines."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ztorch.compile.c_library
from tests.cases.c_programs import STRICT, WARN, call, needs_gcc, net, run, x86
from ztorch import layers as L
from ztorch.artifact.c_export import CLibrary
from ztorch.codegen.cpuid import cpuid_queries
from ztorch.codegen.elf.object import read_object
from ztorch.codegen.targets import TARGETS
from ztorch.compile.c_library import compile_c, export_c
from ztorch.compile.pipeline import build
from ztorch.errors import Unsupported
from ztorch.host.processor import features
from ztorch.model.sequential import Sequential

pytestmark = needs_gcc

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
    net_train_step_in(x, t, w, 0, loss, 0, params, arena);
    net_evaluate_in(x, t, 0, 0, loss, 0, params, arena);
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
    """Every access past a buffer, and every use of uninitialized memory, shows in valgrind; and the
    processor that it plays has no AVX-512."""
    if not set(TARGETS["avx2"].required_features) <= features():
        pytest.skip("this processor lacks AVX2")
    export_c(net(), tmp_path, device=f"cpu:{level}")
    (tmp_path / "heap.c").write_text(HEAP)
    run("gcc", "-std=c11", *WARN, "heap.c", "libnet.a", "-o", "heap", cwd=tmp_path)
    output = run("valgrind", "--error-exitcode=9", "./heap", cwd=tmp_path, ok=code)
    assert "ERROR SUMMARY: 0 errors" in output and ("fine" in output) is (code == 0)


@x86
def test_supported_agrees_with_the_system(tmp_path: Path) -> None:
    for level in ("scalar", "sse4.1", "avx2", "avx512"):
        export_c(net(trains=False), tmp_path, device=f"cpu:{level}")
        (tmp_path / "s.c").write_text('#include "net.h"\nint main(void) '
                                      '{ return net_supported(); }')
        run("gcc", "s.c", "libnet.a", "-o", "s", cwd=tmp_path)
        run(tmp_path / "s", cwd=tmp_path, ok=int(set(TARGETS[level].required_features) <= features()))


def test_features_that_cannot_be_queried_are_refused() -> None:
    assert cpuid_queries([]) == ((), 0)
    assert all(cpuid_queries(t.required_features)[0] for t in TARGETS.values() if t.arch == "x86_64" and t.required_features)
    with pytest.raises(Unsupported, match="'amx-tile'"):
        cpuid_queries(["amx-tile"])


def test_a_library_for_another_architecture(tmp_path: Path) -> None:
    folder = export_c(net(), tmp_path, device="cpu:neon")[0].parent
    assert "AArch64" in run("readelf", "-h", "libnet.so", cwd=folder)
    assert run("nm", "-D", "-u", "libnet.so", cwd=folder) == ""
    run("gcc", *STRICT, "-std=c89", "-fsyntax-only", "net_example.c", cwd=folder)


def test_questions_for_x86_cannot_be_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ztorch.compile.c_library, "architecture", lambda: "aarch64")
    with pytest.raises(Unsupported, match="only be built on x86-64"):
        compile_c(net().functions, TARGETS["avx2"], "net")


@functools.cache
def compiled() -> CLibrary:
    return compile_c(net(trains=False).functions, TARGETS["neon"], "net")


def test_the_object_wants_its_weights_and_nothing_else() -> None:
    symbols = read_object(compiled().object).symbols
    assert [s.name for s in symbols if s.undefined] == ["net.params"]


def test_the_abi_changes_with_the_header() -> None:
    other = compile_c(net(batch=6, trains=False).functions, TARGETS["neon"], "net")
    again = compile_c(net(trains=False).functions, TARGETS["neon"], "net",
                      {"dense/bias": np.ones(83)})
    assert other.interface.abi != compiled().interface.abi == again.interface.abi
