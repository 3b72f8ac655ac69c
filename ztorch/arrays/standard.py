"""The common part of the modules of the array API: ops as functions with the standard's
signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import ComplexDType, DType, complex_dtype, i64, u64
from ztorch.dtypes import dtype as dtype_named
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.ops.absent import INSTEAD


def on_tensors(name: str, signature: inspect.Signature, module: str) -> Callable[..., Any]:
    """An op as a function of the standard.

    Args:
        name: Name of the function, and of the op or one of its aliases.
        signature: The standard's arguments and defaults. Those by position are the op's first ones,
            those by keyword have the op's names.
        module: The module that holds the function.
    """
    defaults = {p.name: p.default for p in signature.parameters.values()
                if p.kind is p.KEYWORD_ONLY}
    count = len(signature.parameters) - len(defaults)

    def call(*args: Any, **attrs: Any) -> Any:
        if len(args) == count and not attrs:  # no need to bind
            return compute(name, args, defaults)
        bound = signature.bind(*args, **attrs)
        bound.apply_defaults()
        return compute(name, bound.args, bound.kwargs)

    named(call, name, module, f"{name}{signature}: `zt.ops.{name}` of tensors.")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def absent(module: str, name: str) -> AttributeError:
    """The error for a name that the standard does not have, which says where it is.

    Args:
        module: The module, as users write it.
        name: The name.
    """
    own = name in REGISTRY or name in ALIASES
    hint = f"; here it is zt.ops.{name}" if own else f"; {INSTEAD[name]}" if name in INSTEAD else ""
    return AttributeError(f"{module} has no attribute {name!r}, nor has the standard{hint}")


def named(function: Callable[..., Any], name: str, module: str,
          doc: str | None) -> Callable[..., Any]:
    """A function under a name in a module."""
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = module, doc
    return function


def total_dtype(x: Tensor, d: Any) -> DType | ComplexDType:
    """The dtype of sums and products: as told, or 64 bits for integers and bools."""
    if d is not None:
        return complex_dtype(d) or dtype_named(d)
    return x.dtype if x.dtype.kind in "fc" else u64 if x.dtype.kind == "u" else i64
