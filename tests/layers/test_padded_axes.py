"""Where padding goes in a graph: kept, moved with its axis, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import Unsupported
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Value
from ztorch.layers.real_positions import Padding
from ztorch.layers.windows import Window

BATCH, TIME, WIDTH = 3, 4, 6


def padded(build: Callable[[Value], Value]) -> list[int]:
    """The padded axes of a function of a tensor (batch, time, width)."""
    padding = Padding({"time": TIME})
    x = leaf("input", "x", (BATCH, TIME, WIDTH), "float32")
    padding.begin(x, {1: "time"})
    return sorted(padding.of(build(x)))


def ones(*shape: int) -> Value:
    return constant(np.ones(shape), "float32")


KEPT: list[tuple[Callable[[Value], Any], list[int]]] = [
    (lambda x: x, [1]),
    (lambda x: ops.tanh(x) * 2.0 + ops.cumsum(x, axis=2), [1]),
    (lambda x: ops.matmul(x, ones(WIDTH, 5)), [1]),
    (lambda x: ops.matmul(ones(BATCH, 5, WIDTH), ops.transpose(x, (0, 2, 1))), [2]),
    (lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))), [1, 2]),
    (lambda x: ops.transpose(ops.reshape(x, (BATCH, TIME, 2, 3)), (0, 2, 1, 3)), [2]),
    (lambda x: ops.reshape(ops.tanh(ops.reshape(x, (BATCH * TIME, WIDTH))), (BATCH, TIME, WIDTH)),
     [1]),
    (lambda x: ops.expand_dims(x, 1), [2]),
    (lambda x: ops.sum(x, axis=2), [1]),
    (lambda x: ops.softmax(x), [1]),
    (lambda x: ops.concat(x, x, axis=2), [1]),
    (lambda x: x[:, :, 1:3], [1]),
    (lambda x: ops.pad(x, (0, 0, 1), (0, 0, 2)), [1]),
    (lambda x: ops.take(ones(9, 5), ops.cast(x[:, :, 0], "int32"), 0), [1]),
    (lambda x: ops.broadcast_to(ops.reshape(x, (BATCH, 1, TIME, WIDTH)), (BATCH, 2, TIME, WIDTH)),
     [2]),
    (lambda x: ops.where(x > 0.0, x, ones(BATCH, 1, 1)), [1]),
    (lambda x: ops.ones_like(ones(2)), []),
]


def test_padding_moves_with_its_axis() -> None:
    assert [padded(build) for build, _ in KEPT] == [axes for _, axes in KEPT]


MIXED: list[Callable[[Value], Value]] = [
    lambda x: ops.sum(x, axis=1),
    lambda x: ops.max(x, axis=(1, 2)),
    lambda x: ops.sum(x, axis=0),
    lambda x: ops.transpose(x, (1, 0, 2)),
    lambda x: ops.reshape(x, (BATCH * TIME, WIDTH)),
    lambda x: ops.matmul(ones(5, BATCH), x[:, :, 0]),
    lambda x: x[1:],
    lambda x: ops.concat(x, x, axis=0),
    lambda x: ops.broadcast_to(ops.expand_dims(x, 0), (2, BATCH, TIME, WIDTH)),
    lambda x: ops.softmax(x, axis=1),
    lambda x: ops.cumsum(x, axis=1),
    lambda x: ops.matmul(ops.transpose(x, (0, 2, 1)), ones(BATCH, TIME, 5)),
    lambda x: ops.matmul(ones(BATCH, 5, TIME), x),
    lambda x: ops.reshape(x, (BATCH, TIME * WIDTH)),
    lambda x: ops.reshape(x, (BATCH, 2, TIME * WIDTH // 2)),
    lambda x: ops.reshape(x, (BATCH, TIME * 2, WIDTH // 2)),
    lambda x: ops.sum(ops.reshape(x, (BATCH * TIME, WIDTH)), axis=0),
    lambda x: x[:, 1:],
    lambda x: x[:, -1],
    lambda x: ops.flip(x, 1),
    lambda x: ops.pad(x, (0, 1, 0), (0, 0, 0)),
    lambda x: ops.concat(x, x, axis=1),
    lambda x: ops.take(x, constant(np.zeros(2, np.int32)), axis=1),
    lambda x: x + ops.transpose(ops.matmul(x, ops.transpose(x, (0, 2, 1)))[:, :, 1:2] * ones(TIME),
                                (0, 2, 1))[:, :, 1:2],
]


def test_what_mixes_steps_is_refused() -> None:
    for build in MIXED:
        with pytest.raises(Unsupported, match="axis 'time', whose size varies"):
            padded(build)


def test_conflicting_axes_are_refused() -> None:
    padding = Padding({"time": TIME, "other": TIME})
    x, y = (leaf("input", name, (BATCH, TIME, WIDTH), "float32") for name in "xy")
    padding.begin(x, {1: "time"})
    padding.begin(y, {1: "other"})
    with pytest.raises(Unsupported, match="combines axes 'time' and 'other', whose sizes"):
        padding.of(x + y)
    assert sorted(padding.of(ops.matmul(x, ops.transpose(y, (0, 2, 1))))) == [1, 2]


def test_nothing_is_padded_without_sizes() -> None:
    padding = Padding()
    x = leaf("input", "x", (BATCH, TIME), "float32")
    padding.begin(x, {1: "time"})
    assert padding.of(ops.sum(x)) == {} and padding.along(x, 1) is None and padding.real(x) is None


def test_gradient_rules_keep_padding_apart() -> None:
    """A cumulative sum along features trains as without padding; a rule that mixes steps is refused."""
    def trained(function: Any, length: Any, sizes: Any) -> list[np.ndarray]:
        x = L.Input((length, 3))
        y = L.GlobalAveragePooling1D()(L.Lambda(function)(L.Dense(4)(x)))
        program = zt.Model(x, y, seed=1).compile("cpu", batch_size=2, sizes=sizes, loss="mse", optimizer="sgd")
        rows = np.linspace(-1.0, 1.0, 30, dtype=np.float32).reshape(2, 5, 3)
        program.train_on_batch(rows, np.ones((2, 4), np.float32))
        return list(program.get_weights())

    @zt.custom_gradient
    def mixing(x: Any) -> Any:
        return x * 2.0, lambda up: up * 0.0 + ops.mean(up, axis=1, keepdims=True)

    def sums(x: Any) -> Any:
        return ops.cumsum(x, -1)

    for ours, exact in zip(trained(sums, "time", {"time": (8,)}), trained(sums, 5, None), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-7)
    with pytest.raises(Unsupported, match="custom_gradient combines positions along axis 'time'"):
        trained(mixing, "time", {"time": (8,)})


@pytest.mark.cheap
@pytest.mark.parametrize("how", ["valid", "same", "causal", (1, 2)], ids=str)
def test_windows_are_counted_alike_for_every_length(how: Any) -> None:
    """The constants of `(n + more) // stride` count the windows that lie in the padded axis."""
    for size, stride in ((1, 1), (3, 1), (3, 2), (2, 3), (5, 4)):
        window = Window(size, stride, how)
        for n in range(size, 12):
            before, after = window.pair(n)
            starts = [k for k in range(0, n + before + after, stride) if k + size <= n + before + after]
            assert (n + window.more()) // stride == len(starts), (size, stride, n)
