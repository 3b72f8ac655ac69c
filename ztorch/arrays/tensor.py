"""`zt.Tensor`: an array on a device, computed when a value is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch import dispatch
from ztorch.arrays import dlpack
from ztorch.arrays.applying import apply, apply_again, apply_to_arrays
from ztorch.arrays.at import At
from ztorch.arrays.cells import is_tracing, need_known
from ztorch.arrays.elements import moved, node_from, restored, stored_array
from ztorch.arrays.exchange import shown
from ztorch.arrays.keys import getter
from ztorch.arrays.node import TensorNode
from ztorch.arrays.one_number import OneNumber
from ztorch.arrays.operators import method_of_ops, reshaping, set_operators
from ztorch.arrays.placement import memory_of
from ztorch.arrays.quick_recording import recorder, set_tensor
from ztorch.arrays.realize import compute as compute_node
from ztorch.arrays.specs import Count
from ztorch.dtypes import AnyDType, DType, from_storage
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import ShapeError
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.graph.operators import Operators
from ztorch.terminal.notebook import table

_new = object.__new__


class Tensor(OneNumber, Operators):
    """An array on a device.

    Operations on tensors are recorded and computed together when a value is needed: by `numpy()`,
    `print`, a branch on it, or `realize()`. A tensor never changes.

    Args:
        data: The numbers, which are copied: an array of any framework, a number, or nested lists of
            numbers.
        dtype: The dtype; `None` means the array's dtype, or float32 for Python floats. Default:
            `None`.
        device: The device; `None` means the default one. Default: `None`.

    Raises:
        DataError: `data` is not an array of numbers.

    Examples:
        >>> import ztorch as zt
        >>> x = zt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (x @ x + 1).sum(axis=0)
        tensor([24., 34.], dtype=float32, device='cpu')
    """

    __slots__ = ()

    def __init__(self, data: Any, dtype: AnyDType | str | None = None, device: str | None = None):
        d = None if dtype is None else dtype_named(dtype)
        if isinstance(data, Tensor) and d is not None:
            data = data.astype(d)  # recorded, so that it can be differentiated
        self.node = node_from(data, d, device, copy=True)

    # -- properties --------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The size of each axis."""
        return self.node.spec.shape

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""
        return self.node.spec.dtype

    @property
    def device(self) -> str:
        """The device that holds it, such as "cpu" or "vulkan:0"."""
        return self.node.spec.memory

    @property
    def real(self) -> Tensor:
        """The tensor itself, since its elements are real."""
        return self

    @property
    def imag(self) -> Tensor:
        """The imaginary parts of its elements: zeros."""
        zeros: Tensor = compute("imag", (self,), {})
        return zeros

    @property
    def size(self) -> int:
        """The number of elements."""
        return Count(self.node.spec.size)

    @property
    def nbytes(self) -> int:
        """The size of its elements in bytes."""
        return self.node.spec.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        if is_tracing():
            return f"<tensor {self.node.spec!r} of a function that is being compiled>"
        numbers = np.array2string(self._readable(), separator=", ", prefix="tensor(")
        shape = "" if self.size or self.ndim == 1 else f"shape={self.shape}, "
        return f"tensor({numbers}, {shape}dtype={self.dtype}, device={self.device!r})"

    def _repr_html_(self) -> str | None:
        """A table, for notebooks; None while a function is being compiled."""
        if is_tracing():
            return None
        label = f"tensor of {self.dtype}, shape {self.shape}, on {self.device}"
        return table(self._readable(), label)

    def __str__(self) -> str:
        return repr(self) if is_tracing() else str(self._readable())

    # -- elements ----------------------------------------------------------------------------------

    def realize(self) -> Tensor:
        """Computes the tensor now, if it is pending.

        Returns:
            The tensor itself.
        """
        node = self.node
        if node.block is None:
            compute_node(node)
        return self

    def numpy(self) -> np.ndarray:
        """The elements as a read-only NumPy array, which shares the memory of a CPU tensor;
        `numpy().copy()` can be written.

        Returns:
            An array of the tensor's shape and dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.tensor([1, 2]).numpy()
            array([1, 2])
        """
        return shown(stored_array(self.realize().node), self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._readable().tolist()

    def _readable(self) -> np.ndarray:
        """The elements in a dtype that NumPy has: bfloat16 as float32."""
        return from_storage(self.dtype, stored_array(self.realize().node))

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    # -- other devices and libraries ---------------------------------------------------------------

    def to(self, device: str, copy: bool = False) -> Tensor:
        """The tensor on a device.

        Args:
            device: The device, such as "cpu" or "vulkan:0".
            copy: Whether to copy the tensor even if it is already there. Default: `False`.

        Returns:
            A tensor of the same shape and dtype.
        """
        node = moved(self.node, memory_of(device), copy)
        return self if node is self.node else tensor_of(node)

    def to_device(self, device: str, /, *, stream: None = None) -> Tensor:
        """The tensor on a device; the array API's name for `to`."""
        return self.to(device)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return dispatch.array_namespace(api_version)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Any = None) -> Any:
        return dlpack.capsule_of(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of_tensor(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored_tensor, (stored_array(self.node), self.dtype.long, self.device)

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        return compute(name, args, attrs)

    @staticmethod
    def ops() -> tuple[Any, ...]:
        return REGISTRY, ALIASES

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's elementwise functions return tensors where an op exists, else arrays."""
        if any(isinstance(x, Tensor) for x in options.get("out", ())):
            return NotImplemented  # a tensor never changes
        name = ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method == "__call__" and not options and name in REGISTRY:
            return compute(name, inputs, {})
        arrays = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a tensor never changes; x = x.at[key].set(values) makes another one")

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    __hash__ = object.__hash__


def tensor_of(node: TensorNode) -> Tensor:
    """The tensor of a node."""
    tensor: Tensor = _new(Tensor)
    tensor.node = node
    return tensor


def restored_tensor(array: np.ndarray, d: str, device: str) -> Tensor:
    """Rebuilds a tensor from a pickle."""
    return tensor_of(restored(array, dtype_named(d), device))


def compute(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op: a tensor, or a tuple of them.

    Args:
        name: The op.
        args: Its positional arguments.
        attrs: Its keyword arguments.
    """
    quick = recorder(name)
    if quick is not None:
        result = quick(*args, **attrs)
        if result is not NotImplemented:
            return result
    return _wrapped(apply(name, args, attrs))


def recorded_again(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op that was applied to tensors of the same specs before; else None."""
    return _wrapped(apply_again(name, args, attrs))


def on_arrays(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op that a user calls: tensors for tensors, else NumPy arrays."""
    return _wrapped(apply_to_arrays(name, args, attrs))


def _wrapped(result: Any) -> Any:
    if type(result) is TensorNode:
        return tensor_of(result)
    return tuple(map(tensor_of, result)) if type(result) is list else result


set_tensor(Tensor)
dispatch.on_tensors = recorded_again
dispatch.recorder = recorder
dispatch.need_known = need_known
set_operators(Tensor, compute)
# The buffer protocol, which Python 3.12 and later use in `memoryview`, `np.frombuffer` and files.
Tensor.__buffer__ = lambda x, flags: memoryview(x.numpy())  # type: ignore[attr-defined]
Tensor.__getitem__ = getter(tensor_of, compute)  # type: ignore[method-assign, assignment]
Tensor.at = property(At)  # type: ignore[attr-defined]
Tensor.reshape = reshaping(Tensor, Operators.reshape)  # type: ignore[method-assign]
Tensor.method_of = staticmethod(method_of_ops(Tensor.method_of))  # type: ignore[method-assign, assignment]
