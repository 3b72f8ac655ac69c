"""Several batches in one call of a device, whose memory keeps the rows from the second epoch on: the same bits as
batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases import available
from tests.cases.pretended_cuda import close, install
from tests.programs import same_states
from ztorch import dispatch
from ztorch import layers as L
from ztorch.backends.device import Device
from ztorch.errors import NonFiniteLoss, OutOfMemory, Unsupported
from ztorch.runtime import kept_columns, remote_steps
from ztorch.runtime.kept_columns import KeptBatches
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


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches of each call whose rows a device gathered."""
    counts: list[int] = []
    fill = KeptBatches.fill

    def counted(self: KeptBatches, inputs: Any, columns: Any, rows: Any, count: int) -> None:
        counts.append(count)
        fill(self, inputs, columns, rows, count)

    monkeypatch.setattr(KeptBatches, "fill", counted)
    monkeypatch.setattr(kept_columns, "KINDS", ("gpu", "cpu", "virtual"))  # also devices that the processor plays
    return counts


def compiled(device: str) -> Any:
    model = zt.Sequential([L.Input((5,)), L.Dense(3, activation="tanh"), L.Dropout(0.2),
                           L.Dense(1, activation="sigmoid")], seed=1)
    return model.compile(device, batch_size=BATCH, optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])


def histories(program: Any, cases: list[dict[str, Any]]) -> list[Any]:
    return [program.fit(X, Y, epochs=2, verbose=0, **how).history for how in cases]


def test_the_same_bits_as_batch_by_batch(device: str, ran: list[int], gathered: list[int],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    cases = CASES[:1] if device == "cuda" else CASES  # which runs thread by thread
    together = compiled(device)
    got = histories(together, cases)
    assert ran[:4] == [4, 2, 4, 2] and gathered[:2] == [4, 2]
    monkeypatch.setattr(RemoteSteps, "of", classmethod(lambda *_: None))
    alone = compiled(device)
    assert got == histories(alone, cases)
    assert same_states(together, alone)


def test_each_batch_waits_for_the_one_before(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The launches of a batch begin with a barrier, since they read the weights that the one before writes."""
    available.device("vulkan")
    recorded: list[list[bool]] = []
    record = Device.record

    def noted(self: Device, module: Any, launches: Any) -> Any:
        recorded.append([launch.barrier for launch in launches])
        return record(self, module, launches)

    monkeypatch.setattr(Device, "record", noted)
    program = compiled("vulkan")
    recorded.clear()
    program.fit(X, Y, epochs=1, verbose=0)
    together = max(recorded, key=len)  # four batches
    each = len(together) // 4
    assert each > 1 and len(together) == 4 * each and all(together[::each])
    assert together[1:each] == together[each + 1:2 * each]


def test_numbers_of_rows_cross_and_memory_comes_back(ran: list[int], gathered: list[int],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 27 rows of a kilobyte, and of what two calls in turns gather."""
    here = available.device("vulkan")
    model = zt.Sequential([L.Input((256,)), L.Dense(1)])
    program = model.compile("vulkan", batch_size=BATCH, optimizer="sgd", loss="mse")
    x = random.normal(size=(ROWS, 256)).astype(np.float32)
    program.fit(x, Y, epochs=3, verbose=0)
    before, crossed = here.allocated, list[list[int]]()
    during, submit = [], Device.submit

    def noted(self: Device, *args: Any) -> Any:
        crossed.append([a.nbytes for a in args if isinstance(a, np.ndarray)])
        during.append(self.allocated)
        return submit(self, *args)

    monkeypatch.setattr(Device, "submit", noted)
    gathered.clear()
    program.fit(x, Y, epochs=3, verbose=0)
    assert gathered == [4, 2] * 2
    first, *_ = crossed
    assert first[0] > 4 * BATCH * 1024  # the first epoch sends rows
    last = crossed[-3:-1]  # the call before the last batch: which rows, then what all batches share
    assert all(there < 2048 for there, _ in last) and last[0][1] == 0
    assert max(during) >= before + x.nbytes + 4 * BATCH * 1024 and here.allocated == before


@pytest.mark.parametrize("lack", ["room", "memory", "kernels", "gain"])
def test_rows_that_a_device_cannot_keep(lack: str, ran: list[int], gathered: list[int],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    available.device("vulkan")
    program = compiled("vulkan")
    if lack == "room":
        monkeypatch.setattr(kept_columns, "MOST_OF_FREE", 0.0)
    elif lack == "gain":
        monkeypatch.setattr(kept_columns, "KINDS", ("gpu",))
    else:
        def refuse(*_: Any) -> Any:
            raise OutOfMemory("no room") if lack == "memory" else Unsupported("no kernels")
        monkeypatch.setattr(dispatch, "row_gather", refuse)
    assert len(histories(program, [{}])[0]["loss"]) == 2
    assert ran == [4, 2, 4, 2] and gathered == []


def messages(x: np.ndarray, compile: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors of training with several batches in a call, and batch by batch."""
    messages = []
    for of in (RemoteSteps.of, classmethod(lambda *_: None)):
        monkeypatch.setattr(RemoteSteps, "of", of)
        with pytest.raises(NonFiniteLoss) as caught:
            compile().fit(x, Y, epochs=2, verbose=0, shuffle=False)
        messages.append(str(caught.value).replace(" and the next", ""))
    return messages


def test_a_loss_that_is_not_finite(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.copy()
    x[9, 3] = np.nan
    available.device("vulkan")
    together, alone = messages(x, lambda: compiled("vulkan"), monkeypatch)
    assert together == alone and "is not finite: clean the data" in together


def test_a_loss_that_overflows_where_the_device_keeps_the_rows(
        ran: list[int], gathered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows ten thousandfold from step to step, in the second epoch in the batch of the largest
    row."""
    available.device("vulkan")
    x = np.ones((ROWS, 5), np.float32)
    x[9, 2] = 41.0
    together, alone = messages(x, lambda: zt.Sequential(
        [L.Input((5,)), L.Dense(1, use_bias=False)], seed=1).compile(
        "vulkan", batch_size=BATCH, optimizer=zt.optimizers.SGD(10.0), loss="mse"), monkeypatch)
    assert together == alone and "in epoch 2, step 3; try: x reaches 41" in together and gathered == [4, 2]


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
def test_large_steps_run_one_per_call(limit: str, ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_steps, limit, 1)
    available.device("vulkan")
    compiled("vulkan").fit(X, Y, verbose=0)
    assert ran == []
