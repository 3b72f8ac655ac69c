"""Checks the arguments of public functions before they run. Errors name the function, the argument
and the fix."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from ztorch.errors import ConfigError, DataError, ZtorchError, unknown

_F = TypeVar("_F", bound=Callable[..., Any])
# Arguments of other libraries, with the equivalent here.
_FOREIGN = {"requires_grad": "gradients belong to functions: zt.grad(f), zt.value_and_grad(f)",
            "size": "use shape=", "low": "use minval=", "high": "use maxval=",
            "loc": "use mean=", "scale": "use stddev="}
_FILES = ("Path", "str | os.PathLike[str]")  # annotations of parameters that name a file


def checked(function: _F) -> _F:
    """Decorates a function so that a wrong call raises one of our errors.

    Arguments annotated as files must be file names, and those annotated as functions callable.

    >>> @checked
    ... def shut(door: str, *, softly: bool = False) -> None: ...
    >>> shut("front", True)
    Traceback (most recent call last):
    ztorch.errors.ConfigError: shut takes 1 (door) without a name, not 2; name the others: softly=
    """

    @functools.wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        signature, files, functions = _declared(function)
        if not files and not functions:
            try:
                return function(*args, **keywords)
            except TypeError:  # caused by the call, or by something inside
                _bound(function, signature, args, keywords)
                raise
        bound = _bound(function, signature, args, keywords)
        for name, optional in files:
            if name in bound and not (optional and bound[name] is None):
                file_name(f"{_label(function, args)}({name}=...)", bound[name])
        for name in functions:
            if name in bound and not callable(bound[name]):
                raise ConfigError(f"{_label(function, args)}({name}=...) must be a function, not "
                                  f"{bound[name]!r}")
        return function(*args, **keywords)

    return cast(_F, run)


def _bound(function: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...],
           keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, or an error that says how they do not fit."""
    try:
        return signature.bind(*args, **keywords).arguments
    except TypeError as error:
        raise misfit(_label(function, args), signature.parameters, args, keywords,
                     str(error)) from None


def written(signature: inspect.Signature) -> str:
    """A signature as users read it: the names of types without quotes."""
    return str(signature).replace("'", "")


def explained(function: _F) -> _F:
    """Decorates a function that takes no callbacks. An exception from deep inside it, caused by its
    arguments, becomes an error that names the call.

    >>> @explained
    ... def half(x: float) -> float:
    ...     return x / 2
    >>> half("a")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ztorch.errors.ConfigError: half cannot be called with these arguments (TypeError: ...); its ...
    """

    @functools.wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except ZtorchError:
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            signature = inspect.signature(function)
            call = written(signature)
            hints = "".join(f"; {hint}" for name, hint in _FOREIGN.items()
                            if name in keywords and name not in signature.parameters)
            raise ConfigError(f"{function.__name__} cannot be called with these arguments ("
                              f"{type(error).__name__}: {error}); its signature is "
                              f"{function.__name__}{call}{hints}") from error

    return cast(_F, run)


@functools.cache  # computed at the first call: signatures would slow down the import
def _declared(function: Callable[..., Any]) -> tuple[inspect.Signature, list[tuple[str, bool]],
                                                     list[str]]:
    """The signature, the parameters that name files (with whether they may be None), the
    functions."""
    signature = inspect.signature(function)
    texts = {p.name: str(p.annotation) for p in signature.parameters.values()}
    files = [(name, text.endswith(" | None")) for name, text in texts.items()
             if text.removesuffix(" | None") in _FILES]
    return signature, files, [name for name, text in texts.items() if text.startswith("Callable")]


def plain_function(function: Callable[..., Any]) -> FunctionType | None:
    """The function inside of decorators that has the parameters of `function`; None if only
    `inspect.signature` can tell."""
    inner: Any = function
    while isinstance(inner, FunctionType) and "__signature__" not in vars(inner):
        if "__wrapped__" not in vars(inner):
            return inner
        inner = vars(inner)["__wrapped__"]
    return None


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters, in the order of `inspect.signature`, which takes thirty times as
    long: too long for each class that an import defines.

    >>> parameter_names(lambda x, *more, mask=None, **keywords: x)
    ['x', 'more', 'mask', 'keywords']
    """
    inner = plain_function(function)
    if inner is None:
        return [*inspect.signature(function).parameters]
    code = inner.__code__
    count, places = code.co_argcount + code.co_kwonlyargcount, code.co_argcount
    starred = [*code.co_varnames[count:count + bool(code.co_flags & inspect.CO_VARARGS)]]
    rest = count + len(starred)
    return [*code.co_varnames[:places], *starred, *code.co_varnames[places:count],
            *code.co_varnames[rest:rest + bool(code.co_flags & inspect.CO_VARKEYWORDS)]]


def file_name(label: str, path: Any) -> str:
    """The name of a file as a string, or a ConfigError that starts with the label.

    >>> file_name("load(path=...)", "digits.zt")
    'digits.zt'
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str):
        hint = ("; zt.load_torch(module, x) takes PyTorch's modules" if hasattr(path, "state_dict")
                else "")
        raise ConfigError(f"{label} must be the name of a file, not {path!r}{hint}")
    return name


def _label(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The function's name as users write it: `load`, `Program.fit`, `EarlyStopping`."""
    if "." not in function.__qualname__ or "<locals>" in function.__qualname__:
        return function.__name__
    owner = type(args[0]).__name__ if args else function.__qualname__.partition(".")[0]
    return owner if function.__name__ == "__init__" else f"{owner}.{function.__name__}"


def misfit(label: str, takes: Mapping[str, inspect.Parameter], args: tuple[Any, ...],
           keywords: Mapping[str, Any], reason: str) -> ZtorchError:
    """The error for a call that the signature does not allow; `args` begins with `self`, if any."""
    others = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [name for name in takes if name != "self" and takes[name].kind not in others]
    placed = [name for name in names if takes[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    more = [name for name in names if name not in placed]
    count = len(args) - ("self" in takes)
    for name in keywords:
        if name not in names and len(names) + ("self" in takes) == len(takes):
            return (unknown(f"argument of {label}", name, names) if names else
                    ConfigError(f"{label} takes no arguments, so not {name}="))
    if count > len(placed):
        allowed = f"{len(placed)} ({', '.join(placed)})" if placed else "none"
        fix = f"; name the others: {', '.join(f'{name}=' for name in more)}" if more else ""
        return ConfigError(f"{label} takes {allowed} without a name, not {count}{fix}")
    required = [name for name in names if takes[name].default is inspect.Parameter.empty]
    missing = [name for name in required if name in names[count:] and name not in keywords]
    return ConfigError(f"{label} needs {' and '.join(missing)}: {label}({', '.join(required)})"
                       if missing else f"{label}: {reason}")


def need_no_mask(label: str, x: Any) -> None:
    """Raises a DataError if an array, or an array in a list, has masked elements.

    NumPy's conversions would drop the mask silently.

    >>> need_no_mask("x", np.ma.masked_array([1.0, 2.0], [False, False]))
    """
    for part in x if isinstance(x, (list, tuple)) else (x,):
        mask = getattr(part, "mask", None) if isinstance(part, np.ndarray) else None
        if mask is not None and np.any(mask):
            raise DataError(f"{label} has {np.count_nonzero(mask)} masked elements, and the mask "
                            "would be lost; fill them first: x.filled(value)")


def need_out_array(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raises an error if `out=` is no array that can take a result of this shape and dtype."""
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"out=... must be a NumPy array of {dtype} {shape}, not an object of "
                          f"type {type(array).__name__}")
    if array.shape != shape or array.dtype != dtype:
        raise ConfigError(f"out=... is an array of {array.dtype} {array.shape}; the result is of "
                          f"{dtype} {shape}")
    if not array.flags.writeable:
        raise ConfigError("out=... cannot be written; pass an array of your own")


def need_separate(arrays: Sequence[np.ndarray]) -> None:
    """Raises an error if two arrays of `out=` share memory."""
    for k, array in enumerate(arrays):
        if overlap([array], arrays[:k]):
            raise ConfigError("out=... names one piece of memory twice; pass separate arrays")


def overlap(arrays: Iterable[np.ndarray], others: Iterable[Any]) -> bool:
    """Whether any of the arrays may share memory with one of the others.

    >>> x = np.zeros(4)
    >>> overlap([x[:2]], [x[1:]])
    True
    """
    others = [x for x in others if isinstance(x, np.ndarray)]
    return any(np.may_share_memory(a, b) for a in arrays for b in others)
