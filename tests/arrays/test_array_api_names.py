"""Names, arguments, constants and dtypes of `zt.array_api`, compared with `array_api_strict`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import ztorch as zt
from tests.arrays.array_api_beside import (
    EVERY,
    FLOATS,
    NUMBERS,
    compiles_some,  # noqa: F401  # for all tests here
    strict,
    xp,
)
from ztorch.errors import ConfigError, ShapeError

FOREIGN = ("strict", "ArrayAPI", "ModuleType", "Device")  # of the library, not of the standard


def _standard(module: Any, listed: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in listed
            if not name.startswith("_") and not any(part in name for part in FOREIGN)}


MAIN = _standard(strict, strict.__all__)
LINALG = _standard(strict.linalg, strict.linalg.__all__)
FFT = _standard(strict.fft, strict.fft.__all__)
STANDARD = {**MAIN, **{f"linalg.{name}": member for name, member in LINALG.items()},
            **{f"fft.{name}": member for name, member in FFT.items()}}
FUNCTIONS = sorted(n for n, m in STANDARD.items() if inspect.isfunction(m))


def ours(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), xp)


# -- names and arguments -----------------------------------------------------------------------------


def test_every_name_of_the_standard_exists() -> None:
    assert len(STANDARD) > 180
    for name in STANDARD:
        assert ours(name) is not None or name == "newaxis"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_and_defaults_equal_the_standard(name: str) -> None:
    def shown(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        parameters = inspect.signature(function).parameters.values()
        return sorted((p.kind, k if p.kind is not p.KEYWORD_ONLY else 0, p.name, None if "UNDEF" in (
            repr(p.default)) else p.default) for k, p in enumerate(parameters))

    assert repr(shown(ours(name))) == repr(shown(STANDARD[name]))


def test_every_public_name_is_in_the_standard() -> None:
    assert set(xp.__all__) - {"linalg", "fft"} <= set(MAIN) | {"__array_namespace_info__"}


def test_constants() -> None:
    for name in ("e", "pi", "inf", "nan", "newaxis"):
        assert repr(getattr(xp, name)) == repr(getattr(strict, name))


# -- dtypes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", EVERY)
def test_promotion_and_limits(a: str) -> None:
    for b in EVERY:
        try:
            want = strict.result_type(getattr(strict, a), getattr(strict, b))
        except TypeError:  # the standard leaves it open
            continue
        mine, other = getattr(xp, a), getattr(xp, b)
        assert xp.result_type(mine, other) is getattr(xp, str(want).rpartition(".")[2])
        assert xp.can_cast(mine, other) == strict.can_cast(getattr(strict, a), getattr(strict, b))
        assert xp.result_type(xp.ones(2, dtype=mine), other) is xp.result_type(mine, other)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating",
                 "complex floating", "numeric", ("bool", "real floating")):
        assert xp.isdtype(getattr(xp, a), kind) == strict.isdtype(getattr(strict, a), kind)
    if a in NUMBERS:
        info = "finfo" if a in FLOATS else "iinfo"
        got, want = getattr(xp, info)(getattr(xp, a)), getattr(strict, info)(getattr(strict, a))
        for field in got._fields[:-1]:
            assert getattr(got, field) == getattr(want, field)
        assert got.dtype is getattr(xp, a)


def test_numbers_adapt_to_dtypes() -> None:
    assert xp.result_type(xp.float32, 1.0) is xp.result_type(1, xp.float32) is xp.float32
    assert xp.result_type(xp.int8, 1) is xp.int8 and xp.result_type(xp.bool, True) is xp.bool
    for wrong in (lambda: xp.result_type(1.0), lambda: xp.isdtype(xp.bool, "float"),
                  lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32)):
        with pytest.raises(ConfigError):
            wrong()


# -- the namespace itself ----------------------------------------------------------------------------


def test_tensors_tell_their_namespace() -> None:
    x = zt.tensor([1.0, 2.0])
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ConfigError, match=r"2024\.12, not '2020\.01'"):
        x.__array_namespace__(api_version="2020.01")
    assert x.to_device("cpu") is x
    with pytest.raises(AttributeError, match=r"nor has the standard; here it is zt\.ops\.norm"):
        xp.linalg.norm  # noqa: B018


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"] is True
    assert info.default_device() in info.devices()
    assert set(info.dtypes()) == set(strict.__array_namespace_info__().dtypes())
    assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert info.default_dtypes() == {"real floating": xp.float32, "complex floating": xp.complex64,
                                     "integral": xp.int64, "indexing": xp.int32}
    assert xp.argmax(xp.asarray([1.0])).dtype is info.default_dtypes()["indexing"]


def test_required_axes() -> None:
    x = xp.ones((2, 3))
    for name in ("take", "cumulative_sum", "cumulative_prod"):
        with pytest.raises(ShapeError, match=rf"{name} needs axis="):
            ours(name)(*([x, xp.asarray([0])] if name == "take" else [x]))
