"""`zt.ComplexTensor`: complex numbers on a device, stored as two tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch import dispatch
from ztorch.arrays.at import At
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.exchange import as_host_array
from ztorch.arrays.realize import realize
from ztorch.arrays.tensor import Tensor
from ztorch.dtypes import COMPLEX, ComplexDType, complex_dtype, part_dtype
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.graph.trees import TreeBranch
from ztorch.graph.value import StandIn
from ztorch.terminal.notebook import table

_OF_PARTS = {d.part: d for d in COMPLEX}


class ComplexTensor(StandIn, TreeBranch):
    """Complex numbers on a device: two tensors of one shape and dtype. `zt.tensor` creates one from
    complex data, `zt.ops.complex` from two tensors.

    Operations are recorded, compiled and run like those of real tensors. Derivatives are those of
    real functions of the parts: the gradient of a loss is `dL/dreal + i dL/dimag`, the direction of
    steepest ascent, as in PyTorch.

    Args:
        real: The real parts, a tensor of float32 or float64.
        imag: The imaginary parts, a tensor of the same shape and dtype.

    Examples:
        >>> import ztorch as zt
        >>> z = zt.tensor([1 + 2j, 3 - 4j])
        >>> z * z.conj()
        tensor([ 5.+0.j, 25.+0.j], dtype=complex64, device='cpu')
        >>> abs(z)[1].item(), z.imag.tolist()
        (5.0, [2.0, -4.0])
    """

    __slots__ = ("imag", "real")
    _fields = "real", "imag"
    real: Tensor
    imag: Tensor

    def __new__(cls, real: Any, imag: Any) -> Any:
        if isinstance(real, np.ndarray):  # a function of arrays returns arrays
            return joined(real, imag)
        return object.__new__(cls)

    def __init__(self, real: Any, imag: Any):
        self.real, self.imag = real, imag

    # -- properties --------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The size of each axis."""
        return self.real.shape

    @property
    def dtype(self) -> ComplexDType:
        """complex64 or complex128."""
        return _OF_PARTS[self.real.dtype]

    @property
    def device(self) -> str:
        """The device that holds it, such as "cpu" or "vulkan:0"."""
        return self.real.device

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.real.size

    @property
    def nbytes(self) -> int:
        """The size of its elements in bytes."""
        return 2 * self.real.nbytes

    def __len__(self) -> int:
        return len(self.real)

    def __repr__(self) -> str:
        if is_tracing():
            return f"<tensor {self.dtype!r}{list(self.shape)} of a function that is being compiled>"
        numbers = np.array2string(self.numpy(), separator=", ", prefix="tensor(")
        return f"tensor({numbers}, dtype={self.dtype}, device={self.device!r})"

    def _repr_html_(self) -> str | None:
        if is_tracing():
            return None
        return table(self.numpy(), f"tensor of {self.dtype}, shape {self.shape}, on {self.device}")

    def __str__(self) -> str:
        return repr(self) if is_tracing() else str(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)

    # -- elements ----------------------------------------------------------------------------------

    def realize(self) -> ComplexTensor:
        """Computes both parts now, if they are not computed yet."""
        realize((self.real.node, self.imag.node))
        return self

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array: always a copy, because the parts are separate arrays."""
        self.realize()
        return joined(self.real.numpy(), self.imag.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the parts of a complex tensor are separate: an array of it is a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def item(self) -> complex:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item() takes a tensor of one element, not of shape {self.shape}")
        number: complex = self.numpy().item()
        return number

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(f"a tensor of shape {self.shape} is neither true nor false; use "
                             "any() or all()")
        return bool(self.item())

    def __complex__(self) -> complex:
        return self.item()

    def __float__(self) -> float:
        raise TypeError("a complex number is not a float; use .real or abs()")

    def __int__(self) -> int:
        raise TypeError("a complex number is not an integer; use .real or abs()")

    def __iter__(self) -> Iterator[ComplexTensor]:
        return (self[k] for k in range(len(self)))

    # -- other devices and libraries ---------------------------------------------------------------

    def to(self, device: str, copy: bool = False) -> ComplexTensor:
        """The tensor on a device; with `copy`, a copy even if it is already there."""
        return ComplexTensor(self.real.to(device, copy), self.imag.to(device, copy))

    def to_device(self, device: str, /, *, stream: None = None) -> ComplexTensor:
        """The tensor on a device; the array API's name for `to`."""
        return self.to(device)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return dispatch.array_namespace(api_version)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Any = None) -> Any:
        if copy is False:
            raise BufferError("the parts of a complex tensor are separate: DLPack gets a copy")
        return self.numpy().__dlpack__(max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU, which receives a copy

    def __reduce__(self) -> tuple[Any, ...]:
        return ComplexTensor, (self.real, self.imag)

    # -- ops ---------------------------------------------------------------------------------------

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        return dispatch.on_complex(name, args, attrs)

    @staticmethod
    def ops() -> tuple[Any, ...]:
        return REGISTRY, ALIASES

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's elementwise functions return tensors where an op exists, else arrays."""
        name = ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method == "__call__" and not options and name in REGISTRY:
            return dispatch.on_complex(name, inputs, {})
        arrays = [np.asarray(x) if isinstance(x, (Tensor, ComplexTensor)) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __getitem__(self, key: Any) -> ComplexTensor:
        return of_parts(self.real[key], self.imag[key])

    at = property(At, doc="As of a tensor.")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a tensor never changes; x = x.at[key].set(values) makes another one")

    def __eq__(self, other: object) -> Any:
        return NotImplemented if other is None else self.apply_op("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if other is None else self.apply_op("not_equal", self, other)

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    __hash__ = object.__hash__


def of_parts(real: Tensor, imag: Tensor) -> ComplexTensor:
    """A complex tensor of two parts that are known to match; faster than the class."""
    z: ComplexTensor = object.__new__(ComplexTensor)
    z.real, z.imag = real, imag
    return z


def joined(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """Combines two real arrays into one complex array."""
    array = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    array.real, array.imag = real, imag
    return array


def is_complex(x: Any) -> bool:
    """Whether x is a Python complex number or a complex array."""
    return isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c"


def in_parts(x: Any) -> Any:
    """A complex number or array as a complex tensor; the parts of a Python number stay numbers."""
    if not is_complex(x):
        return x
    return complex_tensor(x) if hasattr(x, "dtype") else ComplexTensor(x.real, x.imag)


def complex_tensor(data: Any, dtype: Any = None, device: str | None = None,
                   copy: bool | None = None) -> ComplexTensor:
    """A complex tensor of any numeric data.

    Args:
        data: A tensor, an array, a number, or nested lists of numbers.
        dtype: The dtype; `None` means the array's dtype, or complex64 for Python numbers. Default:
            `None`.
        device: The device; `None` means the tensor's device, or the default one. Default: `None`.
        copy: Whether the numbers must be copied; False raises an error. Default: `None`.

    Raises:
        ConfigError: `copy` is False: separating the parts requires a copy.
    """
    d = complex_dtype(dtype) if dtype is not None else None
    if dtype is not None and d is None:
        raise ConfigError(f"complex numbers are not of {dtype}; use zt.ops.real, or complex64")
    if isinstance(data, (Tensor, ComplexTensor)):
        z = data if isinstance(data, ComplexTensor) and d in (None, data.dtype) else (
            dispatch.on_complex("cast", (data, d), {}))
        moved: ComplexTensor = z if device is None else z.to(device)
        return moved
    if copy is False:
        raise ConfigError("complex numbers cannot be shared with a tensor: its parts are separate; "
                          "leave copy=False out")
    array = as_host_array("a tensor's data", data, complex_too=True)
    if d is None:
        named = hasattr(data, "dtype") and array.dtype != np.complex64
        d = _OF_PARTS[part_dtype(*COMPLEX)] if named else COMPLEX[0]
    array = array.astype(d.numpy, copy=False)
    return ComplexTensor(*(Tensor(part.copy(), d.part, device)
                           for part in (array.real, array.imag)))
