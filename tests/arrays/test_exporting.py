"""Functions of tensors in files: they compute the same as the functions, without their source."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import changed
from tests.cases.available import device
from ztorch.errors import ArtifactError, ConfigError, DataError, ZtorchError


@zt.kernel("f32[b, n], f32[n], f32 -> f32[b, n]")
def scale_shift(x, g, c):
    out = np.empty_like(x)
    for i, j in zt.grid(*x.shape):
        out[i, j] = x[i, j] * g[j] + c
    return out


X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
G = np.arange(5, dtype=np.float32)
WANT = X.astype(np.float64) * G + 2.0
SIZES = {"b": 4, "n": 5}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("functions") / "scale_shift.zt"
    assert zt.export(scale_shift, where, sizes=SIZES, device="cpu:scalar") == [where]
    return where


def test_a_kernel_computes_from_its_file(path: Path) -> None:
    function = zt.load_function(path)
    np.testing.assert_allclose(function(X, G, 2.0), WANT, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(function(x=X[:, ::-1], c=2, g=G), X[:, ::-1] * G + 2, rtol=1e-6, atol=1e-6)
    assert function.__name__ == "scale_shift" and function.arguments == ("x", "g", "c")
    assert "x: float32[4, 5], g: float32[5], c: float32[]" in repr(function)


def test_it_takes_and_returns_tensors(path: Path) -> None:
    result = zt.load_function(path)(zt.tensor(X), G, 2)
    assert isinstance(result, zt.Tensor)
    np.testing.assert_allclose(result.numpy(), WANT, rtol=1e-6, atol=1e-6)


def test_a_result_is_the_callers(path: Path) -> None:
    function = zt.load_function(path)
    first = function(X, G, 2.0)
    function(X, G, 7.0)
    np.testing.assert_allclose(first, WANT, rtol=1e-6, atol=1e-6)


def test_it_runs_on_a_device(tmp_path: Path) -> None:
    device("vulkan")
    name = "vulkan:0"
    zt.export(scale_shift, tmp_path / "d.zt", sizes=SIZES, device=name)
    function = zt.load_function(tmp_path / "d.zt")
    np.testing.assert_allclose(function(X, G, 2.0), WANT, rtol=1e-6, atol=1e-6)
    with zt.device(name):
        result = function(zt.tensor(X), zt.tensor(G), zt.tensor(np.float32(2)))
    assert result.device == name
    np.testing.assert_allclose(result.numpy(), WANT, rtol=1e-6, atol=1e-6)


def test_any_function_of_tensors(tmp_path: Path) -> None:
    """Dicts of results, tensors that the function refers to, numbers and defaults."""
    weights = zt.tensor(np.linspace(0, 1, 15).reshape(5, 3).astype(np.float32))

    @zt.compiled
    def layer(x, axis=1, power=2.0):
        return {"product": x @ weights, "sum": zt.ops.sum(x ** power, axis=axis), "same": x}

    zt.export(layer, tmp_path / "f.zt", X, power="f32[]", device="cpu:scalar")
    function = zt.load_function(tmp_path / "f.zt")
    assert function.arguments == ("x", "power")
    results = function(X, 2)
    np.testing.assert_allclose(results["product"], X @ weights.numpy(), rtol=1e-5)
    np.testing.assert_allclose(results["sum"], (X.astype(np.float64) ** 2).sum(1), rtol=1e-5)
    assert np.array_equal(results["same"], X)


def test_dtypes_and_several_results(tmp_path: Path) -> None:
    def parts(x, k):
        return x.astype("float32") * 2, k + 1

    zt.export(parts, tmp_path / "f.zt", "bf16[3]", "i64[2]", device="cpu:scalar")
    double, more = zt.load_function(tmp_path / "f.zt")([1.5, 2, 3], [7, 8])
    assert double.tolist() == [3, 4, 6] and more.dtype == np.int64 and more.tolist() == [8, 9]


def test_a_c_library_of_a_kernel(tmp_path: Path) -> None:
    zt.export(scale_shift, tmp_path / "c", sizes=SIZES, format="c")
    library = ctypes.CDLL(str(tmp_path / "c" / "libscale_shift.so"))
    y = np.empty((4, 5), np.float32)
    library.scale_shift(*(a.ctypes.data_as(ctypes.c_void_p) for a in (X, G, np.float32([2]), y)))
    np.testing.assert_allclose(y, WANT, rtol=1e-6, atol=1e-6)
    header = (tmp_path / "c" / "scale_shift.h").read_text()
    assert "void scale_shift(const float *x, const float *g, const float *c, float *y);" in header
    assert "BATCH" not in header


def test_c_source_of_a_kernel(tmp_path: Path) -> None:
    zt.export(scale_shift, tmp_path / "c", sizes=SIZES, format="c", device="c")
    assert "const float *x, const float *g" in (tmp_path / "c" / "scale_shift.c").read_text()


def draws(x: Any) -> Any:
    return x + zt.randn(3)


@pytest.mark.parametrize(("function", "arguments", "options", "says"), [
    (scale_shift, (), {"sizes": {"b": 3}}, "argument 'x' is f32[b, n], and the size of 'n'"),
    (draws, ("f32[3]",), {}, "draws random numbers"),
    (draws, (), {}, 'missing a required argument: \'x\'; export takes the type'),
    (lambda x: x, ("f32[3",), {}, "cannot be read"),
    (lambda x: x, ("f32[3], f32[3]",), {}, "give one type"),
    (lambda x: x, ("f33[3]",), {}, "f33"),
    (lambda x: x, ({"w": X},), {}, "argument 'x' is a dict"),
    (lambda x: [[x]], ("f32[3]",), {}, "returns a tree"),
    (lambda x: x[:0], ("f32[3]",), {}, "without elements"),
    (lambda x: 3, ("f32[3]",), {}, "must give a tensor"),
    (lambda x: x, ("f32[3]",), {"device": "cpu:abacus"}, "abacus"),
    (lambda x: x, ("f32[3]",), {"format": "onnx"}, "is a format of models"),
    (lambda x: x, ("f32[3]",), {"format": "web"}, "put a kernel into one by zt.layers.Kernel"),
])
def test_what_cannot_be_exported_says_why(
        function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any],
        says: str, tmp_path: Path) -> None:
    with pytest.raises(ZtorchError, match=re.escape(says)):
        zt.export(function, tmp_path / "e.zt", *arguments, **options)
    assert not (tmp_path / "e.zt").exists()


def test_wrong_calls_name_valid_arguments(path: Path) -> None:
    function = zt.load_function(path)
    for args, named in (((X, G), {}), ((X, G, 1, 2), {}), ((X, G), {"d": 1}), ((X, G, 1), {"c": 1})):
        with pytest.raises(DataError, match="scale_shift takes x, g, c"):
            function(*args, **named)
    for x in (X, zt.tensor(X)):
        with pytest.raises(DataError, match="argument 'g' has shape"):
            function(x, X, 1.0)


@pytest.mark.parametrize("numbers", [[1.5, 2.0], [2**31, 1], [np.nan, 1.0], np.float16([0.5, 1.0])])
def test_integers_are_not_cut(tmp_path: Path, numbers: Any) -> None:
    zt.export(lambda n: n + 1, tmp_path / "e.zt", "i32[2]")
    function = zt.load_function(tmp_path / "e.zt")
    np.testing.assert_array_equal(function([2.0, -3.0]), [3, -2])
    with pytest.raises(DataError, match=r"argument 'n' holds .* in row 0; an input of int32 takes integers"):
        function(numbers)


def test_models_and_functions_are_distinguished(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="load_function"):
        zt.load(path)
    model = zt.Sequential([zt.layers.Input((2,)), zt.layers.Dense(1)])
    model.compile("cpu:scalar", batch_size=1).save(tmp_path / "model.zt")
    with pytest.raises(ConfigError, match=r"zt\.load\("):
        zt.load_function(tmp_path / "model.zt")
    with pytest.raises(ConfigError, match=r"model\.export\(path"):
        zt.export(model, tmp_path / "other.zt")


@pytest.mark.parametrize("arguments", [None, [], ["x"], ["x", "x", "g", "c"], [1], "x"])
def test_a_manifest_must_name_the_arguments(path: Path, tmp_path: Path, arguments: Any) -> None:
    def damage(manifest: dict[str, Any]) -> None:
        manifest["program"]["arguments"] = arguments

    (tmp_path / "wrong.zt").write_bytes(changed(damage, path.read_bytes()))
    with pytest.raises(ArtifactError, match="arguments"):
        zt.load_function(tmp_path / "wrong.zt")
