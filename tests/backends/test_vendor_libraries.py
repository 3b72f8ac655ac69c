"""Libraries of this machine: which are found, and what programs get that call them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.backends.onednn_library import needs_compiler, pretended_onednn
from tests.tune.small_models import L
from ztorch.backends import vendor_libraries
from ztorch.backends.vendor_libraries import VendorLibrary, versions
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.lower.plan_schedule import RULES, library_plan
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder in which libraries are searched."""
    monkeypatch.setattr(vendor_libraries, "_FOLDERS", (str(tmp_path),))
    vendor_libraries.vendor_libraries.cache_clear()
    yield tmp_path
    vendor_libraries.vendor_libraries.cache_clear()


@needs_compiler
def test_onednn_multiplies_on_one_thread(folder: Path) -> None:
    """Its letters, sizes and distances are right for operands of either order; the threads of the caller are as
    before."""
    path = pretended_onednn(folder)
    assert dict(versions())["onednn"] == "3.0.1 isa 0xe7"
    model = zt.Sequential([L.Input((61,)), L.Dense(83, activation="relu"), L.Dense(45, use_bias=False)])
    functions = dict(model.trace(batch_size=40, optimizer="sgd", loss="mse").functions)
    target = target_for(resolve("cpu")).with_libraries(versions())
    r, states = np.random.default_rng(0), []
    x, y = (r.normal(size=(40, n)).astype(np.float32) for n in (61, 45))
    for plan in (RULES, library_plan(RULES, "onednn")):
        compiled = compile_functions(functions, target, "m", plan=plan)
        program = Executable(compiled.spec, compiled.code, compiled.params, threads=1)
        call = program.bind("train")
        for array, value in zip(call.inputs.values(), (x, y), strict=False):
            array[...] = value
        call()
        call()
        states.append(program.states_snapshot())
    assert [s.schedule.kind for s in compiled.plans["train"].steps if s.schedule].count("onednn") == 5
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert ctypes.CDLL(str(path)).omp_get_max_threads() == 7


@needs_compiler
def test_onednn_with_other_threads_is_not_used(folder: Path) -> None:
    pretended_onednn(folder, runtime=4)  # TBB, whose number of threads a caller cannot set
    assert "onednn" not in dict(versions())


def test_a_file_that_is_no_library_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libdnnl.so.3", "libopenblas.so.0"):
        (folder / name).write_bytes(b"nothing")
    wheel = folder / "site" / "numpy" / "__init__.py"
    monkeypatch.setattr(vendor_libraries.np, "__file__", str(wheel))
    assert versions() == ()


@pytest.mark.skipif("openblas" not in dict(versions()), reason="no OpenBLAS, not even NumPy's")
def test_numpy_keeps_its_threads() -> None:
    """OpenBLAS is loaded again: the copy that NumPy uses has as many threads as before."""
    library: VendorLibrary = next(x for x in vendor_libraries.vendor_libraries() if x.name == "openblas")
    theirs = ctypes.CDLL(library.path)
    name = next(n for n in ("scipy_cblas_sgemm64_", "cblas_sgemm64_", "cblas_sgemm") if hasattr(theirs, n))
    assert ctypes.cast(theirs[name], ctypes.c_void_p).value != library.addresses["openblas_f32"]
    count = next(n for n in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_",
                             "openblas_get_num_threads") if hasattr(theirs, n))
    before = theirs[count]()
    vendor_libraries.vendor_libraries.cache_clear()
    versions()
    assert theirs[count]() == before
