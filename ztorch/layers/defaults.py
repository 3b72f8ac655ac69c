"""The functions of `keras.backend` and `keras.config`, most of them constant. Users access them as
`zt.backend` and `zt.config`."""

from __future__ import annotations

from typing import Any

from ztorch.errors import Unsupported
from ztorch.layers.policies import dtype_policy, set_dtype_policy
from ztorch.layers.symbol import as_symbol

__all__ = ["backend", "clear_session", "disable_traceback_filtering", "dtype_policy", "epsilon",
           "floatx", "image_data_format", "is_keras_tensor", "is_traceback_filtering_enabled",
           "set_dtype_policy", "set_epsilon", "set_floatx", "set_image_data_format"]

_EPSILON, _DATA_FORMAT = 1e-7, "channels_last"


def backend() -> str:
    """The name of the framework.

    Examples:
        >>> backend()
        'ztorch'
    """
    return "ztorch"


def epsilon() -> float:
    """The number that keeps divisors and logarithms from zero, unless a layer or loss has its own.

    Examples:
        >>> epsilon()
        1e-07
    """
    return _EPSILON


def floatx() -> str:
    """The dtype of weights of new models.

    Examples:
        >>> floatx()
        'float32'
    """
    return dtype_policy().variable_dtype


def image_data_format() -> str:
    """The default position of the channel axis.

    Examples:
        >>> image_data_format()
        'channels_last'
    """
    return _DATA_FORMAT


def set_epsilon(value: float) -> None:
    """Raises an error for any other number than 1e-7.

    Args:
        value: The number; only 1e-7 is accepted.

    Raises:
        Unsupported: The number is another one.

    Examples:
        >>> set_epsilon(1e-7)
    """
    _need_same("set_epsilon", value, _EPSILON, "pass epsilon= to layers, losses and optimizers")


def set_floatx(value: str) -> None:
    """Sets the dtype of new models.

    Args:
        value: "float32" or "float64".

    Raises:
        Unsupported: The dtype has 16 bits; `zt.mixed_precision` has policies for those.
        UnknownName: Models cannot have this dtype.

    Examples:
        >>> set_floatx("float32")
    """
    if value in ("float16", "bfloat16"):
        raise Unsupported(f"set_floatx({value!r}): weights and sums are float32; "
                          f"zt.mixed_precision.set_global_policy('mixed_{value}') rounds operands "
                          "of matrix products")
    set_dtype_policy(value)


def set_image_data_format(data_format: str) -> None:
    """Raises an error for any other format than "channels_last".

    Args:
        data_format: The format; only "channels_last" is accepted.

    Raises:
        Unsupported: The format is another one.

    Examples:
        >>> set_image_data_format("channels_last")
    """
    _need_same("set_image_data_format", data_format, _DATA_FORMAT, "pass data_format= to layers")


def _need_same(function: str, value: object, fixed: object, fix: str) -> None:
    if value != fixed:
        raise Unsupported(f"{function}({value!r}): programs do not depend on global settings, "
                          f"so it stays {fixed!r}; {fix}")


def clear_session(free_memory: bool = True) -> None:
    """Does nothing: there is no session. Programs are freed with their models.

    Args:
        free_memory: Has no effect. Default: `True`.

    Examples:
        >>> clear_session()
    """


def is_keras_tensor(x: Any) -> bool:
    """Whether x is a symbolic tensor of a model that is being declared.

    Args:
        x: Anything.

    Examples:
        >>> import ztorch as zt
        >>> is_keras_tensor(zt.layers.Input((3,))), is_keras_tensor(3.0)
        (True, False)
    """
    return as_symbol(x) is not None


def disable_traceback_filtering() -> None:
    """Does nothing: tracebacks are always complete.

    Examples:
        >>> disable_traceback_filtering()
    """


def is_traceback_filtering_enabled() -> bool:
    """Whether tracebacks hide the frames of this library: always `False`.

    Examples:
        >>> is_traceback_filtering_enabled()
        False
    """
    return False


def setting(name: str) -> Any:
    """A function of `keras.config`, for `zt.config`."""
    if name not in __all__:
        raise AttributeError(f"module 'ztorch.config' has no attribute {name!r}")
    return globals()[name]
