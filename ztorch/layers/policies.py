"""The default dtype policy of models, as in Keras. Users access it as `zt.mixed_precision`."""

from __future__ import annotations

from typing import Any

from ztorch.errors import unknown

__all__ = ["DTypePolicy", "Policy", "dtype_policy", "global_policy", "set_dtype_policy",
           "set_global_policy"]

NAMES = ("float32", "float64", "mixed_float16", "mixed_bfloat16")


class DTypePolicy:
    """A dtype policy of models.

    Args:
        name: "float32", "float64", "mixed_float16" or "mixed_bfloat16", as for `dtype` of
            `compile`.

    Attributes:
        name: The name.
        compute_dtype: The dtype of operands of matrix products.
        variable_dtype: The dtype of weights.

    Examples:
        >>> policy = DTypePolicy("mixed_bfloat16")
        >>> policy.compute_dtype, policy.variable_dtype
        ('bfloat16', 'float32')
    """

    def __init__(self, name: str):
        if name not in NAMES:
            raise unknown("dtype policy", str(name), NAMES)
        self.name = name
        self.compute_dtype = name.removeprefix("mixed_")
        self.variable_dtype = "float32" if name.startswith("mixed_") else name

    def __repr__(self) -> str:
        return f"DTypePolicy({self.name!r})"


Policy = DTypePolicy
_policy = DTypePolicy("float32")


def set_dtype_policy(policy: Any) -> None:
    """Sets the dtype of new models. `compile(dtype=...)` takes precedence.

    Args:
        policy: A name, or a `DTypePolicy`.

    Raises:
        UnknownName: There is no such policy.

    Examples:
        >>> import ztorch as zt
        >>> set_dtype_policy("mixed_bfloat16")
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
        >>> set_dtype_policy("float32")
        >>> model.compile("cpu:scalar").metadata.dtype
        'mixed_bfloat16'
    """
    global _policy
    _policy = policy if isinstance(policy, DTypePolicy) else DTypePolicy(policy)


def dtype_policy() -> DTypePolicy:
    """The dtype policy of new models.

    Examples:
        >>> dtype_policy().name
        'float32'
    """
    return _policy


set_global_policy, global_policy = set_dtype_policy, dtype_policy
