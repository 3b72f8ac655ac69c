"""The op of programs of threads: its meaning, its gradient, and many examples of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import DType, boolean, from_storage, storage_dtype, to_storage
from ztorch.graph.batching import Examples, repeated
from ztorch.graph.op import OPS
from ztorch.graph.thread_copies import side_by_side
from ztorch.graph.thread_gradient import SLOPE, gradient_of
from ztorch.graph.thread_kernel import kernel_of
from ztorch.graph.thread_program import ThreadProgram
from ztorch.graph.value import Op, Value
from ztorch.ir.interpret import interpret


def run(program: ThreadProgram, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays that a program writes, after it. Accesses are checked."""
    buffers = {a.name: to_storage(storage_dtype(a.dtype), np.array(
        x, a.dtype.working, order="C").reshape(-1).astype(storage_dtype(a.dtype).working))
        for a, x in zip(program.arrays, arrays, strict=True)}
    interpret(kernel_of(program), buffers)
    return [from_storage(storage_dtype(a.dtype), buffers[a.name]).astype(
                a.dtype.working).reshape(x.shape)
            for a, x in zip(program.arrays, arrays, strict=True) if a.written]


def _infer(*args: Value, program: ThreadProgram) -> tuple[tuple[int, ...], DType]:
    return (), boolean  # a placeholder: the node itself is not a tensor


def _numpy(*arrays: np.ndarray, program: ThreadProgram) -> Any:
    return run(program, arrays)


def _result_infer(node: Value, index: int) -> tuple[tuple[int, ...], DType]:
    first = first_of(node, index)
    return first.shape, first.dtype


def _result_numpy(results: Any, index: int) -> Any:
    return results[index]


def _result_batch(one: Value, many: Examples, index: int) -> Value:
    return THREADS_RESULT(*many.args, index=index)


def _grad(o: Any, upstreams: Mapping[int, Value], node: Value, *args: Value,
          program: ThreadProgram) -> tuple[Value | None, ...]:
    """`upstreams`: gradients of results, by their index."""
    back = gradient_of(program)
    by_name = {a.name: v for a, v in zip(program.arrays, args, strict=True)}
    slopes = {a.name: upstreams[k] for k, a in enumerate(program.written) if k in upstreams}
    first = [by_name[name] for name in back.forward]
    for a in back.program.arrays[len(first):]:
        like = by_name.get(a.name.removeprefix(SLOPE))
        v = slopes.get(a.name.removeprefix(SLOPE))
        if v is None:
            v = OPS.full((a.size,) if like is None else like.shape, 0, a.dtype)
        first.append(OPS.cast(v, a.dtype))
    new = THREADS(*first, program=back.program)
    count = len(back.program.written)
    parts = {name: OPS.cast(THREADS_RESULT(new, index=count - len(back.slopes) + k),
                            by_name[name].dtype) for k, name in enumerate(back.slopes)}
    return tuple(parts.get(a.name) for a in program.arrays)


def _batch(one: Value, many: Examples, program: ThreadProgram) -> Value:
    """The blocks of all examples side by side."""
    written = len(program.arrays) - len(program.written)
    args = [repeated(v, many.count) if k >= written and not own else v
            for k, (v, own) in enumerate(zip(many.args, many.batched, strict=True))]
    own = {a.name for a, v in zip(program.arrays, args, strict=True) if v.size != a.size}
    return THREADS(*args, program=side_by_side(program, many.count, own))


THREADS = Op("threads", "threads", _infer, _numpy, _grad, batch=_batch)
THREADS_RESULT = Op("threads", "threads_result", _result_infer, _result_numpy,
                    batch=_result_batch)


def first_of(node: Value, index: int) -> Value:
    """The content of a result before the threads run: one of the last arguments."""
    program: ThreadProgram = node.attrs["program"]
    return node.args[len(program.arrays) - len(program.written) + index]
