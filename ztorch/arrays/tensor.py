"""`zt.Tensor`: an array on a device, computed when a value is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ztorch import ops
from ztorch.arrays.calls import NUMBERS, Call, bind, call_for, layout
from ztorch.arrays.cells import is_tracing
from ztorch.arrays.exchange import as_host_array, default_dtype, dtype_of, shown, stored
from ztorch.arrays.indexing import indexed
from ztorch.arrays.memory import HostMemory, memory
from ztorch.arrays.node import Node
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.realize import realize
from ztorch.arrays.recording import record
from ztorch.arrays.specs import spec
from ztorch.dtypes import DType, bf16, dtype, from_storage
from ztorch.errors import DeviceError, ShapeError
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.graph.operators import Operators
from ztorch.graph.value import Value


class Tensor(Operators):
    """An array on a device.

    Operations on tensors are recorded and computed together when a value is needed: by `numpy()`,
    `print`, a branch on it, or `realize()`. A tensor never changes.

    Args:
        data: Numbers: an array of any framework, a number, or nested lists of them. They are
            copied.
        dtype: The dtype; `None` means that of the array, float32 for Python's floats. Default:
            `None`.
        device: The device that holds it; `None` means the default one. Default: `None`.

    Raises:
        DataError: `data` is not an array of numbers.

    Examples:
        >>> import ztorch as zt
        >>> x = zt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (x @ x + 1).sum(axis=0)
        tensor([24., 34.], dtype=float32, device='cpu')
    """

    __slots__ = ("node",)
    node: Node  # the tensor as the recorder sees it

    def __init__(self, data: Any, dtype: DType | str | None = None, device: str | None = None):
        self.node = node_from(data, dtype, device, copy=True)

    # -- what it is --------------------------------------------------------------------------------

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
    def size(self) -> int:
        """The number of elements."""
        return self.node.spec.size

    @property
    def nbytes(self) -> int:
        """The memory that its elements take, in bytes."""
        return self.node.spec.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        if is_tracing():
            return f"<tensor {self.node.spec!r} of a function that is being compiled>"
        numbers = np.array2string(self._readable(), separator=", ", prefix="tensor(")
        return f"tensor({numbers}, dtype={self.dtype}, device={self.device!r})"

    def __str__(self) -> str:
        return repr(self) if is_tracing() else str(self._readable())

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if how and not self.shape else format(str(self), how)

    # -- its elements ------------------------------------------------------------------------------

    def realize(self) -> Tensor:
        """Computes it now, if that is still to be done.

        Returns:
            The tensor itself.
        """
        if self.node.block is None:
            realize([self.node])
        return self

    def numpy(self) -> np.ndarray:
        """Its elements as an array of NumPy, which shares the memory of a tensor of the CPU and can
        only be read; `numpy().copy()` can be written.

        Returns:
            An array of the tensor's shape and dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.tensor([1, 2]).numpy()
            array([1, 2])
        """
        return shown(stored_array(self), self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)

    def item(self) -> float | int | bool:
        """Its only element, as one of Python's numbers."""
        self.realize()
        if self.size != 1:
            raise ShapeError(f"item() takes a tensor of one element, not of shape {self.shape}")
        number: float | int | bool = self._readable().item()
        return number

    def tolist(self) -> Any:
        """Its elements as nested lists of Python's numbers."""
        return self._readable().tolist()

    def _readable(self) -> np.ndarray:
        """Its elements in a dtype of NumPy's own: bfloat16 as float32."""
        return from_storage(self.dtype, stored_array(self))

    def __bool__(self) -> bool:
        self.realize()
        if self.size != 1:
            raise ShapeError(f"a tensor of shape {self.shape} is neither true nor false; use "
                             "any() or all()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"a tensor of {self.dtype} is no index; integers are")
        return int(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    # -- elsewhere ---------------------------------------------------------------------------------

    def to(self, device: str, copy: bool = False) -> Tensor:
        """The tensor on a device.

        Args:
            device: The device, such as "cpu" or "vulkan:0".
            copy: Whether to copy it even if it lies there already. Default: `False`.

        Returns:
            A tensor of the same shape and dtype.
        """
        place = memory_of(device)
        own = self.node.spec
        if place == own.memory and not copy:
            return self
        block = memory(place).upload(stored_array(self))
        return tensor_of(Node(spec(own.shape, own.dtype, place), block))

    def __dlpack__(self, **options: Any) -> Any:
        self._need_cpu("DLPack")
        if self.dtype is bf16:
            raise BufferError("NumPy's DLPack has no bfloat16; use .astype('float32')")
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._need_cpu("DLPack")
        return 1, 0  # kDLCPU

    def _need_cpu(self, what: str) -> None:
        if self.device != "cpu":
            raise DeviceError(f"{what} lends tensors of the CPU only; this one lies on "
                              f"{self.device}: use .to('cpu')")

    def __reduce__(self) -> tuple[Any, ...]:
        return from_stored, (stored_array(self), self.dtype.long, self.device)

    # -- ops ---------------------------------------------------------------------------------------

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        return compute(name, args, attrs)

    @staticmethod
    def op_names() -> list[str]:
        return list(REGISTRY)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions of elements give tensors where there is such an op, else arrays."""
        name = ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method == "__call__" and not options and name in REGISTRY:
            return compute(name, inputs, {})
        arrays = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __getitem__(self, key: Any) -> Tensor:
        result: Tensor = indexed(self, key, lambda name, args, attrs: compute(name, args, attrs),
                                 lambda k: isinstance(k, Tensor))
        return result

    # Values of a graph divide integers as kernels do, towards zero; tensors as Python does.

    def __truediv__(self, other: Any) -> Any:
        return compute("divide", (self, other), {})

    def __rtruediv__(self, other: Any) -> Any:
        return compute("divide", (other, self), {})

    def __mod__(self, other: Any) -> Any:
        return compute("remainder", (self, other), {})

    def __rmod__(self, other: Any) -> Any:
        return compute("remainder", (other, self), {})

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a tensor never changes; make another one with zt.ops.where or "
                        "zt.ops.concat")

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    def __eq__(self, other: object) -> Any:
        if other is None:
            return NotImplemented  # so that None may lie beside tensors in a list
        return compute("equal", (self, other), {})

    def __ne__(self, other: object) -> Any:
        if other is None:
            return NotImplemented
        return compute("not_equal", (self, other), {})

    __hash__ = object.__hash__


class _View:
    """The memory of a tensor, which it keeps alive, as NumPy asks for it."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, tensor: Tensor):
        node = tensor.realize().node
        block = node.block  # not the tensor's: another thread that computes it replaces that
        assert block is not None
        self.block = block
        self.__array_interface__ = {
            "shape": node.spec.shape, "typestr": node.spec.dtype.numpy.str, "version": 3,
            "data": (block.place, True)}


def tensor_of(node: Node) -> Tensor:
    tensor: Tensor = Tensor.__new__(Tensor)
    tensor.node = node
    return tensor


def node_from(x: Any, d: DType | str | None, device: str | None, copy: bool) -> Node:
    """A node of anything that holds numbers.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.
        d: The dtype; `None` means that of x.
        device: The device; `None` means that of a tensor, or the default one.
        copy: Whether the elements must be copied, since x may change.
    """
    if isinstance(x, Tensor):
        moved = x.to(device) if device is not None else x
        return (moved if d is None else moved.astype(d)).node
    wanted = dtype(d) if d is not None else None
    array = as_host_array("tensor's data", x, wanted if wanted and wanted.is_int else None)
    kind = wanted or default_dtype(x, array)
    pool = memory(memory_of(device or default_device()))
    numbers = stored(array, kind)
    block = None
    if isinstance(pool, HostMemory) and not (copy and np.may_share_memory(numbers, array)):
        block = pool.lend(numbers)
    return Node(spec(array.shape, kind, pool.name), block or pool.upload(numbers))


def from_stored(array: np.ndarray, d: str, device: str) -> Tensor:
    """A tensor of the elements that memory held, as pickle keeps them. It comes back to its device,
    or to the default one where that is not."""
    try:
        place = memory_of(device)
    except DeviceError:
        place = memory_of(default_device())
    return tensor_of(Node(spec(array.shape, dtype(d), place), memory(place).upload(array)))


def stored_array(tensor: Tensor) -> np.ndarray:
    """A tensor's elements as its memory holds them, to be read only."""
    own = tensor.node.spec
    if own.memory == "cpu":
        return np.asarray(_View(tensor))
    array = np.empty(own.shape, own.dtype.numpy)
    block = tensor.realize().node.block
    assert block is not None
    memory(own.memory).download(block, array)
    array.flags.writeable = False
    return array


# -- ops on tensors ------------------------------------------------------------------------------------

_recorded: dict[tuple[Any, ...], Call] = {}  # calls by the arguments they were recorded with


def compute(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op on tensors: a tensor, or a tuple of them.

    Args:
        name: The op.
        args: Its positional arguments.
        attrs: Its keyword arguments.
    """
    key: list[Any] = [name]
    operands: list[Any] = []
    places = layout(name)
    for k, x in enumerate(args):
        kind = type(x)
        if kind is Tensor:
            key.append(x.node.spec)
            operands.append(x.node)
        elif k not in places.positions and k < places.rest:
            key.append((kind, x))
        elif kind in NUMBERS:
            key.append(kind)
            operands.append(x)
        else:
            return _compute_first(name, args, attrs)
    for label, x in attrs.items():
        if type(x) is Tensor:
            return _compute_first(name, args, attrs)
        key.append((label, type(x), x))
    try:
        call = _recorded.get(tuple(key))
    except TypeError:  # a list, which cannot be hashed
        call = None
    if call is None:
        return _compute_first(name, args, attrs, key)
    return _results(call, tuple(operands))


def _results(call: Call, operands: tuple[Any, ...]) -> Any:
    nodes = record(call, operands)
    return tensor_of(nodes[0]) if call.single else tuple(map(tensor_of, nodes))


def _compute_first(name: str, args: tuple[Any, ...], attrs: dict[str, Any],
                   key: Sequence[Any] = ()) -> Any:
    """Binds the arguments of an op as a function's are, and remembers the call under a key."""
    bound = bind(name, args, attrs)
    if any(isinstance(x, Value) for x in bound.operands):
        return getattr(ops, name)(*args, **attrs)  # in a model, tensors are constants
    place = common_memory(name, bound.labels, bound.operands)
    pending = any(isinstance(x, Tensor) for x in bound.operands)  # arrays may change until then
    operands = tuple(operand(f"zt.ops.{name}: {label}", x, weak, place, pending)
                     for label, x, weak in zip(
                         bound.labels, bound.operands, bound.takes_numbers(), strict=True))
    call = call_for(bound, tuple(o.spec if type(o) is Node else type(o) for o in operands), place)
    if key and not any(x == 0 for x in bound.attributes.values() if isinstance(x, float)):
        with contextlib.suppress(TypeError):  # 0.0 and -0.0 are one key, and a list is none
            _recorded[tuple(key)] = call
    return _results(call, operands)


def operand(label: str, x: Any, weak: bool, place: str, copy: bool) -> Any:
    """An argument of an op as a node in a memory, or as a number.

    Args:
        label: What errors call it.
        x: The argument.
        weak: Whether Python's numbers stay numbers.
        place: The memory.
        copy: Whether an array must be copied, since it may change before it is read.
    """
    if isinstance(x, Tensor):
        return x.node if x.device == place else x.to(place).node
    if weak and isinstance(x, NUMBERS) and not isinstance(x, np.generic):
        return x if type(x) in NUMBERS else float(x) if isinstance(x, float) else int(x)
    array = as_host_array(label, x)
    kind, pool = dtype_of(array.dtype), memory(place)
    numbers = stored(array, kind)
    block = pool.lend(numbers) if isinstance(pool, HostMemory) and not copy else None
    return Node(spec(array.shape, kind, place), block or pool.upload(numbers))


_transfers: ContextVar[bool] = ContextVar("transfers", default=False)


@contextlib.contextmanager
def allow_transfers() -> Iterator[None]:
    """Inside a `with` block, ops copy tensors to the device of the first one.

    Examples:
        >>> import ztorch as zt
        >>> with zt.allow_transfers():
        ...     print(zt.tensor([1.0], device="cpu") + zt.tensor([2.0]))
        [3.]
    """
    token = _transfers.set(True)
    try:
        yield
    finally:
        _transfers.reset(token)


def common_memory(name: str, labels: Sequence[str], operands: Sequence[Any]) -> str:
    """The memory that an op works in: that of its tensors, or the default one."""
    places = {x.device: label for label, x in reversed(list(zip(labels, operands, strict=True)))
              if isinstance(x, Tensor)}
    if not places:
        return memory_of(default_device())
    first = next(x.device for x in operands if isinstance(x, Tensor))
    other = next((place for place in places if place != first), None)
    if other is None or _transfers.get():
        return first
    raise DeviceError(f"zt.ops.{name}: {places[first]} lies on {first} and {places[other]} on "
                      f"{other}; copy one with .to({first!r}), or use zt.allow_transfers()")


def on_arrays(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op as users call it: tensors for tensors, else arrays of NumPy."""
    result = compute(name, args, attrs)
    if any(isinstance(x, Tensor) for x in _flat((*args, *attrs.values()))):
        return result
    if isinstance(result, Tensor):
        return array_of(result.node)
    if isinstance(result, tuple):
        realize([t.node for t in result])
        return tuple(array_of(t.node) for t in result)
    return result  # a value: it belongs to a model that is being traced


def _flat(arguments: Iterable[Any]) -> Iterator[Any]:
    for x in arguments:
        if isinstance(x, (list, tuple)):
            yield from _flat(x)
        else:
            yield x


def array_of(node: Node) -> np.ndarray:
    """The elements of a node that nobody else refers to, as an array that can be written."""
    own = node.spec
    realize([node])
    assert node.block is not None
    if own.memory != "cpu" or node.block.memory is None:  # None: it is an argument's memory
        return tensor_of(node).numpy().copy()
    bytes_ = node.block.detached()[:own.nbytes]
    return shown(bytes_.view(own.dtype.numpy).reshape(own.shape), own.dtype)
