"""The dtype policy that a layer is given for itself: `Dense(10, dtype="float32")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.dtypes import DType, dtype, f32, f64
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.narrow import Rounding
from ztorch.layers.policies import DTypePolicy, dtype_policy

_HALVES = ("float16", "bfloat16")


class OfPolicy:
    """An attribute that is read from the policy of a layer. A layer that has an attribute of that
    name of its own hides it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        return self if layer is None else getattr(layer.dtype_policy, self._name)


class WithPolicy:
    """The part of a layer that knows the dtype that it was given for itself."""

    own_policy: DTypePolicy | None = None
    compute_dtype: Any = OfPolicy("compute_dtype")
    variable_dtype: Any = OfPolicy("variable_dtype")
    dtype: Any = OfPolicy("variable_dtype")  # as in Keras

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The policy that the layer was given, or that of the layer or model around it.

        Setting it counts for programs that are compiled afterwards.

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
        """Takes `dtype` out of the arguments of the layer."""
        policy = arguments.pop("dtype", None)
        self.own_policy = None if policy is None else checked_policy(type(self).__name__, policy)

    def policy_config(self) -> dict[str, Any]:
        """The dtype that was given, ready for JSON."""
        return {} if self.own_policy is None else {"dtype": self.own_policy.name}


def checked_policy(kind: str, policy: Any) -> DTypePolicy:
    """The policy that `dtype` of a layer names. `kind` is its class, for errors."""
    if isinstance(policy, DTypePolicy):
        return policy
    name = policy["config"]["name"] if isinstance(policy, Mapping) and "config" in policy else (
        policy if isinstance(policy, str) else getattr(policy, "name", policy))
    if not isinstance(name, str):
        raise ConfigError(f"{kind}(dtype={policy!r}) is not a dtype policy; give a name such as "
                          "'mixed_bfloat16', or leave it out")
    if name in _HALVES:
        raise Unsupported(f"{kind}(dtype={name!r}): layers keep weights and sums in float32; "
                          f"dtype='mixed_{name}' rounds operands of matrix products to {name}")
    if not name.startswith("mixed") and not dtype(name).is_float:
        raise Unsupported(f"{kind}(dtype={name!r}): layers compute in floats; cast its "
                          f"result: zt.ops.cast(y, {name!r})")
    return DTypePolicy(name)


def rounding_of(layer: Any, computed: DType = f32, narrow: DType | None = None) -> Rounding:
    """The dtypes that operands of products are rounded to, in a layer or model and those inside it.

    Args:
        layer: The layer.
        computed: The dtype that its program computes in. Default: float32.
        narrow: The dtype that products of layers without their own policy round to, if any.
            Default: `None`.

    Raises:
        Unsupported: A layer asks for float64 in a program of float32.
    """
    own: dict[str, DType | None] = {}
    for _, inner in layer.walk():
        policy = inner.own_policy
        if policy is None:
            continue
        if policy.name == "float64" and computed is not f64:
            raise Unsupported(f"layer {inner.path!r} has dtype 'float64', and its program computes "
                              "in float32; compile(dtype='float64') has all layers in float64")
        short = policy.name.startswith("mixed_") and computed is f32
        own[inner.path] = dtype(policy.compute_dtype) if short else None
    return Rounding(narrow, own)
