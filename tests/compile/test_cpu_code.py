"""Code of processors: assembled a kernel at a time, the same as at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases.elf_objects import HOST, TRIPLES, compiled
from tests.parity import HERE
from ztorch import layers as L
from ztorch.backends.library import load_library
from ztorch.codegen import assemble, object_cache
from ztorch.codegen.assemblers import assemble_text
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.merge import merge
from ztorch.codegen.elf.object import Object, read_object
from ztorch.codegen.targets import TARGETS
from ztorch.compile.cpu_code import RenderedModule
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.compile.python_calls import python_calls
from ztorch.compile.targeting import target_for
from ztorch.errors import LinkError, ZtorchError
from ztorch.host.settings import using
from ztorch.model.sequential import Sequential
from ztorch.runtime.devices import resolve

TARGET = TARGETS[HERE[-1]]
OTHER = next(machine for machine in TRIPLES if machine != HOST)


def network(width: int = 5, outputs: int = 3) -> Compiled:
    """Two kernels of products, which meet at a barrier."""
    model = Sequential([L.Input((4,)), L.Dense(width, activation="gelu"), L.Dense(outputs)], name="net")
    return compile_functions(model.trace(2, "sgd", "mse").functions, TARGET, "net")


def instructions(obj: Object) -> dict[str, bytes]:
    """The code of each kernel."""
    return {s.name: bytes(obj.sections[s.section].data[s.value:s.value + s.size])
            for s in obj.symbols if s.type == 2 and "zt" not in s.name}


def test_kernels_compile_equally_alone_and_together() -> None:
    program = network()
    symbols = {name: f.symbol for name, f in program.spec.functions.items()}
    parts = RenderedModule(program.plans, TARGET, symbols).assemble()
    whole = read_object(assemble_text(program.text, TARGET))
    assert len(instructions(parts)) > 5 and instructions(parts) == instructions(whole)


def test_only_kernels_that_changed_are_assembled(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts: list[str] = []
    emit = assemble._emit
    monkeypatch.setattr(assemble, "_emit", lambda text, t: (texts.append(text), emit(text, t))[1])
    object_cache.forget()
    with using(cache=str(tmp_path)):
        counts = []
        for shape in ((5, 3), (5, 3), (5, 2)):
            texts.clear()
            network(*shape)
            counts.append((len(texts), sum("@zt.wait(" in text for text in texts),
                           sum(len(re.findall(r"^define hidden void @kernel", text, re.M)) for text in texts)))
    object_cache.forget()
    (modules, workers, kernels), again, (modules_again, workers_again, changed) = counts
    # The kernels are one module, the functions that call them another, and so are the workers.
    assert (modules, workers, again, modules_again, workers_again) == (3, 1, (0, 0, 0), 2, 0)
    assert 2 < changed < kernels - 3  # those of the last layer


def test_the_library_has_the_same_bytes_whatever_the_cache_holds(tmp_path: Path) -> None:
    libraries = []
    for k, before in enumerate([(), [(5, 3)], [(5, 2), (7, 3)]]):
        object_cache.forget()
        with using(cache=str(tmp_path / f"{k}")):
            for shape in before:
                network(*shape)
            libraries.append(network().code)
    object_cache.forget()
    assert libraries[0] == libraries[1] == libraries[2]


def test_llvm_names_the_kernel_that_it_refuses() -> None:
    texts = [f"define void @kernel() {{ {line} ret void }}" for line in ("", "%x = nothing", "")]
    together = "\n".join(text.replace("@kernel", f"@kernel{k}") for k, text in enumerate(texts))
    with using(cache=None), pytest.raises(ZtorchError, match="<string>:1:30: error: expected instruction opcode"):
        list(assemble.assemble_kernels(texts, TARGET, lambda numbers: together))


@pytest.mark.parametrize(("texts", "message"), [
    (("define i32 @f() { ret i32 1 }", "define i32 @f() { ret i32 2 }"), "two objects define 'f'"),
    (("define i32 @f() { ret i32 1 }", ""), "objects for 2 different machines")])
def test_what_cannot_be_merged(texts: tuple[str, str], message: str) -> None:
    objects = [read_object(compiled(text, HOST if text else OTHER)) for text in texts]
    with pytest.raises(LinkError, match=message):
        merge((obj, {}) for obj in objects)


def test_merged_objects_use_one_anothers_symbols_by_new_names() -> None:
    uses = read_object(compiled("declare hidden i32 @one()\ndeclare hidden i32 @two()\n"
                                "define i32 @three() { %a = call i32 @one() %b = call i32 @two()"
                                " %r = add i32 %a, %b ret i32 %r }"))
    numbers = [(read_object(compiled(f"define hidden i32 @f() {{ ret i32 {n} }}")), {"f": name})
               for n, name in ((1, "one"), (2, "two"))]
    for objects in ([*numbers, (uses, {})], [(uses, {}), *numbers]):
        library = load_library(link(merge(objects), soname="three.so", exports=["three"]), "three")
        assert library.three() == 3
    alone = merge([(uses, {}), numbers[0], (uses, {"three": "six"})])
    assert [s.name for s in alone.symbols if s.undefined] == ["two"]


def test_calls_from_python_are_native_where_llvm_has_this_processor() -> None:
    code, by_llvm = python_calls(), target_for(resolve("cpu")).assembler == "assemble"
    assert (code or b"")[:4] == (b"\x7fELF" if by_llvm else b"")
