"""Functions of `zt.ops` that are not ops: they take functions, or any numeric data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ztorch import ops
from ztorch.arrays.complex_functions import complex as complex
from ztorch.arrays.complex_functions import polar as polar
from ztorch.arrays.complex_functions import view_as_complex as view_as_complex
from ztorch.arrays.complex_functions import view_as_real as view_as_real
from ztorch.arrays.distributions import normal
from ztorch.arrays.gradients import jvp as jvp
from ztorch.arrays.known_numbers import bincount as bincount
from ztorch.arrays.known_numbers import convert_to_tensor as convert_to_tensor
from ztorch.arrays.known_numbers import eig as eig
from ztorch.arrays.known_numbers import is_tensor as is_tensor
from ztorch.arrays.known_numbers import nonzero as nonzero
from ztorch.arrays.known_numbers import unique as unique
from ztorch.arrays.tensor import Tensor
from ztorch.arrays.vmap import vmap
from ztorch.dtypes import DType
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.op import normal_axes
from ztorch.graph.trees import flatten, map_tree, unflatten
from ztorch.graph.value import Value, stand_in


def named(name: str) -> Callable[..., Any]:
    """The function of `zt.ops` with this name."""
    function: Callable[..., Any] = globals()[name]
    return function


def array(x: Any, dtype: DType | str | None = None) -> Any:
    """Converts x to a tensor.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.
        dtype: The dtype; `None` means the dtype of x. Default: `None`.

    Examples:
        >>> array([1.0]).shape
        (1,)
    """
    return convert_to_tensor(x, dtype)


def copy(x: Any) -> Any:
    """Converts x to a tensor. Tensors never change, so the copy of a tensor is the tensor itself.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.

    Examples:
        >>> copy([1.0]).shape
        (1,)
    """
    return convert_to_tensor(x)


def convert_to_numpy(x: Any) -> np.ndarray:
    """Converts a tensor to a NumPy array.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.

    Examples:
        >>> convert_to_numpy(Tensor([1.0]))
        array([1.], dtype=float32)
    """
    return x.numpy() if isinstance(x, Tensor) else np.asarray(x)


def dtype(x: Any) -> str:
    """The name of the dtype of a tensor or array.

    Args:
        x: A tensor, an array, a number, or nested lists of numbers.

    Examples:
        >>> dtype(np.zeros(2))
        'float64'
    """
    d = x.dtype if hasattr(x, "dtype") else Tensor(x).dtype
    return d.long if isinstance(d, DType) else str(d)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """For each element, the choice of the first condition that holds.

    Args:
        condlist: Bool tensors.
        choicelist: A tensor or number for each of them.
        default: The value where no condition holds. Default: `0`.

    Examples:
        >>> x = np.array([1.0, 2.0, 3.0])
        >>> select([x < 2, x > 2], [x, -x])
        array([ 1.,  0., -3.])
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(f"ops.select takes as many choices as conditions, not {len(choicelist)} "
                         f"and {len(condlist)}")
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = ops.where(condition, choice, chosen)
    return chosen


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Calls one of several functions, chosen by an index.

    Args:
        index: The index: an integer tensor with one element. It is clamped to the valid range.
        branches: Functions of the operands, whose results have the same structure.
        *operands: Tensors, or dicts, lists and tuples of tensors.

    Examples:
        >>> float(switch(np.int32(1), [lambda x: x, lambda x: -x], np.float32(3.0)))
        -3.0
    """
    if not branches:
        raise ConfigError("ops.switch takes at least one function in branches")
    first, *others = branches
    if not others:
        return first(*operands)
    return ops.cond(ops.less_equal(index, 0), first,
                    lambda *xs: switch(ops.subtract(index, 1), others, *xs), *operands)


def fori_loop(lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Calls a function for each integer in a range, and passes a state from call to call.

    Args:
        lower: The first integer.
        upper: The exclusive upper bound.
        body_fun: `body_fun(k, state)` returns the next state, of the same shapes and dtypes. Floats
            take the dtype that they had: `state + k` of float32 and an integer is wider.
        init_val: The initial state: a tensor, or dicts, lists and tuples of tensors.

    Examples:
        >>> float(fori_loop(0, 4, lambda k, x: x * 2.0, np.float32(1.0)))
        16.0
    """
    def turn(state: Any, k: Any) -> Any:
        before, shape = flatten(state)
        after, new_shape = flatten(body_fun(k, state))
        if shape == new_shape:
            after = [ops.cast(new, old.dtype) if is_tensor(new) and new.dtype.is_float
                     and old.dtype.is_float else new
                     for old, new in zip(before, after, strict=True)]
        return unflatten(new_shape, iter(after)), None

    turns = np.arange(int(lower), int(upper), dtype=np.int32)
    return ops.scan(turn, init_val, turns)[0]


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Applies a function to each row of tensors, one after the other.

    Args:
        f: Takes a row, or a tree of rows, and returns tensors.
        xs: A tensor, or dicts, lists and tuples of tensors, with the rows along their first axis.

    Examples:
        >>> map(lambda x: x * 2.0, np.array([1.0, 2.0])).tolist()
        [2.0, 4.0]
    """
    return ops.scan(lambda state, x: (state, f(x)), np.float32(0.0), xs)[1]


def associative_scan(f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False,
                     axis: int = 0) -> Any:
    """Computes all prefixes under an associative function, in a logarithmic number of steps.

    Args:
        f: An associative function `f(a, b)` of slices: `f(f(a, b), c)` equals `f(a, f(b, c))`.
        elems: A tensor, or dicts, lists and tuples of tensors.
        reverse: Whether to start at the end. Default: `False`.
        axis: The axis of the elements. Default: `0`.

    Examples:
        >>> associative_scan(ops.add, np.array([1.0, 2.0, 3.0])).tolist()
        [1.0, 3.0, 6.0]
    """
    def part(x: Any, start: int | None, stop: int | None) -> Any:
        return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop),)]

    leaves, _ = flatten(elems)
    [along] = normal_axes(axis, leaves[0].ndim)
    count, step = leaves[0].shape[along], 1
    y = map_tree(lambda x: ops.flip(x, axis), elems) if reverse else elems
    while step < count:
        later = f(map_tree(lambda x, n=step: part(x, None, -n), y),
                  map_tree(lambda x, n=step: part(x, n, None), y))
        y = map_tree(lambda x, z, n=step: ops.concat([part(x, None, n), z], axis=axis), y, later)
        step *= 2
    return map_tree(lambda x: ops.flip(x, axis), y) if reverse else y


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Applies a function to all rows of tensors at once.

    Args:
        function: Takes a row, or a tree of rows, and returns tensors.
        elements: A tensor, or dicts, lists and tuples of tensors, with the rows along their first
            axis.

    Examples:
        >>> vectorized_map(lambda x: x * 2.0, Tensor([1.0, 2.0])).tolist()
        [2.0, 4.0]
    """
    return vmap(function)(elements)


def vectorize(pyfunc: Callable[..., Any], *, excluded: Any = None,
              signature: str | None = None) -> Callable[..., Any]:
    """Extends a function of numbers to tensors, which are broadcast together.

    Args:
        pyfunc: Takes tensors with one element, and returns one.
        excluded: Must be `None`. Default: `None`.
        signature: Must be `None`. Default: `None`.

    Examples:
        >>> vectorize(lambda a, b: a + b)(np.array([1.0, 2.0]), 3.0).tolist()
        [4.0, 5.0]
    """
    if excluded or signature is not None:
        raise Unsupported("ops.vectorize with excluded= or signature= is not here; zt.vmap takes "
                          "the axes of each argument")

    def over_all(*xs: Any) -> Any:
        tensors = ops.broadcast_arrays(*(convert_to_tensor(x) for x in xs))
        flat = [ops.reshape(x, (-1,)) for x in tensors]
        return ops.reshape(vmap(pyfunc)(*flat), tensors[0].shape)

    return over_all


def elastic_transform(images: Any, alpha: float = 20.0, sigma: float = 5.0,
                      interpolation: str = "bilinear", fill_mode: str = "reflect",
                      fill_value: float = 0.0, seed: Any = None,
                      data_format: str | None = None) -> Any:
    """Displaces the pixels of images at random; neighboring pixels move together.

    Args:
        images: An image `(rows, columns, channels)`, or a batch of them.
        alpha: The strength of the displacement. Default: `20.0`.
        sigma: The smoothness of the displacement: the standard deviation of its Gaussian filter.
            Default: `5.0`.
        interpolation: "nearest" or "bilinear". Default: `"bilinear"`.
        fill_mode: How pixels outside of the image are filled: "constant", "nearest", "wrap",
            "mirror" or "reflect". Default: `"reflect"`.
        fill_value: The value of pixels outside of the image with "constant". Default: `0.0`.
        seed: As for `zt.random.normal`. Default: `None`.
        data_format: "channels_last" or "channels_first". Default: `None`.

    Returns:
        The images.

    Raises:
        Unsupported: The images belong to a model; use `layers.RandomElasticTransform` there.

    Examples:
        >>> elastic_transform(np.ones((4, 6, 3), np.float32), sigma=0.5).shape
        (4, 6, 3)
    """
    if isinstance(images, Value) or stand_in((images,)) is not None:
        raise Unsupported("ops.elastic_transform draws random numbers, which a model takes from "
                          "its layers: use layers.RandomElasticTransform")
    x = convert_to_tensor(images)
    first = data_format == "channels_first"
    rows, columns = x.shape[-2:] if first else x.shape[-3:-1]
    moves = normal((*x.shape[:-3], rows, columns, 2), 0.0, sigma, seed=seed)
    size = int(6 * sigma) | 1
    moves = ops.gaussian_blur(moves, (size, size), (sigma, sigma)) * alpha
    moves = ops.moveaxis(moves, -1, 0)  # displacements along the columns, then along the rows
    moves = ops.expand_dims(moves, -3 if first else -1)
    row = x.ndim - (2 if first else 3)
    places = []
    for axis in range(x.ndim):
        place = ops.cast(ops.iota(x.shape, axis), moves.dtype)
        places.append(place + moves[1] if axis == row else place + moves[0]
                      if axis == row + 1 else place)
    return ops.map_coordinates(x, ops.stack(places), 1 if interpolation == "bilinear" else 0,
                               fill_mode, fill_value)
