"""predict(out=...) and predict_on_batch(out=...): results in arrays of the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported

random = np.random.default_rng(4)


def two_outputs(as_dict: bool) -> Any:
    x = L.Input((6,))
    a, b = L.Dense(3, name="a")(x), L.Dense(2, name="b")(x)
    return zt.Model(x, {"a": a, "b": b} if as_dict else [a, b]).compile("cpu", batch_size=4)


@pytest.mark.parametrize("device", ["cpu", "opencl"])
@pytest.mark.parametrize("rows", [4, 3])
@pytest.mark.parametrize("width", [5, 3000])  # copied, and written by the code itself
def test_results_are_those_of_predict(device: str, rows: int, width: int) -> None:
    if not zt.backends.get(device).is_available:
        pytest.skip(f"{device} is not available")
    program = zt.Sequential([L.Input((width,)), L.Activation("tanh")]).compile(device, batch_size=4)
    x = random.normal(size=(rows, width)).astype("float32")
    want = program.predict(x)
    out = np.full((rows, width), np.nan, "float32")
    assert program.predict_on_batch(x, out=out) is out
    np.testing.assert_array_equal(out, want)
    program.predict_on_batch(-x)  # a later call leaves it alone
    np.testing.assert_array_equal(out, want)
    wide = np.zeros((rows, 2 * width), "float32")
    program.predict_on_batch(x, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], want)
    assert not wide[:, 1::2].any()


def scaled(width: int, factor: float = 3.0) -> Any:
    return zt.Sequential([L.Input((width,)), L.Lambda(lambda x: x * factor)])


@pytest.mark.parametrize("of_model", [False, True], ids=["program", "model"])
@pytest.mark.parametrize("rows", [3, 4, 11])
@pytest.mark.parametrize("width", [5, 5000])
def test_predict_writes_all_rows(width: int, rows: int, of_model: bool) -> None:
    model = scaled(width)
    program = model.compile("cpu", batch_size=4)
    predict = model.predict if of_model else program.predict
    x = random.normal(size=(rows, width)).astype("float32")
    out = np.full((rows, width), np.nan, "float32")
    assert predict(x, out=out) is out
    np.testing.assert_array_equal(out, x * np.float32(3))
    turned = np.full((width, rows), np.nan, "float32").T  # not in C order
    assert predict(zt.Tensor(x), out=turned, verbose=0) is turned
    np.testing.assert_array_equal(turned, out)
    few = min(rows, 8)
    head = np.full((few, width), np.nan, "float32")
    predict(x, steps=2, out=head)
    np.testing.assert_array_equal(head, out[:few])
    want, results = out.copy(), []
    predict(-x, callbacks=zt.callbacks.LambdaCallback(
        on_predict_batch_end=lambda batch, logs: results.append(logs["outputs"])), out=out)
    np.testing.assert_array_equal(out, -want)
    np.testing.assert_array_equal(np.concatenate(results), -want)


@pytest.mark.parametrize("shift", [-3, 0, 3])
def test_all_rows_may_replace_those_that_are_read(shift: int) -> None:
    """Batches of four rows: the second one reads what the first one would have overwritten."""
    memory = random.normal(size=(20, 5000)).astype("float32")
    x, out = memory[4:15], memory[4 + shift:15 + shift]
    want = x * np.float32(3)
    scaled(5000).compile("cpu", batch_size=4).predict(x, out=out)
    np.testing.assert_array_equal(out, want)


def test_several_outputs_of_many_rows() -> None:
    x = random.normal(size=(9, 6)).astype("float32")
    for as_dict in (True, False):
        program = two_outputs(as_dict)
        want = program.predict(x)
        arrays = [np.empty((9, 3), "float32"), np.empty((9, 2), "float32")]
        out = dict(zip("ab", arrays, strict=True)) if as_dict else arrays
        assert program.predict(x, out=out) is out
        for got, k in zip(arrays, "ab" if as_dict else (0, 1), strict=True):
            np.testing.assert_array_equal(got, want[k])


def test_predict_refuses_arrays_that_do_not_fit() -> None:
    model = scaled(6)
    program = model.compile("cpu", batch_size=4)
    x = np.zeros((9, 6), "float32")
    for predict in (model.predict, program.predict):
        with pytest.raises(ConfigError, match=r"out=... is an array of float64 \(9, 6\); the result is of float32 \(9, 6\)"):
            predict(x, out=np.zeros((9, 6)))
        with pytest.raises(ConfigError, match=r"the result is of float32 \(8, 6\)"):
            predict(x, out=np.zeros((9, 6), "float32"), steps=2)
        with pytest.raises(Unsupported, match="an iterator, whose number of rows is not known"):
            predict(iter([x[:4]]), out=np.zeros((4, 6), "float32"))
    with pytest.raises(ConfigError, match=r"the result is of float32 \(4, 6\)"):
        model.predict_on_batch(x[:4], out=np.zeros((3, 6), "float32"))


def test_the_result_may_replace_the_input() -> None:
    """Rows are read after others were written: here in reverse order."""
    program = zt.Sequential([L.Input((3000,)), L.Lambda(lambda x: zt.ops.flip(x, axis=1))]).compile("cpu", batch_size=8)
    x = random.normal(size=(8, 3000)).astype("float32")
    want = x[:, ::-1].copy()
    program.predict_on_batch(x, out=x)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("as_dict", [True, False])
def test_several_outputs(as_dict: bool) -> None:
    program = two_outputs(as_dict)
    x = random.normal(size=(4, 6)).astype("float32")
    arrays = [np.empty((4, 3), "float32"), np.empty((4, 2), "float32")]
    program.predict_on_batch(x, out={"b": arrays[1], "a": arrays[0]} if as_dict else arrays)
    want = program.predict(x)
    for got, k in zip(arrays, "ab" if as_dict else (0, 1), strict=True):
        np.testing.assert_array_equal(got, want[k])


def test_arrays_that_do_not_fit() -> None:
    one = zt.Sequential([L.Input((6,)), L.Dense(2)]).compile("cpu", batch_size=4)
    x = np.zeros((4, 6), "float32")
    closed = np.zeros((4, 2), "float32")
    closed.flags.writeable = False
    for out, message in ((np.zeros((3, 2), "float32"), r"float32 \(3, 2\); the result is of float32 \(4, 2\)"),
                         (np.zeros((4, 2)), r"is an array of float64 \(4, 2\)"), ([0], "must be a NumPy array"),
                         (closed, "cannot be written")):
        with pytest.raises(ConfigError, match=message):
            one.predict_on_batch(x, out=out)
    memory = np.zeros(20, "float32")
    shared = [memory[:12].reshape(4, 3), memory[8:16].reshape(4, 2)]
    for as_dict, out, message in ((False, shared, "names one piece of memory twice"),
                                  (False, shared[:1], "must be a list of 2 arrays"),
                                  (True, shared, "must be a dict with the arrays a, b")):
        with pytest.raises(ConfigError, match=message):
            two_outputs(as_dict).predict_on_batch(x, out=out)
    varying = zt.Sequential([L.Input((None, 3)), L.Activation("relu")]).compile(
        "cpu", batch_size=2, sizes=(4, 8))
    with pytest.raises(Unsupported, match="sizes of this program's results vary"):
        varying.predict_on_batch(np.zeros((2, 3, 3), "float32"), out=np.zeros((2, 3, 3), "float32"))
