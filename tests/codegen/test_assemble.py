"""Where LLVM runs: in this process at first, in the child after many modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from ztorch.codegen import assemble, llvm, llvm_child
from ztorch.compile.targeting import target_for
from ztorch.host.settings import using
from ztorch.runtime.devices import resolve


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    with using(cache=None):
        yield
    llvm_child._end()


def test_after_many_modules_the_child_compiles_them(monkeypatch: pytest.MonkeyPatch) -> None:
    target, text = target_for(resolve("cpu")), "define i32 @number() { ret i32 7 }"
    llvm_child._end()  # another test may have started one
    before = llvm.modules_compiled()
    here = assemble.assemble(text, target)
    assert llvm.modules_compiled() == before + 1 and llvm_child._child is None
    monkeypatch.setattr(assemble, "MOST_MODULES_HERE", before + 1)
    assert assemble.assemble(text, target) == here
    assert llvm.modules_compiled() == before + 1 and llvm_child._child is not None
    llvm_child._end()
    monkeypatch.setattr(sys, "executable", "/usr/bin/a-server-with-python-in-it")
    assert assemble.assemble(text, target) == here
    assert llvm.modules_compiled() == before + 2 and llvm_child._child is None
