"""Words of the LLVM templates: each opcode on each dtype, as text that compiles and computes the same as the
interpreter, to the bit."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from jinja2 import DictLoader, Environment

from tests.cases.covering import full
from tests.cases.opcodes import kernel_for, numbers, opcodes_of, same
from tests.cases.random_kernels import random_buffers, random_kernel
from tests.parity import HERE, answer, run_kernels
from ztorch.codegen import object_cache, templates
from ztorch.codegen.render import Renderer, renderer
from ztorch.codegen.targets import TARGETS
from ztorch.compile.kernels import Kernels
from ztorch.dtypes import (
    ALL,
    DType,
    boolean,
    f32,
    f64,
    i8,
    i32,
    i64,
    u16,
    u32,
)
from ztorch.errors import VerifyError, ZtorchError
from ztorch.host.settings import using
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Instr, constant
from ztorch.ir.opcodes import OPCODES
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose

BEST = HERE[-1]
LEVELS = [pytest.param(t, marks=() if t == BEST else pytest.mark.slow) for t in HERE]


# A full run takes each dtype on each level in 1, 4 and 16 lanes. Others take each dtype on the best level in 4
# lanes, and once more on a level and in a number of lanes that go round.
LANES = (1, 4, 16)
EVERY = {(d, BEST, 4) for d in ALL} | {
    (d, HERE[k % len(HERE)], LANES[(k + k // len(HERE)) % 3]) for k, d in enumerate(ALL)}
ON_LANES = [each for each in itertools.product(ALL, HERE, LANES) if full() or each in EVERY]


@pytest.mark.parametrize(("d", "target", "lanes"), [
    pytest.param(*each, marks=() if each[1:] == (BEST, 4) else pytest.mark.slow) for each in ON_LANES], ids=str)
def test_every_opcode(d: DType, target: str, lanes: int) -> None:
    made = [(o, *kernel_for(o, d, lanes)) for o in opcodes_of(d)]
    words = renderer(TARGETS[target])
    ready = []
    for _, kernel, _ in made:
        verify(kernel)
        ready.append(decompose(kernel, words.supports, target))
    got = [{n: a.copy() for n, a in held.items()} for _, _, held in made]
    run_kernels(ready, got, target)
    for (opcode, plain, held), kernel, actual in zip(made, ready, got, strict=True):
        same(numbers(plain, actual), numbers(plain, answer(kernel, held)), f"{opcode} {d!r} x {lanes} on {target}",
             opcode in ("min", "max"))


def test_comparisons_with_nan_and_shifts_of_negative_numbers() -> None:
    """The words that sign and order choose: what `test_every_opcode` tries, in a moment."""
    made = [(o, *kernel_for(o, d, 1)) for o, d in (("ne", f32), ("lt", f32), ("lt", i32), ("shr", i32), ("shr", u32))]
    got = [{n: a.copy() for n, a in held.items()} for _, _, held in made]
    run_kernels([kernel for _, kernel, _ in made], got, BEST)
    for (opcode, kernel, held), actual in zip(made, got, strict=True):
        same(numbers(kernel, actual), numbers(kernel, answer(kernel, held)), opcode, False)


@pytest.mark.parametrize("lanes", [1, 4])
def test_upper_halves_of_products(lanes: int) -> None:
    kernel, held = kernel_for("mulhi", u32, lanes)
    got = {n: a.copy() for n, a in held.items()}
    run_kernels([kernel], [got], BEST)
    same(got, answer(kernel, held), f"mulhi x {lanes}", False)


@pytest.mark.parametrize("target", LEVELS)
def test_random_kernels(target: str) -> None:
    """Structure, variables, masks, shuffles, gathers: everything at once."""
    words = renderer(TARGETS[target])
    kernels = [random_kernel(Random(seed), dtypes=tuple(d for d in ALL if d is not boolean))
               for seed in range(80)]
    ready = [decompose(k, words.supports, target) for k in kernels]
    held = [random_buffers(k, Random(seed)) for seed, k in enumerate(kernels)]
    got = [{n: a.copy() for n, a in h.items()} for h in held]
    run_kernels(ready, got, target)
    for seed, (kernel, want, actual) in enumerate(zip(kernels, held, got, strict=True)):
        interpret(kernel, want)
        same(actual, want, f"random kernel {seed} on {target}", signless=True)


@pytest.mark.parametrize("target", HERE)
def test_literals_are_exact(target: str) -> None:
    numbers = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e-45, 0.1, -1.5, 3.4e38, 1e300]
    kernels, held = [], []
    for d in (f32, f64):
        b = Builder("literals")
        b.memory("y", d, 2 * len(numbers), access="w")
        with np.errstate(over="ignore"):
            for k, x in enumerate(numbers):
                b.store("y", 2 * k, b.const(x, d, 2))
        kernels.append(b.kernel())
        held.append({"y": np.ones(2 * len(numbers), d.numpy)})
    run_kernels(kernels, held, target)
    for d, buffers in zip((f32, f64), held, strict=True):
        with np.errstate(over="ignore"):
            want = np.repeat(np.array(numbers), 2).astype(d.numpy)
        same(buffers, {"y": want}, repr(d))
        zeros = buffers["y"][:4]
        assert np.signbit(zeros).tolist() == [False, False, True, True]


def test_remembered_text_distinguishes_zeros_and_ones() -> None:
    """The text of an instruction is remembered by shape: 0.0 and -0.0, 1 and 1.0 are not one."""
    b = Builder("k")
    for name, d in (("f", f32), ("i", i32), ("u", u32), ("w", i64)):
        b.memory(name, d, 2, access="rw")
        for k, x in enumerate((0, 1)):
            b.store(name, k, b.add(b.load(name, k), -x if d is f32 else x))
    text = renderer(TARGETS["scalar"]).kernel(b.kernel())["body"]
    assert "0x8000000000000000" in text or "0x0000000000000000" in text
    assert "add i32 %v" in text and "add i64 %v" in text and "fadd float %v" in text


def renderer_of(monkeypatch: pytest.MonkeyPatch, instr: str, spelling: str = "") -> Renderer:
    """The renderer of a language that consists of these two templates."""
    loader = DictLoader({"new/instr.ll.j2": instr, "new/spelling.ll.j2": spelling})
    monkeypatch.setattr(templates, "environment", lambda root: Environment(loader=loader))
    return Renderer(replace(TARGETS["scalar"], template_folders=("new",)))


def macros(*names: str) -> str:
    return "".join(f"{{% macro {n}(d, a, b) %}}{n}{{% endmacro %}}" for n in names)


@pytest.mark.parametrize("name", ["ad", "max_float32", "max_f33", "ones", "load_f32", "if_bool",
                                  "cast_float", "cast_f32_i32", "div_by"])
def test_a_macro_without_an_opcode_is_an_error(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZtorchError, match=rf"new/instr.ll.j2: the macro '{name}' has the name of no opcode"):
        renderer_of(monkeypatch, macros("add", name))
    assert set(renderer_of(monkeypatch, macros("add", f"_{name}")).words) == {"add"}


def test_an_unused_spelling_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZtorchError, match=r"new/spelling.ll.j2: the macro 'typ' has the name of no opcode"):
        renderer_of(monkeypatch, "", macros("typ"))


def test_the_most_special_macro_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A macro for one dtype goes before one for its kind, and that before one for all; a missing
    one is the statement that the word is lacking."""
    r = renderer_of(monkeypatch, macros("max_f32", "max_float", "min", "cast_f32_to_i32",
                                        "cast_float_to_int", "div_int"))

    def said(opcode: str, d: DType, result: DType | None = None) -> str:
        arity = OPCODES[opcode].arity
        instr = Instr(opcode, constant(0, result or d), (constant(0, d),) * arity)
        word = r.word(instr)
        assert r.supports(instr) == (word is not None)
        return str(word(0, 0, 0)) if word else ""

    assert [said("max", d) for d in (f32, f64, i32)] == ["max_f32", "max_float", ""]
    assert [said("min", d) for d in (f32, u32)] == ["min", "min"]
    assert [said("div", d) for d in (f32, u32, i64)] == ["", "div_int", "div_int"]
    assert said("cast", f32, i32) == "cast_f32_to_i32"
    assert said("cast", f32, u32) == said("cast", f64, i32) == "cast_float_to_int"
    assert said("cast", i32, f32) == said("cast", f64, f32) == said("cast", f32, boolean) == ""


@pytest.mark.parametrize("name", ["cuda:sm_90", "webgpu"])
def test_narrow_integers_wrap_through_32_bits(name: str) -> None:
    """Where a language holds them in wider registers: what would leave their range is lacking."""
    words = renderer(TARGETS[name])
    for opcode in ("add", "sub", "mul", "not", "shl", "and", "lt", "shr", "eq"):
        for d in (i8, u16, i32, u32):
            result = boolean if opcode in ("lt", "eq") else d
            instr = Instr(opcode, constant(0, result), (constant(0, d),) * OPCODES[opcode].arity)
            inside = opcode in ("and", "lt", "shr", "eq")
            assert words.supports(instr) == (inside or d.bits == 32), (opcode, d)


@pytest.mark.parametrize(("access", "orders_buffers"), [("rw", True), ("w", False)])
def test_a_barrier_of_wgsl_orders_buffers_that_threads_exchange_data_through(access: str, orders_buffers: bool) -> None:
    """workgroupBarrier orders shared memory only."""
    b = Builder("k", index=i32)
    b.workgroup = (8, 1, 1)
    b.memory("y", f32, 8, access=access)
    shared = b.memory("s", f32, 8, "shared", "rw")
    with b.loop(0, 1, kind="grid"), b.loop(0, 8, kind="block") as t:
        source = "y" if access == "rw" else shared
        b.store(source, t, b.cast(t, dtype=f32))
        b.barrier()
        b.store("y", t, b.load(source, b.sub(7, t)))
    kernels = Kernels(TARGETS["webgpu"])
    text = kernels.module([kernels.rendered[kernels.number(b.kernel())]])
    assert text.count("workgroupBarrier();") == 1
    assert ("storageBarrier();" in text) == orders_buffers


HOSTILE = ["x) { ret void }", 'a"b', "%0", "é", "a b", "k\n", "", "1x", "x;", "{{ 7 * 7 }}"]


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_hostile_names_do_not_reach_the_text(name: str) -> None:
    b = Builder(name)
    b.memory("y", f32, 1, access="w")
    b.store("y", 0, b.const(1.0, f32))
    with pytest.raises(VerifyError):
        verify(b.kernel())
    b = Builder("k")
    b.memory(name, f32, 1, access="w")
    b.store(name, 0, b.const(1.0, f32))
    with pytest.raises(VerifyError):
        verify(b.kernel())


@pytest.mark.parametrize("name", HOSTILE[:4], ids=repr)
def test_models_and_layers_may_be_called_anything(name: str) -> None:
    from tests.cases.steps import training_step
    from ztorch.compile.pipeline import compile_functions
    from ztorch.graph.value import Value

    graph = training_step(3, 4).alone("j")
    for v in graph.nodes():
        assert isinstance(v, Value)
        v.layer = name
    compiled = compile_functions({"train": graph}, TARGETS[BEST], name)
    assert compiled.spec.name == name
    for line in compiled.text.splitlines():
        assert "ret void }" not in line and "{{" not in line and "é" not in line


def test_the_code_of_a_template_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its text: a process that finds it does not compile it, and never runs that of another text."""
    compiled: list[str] = []
    compile_ = Environment.compile

    def counted(self: Environment, source: str, *more: Any, **options: Any) -> Any:
        compiled.append(source)
        return compile_(self, source, *more, **options)

    monkeypatch.setattr(Environment, "compile", counted)
    (tmp_path / "words").mkdir()

    def text(source: str) -> str:
        object_cache.forget()
        (tmp_path / "words" / "module.j2").write_text(source)
        fresh = templates.environment.__wrapped__(str(tmp_path / "words"))
        return str(fresh.get_template("module.j2").render(x=3))

    with using(cache=str(tmp_path / "cache")):
        assert [text("a {{ x }}"), text("a {{ x }}"), text("b {{ x }}"), text("a {{ x }}")] == [
            "a 3", "a 3", "b 3", "a 3"]
        assert compiled == ["a {{ x }}", "b {{ x }}"]
    with using(cache=None):
        assert text("a {{ x }}") == "a 3" and len(compiled) == 3
