"""The constant answers of `keras.backend` and `keras.config` about a process. Users reach them as
`zt.backend`."""

from __future__ import annotations

from ztorch.errors import Unsupported

__all__ = ["backend", "epsilon", "floatx", "image_data_format", "set_epsilon", "set_floatx",
           "set_image_data_format"]

_EPSILON, _FLOATX, _DATA_FORMAT = 1e-7, "float32", "channels_last"


def backend() -> str:
    """The name of what computes.

    Examples:
        >>> backend()
        'ztorch'
    """
    return "ztorch"


def epsilon() -> float:
    """The number that keeps divisors and logarithms from zero, where a layer or loss has no other.

    Examples:
        >>> epsilon()
        1e-07
    """
    return _EPSILON


def floatx() -> str:
    """The dtype of weights and inputs for which no other was asked.

    Examples:
        >>> floatx()
        'float32'
    """
    return _FLOATX


def image_data_format() -> str:
    """Where layers expect channels, unless they are told.

    Examples:
        >>> image_data_format()
        'channels_last'
    """
    return _DATA_FORMAT


def set_epsilon(value: float) -> None:
    """Refuses another number.

    Args:
        value: The number, which can only be 1e-7.

    Raises:
        Unsupported: It is another one.

    Examples:
        >>> set_epsilon(1e-7)
    """
    _need_same("set_epsilon", value, _EPSILON, "give layers, losses and optimizers their epsilon=")


def set_floatx(value: str) -> None:
    """Refuses another dtype.

    Args:
        value: The dtype, which can only be "float32".

    Raises:
        Unsupported: It is another one.

    Examples:
        >>> set_floatx("float32")
    """
    _need_same("set_floatx", value, _FLOATX, "give compile its dtype=")


def set_image_data_format(data_format: str) -> None:
    """Refuses another place of channels.

    Args:
        data_format: The place, which can only be "channels_last".

    Raises:
        Unsupported: It is another one.

    Examples:
        >>> set_image_data_format("channels_last")
    """
    _need_same("set_image_data_format", data_format, _DATA_FORMAT, "give layers data_format=")


def _need_same(function: str, value: object, fixed: object, fix: str) -> None:
    if value != fixed:
        raise Unsupported(f"{function}({value!r}): programs have no settings that change behind "
                          f"their backs, so it stays {fixed!r}; {fix}")
