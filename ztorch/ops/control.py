"""Loops and branches over functions of tensors: `scan`, `while_loop` and `cond`.

The function is traced once, with values that represent any iteration. The graph holds its body
once, as does the program, whatever the number of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ztorch import dispatch
from ztorch.arguments import checked
from ztorch.config import positive
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.body import Body, carry_leaf, is_number, slice_leaf
from ztorch.graph.loop import looped, repeat
from ztorch.graph.op import OPS, as_value
from ztorch.graph.tracing import traced
from ztorch.graph.trees import flatten, spelled, unflatten
from ztorch.graph.value import Value
from ztorch.names.keras_calls import as_in_keras
from ztorch.ops.loop_checks import (
    checked_state,
    condition_of,
    in_layer,
    of_state,
    pair_of,
    trip_count_of,
)


@checked
def scan(f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None,
         reverse: bool = False, checkpoint: int | None = None) -> tuple[Any, Any]:
    """Calls a function for each element of sequences, carrying a state between calls.

    Args:
        f: `f(state, x)` returns the next state, of the same shapes and dtypes, and the output of
            this iteration, which may be `None`. It is traced once, without values.
        init: The first state: a tensor, or dicts, lists and tuples of tensors.
        xs: Tensors to iterate over along their first axis, in the same form, or `None`. Default:
            `None`.
        length: Number of iterations. `None` means that of `xs`. Default: `None`.
        reverse: Whether to go from the last element to the first. Results are still in the order of
            `xs`. Default: `False`.
        checkpoint: Number of iterations between states that are stored for the gradient, which
            recomputes the values in between: less memory for more time, and the same bits. Sums
            over iterations are added in groups, so the number grows to a multiple of a group.
            `None` stores everything that it reads. Default: `None`.

    Returns:
        The last state, and the outputs, with the iterations as a new first axis.

    Raises:
        ShapeError: Sequences differ in length, or the state changes its shape or dtype.
        ConfigError: Neither `xs` nor `length` is given, or the length is negative.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> total, sums = zt.ops.scan(lambda s, x: (s + x, s + x), np.float32(0.0),
        ...                           np.array([1.0, 2.0, 3.0], np.float32))
        >>> float(total), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])
    """
    states, state_tree = flatten(init)
    rows, row_tree = flatten(xs)
    trip_count = trip_count_of(rows, length)
    if not any(isinstance(v, Value) for v in (*states, *rows)):
        return dispatch.on_loop("scan", f, init, xs, trip_count, reverse, checkpoint)
    init = unflatten(state_tree, map(as_value, states))
    xs = unflatten(row_tree, map(as_value, rows))
    segment = None if checkpoint is None else positive("zt.ops.scan(checkpoint=...)", checkpoint)
    inits, state_tree = flatten(init)
    sequences, row_tree = flatten(xs)
    carries = tuple(carry_leaf(v, k) for k, v in enumerate(inits))
    slices = tuple(slice_leaf(v, k) for k, v in enumerate(sequences))
    result = traced(f, "zt.ops.scan", unflatten(state_tree, iter(carries)),
                    unflatten(row_tree, iter(slices)))
    new, outputs = pair_of("zt.ops.scan", result)
    news = checked_state("zt.ops.scan", new, state_tree, carries)
    outs, out_tree = flatten(outputs)
    last, stacks = looped(Body(trip_count, reverse, carries, slices, (), news,
                               tuple(as_value(v) for v in outs), segment=segment),
                          inits, sequences)
    return unflatten(state_tree, iter(last)), unflatten(out_tree, iter(stacks))


@checked
def checkpoint(f: Callable[..., Any], *operands: Any) -> Any:
    """The result of a function whose gradient recomputes intermediate values instead of storing
    them: less memory for more time.

    Args:
        f: A function of tensors. It must compute the same result each time.
        *operands: Tensors, or dicts, lists and tuples of tensors. The function may also use others.

    Returns:
        The result of the function.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> block = lambda x: zt.ops.tanh(zt.ops.exp(x) * 0.5)
        >>> x = zt.tensor([0.0, 1.0])
        >>> y = zt.grad(lambda x: zt.ops.checkpoint(block, x).sum())(x)
        >>> bool((y == zt.grad(lambda x: block(x).sum())(x)).all())
        True
    """
    leaves, _ = flatten(operands)
    if not any(isinstance(v, Value) for v in leaves):
        return dispatch.on_loop("checkpoint", f, operands)
    before = OPS.full((), 0).serial
    results, tree = flatten(traced(f, "zt.ops.checkpoint", *operands))
    values = tuple(as_value(v) for v in results)
    body = Body(1, False, (), (), (), (), values, recompute=True)
    _, stacks = repeat(body, [], [], lambda v: is_number(v) or (
        v.op.kind != "leaf" and v.serial > before))
    return unflatten(tree, iter([OPS.reshape(y, v.shape)
                                 for y, v in zip(stacks, values, strict=True)]))


@as_in_keras("", {"loop_vars": "init", "maximum_iterations": "max_steps"})
@checked
def while_loop(cond: Callable[..., Any], body: Callable[..., Any], init: Any,
               max_steps: int | None = None) -> Any:
    """Calls a function on a state while a condition holds, up to a maximum number of times.

    Args:
        cond: `cond(state)` returns a bool tensor with one element: whether to continue. If the
            state is a tuple or list, `cond(first, second)` takes its parts, as in Keras.
        body: `body(state)`, or with parts in the same way, returns the next state, of the same
            shapes and dtypes.
        init: The first state: a tensor, or dicts, lists and tuples of tensors.
        max_steps: Maximum number of iterations, which Keras calls `maximum_iterations`. Programs
            have a fixed size, so there must be a limit. A CPU stops when the condition fails; other
            devices run all iterations, and those after the end have no effect.

    Returns:
        The last state.

    Raises:
        ConfigError: There is no limit, or it is negative.
        ShapeError: The state changes its shape or dtype, or the condition is not a single bool.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> y = zt.ops.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, np.float32(3.0),
        ...                       max_steps=20)
        >>> float(y)
        192.0
        >>> x, n = zt.ops.while_loop(lambda x, n: x < 100.0, lambda x, n: (x * 2.0, n + 1),
        ...                          (np.float32(3.0), 0), max_steps=20)
        >>> float(x), int(n)
        (192.0, 6)
    """
    states, tree = flatten(init)
    cond, body = of_state(cond, init), of_state(body, init)
    if max_steps is None:
        raise ConfigError(f"{in_layer()}zt.ops.while_loop needs max_steps=, the maximum number of "
                          "iterations: a program has a fixed size")
    trip_count = trip_count_of([], max_steps, "max_steps")
    if not any(isinstance(v, Value) for v in states):
        return dispatch.on_loop("while_loop", cond, body, init, trip_count)
    inits = [as_value(v) for v in states]

    def holds(values: Sequence[Value]) -> Value:
        return condition_of("zt.ops.while_loop", traced(cond, "zt.ops.while_loop", unflatten(
            tree, iter(values))))

    carries = tuple(carry_leaf(v, k) for k, v in enumerate(inits))
    new = checked_state("zt.ops.while_loop", traced(
        body, "zt.ops.while_loop", unflatten(tree, iter(carries))), tree, carries)
    return unflatten(tree, iter(bounded(carries, new, holds, inits, trip_count)))


def bounded(carries: Sequence[Value], new: Sequence[Value],
            holds: Callable[[Sequence[Value]], Value], inits: Sequence[Value],
            trip_count: int) -> list[Value]:
    """The last state of a loop that a condition ends.

    If the loop cannot end early, iterations after its end have no effect. So the result is the same
    on machines whose loops always run all iterations.
    """
    first = holds(inits)
    go = carry_leaf(first, len(carries))
    news = [OPS.where(go, v, c) for v, c in zip(new, carries, strict=True)]
    going = OPS.logical_and(go, holds(news))
    body = Body(trip_count, False, (*carries, go), (), (), (*news, going), (), len(carries))
    return looped(body, [*inits, first], [])[0][:-1]


@checked
def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
         *operands: Any) -> Any:
    """The result of one of two functions. On a CPU, only that one is computed.

    Args:
        pred: A bool tensor with one element.
        true_fn: Called with the operands if it is true.
        false_fn: Called with the operands if it is false. It returns tensors of the same shapes and
            dtypes.
        *operands: Tensors, or dicts, lists and tuples of tensors. Functions may also use others.

    Returns:
        The result of the function.

    Raises:
        ShapeError: The condition is not a single bool, or the functions' results differ in shape.

    Examples:
        >>> import numpy as np, ztorch as zt
        >>> x = np.array([1.0, -4.0], np.float32)
        >>> zt.ops.cond(x[0] > 0, lambda x: x * 2.0, lambda x: -x, x)
        array([ 2., -8.], dtype=float32)
    """
    leaves, _ = flatten((pred, operands))
    if not any(isinstance(v, Value) for v in leaves):
        return dispatch.on_loop("cond", pred, true_fn, false_fn, operands)
    chosen = condition_of("zt.ops.cond", as_value(pred))
    before = carry_leaf(chosen, 0).serial
    results = [flatten(traced(f, "zt.ops.cond", *operands)) for f in (true_fn, false_fn)]
    tree = results[0][1]
    if results[1][1] != tree:
        raise ShapeError(f"{in_layer()}zt.ops.cond: true_fn returns {spelled(tree)}, but "
                         f"false_fn returns {spelled(results[1][1])}; both must return the same")
    first, second = ([as_value(v) for v in values] for values, _ in results)
    return unflatten(tree, iter(either(chosen, first, second, before)))


def either(chosen: Value, first: Sequence[Value], second: Sequence[Value],
           before: int) -> list[Value]:
    """The values of one of two branches: two loops of at most one iteration, of which one runs.
    Values with serial numbers above `before` belong to the branches."""
    for a, b in zip(first, second, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ShapeError(f"{in_layer()}zt.ops.cond: true_fn returns {a.dtype}{list(a.shape)}, "
                             f"but false_fn returns {b.dtype}{list(b.shape)}; both must return "
                             "the same")
    branches = []
    for go, values in ((chosen, first), (OPS.logical_not(chosen), second)):
        inits = [OPS.zeros_like(v) for v in values]
        carries = (*(carry_leaf(v, k) for k, v in enumerate(inits)), carry_leaf(go, len(inits)))
        body = Body(1, False, carries, (), (), (*values, carries[-1]), (), len(inits))
        results, _ = repeat(body, [*inits, go], [], lambda v: is_number(v) or v.serial > before)
        branches.append(results[:-1])
    return [OPS.where(chosen, a, b) for a, b in zip(*branches, strict=True)]
