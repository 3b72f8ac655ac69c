"""Writes docs/kernel_functions.md: the functions and methods that kernels may call.

    python -m tools.kernel_functions > docs/kernel_functions.md
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.capabilities import grouped, table, title
from tools.opcode_support import NATIVE, opcode_cells
from ztorch.codegen.targets import Target
from ztorch.dtypes import DType, boolean, f32, i32
from ztorch.errors import ZtorchError
from ztorch.graph.op import leaf
from ztorch.ir.opcodes import ATOMICS
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.known_functions import CONSTANT_FUNCTIONS, FUNCTIONS, METHODS, BadCall
from ztorch.kernels.thread_functions import THREAD_FUNCTIONS, threads
from ztorch.kernels.thread_loops import MAX_THREADS
from ztorch.kernels.tiles import LoopTensor

HEAD = """# Functions in kernels

The functions that a [kernel](guides/kernels.md) may call, written from
`ztorch/kernels/known_functions.py` by
`python -m tools.kernel_functions > docs/kernel_functions.md`.

A function is recognized by the object, not by its name: `np.exp`, `numpy.exp` and
`from numpy import exp` are the same. `x` and `y` are arrays, `n` and `m` numbers such as `x[i]`,
`c` is a condition. Functions of arrays also take numbers. The last two columns give the dtype of
the result for arguments of float32 and of int32; a dash means that these are refused. Integers
whose result is float32 here give float64 in a kernel with an argument of float64.
Kernels may also call [ops of `zt.ops`](guides/kernels.md#ops-in-kernels).

| call | of float32 | of int32 |
| --- | --- | --- |
"""
KNOWN_HEAD = """
## While compiling

These functions also take values that are known while the kernel is compiled, such as shapes,
constant integers, and tuples of them. They then run as Python.

{known}

## Threads

Functions for threads, in a loop over [zt.threads](guides/kernels.md#threads). Threads may also call
the functions of numbers.

{threads}

### On each target

Functions of numbers and arrays work on every target, in every dtype that it has
([capabilities](capabilities.md)), and so do shared memory, barriers and the functions of subgroups.
The table gives, for each target:

- the largest number of threads in a block and of bytes of shared memory; a device may allow more;
- how subgroups exchange values of 32 bits. Other values, and those of a lane whose number is
  computed from data, pass through memory on every target;
- how atomic updates are done. *native*: by one instruction. *via*: by several, such as a
  compare-and-swap that is repeated until it succeeds. *no*: a kernel that uses it is refused.

On processors the threads of a block run one after the other, from barrier to barrier.

{targets}

## Dtypes and attributes

`np.float32(x)`, `np.int32(x)` and the other dtypes of NumPy convert. Arrays have `shape`, `ndim`,
`dtype`, `size` and `T`.
"""
USUAL = ("x", "x, y", "n", "n, m", "(x, y)")
# Calls of functions with other arguments.
CALLS: dict[Any, str] = {
    max: "n, m", min: "n, m", abs: "n", np.where: "c, x, y", np.clip: "x, 0, 1",
    np.power: "x, 2", math.pow: "n, 2", pow: "n, 2", np.reshape: "x, (9,)", np.zeros: "3",
    np.empty: "3", np.ones: "3", np.full: "3, 0.5", np.full_like: "x, 2", np.arange: "3",
    np.eye: "3", np.linspace: "0, 1, 5", np.array: "(n, m)",
    np.swapaxes: "x, 0, 1", np.split: "x, 3", np.expand_dims: "x, 0",
    float: "n", int: "n", bool: "n", round: "n"}
METHOD_CALLS = {"reshape": "9", "dot": "y", "astype": "np.float16", "swapaxes": "0, 1"}


def page() -> str:
    """The page."""
    return HEAD + function_rows() + "\n" + KNOWN_HEAD.format(known=textwrap.fill(
        ", ".join(f"`{_name(f)}`" for f in CONSTANT_FUNCTIONS), 100), threads=_threads(),
        targets=_targets())


def function_rows() -> str:
    """The rows of the first table: calls, and the dtypes of their results."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for function, rule in FUNCTIONS.items():
        name = _name(function)
        arguments = CALLS.get(function) or _arguments(rule, name)
        alike = name.rpartition(".")[2].replace("arc", "a")
        key = alike, _result(rule, arguments, f32), _result(rule, arguments, i32)
        rows.setdefault(key, []).append(f"`{name}({arguments})`")
    for name, rule in METHODS.items():
        arguments = METHOD_CALLS.get(name, "")
        call = f"x, {arguments}" if arguments else "x"
        key = name, _result(rule, call, f32), _result(rule, call, i32)
        rows.setdefault(key, []).append(f"`x.{name}({arguments})`")
    return "\n".join(f"| {', '.join(calls)} | {a} | {b} |"
                     for (_, a, b), calls in sorted(rows.items()))


def calls() -> list[str]:
    """A call of each function and method, of arrays x and y and numbers n and m."""
    functions = [f"{name}({CALLS.get(f) or _arguments(rule, name)})"
                 for f, rule in FUNCTIONS.items() for name in (_name(f),)]
    return [*functions, *(f"x.{name}({METHOD_CALLS.get(name, '')})" for name in METHODS)]


def _threads() -> str:
    """The functions for threads, with the first sentence of their docstrings."""
    rows = ["| function | |", "| --- | --- |"]
    for function in (threads, *THREAD_FUNCTIONS):
        arguments = ", ".join(inspect.signature(function).parameters)
        first = " ".join((function.__doc__ or "").partition("\n\n")[0].split()).partition(". ")[0]
        rows.append(f"| `zt.{function.__name__}({arguments})` | {first.rstrip('.')} |")
    return "\n".join(rows)


def _targets() -> str:
    """The form of the functions of threads on each target."""
    rows = [(title(g), ", ".join(t.name for t in g), *_thread_cells(g[0]))
            for g in grouped()]
    heads = ("target", "stands for", "threads", "shared bytes", "subgroups by",
             *(f"`{o}`" for o in ATOMICS))
    return "\n".join(table(heads, rows))


def _thread_cells(target: Target) -> tuple[str, ...]:
    grid, cells = target.limits.grid, opcode_cells(target)
    atomics = tuple(cells[o] for o in ATOMICS)
    if grid is None:
        return (str(MAX_THREADS), "–", "memory", *atomics)
    exchange = "memory"
    if cells["shuffle_xor"] == NATIVE:
        exchange = "registers" if grid.subgroup else "registers, on devices with 32 lanes"
    return (str(grid.threads), str(grid.shared_bytes), exchange, *atomics)


def _name(function: Any) -> str:
    if isinstance(function, np.ufunc):
        return f"np.{function.__name__}"
    module = {"numpy": "np.", "math": "math."}.get(function.__module__, "")
    return f"{module}{function.__name__}"


def _arguments(rule: Callable[..., Any], name: str) -> str:
    """The first of the usual argument lists that a function takes."""
    for arguments in USUAL:
        if any(_result(rule, arguments, d) != "–" for d in (f32, i32)):
            return arguments
    raise AssertionError(f"tools/kernel_functions.py does not know how to call {name}")


def _result(rule: Callable[..., Any], arguments: str, d: DType) -> str:
    """The dtype of a function's result."""
    values: dict[str, Any] = {n: LoopTensor(leaf("input", n, (3, 3), d)) for n in "xy"}
    values |= {n: LoopTensor(leaf("input", n, (), d)) for n in "nm"}
    values |= {"c": LoopTensor(leaf("input", "c", (3, 3), boolean)), "np": np}
    try:
        result = rule(TileArithmetic([d]), *eval(f"({arguments},)", values))
    except (BadCall, ZtorchError, TypeError, IndexError):
        return "–"
    result = result[0] if isinstance(result, tuple) else result
    return str(result.dtype) if isinstance(result, LoopTensor) else "–"


if __name__ == "__main__":
    print(page(), end="")
