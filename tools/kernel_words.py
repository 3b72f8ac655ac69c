"""Writes docs/kernel_words.md: the functions and methods that kernels may call.

    python -m tools.kernel_words > docs/kernel_words.md
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

HEAD = """# Words of kernels

The functions that a [kernel](guides/kernels.md) may call, from
`ztorch/kernels/known_functions.py` by `python -m tools.kernel_words > docs/kernel_words.md`.

The function counts, not its spelling: `np.exp`, `numpy.exp` and `from numpy import exp` are the
same. `x` and `y` stand for arrays, `n` and `m` for numbers such as `x[i]`, `c` for a condition.
Functions of arrays take numbers, too. The last two columns are the dtype of the result for
float32 and for int32 arguments; a dash means that the function does not take them. Integers that
become float32 here become float64 in a kernel with a float64 argument.

| word | of float32 | of int32 |
| --- | --- | --- |
"""
KNOWN_HEAD = """
## While compiling

These functions also take compile-time values: shapes, integers that are compiled in, and tuples
of them. They then run as Python.

{known}

## Threads

A thread, in a loop over [zt.threads](guides/kernels.md#threads), may call the functions of numbers
above, and these:

{threads}

### On each target

Functions of numbers and arrays work on every target, in every dtype that it has
([capabilities](capabilities.md)). So do shared memory, barriers and the functions of subgroups.
The table has the guaranteed number of threads of a block and bytes of shared memory (a device may
have more), how subgroups exchange 32-bit values (other values, and those of a lane chosen by
data, go through memory), and atomic updates. *native*: one instruction. *via*: several, such as a
compare-and-swap that repeats until it succeeds. *no*: the kernel is an error. On a CPU the
threads of a block run one after the other from barrier to barrier.

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
    np.empty: "3", np.ones: "3", np.full: "3, 0.5", np.arange: "3", np.eye: "3",
    np.linspace: "0, 1, 5", np.array: "(1, 2)", np.swapaxes: "x, 0, 1", np.split: "x, 3",
    np.expand_dims: "x, 0", float: "n", int: "n", bool: "n", round: "n"}
METHOD_CALLS = {"reshape": "9", "dot": "y", "astype": "np.float16", "swapaxes": "0, 1"}


def page() -> str:
    """The page."""
    return HEAD + word_rows() + "\n" + KNOWN_HEAD.format(known=textwrap.fill(
        ", ".join(f"`{_name(f)}`" for f in CONSTANT_FUNCTIONS), 100), threads=_threads(),
        targets=_targets())


def word_rows() -> str:
    """The rows of the first table: words, and what they give."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for function, word in FUNCTIONS.items():
        name = _name(function)
        arguments = CALLS.get(function) or _arguments(word, name)
        alike = name.rpartition(".")[2].replace("arc", "a")
        key = alike, _result(word, arguments, f32), _result(word, arguments, i32)
        rows.setdefault(key, []).append(f"`{name}({arguments})`")
    for name, word in METHODS.items():
        arguments = METHOD_CALLS.get(name, "")
        call = f"x, {arguments}" if arguments else "x"
        key = name, _result(word, call, f32), _result(word, call, i32)
        rows.setdefault(key, []).append(f"`x.{name}({arguments})`")
    return "\n".join(f"| {', '.join(calls)} | {a} | {b} |"
                     for (_, a, b), calls in sorted(rows.items()))


def calls() -> list[str]:
    """A call of each word and method, of arrays x and y and numbers n and m."""
    words = [f"{name}({CALLS.get(f) or _arguments(word, name)})" for f, word in FUNCTIONS.items()
             for name in (_name(f),)]
    return [*words, *(f"x.{name}({METHOD_CALLS.get(name, '')})" for name in METHODS)]


def _threads() -> str:
    """The functions for threads, with the first sentence of their docstrings."""
    rows = ["| word | |", "| --- | --- |"]
    for word in (threads, *THREAD_FUNCTIONS):
        arguments = ", ".join(inspect.signature(word).parameters)
        said = " ".join((word.__doc__ or "").partition("\n\n")[0].split()).partition(". ")[0]
        rows.append(f"| `zt.{word.__name__}({arguments})` | {said.rstrip('.')} |")
    return "\n".join(rows)


def _targets() -> str:
    """The form of the words of threads on each target."""
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
    by = "memory"
    if cells["shuffle_xor"] == NATIVE:
        by = "registers" if grid.subgroup else "registers, on devices with 32 lanes"
    return (str(grid.threads), str(grid.shared_bytes), by, *atomics)


def _name(function: Any) -> str:
    if isinstance(function, np.ufunc):
        return f"np.{function.__name__}"
    module = {"numpy": "np.", "math": "math."}.get(function.__module__, "")
    return f"{module}{function.__name__}"


def _arguments(word: Callable[..., Any], name: str) -> str:
    """The first of the usual ways to call a word that it takes."""
    for arguments in USUAL:
        if any(_result(word, arguments, d) != "–" for d in (f32, i32)):
            return arguments
    raise AssertionError(f"tools/kernel_words.py does not know how to call {name}")


def _result(word: Callable[..., Any], arguments: str, d: DType) -> str:
    """The dtype that a word gives."""
    values: dict[str, Any] = {n: LoopTensor(leaf("input", n, (3, 3), d)) for n in "xy"}
    values |= {n: LoopTensor(leaf("input", n, (), d)) for n in "nm"}
    values |= {"c": LoopTensor(leaf("input", "c", (3, 3), boolean)), "np": np}
    try:
        result = word(TileArithmetic([d]), *eval(f"({arguments},)", values))
    except (BadCall, ZtorchError, TypeError, IndexError):
        return "–"
    result = result[0] if isinstance(result, tuple) else result
    return str(result.dtype) if isinstance(result, LoopTensor) else "–"


if __name__ == "__main__":
    print(page(), end="")
