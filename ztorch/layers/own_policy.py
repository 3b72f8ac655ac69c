"""The dtype policy of a single layer: `Dense(10, dtype="float32")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.dtypes import DType, dtype, f32, f64
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.narrow import Rounding
from ztorch.layers.policies import DTypePolicy, dtype_policy

_HALVES = ("float16", "bfloat16")


class OfPolicy:
    """An attribute that is read from the policy of a layer. An attribute of the layer with the same
    name hides it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        return self if layer is None else getattr(layer.dtype_policy, self._name)


class WithPolicy:
    """The part of a layer that stores its own dtype policy."""

    own_policy: DTypePolicy | None = None
    compute_dtype: Any = OfPolicy("compute_dtype")
    variable_dtype: Any = OfPolicy("variable_dtype")
    dtype: Any = OfPolicy("variable_dtype")  # as in Keras

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The layer's own policy, or that of the enclosing layer or model.

        Setting it affects programs that are compiled afterwards.

        >>> from ztorch.layers import Dense
        >>> Dense(4, dtype="mixed_bfloat16").dtype_policy
        DTypePolicy('mixed_bfloat16')
        """
        if self.own_policy is not None:
            return self.own_policy
        around = getattr(self, "adopter", None)
        return dtype_policy() if around is None else around.dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, policy: Any) -> None:
        self.own_policy = checked_policy(type(self).__name__, policy)

    def take_policy(self, arguments: dict[str, Any]) -> None:
        """Removes `dtype` from the arguments of the layer, and stores it."""
        policy = arguments.pop("dtype", None)
        self.own_policy = None if policy is None else checked_policy(type(self).__name__, policy)

    def policy_config(self) -> dict[str, Any]:
        """The layer's own dtype, as values for JSON."""
        return {} if self.own_policy is None else {"dtype": self.own_policy.name}


def checked_policy(kind: str, policy: Any) -> DTypePolicy:
    """The policy that `dtype` of a layer names. `kind` is its class, for errors."""
    if isinstance(policy, DTypePolicy):
        return policy
    name = policy["config"]["name"] if isinstance(policy, Mapping) and "config" in policy else (
        policy if isinstance(policy, str) else getattr(policy, "name", policy))
    if not isinstance(name, str):
        raise ConfigError(f"{kind}(dtype={policy!r}) is not a dtype policy; use a name such as "
                          "'mixed_bfloat16', or omit it")
    if name in _HALVES:
        raise Unsupported(f"{kind}(dtype={name!r}): layers store weights and sums in float32; "
                          f"dtype='mixed_{name}' rounds operands of matrix products to {name}")
    if not name.startswith("mixed") and not dtype(name).is_float:
        raise Unsupported(f"{kind}(dtype={name!r}): layers compute in floats; cast its "
                          f"result: zt.ops.cast(y, {name!r})")
    return DTypePolicy(name)


def rounding_of(layer: Any, computed: DType = f32, narrow: DType | None = None) -> Rounding:
    """The dtypes to which operands of products are rounded, in a layer or model and inside it.

    Args:
        layer: The layer.
        computed: The dtype that its program computes in. Default: float32.
        narrow: The dtype for products of layers without their own policy, if any.
            Default: `None`.

    Raises:
        Unsupported: A layer requests float64 in a float32 program.
    """
    own: dict[str, DType | None] = {}
    for _, inner in layer.walk():
        policy = inner.own_policy
        if policy is None:
            continue
        if policy.name == "float64" and computed is not f64:
            raise Unsupported(f"layer {inner.path!r} has dtype 'float64', but its program computes "
                              "in float32; use compile(dtype='float64') for all layers")
        short = policy.name.startswith("mixed_") and computed is f32
        own[inner.path] = dtype(policy.compute_dtype) if short else None
    return Rounding(narrow, own)
