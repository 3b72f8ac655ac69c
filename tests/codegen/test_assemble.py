"""Where LLVM runs: in this process at first, in the child after many modules and for large programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

import ztorch as zt
from ztorch.codegen import assemble, llvm, llvm_child
from ztorch.compile import cpu_code
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


def test_the_child_compiles_programs_of_large_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code, and LLVM leaves no memory beside the weights."""
    llvm_child._end()
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(2)], seed=1)
    x, before = np.ones((2, 3), np.float32), llvm.modules_compiled()
    here = model.compile("cpu", batch_size=2)
    count = llvm.modules_compiled()
    assert count > before and llvm_child._child is None
    monkeypatch.setattr(cpu_code, "LARGE_PARAMS", here.executable.spec.params_bytes)
    apart = model.compile("cpu", batch_size=2)
    assert llvm.modules_compiled() == count and llvm_child._child is not None
    np.testing.assert_array_equal(apart.predict(x), here.predict(x))
    monkeypatch.setattr(cpu_code, "LARGE_PARAMS", here.executable.spec.params_bytes + 1)
    model.compile("cpu", batch_size=2)
    assert llvm.modules_compiled() == 2 * count - before
