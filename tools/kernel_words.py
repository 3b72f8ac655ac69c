"""Writes docs/kernel_words.md: the functions and methods that kernels may call.

    python -m tools.kernel_words > docs/kernel_words.md
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.dtypes import DType, f32, i32
from ztorch.errors import ZtorchError
from ztorch.graph.op import leaf
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.tiles import LoopTensor
from ztorch.kernels.words import KNOWN, METHODS, WORDS, BadCall

HEAD = """# Words of kernels

The functions that a [kernel](guides/kernels.md) may call, from `ztorch/kernels/words.py` by
`python -m tools.kernel_words > docs/kernel_words.md`.

A word is found by the function itself: `np.exp`, `numpy.exp` and `from numpy import exp` are the
same. The last two columns say what it gives for arrays `x` and `y` of shape [3, 3] in float32, and
in int32. Integers that become float32 here become float64
in a kernel with an argument in float64.

| word | of float32 | of int32 |
| --- | --- | --- |
"""
KNOWN_HEAD = """
## While compiling

These functions also take what is known while the kernel is compiled, such as shapes, numbers that
are compiled in, and tuples of them. They run as Python then.

{known}

## Dtypes and attributes

`np.float32(x)`, `np.int32(x)` and the other dtypes of NumPy convert. Arrays have `shape`, `ndim`,
`dtype`, `size` and `T`.
"""
# How to call what does not take arrays alone.
CALLS: dict[Any, str] = {
    np.where: "x > y, x, y", np.clip: "x, 0, 1", np.power: "x, 2", math.pow: "x, 2", pow: "x, 2",
    np.reshape: "x, (9,)", np.zeros: "3", np.empty: "3", np.ones: "3", np.full: "3, 0.5",
    np.arange: "3", float: "x[0, 0]", int: "x[0, 0]", bool: "x[0, 0]"}
METHOD_CALLS = {"reshape": "9", "dot": "y", "astype": "np.float16"}


def page() -> str:
    """The page."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for function, word in WORDS.items():
        name = _name(function)
        arguments, floats, integers = _row(word, CALLS.get(function), name)
        alike = name.rpartition(".")[2].replace("arc", "a")
        rows.setdefault((alike, floats, integers), []).append(f"`{name}({arguments})`")
    for name, word in METHODS.items():
        arguments = METHOD_CALLS.get(name, "")
        call = f"x, {arguments}" if arguments else "x"
        key = name, _result(word, call, f32), _result(word, call, i32)
        rows.setdefault(key, []).append(f"`x.{name}({arguments})`")
    table = "\n".join(f"| {', '.join(calls)} | {a} | {b} |"
                      for (_, a, b), calls in sorted(rows.items()))
    return HEAD + table + "\n" + KNOWN_HEAD.format(known=textwrap.fill(
        ", ".join(f"`{_name(f)}`" for f in KNOWN), 100))


def _name(function: Any) -> str:
    if isinstance(function, np.ufunc):
        return f"np.{function.__name__}"
    module = {"numpy": "np.", "math": "math."}.get(function.__module__, "")
    return f"{module}{function.__name__}"


def _row(word: Callable[..., Any], call: str | None, name: str) -> tuple[str, str, str]:
    """(its arguments, what it gives of float32, of int32)."""
    for arguments in [call] if call else ["x", "x, y"]:
        try:
            return arguments, _result(word, arguments, f32), _result(word, arguments, i32)
        except (TypeError, IndexError):
            continue
    raise AssertionError(f"tools/kernel_words.py does not know how to call {name}")


def _result(word: Callable[..., Any], arguments: str, d: DType) -> str:
    """The dtype and shape of what a word gives."""
    a = TileArithmetic([d])
    x, y = (LoopTensor(leaf("input", n, (3, 3), d)) for n in "xy")
    number = LoopTensor(leaf("input", "n", (), d))
    values = {"x": x, "y": y, "x[0, 0]": number, "x > y": a.apply("greater", x, y),
              "np.float16": np.float16, "(9,)": (9,)}
    items = [part.strip() for part in arguments.split(", " if "[" not in arguments else ";")]
    try:
        given = word(a, *(values[i] if i in values else float(i) if "." in i else int(i)
                          for i in items))
    except (BadCall, ZtorchError):
        return "–"
    return f"{given.dtype}{list(given.shape)}" if isinstance(given, LoopTensor) else "–"


if __name__ == "__main__":
    print(page(), end="")
