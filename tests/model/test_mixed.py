"""Mixed precision: products of 16-bit numbers, sums and all else in float32."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.c_programs import needs_gcc
from tests.model.mixed_programs import MIXED, RNG, X, each, mlp
from ztorch import layers as L
from ztorch.compile.c_library import export_c
from ztorch.dtypes import f16, f32
from ztorch.errors import ConfigError
from ztorch.graph.narrow import rounded
from ztorch.model import loss_scale
from ztorch.program.program import Program

Y = RNG.integers(0, 3, 24).astype(np.int32)


def compiled(policy: str, optimizer: Any = None, where: str = "cpu", **how: Any) -> Program:
    loss = zt.losses.SparseCategoricalCrossentropy(from_logits=True)
    return mlp().compile(where, batch_size=24, loss=loss, optimizer=optimizer, dtype=policy, **how)


# -- the meaning -----------------------------------------------------------------------------------


@each
def test_operands_are_rounded_and_nothing_else(policy: str) -> None:
    d, program = MIXED[policy], compiled(policy)
    w1, b1, w2, b2 = (w.value.astype(np.float64) for w in mlp_weights())

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        one, other = (rounded(x.astype(np.float32), d).astype(np.float64) for x in (a, b))
        return one @ other

    want = product(np.tanh(product(X, w1) + b1), w2) + b2
    # The hidden numbers are computed in float32: few of them round to another neighbor than here.
    got = program.predict(X)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-3)
    assert np.median(np.abs(got - want)) < 1e-6
    assert np.abs(got - compiled("float32").predict(X)).max() > 1e-4  # rounded indeed


def mlp_weights() -> Any:
    model = mlp()
    model.build()
    return model.weights


@each
def test_training_is_pytorchs_with_the_same_roundings(policy: str) -> None:
    torch = pytest.importorskip("torch")
    short = getattr(torch, policy.removeprefix("mixed_"))

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            a, b = a.to(short).float(), b.to(short).float()
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            g = g.to(short).float()
            return g @ b.T, a.T @ g

    w1, b1, w2, b2 = params = [torch.tensor(w.value, requires_grad=True) for w in mlp_weights()]
    step = torch.optim.SGD(params, 0.5)
    scale = loss_scale.FIRST_SCALE if policy == "mixed_float16" else 1.0
    program = compiled(policy, zt.optimizers.SGD(0.5))
    for _ in range(5):
        hidden = torch.tanh(Product.apply(torch.tensor(X), w1) + b1)
        loss = torch.nn.functional.cross_entropy(Product.apply(hidden, w2) + b2,
                                                 torch.tensor(Y).long())
        step.zero_grad()
        (loss * scale).backward()
        for p in params:
            p.grad /= scale
        step.step()
        assert program.train_on_batch(X, Y, return_dict=True)["loss"] == pytest.approx(loss.item(), abs=2e-4)
    for got, want in zip(program.get_weights(), params, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=0, atol=2e-4)


@each
def test_predict_only_programs_store_matrices_in_16_bits(policy: str) -> None:
    trains, predicts = compiled(policy, "sgd"), compiled(policy)
    kept = {n: s.dtype for n, s in predicts.executable.spec.states.items() if not s.derived}
    assert {kept[n] for n in kept if n.endswith("kernel")} == {MIXED[policy]}
    assert {kept[n] for n in kept if n.endswith("bias")} == {f32}
    states = trains.executable.spec.states
    assert all(states[n].dtype is f32 for n in kept)
    trains.train_on_batch(X, Y)
    predicts.set_weights(trains.get_weights())
    np.testing.assert_array_equal(predicts.predict(X), trains.predict(X))
    for got, given in zip(predicts.get_weights(), trains.get_weights(), strict=True):
        want = rounded(given, MIXED[policy]) if given.ndim > 1 else given
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)
    for few in (1, 2, 3):  # few rows are multiplied by 16-bit weights in place
        one = mlp().compile("cpu", batch_size=few, dtype=policy)
        one.set_weights(trains.get_weights())
        np.testing.assert_allclose(one.predict(X), trains.predict(X), rtol=0, atol=2e-6)


@each
def test_artifacts(policy: str, tmp_path: Any) -> None:
    whole, short = compiled("float32"), compiled(policy)
    whole.save(tmp_path / "whole.zt")
    short.save(tmp_path / "short.zt")
    again = zt.load(tmp_path / "short.zt")
    np.testing.assert_array_equal(again.predict(X), short.predict(X))
    assert again.metadata.dtype == policy
    short.save_weights(tmp_path / "w.safetensors")
    again.set_weights([np.zeros_like(w) for w in again.get_weights()])
    again.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(again.predict(X), short.predict(X))
    trains = compiled(policy, "adam")
    trains.train_on_batch(X, Y)
    trains.save(tmp_path / "trains.zt")
    resumed = zt.load(tmp_path / "trains.zt")
    for program in (trains, resumed):
        program.train_on_batch(X, Y)
    for a, b in zip(trains.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@each
@needs_gcc
def test_c_libraries(policy: str, tmp_path: Any) -> None:
    program, traced = compiled(policy), mlp().trace(batch_size=24, dtype=policy)
    export_c(traced, tmp_path, name="half", weights=program.weights)
    assert f"{policy.removeprefix('mixed_')}[7][11] */" in (tmp_path / "half.h").read_text()
    y = np.zeros((24, 3), np.float32)
    ctypes.CDLL(str(tmp_path / "libhalf.so")).half_predict(
        *(ctypes.c_void_p(a.ctypes.data) for a in (X, y)))
    np.testing.assert_array_equal(y, program.predict(X))


# -- gradients too small for float16 ---------------------------------------------------------------


def scale_of(program: Program) -> float:
    return float(program.executable.state("optimizer/loss_scale"))


def test_an_overflow_is_skipped_and_halves_the_scale() -> None:
    program = compiled("mixed_float16", zt.optimizers.Adam(1e-2))
    program.train_on_batch(X, Y)
    assert scale_of(program) == loss_scale.FIRST_SCALE
    before, far = program.get_weights(), 1e30  # this many times the gradient is infinite
    program.train_on_batch(X, Y)
    moved = program.get_weights()
    assert any((a != b).any() for a, b in zip(before, moved, strict=True))
    program.executable.set_state("optimizer/loss_scale", np.float32(far))
    steps = program.executable.state("optimizer/step")
    program.train_on_batch(X, Y)
    for a, b in zip(moved, program.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert program.executable.state("optimizer/step") == steps
    assert scale_of(program) == np.float32(far) / 2
    program.executable.set_state("optimizer/loss_scale", np.float32(1))
    program.train_on_batch(np.full_like(X, np.inf), Y)
    assert scale_of(program) == 1  # the least


def test_calm_doubles_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "STEPS_TO_DOUBLE", 3)
    program = compiled("mixed_float16", "sgd")
    seen = []
    for _ in range(7):
        program.train_on_batch(X, Y)
        seen.append(scale_of(program) / loss_scale.FIRST_SCALE)
    assert seen == [1, 1, 2, 2, 2, 4, 4]


def test_what_float16_would_lose_is_learned() -> None:
    """Gradients of 1e-9 are zeros in float16; scaled, they are not."""
    x, y = X[:, :1] * 1e-3, np.zeros((24, 1), np.float32)
    model = zt.Sequential([L.Input((1,)), L.Dense(1, use_bias=False, kernel_initializer="ones")])
    program = model.compile("cpu", batch_size=24, loss="mse", dtype="mixed_float16",
                            optimizer=zt.optimizers.SGD(1e4))
    program.train_on_batch(x, y)
    slope = 2 * float((rounded(x, f16).astype(np.float64) ** 2).mean())
    assert 1 - program.get_weights()[0].item() == pytest.approx(1e4 * slope, rel=2e-3)


# -- as a user meets it ----------------------------------------------------------------------------


@each
def test_digits(policy: str) -> None:
    (x, y), (x_test, y_test) = zt.data.load("digits")
    model = zt.Sequential([L.Input((8, 8, 1)), L.Flatten(), L.Dense(128, activation="relu"),
                           L.Dense(10, activation="softmax")], seed=1)
    program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(2e-3),
                            loss="sparse_categorical_crossentropy", metrics=["accuracy"],
                            dtype=policy)
    program.fit(x, y, epochs=20, verbose=0)
    assert program.evaluate(x_test, y_test, return_dict=True, verbose=0)["accuracy"] >= 0.97


@pytest.mark.parametrize("name", ("bfloat16", "float16"))
def test_an_error_about_16_bit_dtypes_lists_the_choices(name: str) -> None:
    with pytest.raises(ConfigError, match=f"mixed_{name}"):
        mlp().compile("cpu", batch_size=1, dtype=name)


@pytest.mark.slow
def test_every_layer_supports_it() -> None:
    """Recurrence, attention, embeddings: whatever a layer multiplies is rounded, and comes close."""
    def model() -> zt.Sequential:
        return zt.Sequential([
            L.Input((9,), dtype="int32"), L.Embedding(20, 8), L.TransformerEncoder(16, 2),
            L.Bidirectional(L.LSTM(6, return_sequences=True)), L.Conv1D(5, 3, padding="causal"),
            L.BatchNormalization(), L.GlobalAveragePooling1D(), L.Dense(4)], seed=2)

    ids = np.random.default_rng(1).integers(0, 20, (8, 9))
    exact, short = (model().compile("cpu", batch_size=8, dtype=d).predict(ids)
                    for d in ("float32", "mixed_bfloat16"))
    assert 0 < np.abs(exact - short).max() < 0.05 * np.abs(exact).max()
