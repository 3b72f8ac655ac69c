"""Kernels and functions on the command line: export --shapes, run, inspect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands.results import Run, fails, ok
from ztorch.commands.export_function import parse_shapes

SOURCE = '''
import numpy as np
import ztorch as zt

@zt.kernel("f32[b, n], f32[n], f32 -> f32[b, n]")
def scale_shift(x, g, c):
    out = np.empty_like(x)
    for i, j in zt.grid(*x.shape):
        out[i, j] = x[i, j] * g[j] + c
    return out

def both(x):
    return x + 1, zt.ops.sum(x)

def third(x, k):
    return x * k / 3.0

@zt.kernel
def power(x, k: int):
    y = np.ones_like(x)
    for i in range(len(x)):
        for _ in range(k):
            y[i] *= x[i]
    return y

@zt.kernel
def ramp(n: int):
    y = np.zeros(n)
    for i in range(n):
        y[i] = i
    return y

SIZE = 3
'''
X, G = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([1, 2, 3])


@pytest.fixture
def folder(run: Run) -> Path:
    Path("k.py").write_text(SOURCE)
    np.save("x.npy", X)
    np.save("g.npy", G)
    return Path()


def test_a_kernel_is_exported_and_run(run: Run, folder: Path) -> None:
    ok(run("export", "k.py:scale_shift", "--shapes", "b=2, n=3", "-o", "k.zt", "--device", "cpu:scalar"))
    assert "call" in ok(run("inspect", "k.zt"))
    ok(run("run", "k.zt", "x.npy", "g.npy", "0.5", "-o", "y.npy"))
    np.testing.assert_allclose(np.load("y.npy"), X * G + 0.5)
    np.savez("all.npz", x=X, g=G, c=np.float32(2))
    ok(run("run", "k.zt", "all.npz", "-o", "y.npy"))
    np.testing.assert_allclose(np.load("y.npy"), X * G + 2)


    fails(run("run", "k.zt", "all.npz", "--classes"), "--classes is for a model")


def test_numbers_of_64_bits_are_printed_whole(run: Run, folder: Path) -> None:
    ok(run("export", "k.py:third", "--shapes", "x=f64[3],k=f64", "-o", "t.zt", "--device", "cpu:scalar"))
    np.save("d.npy", d := np.array([1.0, 2.0, 3.0]))
    printed = ok(run("run", "t.zt", "d.npy", "2")).split()
    assert np.array_equal(np.array(printed, float), d * 2.0 / 3.0)


def test_types_of_arguments_and_several_results(run: Run, folder: Path) -> None:
    ok(run("export", "k.py:both", "--shapes", "n=3,x=f32[2,n]", "-o", "b.zt", "--device", "cpu:scalar"))
    ok(run("run", "b.zt", "x.npy", "-o", "y.npz"))
    with np.load("y.npz") as y:
        assert np.array_equal(y["y0"], X + 1) and y["y1"] == 15


def test_integers_of_a_kernel_are_given_with_its_types(run: Run, folder: Path) -> None:
    """They were taken as sizes that no type names."""
    ok(run("export", "k.py:power", "--shapes", "x=f32[3],k=4", "-o", "p.zt", "--device", "cpu:scalar"))
    printed = ok(run("run", "p.zt", "g.npy")).split()
    assert np.array_equal(np.array(printed, float), G ** 4)
    result = run("export", "k.py:ramp", "--shapes", "n=4", "-o", "r.zt")
    assert result.exit_code == 1 and "ramp(4)" in result.stderr and "no tensor" in result.stderr


def test_c_source(run: Run, folder: Path) -> None:
    ok(run("export", "k.py:scale_shift", "--shapes", "b=2,n=3", "--so", "--device", "c", "-o", "c"))
    assert "void scale_shift(" in Path("c/scale_shift.h").read_text()


@pytest.mark.parametrize(("words", "says"), [
    (("k.py:scale_shift", "--shapes", "b=2"), "size of 'n' is not known"),
    (("k.py:scale_shift", "--shapes", "b:2"), "cannot be read"),
    (("k.py:scale_shift", "--shapes", "b=2,n=q"), "'q' is neither a size nor a type"),
    (("k.py:third", "--shapes", "x=f64[²],k=f64"), "'²' is neither a size nor a name"),
    (("k.py:scale_shift", "--shapes", "b=2,n=²"), "'²' is neither a size nor a type"),
    (("k.py:scale", "--shapes", "b=2"), "scale_shift"),
    (("k.py:SIZE", "--shapes", "b=2"), "not a function"),
    (("digits_mlp", "--shapes", "b=2"), "path/to/file.py:function"),
    (("k.py:scale_shift", "--shapes", "b=2,n=3", "--batch-size", "4"), "--batch-size is for a model"),
    (("k.py:scale_shift",), "--shapes")])
def test_wrong_uses(run: Run, folder: Path, words: tuple[str, ...], says: str) -> None:
    result = run("export", *words, "-o", "k.zt")
    assert result.exit_code == 1 and says in result.output


def test_the_text_of_shapes() -> None:
    text = "b=64,n=8; x=f32[b, 3], c=f32"
    assert parse_shapes(text) == ({"b": 64, "n": 8}, {"x": "f32[b, 3]", "c": "f32[]"})
