"""Merge layers as functions, as in Keras: `concatenate([a, b])` is `Concatenate()([a, b])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.layers.joining import Concatenate, Dot
from ztorch.layers.merge import Add, Average, Maximum, Minimum, Multiply, Subtract


def add(inputs: Sequence[Any], **common: Any) -> Any:
    """The sum of several tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Add`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> add([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Add(**common)(list(inputs))


def average(inputs: Sequence[Any], **common: Any) -> Any:
    """The mean of several tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Average`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> average([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Average(**common)(list(inputs))


def maximum(inputs: Sequence[Any], **common: Any) -> Any:
    """The elementwise maximum of several tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Maximum`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> maximum([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Maximum(**common)(list(inputs))


def minimum(inputs: Sequence[Any], **common: Any) -> Any:
    """The elementwise minimum of several tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Minimum`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> minimum([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Minimum(**common)(list(inputs))


def multiply(inputs: Sequence[Any], **common: Any) -> Any:
    """The product of several tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Multiply`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> multiply([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Multiply(**common)(list(inputs))


def subtract(inputs: Sequence[Any], **common: Any) -> Any:
    """The difference of two tensors, computed by a new layer.

    Args:
        inputs: The tensors.
        **common: Arguments of `Subtract`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> subtract([Input((3,)), Input((3,))]).shape
        (None, 3)
    """
    return Subtract(**common)(list(inputs))


def concatenate(inputs: Sequence[Any], axis: int = -1, **common: Any) -> Any:
    """Joins tensors along an axis, with a new layer.

    Args:
        inputs: The tensors.
        axis: The axis, where 0 is the batch. Default: `-1`.
        **common: Arguments of `Concatenate`, such as `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> concatenate([Input((3,)), Input((4,))]).shape
        (None, 7)
    """
    return Concatenate(axis=axis, **common)(list(inputs))


def dot(inputs: Sequence[Any], axes: Any = -1, **common: Any) -> Any:
    """The products of two tensors along axes, computed by a new layer.

    Args:
        inputs: The tensors.
        axes: The axis of both, or one for each. Default: `-1`.
        **common: Arguments of `Dot`, such as `normalize` and `name`.

    Returns:
        The merged tensor.

    Examples:
        >>> from ztorch.layers import Input
        >>> dot([Input((3,)), Input((3,))], axes=1).shape
        (None, 1)
    """
    return Dot(axes=axes, **common)(list(inputs))
