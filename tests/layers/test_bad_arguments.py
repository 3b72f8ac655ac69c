"""Every argument of every layer with invalid values, and every layer on inputs of every rank and
dtype: it works, or one of our errors names the layer. Nothing else may come out."""

from __future__ import annotations

import copy
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.layers.layer_arguments import TRIED
from tests.layers.twin_cases import NESTED, public
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError, ZtorchError
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential

ODD: list[Any] = [
    None, True, -1, -7, 0, 1, 2.5, 1e9, math.nan, math.inf, 1 << 200, np.float32(3), "", "x", b"x", (),
    (0, 0), (-1, 2), (None, 1), (1, 2, 3, 4, 5), ("a", "b"), [], [[1]], {}, object(), L.Dense,
    lambda x: x, np.array([1, 2])]
SHAPES = [(), (1,), (3,), (1, 1), (2, 3), (1, 1, 1), (2, 3, 4), (2, 3, 4, 5)]


def test_every_layer_is_tried() -> None:
    assert {*TRIED, *NESTED} == {*public()}


def whole(name: str, shape: tuple[int, ...], dtype: str | None, how: dict[str, Any]) -> Sequential:
    if name == "Input":
        return Sequential([L.Input(**how), L.Flatten()])
    own = copy.deepcopy(how)  # layers among the arguments belong to one model
    return Sequential([L.Input(shape, dtype=dtype), getattr(L, name)(**own, name="tried")])


NOT_TRIED = {"self", "common", "wrong", "name", "input_shape", "branches"}
ARGUMENTS = [(name, argument) for name in TRIED
             for argument in inspect.signature(public()[name].__init__).parameters
             if argument not in NOT_TRIED]


@together(of=100)
@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_wrong_arguments_are_our_errors(name: str, argument: str) -> None:
    shape, how = TRIED[name]
    refused = 0
    for odd in ODD:
        try:
            model = whole(name, shape, "int32" if "Embedding" in name else None,
                          {**how, argument: odd})
            model.build()
            model.to_json()
        except ZtorchError as error:
            refused += 1
            assert re.search(rf"{name}|tried|{argument}|initializer|activation|seed", str(error))
    assert refused


FLAGS = [(make, p.name) for make in public().values()
         for p in inspect.signature(make.__init__).parameters.values() if p.annotation == "bool"]


@together()
@pytest.mark.parametrize(("make", "argument"), [*FLAGS, (L.Dense, "trainable")])
def test_flags_are_true_or_false(make: type[Layer], argument: str) -> None:
    needs: dict[Any, dict[str, Any]] = {L.Dot: {"axes": 1}, L.RNN: {"cell": L.GRUCell(3)}}
    how = needs[make] if make in needs else TRIED[make.__name__][1]
    for odd in ("False", 1, 0, None, [], np.array([True]), np.int64(1)):
        says = f"{make.__name__}({argument}=...) must be True or False, not {odd!r}"
        with pytest.raises(ConfigError, match=re.escape(says)):
            make(**{**how, argument: odd})
    for fine in (True, False):
        for number in (fine, np.bool_(fine)):
            assert getattr(make(**{**how, argument: number}), argument) is fine


@together()
@pytest.mark.parametrize("name", [n for n in TRIED if n != "Input"])
def test_inputs_of_every_rank_and_dtype(name: str) -> None:
    for shape in SHAPES:
        for dtype in (None, "int32", "uint8", "bool"):
            try:
                whole(name, shape, dtype, TRIED[name][1]).build()
            except ShapeError as error:
                assert "'tried" in str(error), error


@pytest.mark.parametrize("make", [L.Softmax, L.LayerNormalization, L.RMSNormalization,
                                  L.UnitNormalization], ids=lambda kind: kind.__name__)
def test_no_axis_at_all(make: type[Layer]) -> None:
    with pytest.raises(ConfigError, match=rf"{make.__name__}\(axis=...\) is empty; give an axis"):
        make(axis=())


def test_a_vector_has_no_axis_besides_the_batch() -> None:
    with pytest.raises(ShapeError, match=r"axis -1 needs inputs with an axis besides the batch, not of shape \(batch,\)"):
        L.Softmax()(np.arange(3.0))


def test_sizes_larger_than_any_machine() -> None:
    with pytest.raises(ConfigError, match=r"GRU\(units=...\) is 10+, more than any machine can hold"):
        L.GRU(10**30)
    with pytest.raises(ConfigError, match=r"Resizing\(width=...\).*sides of at most 65536"):
        L.Resizing(3, 10**9)
    with pytest.raises(ShapeError, match=r"layer 'max_pooling1d'.*takes numbers, not bool.*cast"):
        Sequential([L.Input((4, 3), dtype="bool"), L.MaxPooling1D()]).build()
