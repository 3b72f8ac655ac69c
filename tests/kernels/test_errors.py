"""Wrong kernels: each is refused, and the message shows the line and a fix."""

from __future__ import annotations

import copy
import functools
import linecache
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.errors import KernelError
from ztorch.graph.op import leaf

FILE = Path(__file__).parent / "wrong_kernels.txt"
SHAPES = {"x": ((6,), "float32"), "p": ((6,), "int32"), "a": ((4, 6), "float32")}
MESSAGE = "--- says\n"  # begins the message of a case


def _cases() -> dict[str, tuple[str, str]]:
    """The source of each case, and its message."""
    cases = {}
    for part in FILE.read_text().split("=== ")[1:]:
        name, _, rest = part.partition("\n")
        source, _, message = rest.partition(MESSAGE)
        cases[name] = source, message
    return cases


CASES = _cases()


def _message(name: str, source: str) -> str:
    file = "kernel.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names: dict[str, Any] = {"np": np, "zt": zt, "math": math}
    exec(compile(source, file, "exec"), names)
    arguments = names["k"].__code__.co_varnames[:names["k"].__code__.co_argcount]
    with pytest.raises(KernelError) as caught:
        zt.kernel(names["k"]).trace({n: leaf("input", n, *SHAPES[n]) for n in arguments})
    return f"{caught.value}\n"


@pytest.fixture
def updating(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--update-goldens"))


@pytest.mark.cheap
@together()
@pytest.mark.parametrize("name", CASES)
def test_wrong_kernels_are_refused(name: str, updating: bool) -> None:
    source, expected = CASES[name]
    message = _message(name, source)
    if updating:
        text = FILE.read_text()
        whole = f"=== {name}\n{source}"
        FILE.write_text(text.replace(f"{whole}{MESSAGE}{expected}" if expected else whole,
                                     f"{whole}{MESSAGE}{message}", 1))
        return
    assert message == expected


def test_every_line_that_is_shown_is_a_line_of_the_kernel() -> None:
    for source, message in CASES.values():
        if message:  # none while it is written
            shown = message.splitlines()[-2].strip()
            assert shown in [line.strip() for line in source.splitlines()]


def test_a_signature_is_checked() -> None:
    @zt.kernel("f32[b, n], f32[n] -> f32[b, n]")
    def scale(x, g):
        out = np.empty_like(x)
        for i, j in zt.grid(*x.shape):
            out[i, j] = x[i, j] * g[j]
        return out

    x = np.ones((2, 3), np.float32)
    with pytest.raises(KernelError, match=r"g has shape \[4\]: axis 0 is 4, but n is 3 in x, f32"):
        scale(x, np.ones(4, np.float32))
    with pytest.raises(KernelError, match=r"x is float64\[2, 3\].*astype\('float32'\)"):
        scale(x.astype(np.float64), np.ones(3, np.float32))
    with pytest.raises(KernelError, match="x has 1 axes"):
        scale(x[0], np.ones(3, np.float32))
    with pytest.raises(KernelError, match="missing a required argument: 'g'"):
        scale(x)
    with pytest.raises(KernelError, match="cannot be read at"):
        zt.kernel("f32[b, n]; f32")
    with pytest.raises(KernelError, match="float12"):
        zt.kernel("float12[b]")


def test_a_result_is_checked() -> None:
    @zt.kernel("f32[b, n] -> f32[n, b]")
    def same(x):
        return x + 1

    with pytest.raises(KernelError, match=r"result 0 has shape \[2, 3\]: axis 0 is 2, but n is 3"):
        same(np.ones((2, 3), np.float32))


def test_kernels_need_source() -> None:
    with pytest.raises(KernelError, match="written as a function with def"):
        zt.kernel(np.exp)
    with pytest.raises(KernelError, match="lambda"):
        zt.kernel(lambda x: x)
    names: dict[str, Any] = {}
    other = "def another(x):\n    return x\n"
    for file, text in (("<nowhere>", ""), ("<a script>", "import os\n"), ("<a file>", other)):
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile("def k(x):\n    return x", file, "exec"), names)
        with pytest.raises(KernelError, match="source cannot be read"):
            zt.kernel(names["k"])


@zt.kernel
def doubled(x, factor=2.0):
    return x * factor


def test_kernels_are_copied_and_pickled_as_functions_are() -> None:
    assert copy.deepcopy(doubled) is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_functions_that_are_no_kernels_are_refused() -> None:
    def several(*xs):
        return xs

    @functools.wraps(doubled.function)
    def decorated(x):
        return x

    class Owner:
        def method(self, x):
            return x

    for function, message in (
            (several, r"takes no \*xs"), (Owner.method, "is no method"),
            (decorated, "another decorator is under zt.kernel")):
        with pytest.raises(KernelError, match=message):
            zt.kernel(function)


def test_arguments_are_named_in_errors() -> None:
    for x, message in (({"a": 1}, "x is {'a': 1}; arguments are arrays"), (np.array(["a"]), "kernel doubled: x"),
                       (np.ones(2, complex), "kernel doubled: x is an array of complex128")):
        with pytest.raises(zt.errors.ZtorchError, match=message):
            doubled(x)
    with pytest.raises(KernelError, match="argument 'factors'; did you mean 'factor'"):
        doubled(np.ones(2), factors=1.0)
