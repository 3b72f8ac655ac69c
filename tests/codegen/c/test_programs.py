"""Programs in C compute the same as scalar code of LLVM, bit for bit: the same operations in the same
order. Sanitizers and compilers report nothing."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import full, today
from tests.cases.jobs import sharing
from tests.cases.steps import training_step
from tests.cases.zoo import BATCH, NAMES, STEPS, rows, small
from tests.codegen.c.compilers import (
    COMPILERS,
    SANITIZED,
    STRICT,
    bits,
    needs_compiler,
    run,
)
from tests.parity import Job, Module, agree, stored
from ztorch.codegen import cc
from ztorch.codegen.targets import TARGETS
from ztorch.commands.train import compiled
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.dtypes import f32
from ztorch.errors import DeviceError, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host.settings import using

pytestmark = needs_compiler


@functools.cache
def every() -> list[Job]:
    return [job for of_op in sharing(3, 9).values() for job in of_op]


def equal(got: list[np.ndarray], want: list[np.ndarray], label: str) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b), label)


def test_any_number_of_workers() -> None:
    job = training_step()
    one, scalar = Module([job], "c"), Module([job], "scalar")
    want = one.run(0)
    equal(want, scalar.run(0), "scalar")
    for threads in (2, 3, 5, 2):  # whichever program made the pool
        equal(one.run(0, threads), want, f"{threads} workers")
        equal(scalar.run(0, threads), want, f"{threads} workers of scalar code")


QUICK = ("digits_mlp", "digits_cnn", "lstm_classifier")
# Models of other kinds of layers. They contain every layer of the rest, and each is a target of its own
# for the devices of backends/test_zoo.py.
TRIED = (*QUICK, "tiny_gpt")


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=() if n in QUICK else pytest.mark.slow if n in TRIED
                 else (pytest.mark.slow, pytest.mark.full)) for n in NAMES])
def test_the_zoo(name: str, tmp_path: Path) -> None:
    made, scalar = (compiled(small(name), d, BATCH) for d in ("c", "cpu:scalar"))
    assert made.device == "c"
    x, y = rows(made.executable, made.metadata, small(name), STEPS)
    losses = [p.fit(x, y, verbose=0, shuffle=False).history["loss"] for p in (made, scalar)]
    assert losses[0] == losses[1] and np.isfinite(losses).all()
    states = scalar.executable.states_snapshot()
    for path, a in made.executable.states_snapshot().items():
        np.testing.assert_array_equal(bits(a), bits(states[path]), path)
    np.testing.assert_array_equal(bits(made.predict(x)), bits(scalar.predict(x)))
    made.save(tmp_path / "model.zt")  # the library, for whom has no compiler
    again = zt.load(tmp_path / "model.zt")
    np.testing.assert_array_equal(again.predict(x), made.predict(x))


# -- every op, and reports of compilers and sanitizers -----------------------------------------------

MAIN = """
#include <stdio.h>
#include <stdlib.h>

%(declared)s
static const struct {
    void (*run)(void **);
    long in[%(most)d], out[%(most)d];
} functions[] = {
%(rows)s
};

static void *given(FILE *from, long bytes)
{
    void *p = malloc((size_t)bytes);
    if (p && from && fread(p, 1, (size_t)bytes, from) != (size_t)bytes)
        exit(3);
    return p;
}

int main(void)
{
    FILE *in = fopen("in.bin", "rb"), *out = fopen("out.bin", "wb");
    unsigned long f;
    long k;
    for (f = 0; f < sizeof functions / sizeof *functions; f++) {
        void *inputs[%(most)d], *outputs[%(most)d], *frame[5];
        for (k = 0; functions[f].in[k] >= 0; k++)
            inputs[k] = given(in, functions[f].in[k]);
        for (k = 0; functions[f].out[k] >= 0; k++)
            outputs[k] = given(0, functions[f].out[k]);
        frame[0] = inputs;
        frame[1] = outputs;
        frame[2] = given(in, %(params)d);
        frame[3] = given(0, %(arena)d);
        frame[4] = 0;
        functions[f].run(frame);
        for (k = 0; functions[f].out[k] >= 0; k++) {
            fwrite(outputs[k], 1, (size_t)functions[f].out[k], out);
            free(outputs[k]);
        }
        for (k = 0; functions[f].in[k] >= 0; k++)
            free(inputs[k]);
        fwrite(frame[2], 1, %(params)d, out);
        free(frame[2]);
        free(frame[3]);
    }
    return fclose(in) || fclose(out);
}
"""


def harness(made: Compiled, fed: dict[str, dict[str, np.ndarray]], folder: Path) -> None:
    """A C program that runs each function once, on memory of exactly the sizes it may touch."""
    spec, data, rows_ = made.spec, [], []
    params = made.params.tobytes()
    for f in spec.functions.values():
        data += [fed[f.name][t.name].tobytes() for t in f.inputs.values()] + [params]
        sizes = [", ".join(str(t.nbytes) for t in side.values()) + ", -1"
                 for side in (f.inputs, f.outputs)]
        rows_.append(f"    {{{f.symbol}, {{{sizes[0].lstrip(', ')}}}, {{{sizes[1]}}}}},")
    (folder / "in.bin").write_bytes(b"".join(data))
    most = 2 + max(len(s) for f in spec.functions.values() for s in (f.inputs, f.outputs))
    (folder / "main.c").write_text(MAIN % {
        "declared": "\n".join(f"void {f.symbol}(void **);" for f in spec.functions.values()),
        "rows": "\n".join(rows_), "most": most, "params": len(params),
        "arena": max(spec.arena_bytes, 64)})
    (folder / "module.c").write_text(made.text)


PARTS = {"some": slice(7, None, 40), **{f"{k}": slice(k, None, 3) for k in range(3)}}


@functools.lru_cache(1)
def scalar_module(part: str) -> Module:
    return Module(every()[PARTS[part]], "scalar")


@pytest.mark.parametrize(("part", "compiler"), [
    pytest.param(part, c, marks=() if part == "some" else pytest.mark.slow if c == COMPILERS[
        (part == "1") % len(COMPILERS)] else pytest.mark.full) for part in PARTS for c in COMPILERS])
def test_every_op(part: str, compiler: str, tmp_path: Path) -> None:
    """The bits of scalar code; all is read strictly by every compiler. A third is run under sanitizers, each day
    another; in a full run all under those of both compilers."""
    jobs_, scalar = every()[PARTS[part]], scalar_module(part)
    with using(cc=" ".join((compiler, *STRICT))):
        module = Module(jobs_, "c")
    fed, want = {}, []
    made = module.compiled
    for k, (job, name) in enumerate(zip(jobs_, module.graphs, strict=True)):
        got = module.run(k)
        agree(job, got, terms=20)
        equal(got, scalar.run(k), job.label)
        inputs = {v.attrs["name"]: stored(v.dtype, v.attrs["fed"])
                  for v in module.graphs[name].leaves("input")}
        fed[name] = {n: inputs[n] for n in made.spec.functions[name].inputs}
        call = module.executable.bind(name)
        for n, a in fed[name].items():
            call.inputs[n][...] = a
        module.executable.params[:] = made.params
        call.run()
        want += [a.tobytes() for a in call.outputs.values()]
        want.append(module.executable.params.tobytes())
    harness(made, fed, tmp_path)
    for reader in {*COMPILERS} - {compiler}:
        run(reader, *STRICT, "-fsyntax-only", "module.c", cwd=tmp_path)
    if part != "some" and today() % 3 != int(part) and not full():
        return
    run(compiler, *STRICT, *SANITIZED, "module.c", "main.c", "-o", "all", cwd=tmp_path)
    run(tmp_path / "all", cwd=tmp_path)
    assert (tmp_path / "out.bin").read_bytes() == b"".join(want)


# -- compilers that are not there ------------------------------------------------------------------


def _compile(**settings: Any) -> Compiled:
    y = leaf("input", "x", (3,), f32) + 1.0
    with using(**settings):
        return compile_functions({"f": Graph({"y": y})}, TARGETS["c"], "f")


def test_a_missing_compiler_names_the_package_to_install(
        monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="CC='no-such-cc -v' is not a command that can be run"):
        _compile(cc="no-such-cc -v")
    with pytest.raises(DeviceError, match=r"CC=.* is not a command that can be run"):
        _compile(cc="gcc '")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match=r"device 'c' needs a C compiler.*apt install gcc"):
        _compile(cc=None)


def test_a_compiler_that_refuses_the_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZtorchError, match=r"refused the rendered text for c: .*error"):
        cc.assemble("int f(void) { return }", TARGETS["c"])
    silent = tmp_path / "cc"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    with pytest.raises(ZtorchError, match="it printed no message"):
        _compile(cc=str(silent))


@pytest.mark.skipif("clang" not in COMPILERS, reason="needs a compiler for several machines")
def test_a_compiler_for_another_machine_is_an_error() -> None:
    other = "x86_64" if TARGETS["c"].arch == "aarch64" else "aarch64"
    with pytest.raises(DeviceError, match="generates code for another machine"):
        _compile(cc=f"clang --target={other}-linux-gnu")


def test_the_command_may_have_arguments() -> None:
    plain, debug = _compile(), _compile(cc="cc -DNOTHING=1")
    assert plain.code == debug.code
