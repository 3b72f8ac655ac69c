"""Containers, branches, and layers that merge several tensors."""

from __future__ import annotations

import ztorch as zt
from tests.model.wrong_models.cases import Case, row, steps
from ztorch import layers as L


def merged(layer: L.Layer, *shapes: tuple[int, ...]) -> object:
    return layer([L.Input(shape, name=f"input_{k}") for k, shape in enumerate(shapes)])


CASES: dict[str, Case] = {
    "a residual branch that changes the width": lambda: row(L.Residual(
        L.Dense(8, name="wide"), L.ReLU(), L.Dense(5, name="narrow"), L.Dropout(0.1))),
    "a residual branch that changes the rank": lambda: steps(L.Residual(
        L.Flatten(), L.Dense(6))),
    "a shortcut of another width": lambda: row(L.Residual(
        L.Dense(8), shortcut=L.Dense(7, name="short"))),
    "a residual of nothing": lambda: L.Residual(),
    "a residual with an input": lambda: L.Residual(L.Input((3,))),
    "branches of two widths": lambda: row(L.Add(L.Dense(4, name="a"), L.Dense(5, name="b"))),
    "branches that part deep inside": lambda: row(L.Parallel([
        L.Dense(6, name="plain"),
        zt.Sequential([L.Dense(7, name="off"), L.ReLU()], name="deep")], merge="multiply")),
    "branches that cannot be joined": lambda: steps(L.Concatenate(
        L.Identity(), L.Conv1D(6, 3, name="shorter"))),
    "branches of two ranks joined": lambda: steps(L.Parallel([L.Identity(), L.Flatten()])),
    "branches joined along the batch": lambda: row(L.Concatenate(
        L.Identity(), L.Identity(), axis=0)),
    "three branches subtracted": lambda: L.Subtract(L.Identity(), L.Identity(), L.Identity()),
    "three parallel branches subtracted": lambda: L.Parallel([L.Identity()] * 1 + [
        L.Dense(2), L.Dense(3)], merge="subtract"),
    "parallel without branches": lambda: L.Parallel([]),
    "parallel without a list": lambda: L.Parallel(L.Dense(3)),
    "an unknown merge": lambda: L.Parallel([L.Dense(3)], merge="sum"),
    "a merge that is a dense layer": lambda: L.Parallel([L.Dense(3)], merge=L.Dense(3)),
    "a branch twice": lambda: (lambda d: L.Parallel([d, d]))(L.Dense(3)),
    "branches of one name": lambda: L.Add(L.Dense(3, name="a"), L.Dense(3, name="a")),
    "an axis for a branch": lambda: L.Concatenate(1),
    "an axis in words": lambda: L.Concatenate(axis="last"),
    "a merge of one tensor in a row": lambda: row(L.Add()),
    "a merge of a list of one": lambda: merged(L.Maximum(), (3,)),
    "a merge of three where two are meant": lambda: merged(L.Subtract(), (3,), (3,), (3,)),
    "tensors of two widths added": lambda: (lambda x: L.Add()(
        [L.ReLU()(L.Dense(4, name="a")(x)), L.Dense(5, name="b")(x)]))(L.Input((3,))),
    "tensors of two lengths joined": lambda: merged(L.Concatenate(), (4, 3), (5, 3)),
    "tensors of two dtypes": lambda: L.Minimum()([L.Input((3,)), L.Input((3,), dtype="int32")]),
    "merging with branches a list": lambda: L.Average(L.Dense(2), L.Dense(2))(
        [L.Input((3,)), L.Input((3,))]),
    "a dot along two lengths": lambda: merged(L.Dot(axes=1), (4,), (5,)),
    "a dot along the batch": lambda: merged(L.Dot(axes=0), (4,), (4,)),
    "a dot along three axes": lambda: L.Dot(axes=(1, 2, 3)),
    "a dot along an axis in words": lambda: L.Dot(axes="last"),
    "a list for a dense layer": lambda: merged(L.Dense(3), (4,), (4,)),
    "two arguments for a dense layer": lambda: L.Dense(3)(L.Input((4,)), L.Input((4,))),
    "a layer in two places": lambda: (lambda d: row(L.Residual(d), L.Residual(d)))(
        L.Dense(6, name="both")),
    "a list for a Sequential": lambda: merged(zt.Sequential([L.Dense(3)], name="part"), (4,), (4,)),
    "a part on other inputs": lambda: row(zt.Sequential([L.Input((5,)), L.Dense(2)], name="part")),
}
