"""ZTORCH_INTERPRET=1: programs give the same results, and wrong kernels are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.compile.interpreted import Interpreted
from ztorch.errors import InterpretError, Unsupported, VerifyError
from ztorch.host.settings import using
from ztorch.ir.kernel import constant

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
Y = np.arange(4) % 2


@pytest.fixture
def interpreting() -> Iterator[None]:
    with using(interpret=True):
        yield


def trained() -> tuple[list[float], np.ndarray, zt.Program]:
    model = zt.Sequential([L.Input((3,)), L.Dense(4, activation="tanh"), L.Dropout(0.2),
                           L.Dense(2, activation="softmax")], seed=1)
    program = model.compile("cpu:scalar", batch_size=2, optimizer="adam",
                            loss="sparse_categorical_crossentropy")
    losses = program.fit(X, Y, epochs=1, verbose=0).history["loss"]
    return losses, program.predict(X), program


def test_a_model_trains_to_the_same_numbers(interpreting: None) -> None:
    losses, predicted, program = trained()
    assert type(program.executable) is Interpreted
    with using(interpret=False):
        want_losses, want, native = trained()
    assert type(native.executable) is not Interpreted
    np.testing.assert_allclose(losses, want_losses, rtol=1e-6)
    np.testing.assert_allclose(predicted, want, rtol=1e-6)


def test_tensors_and_kernels(interpreting: None) -> None:
    @zt.kernel
    def decay(x):
        out = np.empty_like(x)
        s = 0.0
        for t in range(x.shape[0]):
            s = s * 0.5 + x[t]
            out[t] = s
        return out

    x = X[:, 0]
    np.testing.assert_allclose(decay(zt.tensor(x)).numpy(), decay.debug(x), rtol=1e-6)


def softmax() -> zt.Program:
    model = zt.Sequential([L.Input((8,)), L.Dense(4, name="first"), L.Dense(8, name="second")])
    return model.compile("cpu:scalar", batch_size=2)


def test_uninitialized_reads_are_detected(interpreting: None) -> None:
    program = softmax()
    plans = dict(program.executable._plans)
    _, *rest = plans["predict"].steps
    plans["predict"] = replace(plans["predict"], steps=rest)
    program.executable._plans = plans
    with pytest.raises(InterpretError, match="read but was never written"):
        program.predict(np.ones((2, 8)))


def test_an_index_out_of_bounds_is_detected(interpreting: None) -> None:
    program = softmax()
    plan = program.executable._plans["predict"]
    step = plan.steps[-1]
    at = next(k for k, i in enumerate(step.kernel.body) if i.opcode == "store")
    store = step.kernel.body[at]
    index = next(a for a in store.args if a.dtype.is_int)
    wrong = replace(store, args=tuple(constant(10**6, index.dtype) if a is index else a
                                      for a in store.args))
    body = [*step.kernel.body[:at], wrong, *step.kernel.body[at + 1:]]
    steps = [*plan.steps[:-1], replace(step, kernel=replace(step.kernel, body=tuple(body)))]
    program.executable._plans = {"predict": replace(plan, steps=steps)}
    with pytest.raises(VerifyError, match=re.escape("[1000000] is outside its 16 elements")):
        program.predict(np.ones((2, 8)))


def test_devices_are_not_interpreted(interpreting: None) -> None:
    with pytest.raises(Unsupported, match="runs CPU programs"):
        zt.Sequential([L.Input((8,)), L.Dense(4)]).compile("dummy")
    assert zt.best_device().startswith("cpu")
