"""Derivatives of functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `jacobian`, `hessian`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ztorch.arrays.derivatives import (
    Recorded,
    gradient_rule,
    jvp_rule,
    run_watched,
    tensors_of,
    vjp_rule,
)
from ztorch.arrays.elements import node_from
from ztorch.arrays.node import TensorNode
from ztorch.arrays.ranges import eye, zeros_like
from ztorch.arrays.tensor import Tensor, tensor_of
from ztorch.arrays.vmap import vmap
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.trees import flatten, unflatten

Argnums = int | Sequence[int]


def value_and_grad(function: Callable[..., Any], argnums: Argnums = 0,
                   has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the value and the gradient of another function.

    Args:
        function: Takes tensors, or dicts and lists of tensors; returns a tensor with one element.
        argnums: The argument, or the arguments, to differentiate with respect to. Default: `0`.
        has_aux: Whether `function` returns a pair, of which only the first element is
            differentiated. Default: `False`.

    Returns:
        A function that returns `(value, gradient)`. The gradient has the structure of the argument,
        such as a dict for a dict. If `argnums` is a tuple, it is a tuple of gradients.

    Examples:
        >>> import ztorch as zt
        >>> loss = lambda w, x: ((w["a"] * x) ** 2.0).sum()
        >>> value, slope = zt.value_and_grad(loss)({"a": zt.tensor(3.0)}, zt.tensor([1.0, 2.0]))
        >>> value.item(), slope["a"].item()
        (45.0, 30.0)
    """
    _need_function(function)
    if not isinstance(argnums, (int, list, tuple)) or not all(
            isinstance(k, int) for k in ([] if isinstance(argnums, int) else argnums)):
        raise ConfigError(f"argnums is an integer or a tuple of them, not {argnums!r}")
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        ran = run_watched(functools.partial(function, **named), args,
                          _positions(numbers, len(args)))
        if has_aux and not (isinstance(ran.result, tuple) and len(ran.result) == 2):
            raise ShapeError("with has_aux, a function must return a pair: a tensor of one number, "
                             f"and an auxiliary result, not {ran.result!r}")
        value, aux = ran.result if has_aux else (ran.result, None)
        _need_number(function, value)
        extra, aux_tree = tensors_of("the auxiliary result of a function", aux)
        recorded = Recorded([value.node, *extra], ran.watched)
        first, *rest = map(tensor_of, recorded.derive("gradient", gradient_rule))
        leaves: Iterator[Tensor] = iter(rest)
        aux = unflatten(aux_tree, leaves)
        slopes = tuple(unflatten(tree, leaves) for tree in ran.trees)
        slope = slopes[0] if isinstance(argnums, int) else slopes
        return ((first, aux), slope) if has_aux else (first, slope)

    return run


def grad(function: Callable[..., Any], argnums: Argnums = 0,
         has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of another function.

    Args:
        function: Takes tensors, or dicts and lists of tensors; returns a tensor with one element.
        argnums: The argument, or the arguments, to differentiate with respect to. Default: `0`.
        has_aux: Whether `function` returns a pair, of which only the first element is
            differentiated. Default: `False`.

    Returns:
        A function that returns the gradient; with `has_aux`, `(gradient, aux)`.

    Examples:
        >>> import ztorch as zt
        >>> cube = lambda x: x * x * x
        >>> zt.grad(cube)(zt.tensor(2.0)).item(), zt.grad(zt.grad(cube))(zt.tensor(2.0)).item()
        (12.0, 12.0)
    """
    with_value = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        value, slope = with_value(*args, **named)
        return (slope, value[1]) if has_aux else slope

    return run


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The results of a function, and a function that pulls their cotangents back.

    Args:
        function: Takes and returns tensors, or dicts and lists of tensors.
        *primals: The arguments of the function.

    Returns:
        `(results, pullback)`. `pullback(cotangents)` takes a tensor for each result, and returns a
        tuple with the gradient of each argument.

    Examples:
        >>> import ztorch as zt
        >>> y, pullback = zt.vjp(lambda x: x * x, zt.tensor([1.0, 2.0]))
        >>> pullback(zt.tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    _need_function(function)
    if not primals:
        raise ConfigError("vjp takes the arguments of the function after it: vjp(f, x, y)")
    ran = run_watched(function, primals, range(len(primals)))
    results, tree = tensors_of("the results of a function", ran.result)
    recorded = Recorded(results, ran.watched)

    def pullback(cotangents: Any) -> Any:
        leaves, shape = flatten(cotangents)
        nodes = [_like(n, x, "cotangent") for n, x in zip(results, leaves, strict=False)]
        if shape != tree:
            raise ShapeError(f"pullback takes a tensor for each of {len(results)} results, in the "
                             f"same tree, not {cotangents!r}")
        slopes = map(tensor_of, recorded.derive("vjp", vjp_rule, nodes))
        return tuple(unflatten(t, slopes) for t in ran.trees)

    return ran.result, pullback


def jvp(function: Callable[..., Any], primals: Sequence[Any],
        tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The results of a function, and their directional derivatives along tangents.

    Args:
        function: Takes and returns tensors, or dicts and lists of tensors.
        primals: The arguments of the function.
        tangents: A tangent of the same shape for each argument.

    Returns:
        `(results, derivatives)`, two trees of the same structure.

    Examples:
        >>> import ztorch as zt
        >>> x = zt.tensor([1.0, 2.0])
        >>> zt.jvp(lambda x: x * x, [x], [zt.tensor([1.0, 0.5])])[1].tolist()
        [2.0, 2.0]
    """
    _need_function(function)
    for name, arguments in (("primals", primals), ("tangents", tangents)):
        if not isinstance(arguments, (list, tuple)) or not primals:
            raise ConfigError(f"{name} is a list of arguments, not {arguments!r}")
    ran = run_watched(function, primals, range(len(primals)))
    results, tree = tensors_of("the results of a function", ran.result)
    leaves, _ = flatten(list(tangents))
    if len(leaves) != len(ran.watched):
        raise ShapeError(f"jvp takes a tangent for each of {len(ran.watched)} tensors, not "
                         f"{len(leaves)}")
    nodes = [_like(n, x, "tangent") for n, x in zip(ran.watched, leaves, strict=True)]
    derived = [tensor_of(n) for n in Recorded(results, ran.watched).derive("jvp", jvp_rule, nodes)]
    return (unflatten(tree, iter(derived[:len(results)])),
            unflatten(tree, iter(derived[len(results):])))


def jacobian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """A function that returns the derivative of each element of the results of another function.

    Args:
        function: Takes tensors, or dicts and lists of tensors, and returns such.
        argnums: The argument to differentiate with respect to. Default: `0`.

    Returns:
        A function that returns, for each tensor of the results, the tree of the argument, with
        tensors of the result's shape followed by the argument's.

    Examples:
        >>> import ztorch as zt
        >>> zt.jacobian(lambda x: x[0] * x)(zt.tensor([2.0, 3.0])).tolist()
        [[4.0, 0.0], [3.0, 2.0]]
    """
    _need_function(function)
    if not isinstance(argnums, int):
        raise ConfigError(f"argnums of jacobian is an integer, not {argnums!r}")

    @functools.wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        [position] = _positions((argnums,), len(args))

        def of_one(x: Any) -> Any:
            return function(*args[:position], x, *args[position + 1:], **named)

        results, pullback = vjp(of_one, args[position])
        leaves, tree = flatten(results)

        def of_result(k: int) -> Any:
            """One row for each element of a result, by the pullback of its unit vectors."""
            y = leaves[k]
            rest = [zeros_like(leaf) for leaf in leaves]

            def row(unit: Any) -> Any:
                return pullback(unflatten(tree, iter([*rest[:k], unit, *rest[k + 1:]])))[0]

            units = eye(y.size, dtype=y.dtype, device=y.device).reshape((y.size, *y.shape))
            rows, inner = flatten(vmap(row)(units))
            return unflatten(inner, (r.reshape((*y.shape, *r.shape[1:])) for r in rows))

        return unflatten(tree, map(of_result, range(len(leaves))))

    return run


def hessian(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns the matrix of second derivatives of another function.

    Args:
        function: Takes a tensor, or dicts and lists of tensors; returns a tensor with one element.

    Returns:
        A function that returns the `jacobian` of the gradient: for a tensor, one whose shape is the
        argument's shape repeated twice.

    Examples:
        >>> import ztorch as zt
        >>> zt.hessian(lambda x: x[0] * x[0] * x[1])(zt.tensor([3.0, 5.0])).tolist()
        [[10.0, 6.0], [6.0, 0.0]]
    """
    return jacobian(grad(function))


def _positions(argnums: Sequence[int], count: int) -> list[int]:
    """The indices of arguments, with negative ones counted from the end."""
    for k in argnums:
        if not -count <= k < count:
            raise ConfigError(f"argnums={k}, but there are {count} positional arguments; "
                              "pass arguments to differentiate by position")
    positions = [k % count for k in argnums]
    if len({*positions}) < len(positions):
        raise ConfigError(f"argnums={tuple(argnums)} names an argument twice")
    return positions


def _need_function(function: Any) -> None:
    if not callable(function):
        raise ConfigError(f"a function of tensors can be differentiated, not {function!r}")


def _need_number(function: Callable[..., Any], value: Any) -> None:
    name = getattr(function, "__name__", "the function")
    if not isinstance(value, Tensor):
        raise ShapeError(f"{name} must return a tensor of one number to be differentiated, not "
                         f"{value!r}")
    if value.shape != () or not value.dtype.is_float:
        raise ShapeError(f"{name} must return one number to be differentiated, not "
                         f"{value.node.spec!r}; use .sum() or .mean()")


def _like(node: TensorNode, x: Any, role: str) -> TensorNode:
    other = node_from(x, node.spec.dtype, node.spec.memory, copy=True)
    if other.spec.shape != node.spec.shape:
        raise ShapeError(f"a {role} of shape {other.spec.shape} for a tensor of shape "
                         f"{node.spec.shape}")
    return other
