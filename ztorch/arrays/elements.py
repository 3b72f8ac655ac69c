"""Converts tensors to NumPy arrays and arrays to tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.arrays.device_dtypes import nearest_dtype
from ztorch.arrays.dlpack import borrowed, lent_by
from ztorch.arrays.exchange import as_host_array, default_dtype, dtype_of, shown, stored
from ztorch.arrays.memory import Allocation, HostPool, memory
from ztorch.arrays.node import Handle, TensorNode, computed
from ztorch.arrays.placement import default_device, memory_of
from ztorch.arrays.promotion import integer_range
from ztorch.arrays.realize import realize
from ztorch.arrays.specs import Spec, spec
from ztorch.backends.python_calls import padding_bytes
from ztorch.dtypes import DType
from ztorch.errors import DataError, DeviceError
from ztorch.graph.value import StandIn

# Arrays and tensors from this size on are shared between host and device without a copy. Smaller
# ones are copied: preparing launches for a new buffer takes longer than the copy.
LENT_BYTES = 1 << 20
RETURNED_BYTES = 1 << 16  # results from this size on reuse memory: mapping new pages costs more


class _View:
    """A block of memory with NumPy's array interface; it keeps the block alive. The host's view of
    a device's block is kept too, so that it stays valid when the device is closed."""

    __slots__ = ("__array_interface__", "block", "host_view")

    def __init__(self, block: Allocation, own: Spec, writable: bool = False,
                 host_view: np.ndarray | None = None):
        self.block = block
        self.host_view = host_view
        place = block.place if host_view is None else host_view.__array_interface__["data"][0]
        self.__array_interface__ = {
            "shape": own.shape, "typestr": own.dtype.numpy.str, "version": 3,
            "data": (place, not writable)}


def stored_array(node: TensorNode) -> np.ndarray:
    """A node's elements in their storage dtype, as a read-only array. The array shares the block's
    memory if the host can read it."""
    if node.block is None:
        realize((node,))
    own = node.spec
    if own.memory == "cpu":
        block = node.block  # another thread that computes the node may replace its block
        assert block is not None
        if isinstance(block, bytes):
            return np.ndarray(own.shape, own.dtype.numpy, block, padding_bytes(block))
        return np.asarray(_View(block, own))
    device_block, pool = node.block, memory(own.memory)
    assert isinstance(device_block, Allocation)
    if (host_view := pool.host_view(device_block, own.nbytes)) is not None:
        return np.asarray(_View(device_block, own, host_view=host_view))
    array = np.empty(own.shape, own.dtype.numpy)
    pool.download(device_block, array)
    array.flags.writeable = False
    return array


def array_of(node: TensorNode) -> np.ndarray:
    """The elements of a node without other references, as a writable array."""
    own = node.spec
    if node.block is None:
        realize((node,))
    if own.memory != "cpu":
        return shown(stored_array(node).copy(), own.dtype)
    block = node.block
    if not isinstance(block, Allocation) or (pool := block.memory) is None:  # not in a pool
        return shown(stored_array(node).copy(), own.dtype)
    elements = block.detached()
    if block.nbytes < RETURNED_BYTES:
        array = np.ndarray(own.shape, own.dtype.numpy, elements)
    else:  # the block returns to its pool when the array is freed
        returning = Allocation(pool, block.nbytes, elements, block.place)
        array = np.asarray(_View(returning, own, writable=True))
    return shown(array, own.dtype)


def node_of_array(array: np.ndarray, d: DType, place: str, copy: bool) -> TensorNode:
    """A node with the elements of an array.

    Args:
        array: The array.
        d: The dtype of the node.
        place: The memory of the node.
        copy: Whether to copy the elements, because the array may change.
    """
    return node_of_spec(array, spec(array.shape, d, place), copy)


def node_of_spec(array: np.ndarray, own: Spec, copy: bool) -> TensorNode:
    """The same, for an array whose spec is known."""
    pool = memory(own.memory)
    d = own.dtype
    elements = array if array.dtype is d.numpy else stored(array, d)
    block = None
    if isinstance(pool, HostPool) and (not copy or not np.may_share_memory(elements, array)):
        block = pool.lend(elements)  # a device may read the array later, when it may have changed
    return computed(own, block or pool.upload(elements))


def operand_of(label: str, x: Any, place: str, copy: bool, index: bool = False) -> TensorNode:
    """An argument of an op as a node in a memory.

    Args:
        label: The argument's name in errors.
        x: The argument.
        place: The memory.
        copy: Whether to copy an array, because it may change before it is read.
        index: Whether it holds positions: an array of int64 is then narrowed for a device without
            int64. Default: `False`.
    """
    x = x.numbers() if isinstance(x, StandIn) else x  # weights, which functions read at each call
    if isinstance(x, Handle):
        return moved(x.node, place)
    if theirs := lent_by(x):
        return moved(borrowed(label, x, theirs), place)
    array = as_host_array(label, x)
    own = dtype_of(array.dtype)
    d = nearest_dtype(place, own) if index or not hasattr(x, "dtype") else own
    return node_of_array(_fitting(label, array, d), d, place, copy)


def _fitting(label: str, array: np.ndarray, d: DType) -> np.ndarray:
    """The array; raises an error if a narrower integer dtype cannot hold its numbers."""
    if d.is_int and array.size and array.dtype.itemsize > d.numpy.itemsize:
        low, high = integer_range(d)
        if array.min() < low or array.max() > high:
            raise DataError(f"{label} has numbers that {d} cannot hold")
    return array


def node_from(x: Any, d: DType | None, device: str | None, copy: bool,
              label: str = "a tensor's data") -> TensorNode:
    """A node of any numeric data.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.
        d: The dtype; `None` means the dtype of x.
        device: The device; `None` means the tensor's device, or the default one.
        copy: Whether to copy the elements, because x may change.
        label: What x is called in errors. Default: `"a tensor's data"`.
    """
    x = x.numbers() if isinstance(x, StandIn) else x  # weights, which functions read at each call
    if isinstance(x, Handle) and (d is None or d is x.node.spec.dtype):
        return x.node if device is None else moved(x.node, memory_of(device))
    if theirs := lent_by(x):
        node = borrowed(label, x, theirs)
        if d is not None and d is not node.spec.dtype:
            raise DataError(f"{label} of {node.spec.dtype} is on {node.spec.memory}; "
                            f"leave the dtype out, and use .astype({str(d)!r})")
        return moved(node, theirs if device is None else memory_of(device), copy)
    array = as_host_array(label, x, d)
    place = memory_of(device or default_device())
    if d is None:
        d = default_dtype(x, array)
        if not hasattr(x, "dtype"):
            d = nearest_dtype(place, d)
            array = _fitting(label, array, d)
    if not (copy or place == "cpu") and (block := memory(place).lend(stored(array, d))):
        return computed(spec(array.shape, d, place), block)
    return node_of_array(array, d, place, copy)


def moved(node: TensorNode, place: str, copy: bool = False) -> TensorNode:
    """A copy of a node in another memory; the node itself if it is there and `copy` is false."""
    own = node.spec
    if own.memory == place and not copy:
        return node
    if own.memory == place != "cpu":
        if node.block is None:
            realize((node,))
        assert isinstance(node.block, Allocation)
        return computed(own, memory(place).copied(node.block, own.nbytes))
    elements, pool = stored_array(node), memory(place)
    block = None if copy or own.nbytes < LENT_BYTES else pool.lend(elements)
    return computed(spec(own.shape, own.dtype, place), block or pool.upload(elements))


def restored(array: np.ndarray, d: DType, device: str) -> TensorNode:
    """A node from the result of `stored_array`, on its original device, or on the default one if
    this machine has no such device."""
    try:
        place = memory_of(device)
    except DeviceError:
        place = memory_of(default_device())
    return computed(spec(array.shape, d, place), memory(place).upload(array))
