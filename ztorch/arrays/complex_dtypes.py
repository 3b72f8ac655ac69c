"""Finds complex numbers among the arguments of functions of tensors."""

from __future__ import annotations

from typing import Any

from ztorch.dtypes import ComplexDType, complex_dtype

_REAL = {bool, int, float}


def holds_complex(x: Any) -> bool:
    """Whether x holds complex numbers, is one, or names a complex dtype.

    >>> holds_complex(1j), holds_complex([1.0, [2j]]), holds_complex("complex64"), holds_complex(2)
    (True, True, True, False)
    """
    if isinstance(x, (complex, ComplexDType, str, type)):
        return isinstance(x, complex) or complex_dtype(x) is not None
    if isinstance(x, (list, tuple)):
        return not _REAL.issuperset(map(type, x)) and any(map(holds_complex, x))
    d = getattr(x, "dtype", x)
    return getattr(d, "kind", "") == "c" or str(d).startswith("torch.complex")
