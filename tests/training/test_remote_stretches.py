"""Several batches in one call of a device: the same bits as batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available
from tests.cases.pretended_cuda import close, install
from tests.programs import same_states
from ztorch import layers as L
from ztorch.errors import NonFiniteLoss
from ztorch.runtime import remote_steps
from ztorch.runtime.remote_steps import RemoteSteps

random = np.random.default_rng(4)
ROWS, BATCH = 27, 4  # six full batches, and one of three
X, Y = random.normal(size=(ROWS, 5)).astype(np.float32), random.integers(0, 2, (ROWS, 1)).astype(np.float32)
CASES: list[dict[str, Any]] = [{}, {"shuffle": False}, {"sample_weight": random.random(ROWS).astype(np.float32)},
                               {"validation_split": 0.4}]


@pytest.fixture(params=["cuda", "vulkan", "opencl"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "cuda":
        fake = install(monkeypatch)
        yield "cuda"
        close(fake)
    else:
        available.device(request.param)
        yield request.param


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each call has begun."""
    counts: list[int] = []
    start = RemoteSteps.start

    def counted(self: RemoteSteps, order: Any, first: int, count: int) -> None:
        counts.append(count)
        start(self, order, first, count)

    monkeypatch.setattr(RemoteSteps, "start", counted)
    monkeypatch.setattr(remote_steps, "MOST_STEPS", 4)
    return counts


def compiled(device: str) -> Any:
    model = zt.Sequential([L.Input((5,)), L.Dense(3, activation="tanh"), L.Dropout(0.2),
                           L.Dense(1, activation="sigmoid")], seed=1)
    return model.compile(device, batch_size=BATCH, optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])


def histories(program: Any, cases: list[dict[str, Any]]) -> list[Any]:
    return [program.fit(X, Y, epochs=2, verbose=0, **how).history for how in cases]


def test_the_same_bits_as_batch_by_batch(device: str, ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    cases = CASES[:1] if device == "cuda" else CASES  # which runs thread by thread
    together = compiled(device)
    got = histories(together, cases)
    assert ran[:4] == [4, 2, 4, 2]
    monkeypatch.setattr(RemoteSteps, "of", classmethod(lambda *_: None))
    alone = compiled(device)
    assert got == histories(alone, cases)
    assert same_states(together, alone)


def test_a_loss_that_is_not_finite(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.copy()
    x[9, 3] = np.nan
    available.device("vulkan")
    messages = []
    for of in (RemoteSteps.of, classmethod(lambda *_: None)):
        monkeypatch.setattr(RemoteSteps, "of", of)
        with pytest.raises(NonFiniteLoss) as caught:
            compiled("vulkan").fit(x, Y, verbose=0, shuffle=False)
        messages.append(str(caught.value).replace(" and the next", ""))
    assert messages[0] == messages[1] and "is not finite: clean the data" in messages[0]


class OnlySums(zt.Model):
    """Its step returns no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = L.Dense(1)
        self.total, self.rows = zt.metrics.Mean(name="total"), zt.metrics.Mean(name="rows")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.layer(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.total.update_state(zt.ops.sum(x))
        self.rows.update_state(zt.ops.sum(zt.ops.ones_like(x)))
        weights = self.trainable_weights
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(self.gradients(loss, weights), weights)
        return {"total": self.total.result(), "rows": self.rows.result()}


def test_a_sum_that_is_not_finite_ends_no_epoch(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.copy()
    x[2, 3] = np.nan  # in the first of four batches of a call
    available.device("vulkan")
    scores = []
    for of in (RemoteSteps.of, classmethod(lambda *_: None)):
        monkeypatch.setattr(RemoteSteps, "of", of)
        model = OnlySums()
        model.compile("vulkan", batch_size=BATCH, optimizer="sgd", loss="mse")
        scores.append(model.fit(x, Y, verbose=0, shuffle=False).history)
    np.testing.assert_equal(*scores)
    assert ran == [4, 2] and np.isnan(scores[0]["total"])


@pytest.mark.parametrize("limit", ["MOST_LAUNCHES", "MOST_BYTES"])
def test_large_steps_are_calls_of_their_own(limit: str, ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_steps, limit, 1)
    available.device("vulkan")
    compiled("vulkan").fit(X, Y, verbose=0)
    assert ran == []
