"""Functions that create tensors from arrays, lists, numbers and other libraries' arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.abi import BUFFER_ALIGN
from ztorch.arguments import explained
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.complex_dtypes import holds_complex
from ztorch.arrays.complex_tensor import complex_tensor
from ztorch.arrays.device_dtypes import default_integer
from ztorch.arrays.dlpack import lent_by
from ztorch.arrays.elements import node_from, stored_array
from ztorch.arrays.exchange import as_host_array
from ztorch.arrays.node import TensorNode
from ztorch.arrays.placement import device as on_device
from ztorch.arrays.promotion import integer_range
from ztorch.arrays.specs import sizes_of
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.dtypes import AnyDType, boolean, complex64, complex_dtype, f32
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ConfigError, DataError, ZtorchError

Shape = int | Sequence[int]


@explained
def tensor(data: Any, dtype: AnyDType | str | None = None, device: str | None = None) -> Tensor:
    """Creates a tensor with a copy of the data.

    Args:
        data: The numbers: an array of any framework, a number, or nested lists of numbers.
        dtype: The dtype; `None` means the array's dtype, float32 for Python floats, int64 for
            Python integers (int32 on a device without int64) and complex64 for Python complex
            numbers. Default: `None`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor; a `zt.ComplexTensor` if the numbers are complex.

    Raises:
        DataError: `data` is not an array of numbers.

    Examples:
        >>> import ztorch as zt
        >>> zt.tensor([[1, 2], [3, 4]], dtype="float32")
        tensor([[1., 2.],
                [3., 4.]], dtype=float32, device='cpu')
    """
    try:
        return Tensor(data, dtype, device)
    except ZtorchError:
        return _of_complex(data, dtype, device, None)


def _of_complex(data: Any, dtype: Any, device: str | None, copy: bool | None) -> Any:
    """A complex tensor of data that no real tensor can hold; the same error again if none is
    complex."""
    if holds_complex(data) or complex_dtype(dtype):
        return complex_tensor(data, dtype, device, copy)
    raise


@explained
def asarray(data: Any, dtype: AnyDType | str | None = None, device: str | None = None,
            copy: bool | None = None) -> Tensor:
    """Creates a tensor that shares the memory of the data where possible. A later change of the
    data then changes the tensor. An integrated GPU shares only arrays that start at a multiple of
    64 bytes.

    Args:
        data: A tensor, an array of any framework, a number, or nested lists of numbers.
        dtype: The dtype; `None` means the dtype of the data. Default: `None`.
        device: The device; `None` means the default one. Default: `None`.
        copy: True always copies, False raises an error if sharing is impossible, `None` copies only
            if needed. Default: `None`.

    Returns:
        The tensor; a `zt.ComplexTensor` if the numbers are complex.

    Raises:
        ConfigError: `copy` is False, and the memory cannot be shared.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> zt.asarray(np.arange(3))
        tensor([0, 1, 2], dtype=int64, device='cpu')
    """
    try:
        d = None if dtype is None else dtype_named(dtype)
        node = node_from(data, d, device, bool(copy))
    except ZtorchError:
        return _of_complex(data, dtype, device, copy)
    if copy is False and not isinstance(data, Tensor) and not _shares(node, data):
        raise ConfigError("this array's memory cannot be shared with a tensor: it must be on the "
                          "tensor's device, in C order, with whole elements aligned, in the same "
                          "dtype; OpenCL and Vulkan share the host's memory on integrated GPUs, "
                          f"from a multiple of {BUFFER_ALIGN} bytes on; leave copy=False out")
    return tensor_of(node)


def _shares(node: TensorNode, data: Any) -> bool:
    """Whether a node shares the memory of the object it was created from."""
    place = node.spec.memory
    if not node.spec.size:
        return True
    if theirs := lent_by(data):
        return theirs == place
    return np.may_share_memory(stored_array(node), as_host_array("a tensor's data", data))


@explained
def from_dlpack(x: Any, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Creates a tensor from another framework's array with DLPack. The memory is shared where
    possible.

    Args:
        x: An array with `__dlpack__`.
        device: The device of the tensor; `None` means the default one. Default: `None`.
        copy: True always copies, False never. Default: `None`.

    Returns:
        The tensor.

    Raises:
        DataError: `x` has no `__dlpack__`, or its memory cannot be used here.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> zt.from_dlpack(np.arange(3.0)).sum().item()
        3.0
    """
    if not hasattr(x, "__dlpack__"):
        raise DataError(f"from_dlpack takes an array with __dlpack__, not {type(x).__name__}; use "
                        "asarray")
    return asarray(x, None, device, copy)


@explained
def full(shape: Shape, fill_value: complex, dtype: AnyDType | str | None = None,
         device: str | None = None) -> Tensor:
    """Creates a tensor filled with one number.

    Args:
        shape: The size of each axis, or one size for a vector.
        fill_value: The number.
        dtype: The dtype; `None` means float32 for a float, int64 for an integer (int32 on a device
            without int64), complex64 for a complex number, else bool. Default: `None`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Raises:
        ShapeError: The shape is invalid.
        DataError: The dtype cannot hold the number.

    Examples:
        >>> import ztorch as zt
        >>> zt.full((2,), 1.5)
        tensor([1.5, 1.5], dtype=float32, device='cpu')
    """
    number = np.asarray(fill_value)
    if number.ndim or number.dtype.kind not in "biufc":
        raise DataError(f"full takes a number, not {fill_value!r}")
    if number.dtype.kind == "c" or complex_dtype(dtype):
        with on_device(device) if device is not None else contextlib.nullcontext():
            z: Tensor = compute("full", (sizes_of(shape), complex(number),
                                         complex_dtype(dtype or complex64)), {})
        return z
    kind = dtype_named(dtype or {"b": boolean, "f": f32}.get(number.dtype.kind)
                       or default_integer(device))
    if kind.is_int:
        low, high = integer_range(kind)
        if not low <= number <= high:
            raise DataError(f"{fill_value!r} does not fit {kind}; use a wider dtype")
    sizes = sizes_of(shape)
    with on_device(device) if device is not None else contextlib.nullcontext():
        if number in (0, 1) or is_tracing():
            attrs = {"shape": sizes, "value": number.item(), "dtype": kind}
            result: Tensor = compute("full", (), attrs)
        else:  # the number is an input, so that other numbers reuse the program
            result = compute("broadcast_to", (Tensor(number, kind), sizes), {})
    return result


@explained
def zeros(shape: Shape, dtype: AnyDType | str = "float32", device: str | None = None) -> Tensor:
    """Creates a tensor of zeros.

    Args:
        shape: The size of each axis, or one size for a vector.
        dtype: The dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.zeros((2, 3)).shape
        (2, 3)
    """
    return full(shape, 0, dtype, device)


@explained
def ones(shape: Shape, dtype: AnyDType | str = "float32", device: str | None = None) -> Tensor:
    """Creates a tensor of ones.

    Args:
        shape: The size of each axis, or one size for a vector.
        dtype: The dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.ones(2)
        tensor([1., 1.], dtype=float32, device='cpu')
    """
    return full(shape, 1, dtype, device)


@explained
def empty(shape: Shape, dtype: AnyDType | str = "float32", device: str | None = None) -> Tensor:
    """Creates a tensor with unspecified elements. They are zeros: tensors never change.

    Args:
        shape: The size of each axis, or one size for a vector.
        dtype: The dtype. Default: `"float32"`.
        device: The device; `None` means the default one. Default: `None`.

    Returns:
        The tensor.

    Examples:
        >>> import ztorch as zt
        >>> zt.empty((2, 3)).shape
        (2, 3)
    """
    return zeros(shape, dtype, device)
