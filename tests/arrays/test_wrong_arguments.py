"""Arguments of functions of tensors that are out of range: the error says which, and what to use."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ZtorchError

X = [1.0, 2.0, 3.0]

WRONG = {  # an expression: text of its error
    "zt.tensor([float('nan')], 'int32')": "numbers that int32 cannot hold",
    "zt.array_api.take(x, zt.tensor([0]), axis=3)": "axis 3 is out of range for rank 1",
    "zt.array_api.take_along_axis(x, zt.tensor([0]), axis=3)": "axis 3 is out of range for rank 1",
    "zt.array_api.var(x, axis=(0, -4), correction=1)": "axis -4 is out of range for rank 1",
    "zt.array_api.std(x, axis=-4, correction=1)": "axis -4 is out of range for rank 1",
    "zt.array_api.cumulative_sum(x, axis=1)": "axis 1 is out of range for rank 1",
    "zt.ops.associative_scan(zt.ops.add, x, axis=5)": "axis 5 is out of range for rank 1",
    "zt.ops.switch(0, [])": "at least one function in branches",
    "zt.ops.bincount([2, -1])": "x has a negative one",
    "zt.compiled(lambda x: zt.ops.bincount(x, minlength=4))(zt.tensor([1]))": "sum one-hot rows of a fixed length",
    "zt.ops.histogram(x, bins=0)": "ops.histogram(bins=...) must be a positive integer, not 0",
    "zt.ops.histogram(x, range=(3, 1))": "ops.histogram(range=(3, 1)) must be (smallest, largest)",
    "zt.random.shuffle(x, axis=4)": "axis 4 is out of range for rank 1",
    "zt.random.categorical(x, 3)": "shape (batch, classes), not (3,); x[None]",
    "zt.random.randint((3,), 0, 2.5)": "not the bounds 0 and 2.5",
    "zt.random.randint((3,), 0, 300, 'int8')": "int8 cannot hold all integers from 0 to 299; use a wider dtype",
    "zt.randint(0.5, 3, (3,))": "not the bounds 0.5 and 3",
    "zt.randint(-5, 3, (3,), dtype='uint8')": "uint8 cannot hold all integers from -5 to 2",
    "zt.permutation(-1)": "a size is negative",
    "zt.grad(zt.ops.sum, 1)(x)": "argnums=1, but there are 1 positional arguments",
    "zt.grad(zt.ops.sum, -2)(x)": "argnums=-2, but there are 1 positional arguments",
}


@pytest.mark.cheap
@pytest.mark.parametrize("expression", WRONG)
def test_what_the_error_says(expression: str) -> None:
    with pytest.raises(ZtorchError, match=re.escape(WRONG[expression])):
        eval(expression, {"zt": zt, "x": zt.tensor(X)})


@pytest.mark.parametrize("arguments", [
    (np.int64(3),), (np.int32(1), 5), (1, np.uint8(6), np.int64(2)), (np.float32(3.0),), (np.int64(0), 1, 0.5)])
def test_ranges_of_integers_of_numpy_are_integers(arguments: tuple[Any, ...]) -> None:
    want = np.arange(*arguments)
    got = zt.arange(*arguments)
    np.testing.assert_array_equal(got, want)
    assert got.dtype.is_int == (want.dtype.kind == "i")


def test_bounds_of_random_integers_may_be_those_of_numpy() -> None:
    drawn = zt.randint(np.int64(3), np.int32(5), (100,), "int8", seed=1)
    assert {*drawn.tolist()} == {3, 4}
    assert {*zt.random.randint((100,), np.int64(-128), np.int64(-126), "int8", seed=1).tolist()} == {-128, -127}
