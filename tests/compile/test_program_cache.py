"""Compiled programs that are kept: found by another process, never for another graph."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available
from tests.cases.available import PLAYED
from ztorch.arrays import programs
from ztorch.codegen import object_cache
from ztorch.compile import pipeline, program_cache
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Op
from ztorch.host.settings import using
from ztorch.runtime.devices import resolve
from ztorch.runtime.packed import SIZE_BYTES, pack, unpack

X = np.arange(6.0, dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    object_cache.forget()
    programs.forget()
    with using(cache=str(tmp_path)):
        yield tmp_path / "objects"
    object_cache.forget()
    programs.forget()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of programs that are compiled from now on."""
    names: list[str] = []

    def counted(functions: Any, target: Any, name: str, **options: Any) -> Any:
        names.append(name)
        return compile_functions(functions, target, name, **options)

    monkeypatch.setattr(pipeline, "compile_functions", counted)
    return names


def new_process() -> None:
    object_cache.forget()
    programs.forget()


def chain() -> np.ndarray:
    x = zt.tensor(X)
    return (ops_of(x) * 3.0 + zt.tensor([1.0]) * 2.0).numpy()


def ops_of(x: zt.Tensor) -> zt.Tensor:
    return zt.ops.exp(x).cumsum(axis=0)


def test_another_process_finds_it(compiled: list[str]) -> None:
    first = chain()
    assert len(compiled) == 1
    new_process()
    np.testing.assert_array_equal(chain(), first)
    assert len(compiled) == 1


def test_another_process_does(folder: Path) -> None:
    """In a real second process: it wrote the same as this one would have."""
    script = ("import ztorch as zt, numpy as np\n"
              "print((zt.tensor(np.ones(3, np.float32)) * 3.5).sum().numpy())")
    environment = {"ZTORCH_CACHE": str(folder.parent), "PATH": ""}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
                         text=True, check=True, cwd=Path(zt.__file__).parents[1])
    assert run.stdout.strip() == "10.5"
    written = set(folder.iterdir())
    same = (zt.tensor(np.ones(3, np.float32)) * 3.5).sum().numpy()
    assert same == 10.5
    assert set(folder.iterdir()) == written


def test_the_compiler_is_identified_by_its_version_not_its_file_time(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def source() -> bytes:
        return program_cache._source.__wrapped__()

    monkeypatch.setattr(program_cache, "__file__", str(tmp_path / "package" / "compile" / "here.py"))
    monkeypatch.setattr(program_cache.assets, "folder", lambda name: tmp_path / name)
    for place in ("package/lower/plan.py", "package/errors.py", "templates/llvm/module.j2"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("some text")
    digests = [source()]
    for place in ("package/lower/plan.py", "package/errors.py", "templates/llvm/module.j2"):
        status = (tmp_path / place).stat()
        (tmp_path / place).write_text("other one")  # of equal length, and said to be as old
        os.utime(tmp_path / place, ns=(status.st_atime_ns, status.st_mtime_ns))
        digests.append(source())
    assert len(set(digests)) == 4
    (tmp_path / place).write_text("some text")
    (tmp_path / place).write_text("other one")
    (tmp_path / "package" / "lower" / "plan.pyc").write_bytes(b"1")
    assert source() == digests[-1]


def test_other_numbers_shapes_and_constants_are_other_programs(compiled: list[str]) -> None:
    for k, function in enumerate((
            lambda x: x * 2.0, lambda x: x * -2.0, lambda x: x[1:] * 2.0,
            lambda x: x * np.arange(6, dtype=np.float32))):
        new_process()
        np.testing.assert_array_equal(function(zt.tensor(X)).numpy(), function(X))
        assert len(compiled) == k + 1


def test_constants_come_back(compiled: list[str]) -> None:
    table = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    graph = Graph({"y0": zt.ops.matmul(leaf("input", "x0", (1, 6), "float32"),
                                       program_constant(table))})
    for _ in range(2):
        new_process()
        running = program_cache.build({"call": graph}, "cpu", "product")
        call = running.bind("call")
        call.inputs["x0"][...] = X.reshape(1, 6)
        call()
        np.testing.assert_allclose(call.outputs["y0"], X.reshape(1, 6) @ table, rtol=1e-6)
    assert compiled == ["product"]


def program_constant(table: np.ndarray) -> Any:
    from ztorch.graph.op import constant

    return constant(table)


def test_a_damaged_file_is_compiled_again(compiled: list[str], folder: Path) -> None:
    first = chain()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    new_process()
    np.testing.assert_array_equal(chain(), first)
    assert len(compiled) == 2


@pytest.mark.parametrize("change", [{"cache": None}, {"debug": ("time",)}])
def test_nothing_is_kept_where_it_is_off_or_watched(change: dict[str, Any], compiled: list[str]) -> None:
    with using(**change):
        for k in range(2):
            new_process()
            chain()
            assert len(compiled) == k + 1


def test_the_key_names_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(resolve("cpu"))
    graph = {"call": Graph({"y0": leaf("input", "x0", (2,), "float32") * 2.0})}
    keys = [program_cache._key(graph, target, "name"), program_cache._key(graph, target, "other")]
    limits = replace(target.limits, processor=target.limits.processor._replace(l2_bytes=1 << 10))
    keys.append(program_cache._key(graph, replace(target, limits=limits), "name"))
    for part in ("llvm_identity", "_source", "__version__"):
        with monkeypatch.context() as patch:
            patch.setattr(program_cache, part, "another" if part == "__version__" else
                          lambda: b"another")
            keys.append(program_cache._key(graph, target, "name"))
    assert None not in keys and len({repr(k) for k in keys}) == len(keys)


def test_programs_with_ops_of_others_are_not_kept() -> None:
    target, x = target_for(resolve("cpu")), leaf("input", "x0", (2,), "float32")
    own = Op("own", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x,
             body=lambda e, index: e.read(0, index))
    assert program_cache._key({"call": Graph({"y0": own(x)})}, target, "name") is None


# -- models ----------------------------------------------------------------------------------------


def model(units: int = 3, seed: int = 0) -> zt.Sequential:
    return zt.Sequential([zt.layers.Input((6,)), zt.layers.Dense(units, activation="relu"),
                          zt.layers.Dropout(0.3), zt.layers.Dense(1)], name="kept", seed=seed)


def trained(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of a new model before and after training."""
    x = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    program = model(seed=seed).compile("cpu", batch_size=8, optimizer="adam", loss="mse")
    before = program.predict(x)
    program.fit(x, x.sum(1, keepdims=True), epochs=2, verbose=0)
    return before, program.predict(x)


def test_a_hit_has_the_models_own_weights(compiled: list[str]) -> None:
    first, again, other = [], [], []
    for results, seed in ((first, 1), (again, 1), (other, 2)):
        new_process()
        results += trained(seed)
    assert compiled == ["kept"]
    np.testing.assert_array_equal(first, again)
    assert not np.isclose(first, other).all(axis=(1, 2)).any()
    with using(cache=None):
        np.testing.assert_array_equal(trained(2), other)


def test_values_of_weights_are_recomputed_after_changes(compiled: list[str]) -> None:
    """A program that only predicts computes some of its params when it is loaded."""
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    for seed in (1, 2):
        new_process()
        program = model(64, seed).compile("cpu", batch_size=40)
        weights = program.get_weights()
        hidden = np.maximum(x @ weights[0] + weights[1], 0)
        np.testing.assert_allclose(program.predict(x), hidden @ weights[2] + weights[3], rtol=1e-4,
                                   atol=1e-5)
    assert compiled == ["kept"]


@pytest.mark.parametrize("name", ["dummy", *PLAYED])
def test_a_device_finds_its_kernels(name: str, compiled: list[str]) -> None:
    device = f"{name}:{available.device(name).info.ordinal}"
    results = []
    x = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    for _ in range(2):
        new_process()
        program = model().compile(device, batch_size=8, optimizer="adam", loss="mse")
        program.fit(x, x.sum(1, keepdims=True), epochs=2, verbose=0)
        results.append(program.predict(x))
    assert compiled == ["kept"]
    np.testing.assert_array_equal(*results)


def test_other_layers_losses_precisions_and_limits_are_other_programs(compiled: list[str]) -> None:
    def compile_one(units: int = 3, **changes: Any) -> None:
        new_process()
        model(units).compile("cpu", **{"batch_size": 8, "optimizer": "adam", "loss": "mse",
                                       **changes})

    compile_one()
    for count, change in enumerate((
            {"units": 4}, {"batch_size": 4}, {"loss": "mae"}, {"optimizer": "sgd"},
            {"dtype": "float64"}, {"memory_limit": "1MB"}), start=2):
        compile_one(**change)
        assert len(compiled) == count, change


# -- bytes -----------------------------------------------------------------------------------------


def packed() -> bytes:
    graph = Graph({"y0": leaf("input", "x0", (4,), "float32") * program_constant(
        np.array([1.0, 2.0, 3.0, 4.0], np.float32))})
    made = compile_functions({"call": graph}, target_for(resolve("cpu")), "packed")
    return pack(made.spec, made.code, [data for _, data in made.placed.constants])


def test_bytes_that_are_no_program() -> None:
    whole = packed()
    parts = unpack(whole)
    assert parts is not None and [c.tolist() for c in parts[2]] == [
        np.array([1.0, 2.0, 3.0, 4.0], np.float32).view(np.uint8).tolist()]
    header = int.from_bytes(whole[:SIZE_BYTES], "little")
    for end in (0, 4, SIZE_BYTES, SIZE_BYTES + header // 2, SIZE_BYTES + header, len(whole) - 1):
        assert unpack(whole[:end]) is None
    assert unpack(whole + b"\0") is None
    assert unpack(b"\xff" * 64) is None
    rng = np.random.default_rng(0)
    for at in rng.integers(0, SIZE_BYTES + header, 300):  # a changed header gives None or a valid one
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(8))
        other = unpack(bytes(changed))
        assert other is None or (len(other[1]) == len(parts[1]) and
                                 len(other[2]) == len(parts[2]))
