"""Programs that predict on tensors: the same results as on arrays, on each device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import PLAYED
from tests.cases.available import device as opened
from ztorch import layers as L
from ztorch.errors import DataError, Unsupported

random = np.random.default_rng(0)


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(5, activation="tanh"), L.Dense(3)])


@pytest.mark.parametrize("device", ["cpu", *(f"{b}:0" for b in PLAYED)])
def test_predictions_are_those_for_arrays(device: str) -> None:
    if device != "cpu":
        opened(device.partition(":")[0])  # skips where there is none
    program = model().compile(device, batch_size=4)
    x = random.normal(size=(10, 4)).astype(np.float32)
    for rows in (4, 10, 1):
        with zt.device(device):
            y = program.predict(zt.tensor(x[:rows]))
        assert isinstance(y, zt.Tensor) and y.device == ("cpu" if device == "cpu" else device)
        np.testing.assert_array_equal(y.numpy(), program.predict(x[:rows]))


def test_several_inputs_and_outputs_by_name() -> None:
    a, b = L.Input((3,), name="a"), L.Input((2,), name="b")
    total = L.Concatenate()([a, b])
    both = zt.Model([a, b], {"sum": L.Dense(1, name="s")(total), "more": L.Dense(2)(total)})
    program = both.compile("cpu", batch_size=4)
    x = {"a": random.normal(size=(5, 3)).astype("float32"), "b": np.ones((5, 2), np.float32)}
    want = program.predict(x)
    for tensors in ({k: zt.tensor(v) for k, v in x.items()}, [zt.tensor(v) for v in x.values()]):
        got: Any = program.predict(tensors)
        assert got.keys() == want.keys()
        for name, y in got.items():
            np.testing.assert_array_equal(y.numpy(), want[name])


def test_wrong_tensors_are_errors() -> None:
    opened("opencl")
    program = zt.Sequential([L.Input((3,), dtype="int32"), L.Embedding(7, 2)]).compile(
        "opencl:0", batch_size=2)
    with zt.device("opencl:0"):
        with pytest.raises(DataError, match=r"shape \(2, 4\)"):
            program.predict(zt.zeros((2, 4), dtype="int32"))
        with pytest.raises(DataError, match="from 0 to 6"):
            program.predict(zt.full((2, 3), 7, dtype="int32"))


@pytest.mark.parametrize("number", [1.5, 2.0 ** 31, float("nan")])
def test_integer_inputs_refuse_other_numbers_on_a_device(number: float) -> None:
    opened("opencl")
    x = L.Input((3,), dtype="int32")
    doubled = zt.Model(x, x * 2).compile("opencl:0", batch_size=2)
    table = zt.Sequential([L.Input((3,), dtype="int32"), L.Embedding(7, 2)]).compile(
        "opencl:0", batch_size=2)
    with zt.device("opencl:0"):
        np.testing.assert_array_equal(doubled.predict(zt.full((2, 3), 5.0)), np.full((2, 3), 10))
        np.testing.assert_array_equal(doubled.predict(zt.full((2, 3), 5, dtype="uint8")),
                                      np.full((2, 3), 10))
        for program in (doubled, table):
            with pytest.raises(DataError, match="takes integers from"):
                program.predict(zt.full((2, 3), number))


def test_parts_without_an_input_are_errors_on_a_device() -> None:
    opened("opencl")
    a, b = L.Input((3,), name="a"), L.Input((2,), name="b")
    program = zt.Model([a, b], L.Dense(1)(L.Concatenate()([a, b]))).compile(
        "opencl:0", batch_size=2, loss="mse", optimizer="sgd")
    with zt.device("opencl:0"):
        parts = [zt.ones((2, n)) for n in (3, 2, 5)]
        with pytest.raises(DataError, match="x has 3 parts"):
            program.predict(parts)
        with pytest.raises(DataError, match="x has 3 parts"):
            program.fit(parts, zt.ones((2, 1)), verbose=0)
        with pytest.raises(DataError, match="unknown input 'c'"):
            program.predict(dict(zip("abc", parts, strict=True)))


@pytest.mark.parametrize("device", ["cpu", "opencl:0"])
def test_open_axes_take_tensors_of_one_size(device: str) -> None:
    if device != "cpu":
        opened("opencl")
    words = zt.Sequential([L.Input(("time", 4)), L.Conv1D(3, 3, padding="same"),
                           L.LSTM(3, return_sequences=True)], seed=1)
    program = words.compile(device, batch_size=(2, 4), sizes=(4, 8))
    x = random.normal(size=(7, 6, 4)).astype(np.float32)
    for size in (6, 1, 4):
        for place in dict.fromkeys(("cpu", device)):
            y = program.predict(zt.tensor(x[:, :size], device=place))
            assert y.device == device
            np.testing.assert_array_equal(y.numpy(), program.predict(x[:, :size]))
    with pytest.raises(DataError, match="axis 'time' of x has size 9, and this program"):
        program.predict(zt.zeros((1, 9, 4)))
    with pytest.raises(Unsupported, match="rows of different sizes are not tensors"):
        program.predict([zt.zeros((2, 4)), zt.zeros((3, 4))])
