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
        name: The name of the function, which is that of the op or an alias.
        signature: The standard's parameters and defaults. Positional parameters are the op's first
            ones; keyword parameters have the op's names.
        module: The module that contains the function.
    """
    defaults = {p.name: p.default for p in signature.parameters.values()
                if p.kind is p.KEYWORD_ONLY}
    count = len(signature.parameters) - len(defaults)

    def call(*args: Any, **attrs: Any) -> Any:
        if len(args) == count and not attrs:  # faster than binding
            return compute(name, args, defaults)
        bound = signature.bind(*args, **attrs)
        bound.apply_defaults()
        return compute(name, bound.args, bound.kwargs)

    named(call, name, module, f"{name}{signature}: `zt.ops.{name}` of tensors.")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def absent(module: str, name: str) -> AttributeError:
    """The error for a name that is not in the standard; it says where to find the function.

    Args:
        module: The module, as users write it.
        name: The name.
    """
    own = name in REGISTRY or name in ALIASES
    hint = f"; here it is zt.ops.{name}" if own else f"; {INSTEAD[name]}" if name in INSTEAD else ""
    return AttributeError(f"{module} has no attribute {name!r}, nor has the standard{hint}")


def named(function: Callable[..., Any], name: str, module: str,
          doc: str | None) -> Callable[..., Any]:
    """Sets the name, the module and the docstring of a function, and returns it."""
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = module, doc
    return function


def total_dtype(x: Tensor, d: Any) -> DType | ComplexDType:
    """The dtype of a sum or product: `d`, or by default 64 bits for integers and bools."""
    if d is not None:
        return complex_dtype(d) or dtype_named(d)
    return x.dtype if x.dtype.kind in "fc" else u64 if x.dtype.kind == "u" else i64
