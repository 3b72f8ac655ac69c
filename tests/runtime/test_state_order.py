"""Weights that are in memory only as products read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device
from ztorch import layers as L
from ztorch import ops
from ztorch.compile.pipeline import build
from ztorch.dtypes import bf16, f32
from ztorch.files.kinds import BadValue
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.runtime.remote import Remote
from ztorch.runtime.spec import PREPARE, StateSpec
from ztorch.runtime.state_order import StateOrder

WIDTHS = (64, 700, 37, 301)  # no whole number of tiles


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((WIDTHS[0],)),
                          *[L.Dense(n, activation="tanh") for n in WIDTHS[1:]]], seed=3)


def expected(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    y = x.astype(np.float64)
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        y = np.tanh(y @ kernel.astype(np.float64) + bias)
    return y


@pytest.fixture(scope="module")
def program() -> zt.Program:
    return model().compile("cpu:avx2", batch_size=64)


def test_a_packed_weight_is_stored_once(program: zt.Program) -> None:
    spec = program.executable.spec
    orders = [s.order for s in spec.states.values() if s.order is not None]
    assert len(orders) == 3 and PREPARE not in spec.functions
    assert not any(s.derived for s in spec.states.values())
    assert spec.params_bytes < 1.1 * sum(s.nbytes for s in spec.states.values())


def test_whoever_reads_or_sets_it_sees_the_models_array(program: zt.Program,
                                                        tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(64, WIDTHS[0])).astype(np.float32)
    drawn = model().get_weights()
    for ours, first in zip(program.get_weights(), drawn, strict=True):
        np.testing.assert_array_equal(ours, first)
    np.testing.assert_allclose(program.predict(x), expected(drawn, x), atol=1e-5)
    weights = [random.normal(size=w.shape).astype(np.float32) / 8 for w in drawn]
    program.set_weights(weights)
    program.save(tmp_path / "m.zt")
    program.save_weights(tmp_path / "w.safetensors")
    other = model()
    other.load_weights(tmp_path / "w.safetensors")
    for made in (program, zt.load(tmp_path / "m.zt"), zt.load_model(tmp_path / "m.zt"), other):
        for got, w in zip(made.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(got, w)
    np.testing.assert_allclose(zt.load(tmp_path / "m.zt").predict(x), expected(weights, x),
                               atol=1e-5)
    name = program.weight_names[0]
    program.weights[name] = zt.tensor(weights[0] + 1)
    np.testing.assert_array_equal(program.weights[name].numpy(), weights[0] + 1)
    np.testing.assert_allclose(program.predict(x),
                               expected([weights[0] + 1, *weights[1:]], x), atol=1e-5)


def test_a_weight_that_is_also_read_unpacked_is_stored_twice() -> None:
    x = L.Input((WIDTHS[0],))
    dense = L.Dense(300)
    y = dense(x)
    tied = zt.Model(x, [y, zt.ops.sum(y, axis=-1)])
    both = tied.compile("cpu:avx2", batch_size=64)
    assert dense.kernel.shape == (WIDTHS[0], 300)
    rows = np.ones((64, WIDTHS[0]), np.float32)
    kernel, bias = both.get_weights()
    np.testing.assert_allclose(both.predict(rows)[1], (rows @ kernel + bias).sum(-1), rtol=1e-3,
                               atol=1e-4)


def test_devices_keep_the_order() -> None:
    """In every case the host packs the values that it writes, and reads them back."""
    made = zt.Sequential([L.Input((4,)), L.Dense(6, name="d")]).compile(device("dummy").id,
                                                                        batch_size=2).executable
    assert isinstance(made, Remote)
    state = made.states["d/kernel"].replace(order=StateOrder((3, 4, 2), (
        ("reshape", (4, 3, 2)), ("transpose", (1, 0, 2)))))
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    made._write_state(state, w)
    np.testing.assert_array_equal(made._read_state(state), w)
    here = made.opened_device
    buffer, back = here.alloc(w.nbytes), np.zeros_like(w)
    made._copy_state(state, buffer, into_state=False)
    here.read(buffer, back.reshape(-1))
    np.testing.assert_array_equal(back, w)
    here.write(buffer, w + 1)
    made._copy_state(state, buffer, into_state=True)
    np.testing.assert_array_equal(made._read_state(state), w + 1)
    made._write_state(state, w)
    np.testing.assert_array_equal(made._read_state(state.replace(order=None)).reshape(-1),
                                  w.reshape(4, 3, 2).transpose(1, 0, 2).reshape(-1))


def round_trip(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.integers(1, 5, random.integers(1, 4)))
    dtype = (f32, bf16)[seed % 2]
    array = random.integers(0, 60000, shape).astype(dtype.numpy)
    now: Any = array
    steps: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(4):
        kind = random.choice(["reshape", "transpose", "pad"])
        if kind == "transpose":
            numbers = tuple(int(k) for k in random.permutation(now.ndim))
            now = now.transpose(numbers)
        elif kind == "reshape":
            numbers = (*now.shape[::-1], 1)[:now.ndim + int(now.ndim < 4)]
            now = now.reshape(numbers)
        else:
            numbers = tuple(int(n) for n in random.integers(0, 3, 2 * now.ndim))
            now = np.pad(now, [*zip(numbers[::2], numbers[1::2], strict=True)])
        steps.append((str(kind), numbers))
    state = StateSpec("w", shape, dtype, 64, "weight", True, StateOrder(now.shape, tuple(steps)))
    state.check()
    again = StateSpec.from_json(state.to_json())
    block = np.zeros(64 + state.memory.nbytes, np.uint8)
    again.write(block, array)
    np.testing.assert_array_equal(block[64:], np.ascontiguousarray(now).view(np.uint8).reshape(-1))
    np.testing.assert_array_equal(again.read(block), array)


def test_read_is_the_inverse_of_arrange() -> None:
    for seed in range(30):
        round_trip(seed)


@pytest.mark.parametrize("shape, steps, match", [
    ((5, 2), [("reshape", (5, 2))], r"numbers for a reshape of \[3, 4\]"),
    ((4, 3), [("transpose", (1, 1))], r"numbers for a transpose of \[3, 4\]"),
    ((4, 3), [("transpose", (1, 0, 2))], "numbers for a transpose"),
    ((4, 4), [("pad", (0, 1))], "numbers for a pad"),
    ((3, 4), [("transpose", (1, 0))], r"order.shape is \[3, 4\]; it must be \[4, 3\], to which"),
    ((3, 4 + (1 << 39)), [("pad", (0, 0, 0, 1 << 39))], "at most"),
])
def test_an_order_that_does_not_fit_its_state_is_refused(shape: tuple[int, ...], steps: Any,
                                                         match: str) -> None:
    order = StateOrder(shape, tuple(steps))
    data = StateSpec("w", (3, 4), f32, 0, "weight", True).to_json()
    with pytest.raises(BadValue, match=match):
        StateSpec.from_json({**data, "order": order.to_json()})


def test_a_call_without_locks_reads_weights_that_were_set_before() -> None:
    """Also values that depend on weights alone, which are computed before the first run."""
    x = leaf("input", "x", (5, 3), f32)
    w = leaf("state", "w", (3, 4), f32, np.zeros((3, 4), np.float32), trainable=True, kind="weight")
    executable: Any = build({"predict": Graph({"y": ops.matmul(x, ops.exp(w))})}, "cpu", "net")
    assert PREPARE in executable.functions
    random = np.random.default_rng(0)
    weights, rows = random.normal(size=(3, 4)).astype(np.float32), random.normal(size=(5, 3)).astype(np.float32)
    executable.set_state("w", weights)
    y = np.empty((5, 4), np.float32)
    executable.bind_memory("predict").unlocked()([rows.ctypes.data], [y.ctypes.data])
    np.testing.assert_allclose(y, rows.astype(np.float64) @ np.exp(weights.astype(np.float64)), rtol=0, atol=1e-5)
