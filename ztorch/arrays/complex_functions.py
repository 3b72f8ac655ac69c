"""Functions of `zt.ops` that convert between real and complex tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.arrays.complex_tensor import ComplexTensor, complex_tensor
from ztorch.arrays.creation import asarray
from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import part_dtype
from ztorch.errors import DataError, ShapeError


def complex(real: Any, imag: Any) -> ComplexTensor:
    """Combines real and imaginary parts into a complex tensor.

    Args:
        real: The real parts: a tensor, an array or a number.
        imag: The imaginary parts; both broadcast to a common shape.

    Returns:
        A complex tensor: complex64, or complex128 if the parts are float64 or wide integers.

    Examples:
        >>> complex(np.zeros(2, np.float32), np.float32(1)).tolist()
        [1j, 1j]
    """
    parts = [_real("complex", x) for x in (real, imag)]
    d = part_dtype(*(x.dtype for x in parts))
    first, second = compute("broadcast_arrays", tuple(x.astype(d) for x in parts), {})
    return ComplexTensor(first, second)


def polar(abs_: Any, angle: Any) -> ComplexTensor:
    """A complex tensor from absolute values and angles.

    Args:
        abs_: The absolute values: a tensor, an array or a number.
        angle: The angles in radians.

    Returns:
        A complex tensor of the broadcast shape.

    Examples:
        >>> polar(np.float64(2.0), np.float64(np.pi)).real.item()
        -2.0
    """
    size, turn = _real("polar", abs_), _real("polar", angle)
    return complex(size * compute("cos", (turn,), {}), size * compute("sin", (turn,), {}))


def view_as_complex(x: Any) -> ComplexTensor:
    """Views a real tensor as complex; its last axis holds the real and imaginary parts.

    Args:
        x: A real tensor or array with a last axis of size 2.

    Returns:
        A complex tensor without that axis.

    Examples:
        >>> view_as_complex(np.array([[1.0, 2.0]], np.float32)).tolist()
        [(1+2j)]
    """
    pairs = _real("view_as_complex", x)
    if not pairs.shape or pairs.shape[-1] != 2:
        raise ShapeError("ops.view_as_complex takes a tensor with a last axis of size 2, not of "
                         f"shape {pairs.shape}")
    return complex(pairs[..., 0], pairs[..., 1])


def view_as_real(x: Any) -> Tensor:
    """Views a complex tensor as real; the parts become a last axis of size 2.

    Args:
        x: A complex tensor or array.

    Returns:
        A real tensor.

    Examples:
        >>> view_as_real(np.array([1 + 2j])).tolist()
        [[1.0, 2.0]]
    """
    z = x if isinstance(x, ComplexTensor) else complex_tensor(np.asarray(x))
    y: Tensor = compute("stack", (z.real, z.imag), {"axis": -1})
    return y


def _real(name: str, x: Any) -> Tensor:
    """A real tensor from an argument that must hold real numbers."""
    y = asarray(x)
    if isinstance(y, ComplexTensor):
        raise DataError(f"ops.{name} takes real numbers, not {y.dtype}")
    return y
