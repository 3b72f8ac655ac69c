"""Every target, also those this host cannot run: objects without imports, and libraries of them."""

from __future__ import annotations

import functools
import gc
import struct

import pytest

from tests.cases.covering import share
from tests.cases.jobs import jobs
from tests.cases.steps import long_sums, training_step
from tests.parity import HERE, C, Job, Module
from ztorch import ops
from ztorch.backends.library import check_library
from ztorch.codegen.assemble import assembly
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.object import EM_AARCH64, EM_X86_64
from ztorch.codegen.targets import NATIVE, TARGETS
from ztorch.compile.cpu_code import RenderedModule
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.dtypes import f32, f64
from ztorch.errors import ArtifactError, ZtorchError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

MACHINES = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}


def everything(target: str) -> dict[str, Graph]:
    """A training step, long sums, and of all ops each fourth for a target that does not run here. Of the
    ops for those that do, which are linked in tests of other rooms too, each twelfth; in a full run all."""
    here = [*HERE, *C]
    elsewhere = [t.values[0] for t in EVERY if t.values[0] not in here]
    turn, of = (here.index(target), 12) if target in here else (elsewhere.index(target), 4)
    ops_once = [of_op[0] for of_op in share(list(jobs().values()), turn, of)]
    every: list[Job] = [training_step(), long_sums(), *ops_once]
    return {f"f{k}": job.alone(f"f{k}") for k, job in enumerate(every)}


@functools.cache
def compiled(target: str) -> Compiled:
    return compile_functions(everything(target), TARGETS[target], "everything")


# All that becomes a library of ours; C, where there is a compiler of it. Lower levels of this processor are
# for full runs: every test that runs code on them links it, which is an error where a symbol is missing.
EVERY = [pytest.param(t.name, marks=(pytest.mark.slow, *[pytest.mark.full] * (t.name in HERE[:-1])))
         for t in TARGETS.values() if t.backend == "cpu" and (t.name in C or not t.emits_source)]


@pytest.mark.parametrize("target", EVERY)
def test_objects_import_nothing(target: str) -> None:
    symbols = {name: f.symbol for name, f in compiled(target).spec.functions.items()}
    obj = RenderedModule(compiled(target).plans, TARGETS[target], symbols).assemble()
    assert [s.name for s in obj.symbols if s.undefined] == []
    assert obj.machine == MACHINES[TARGETS[target].arch]
    again = link(obj, soname="zt_everything.so", exports=[*symbols.values(), "zt_worker"])
    assert again == compiled(target).code  # equal text, equal bytes


@pytest.mark.parametrize("target", EVERY)
def test_libraries_are_complete(target: str) -> None:
    code, arch = compiled(target).code, TARGETS[target].arch
    assert struct.unpack_from("<H", code, 18)[0] == MACHINES[arch]
    if arch == NATIVE:
        check_library(code)
    else:
        with pytest.raises(ArtifactError, match=arch):
            check_library(code)


@pytest.mark.parametrize(("target", "word"), [
    ("sse4.1", "xmm"), ("avx2", "ymm"), ("avx512", "zmm"), ("neon", "fmla")])
def test_vectors_are_used(target: str, word: str) -> None:
    a, b = (leaf("input", n, (32, 32), f32) for n in "ab")
    text = compile_functions({"f": Graph({"y": ops.matmul(a, b)})}, TARGETS[target], "f").text
    assert word in assembly(text, TARGETS[target])


def test_scalar_code_has_no_vectors_of_floats() -> None:
    text = compile_functions({"t": training_step().alone("t")}, TARGETS["scalar"], "step").text
    assert " x float>" not in text


def test_compiling_twice_gives_the_same_bytes() -> None:
    first, second = (Module([training_step()], HERE[-1]).compiled.code for _ in range(2))
    assert first == second


@pytest.mark.parametrize("on", (True, False))
def test_compiling_leaves_the_garbage_collector_as_it_was(on: bool) -> None:
    """Also where it ends in an error."""
    graphs = {"t": training_step().alone("t")}
    doubles = {"d": Graph({"y": leaf("input", "x", (3,), f64) + 1.0})}
    try:
        gc.enable() if on else gc.disable()
        compile_functions(graphs, TARGETS[HERE[-1]], "step")
        assert gc.isenabled() == on
        with pytest.raises(ZtorchError, match="metal has no float64"):
            compile_functions(doubles, TARGETS["metal"], "doubles")
        assert gc.isenabled() == on
    finally:
        gc.enable()
