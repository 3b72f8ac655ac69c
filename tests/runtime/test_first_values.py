"""First values of large models: drawn when something needs them, and not where others replace them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.processes import in_threads
from ztorch import layers as L
from ztorch.compile import parameters
from ztorch.initializers import stream
from ztorch.layers import weight
from ztorch.runtime.first_values import FirstValues

X = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The weights that were drawn, of models that count as large."""
    paths: list[str] = []
    draw = weight._drawn

    def noted(initializer: Any, shape: Any, seed: int, path: str) -> np.ndarray:
        paths.append(path)
        return draw(initializer, shape, seed, path)

    monkeypatch.setattr(weight, "_drawn", noted)
    monkeypatch.setattr(parameters, "LEAST_DEFERRED", 1)
    return paths


def model() -> Any:
    return zt.Sequential([L.Input((5,)), L.Dense(7, activation="tanh", name="a"), L.Dense(
        2, name="b")], name="large", seed=3)


def want(*replaced: np.ndarray) -> np.ndarray:
    """The outputs, with some of the first kernels replaced."""
    kernels = [zt.initializers.GlorotUniform()(shape, stream(3, f"{name}/kernel"))
               for name, shape in (("a", (5, 7)), ("b", (7, 2)))]
    a, b = [*replaced, *kernels[len(replaced):]]
    return np.tanh(X @ a) @ b


READERS: dict[str, Callable[[Any, Path], np.ndarray]] = {
    "predict": lambda p, folder: p.predict(X),
    "predict_on_batch": lambda p, folder: p.predict_on_batch(X),
    "tensors": lambda p, folder: p.predict(zt.Tensor(X)).numpy(),
    "saved": lambda p, folder: (p.save(folder / "p.zt"), zt.load(folder / "p.zt"))[1].predict(X),
    "weights": lambda p, folder: np.tanh(X @ p.get_weights()[0]) @ p.get_weights()[2],
    "snapshot": lambda p, folder: np.tanh(X @ p.executable.states_snapshot()["a/kernel"]) @ (
        p.executable.states_snapshot()["b/kernel"]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("optimizer", [None, "sgd"])
def test_what_reads_them_first(reader: str, optimizer: str | None, drawn: list[str], tmp_path: Path) -> None:
    program = model().compile("cpu", batch_size=3, optimizer=optimizer, loss="mse" if optimizer else None)
    assert drawn == []
    np.testing.assert_allclose(READERS[reader](program, tmp_path), want(), rtol=1e-5, atol=1e-6)
    assert sorted(drawn) == ["a/bias", "a/kernel", "b/bias", "b/kernel"]
    np.testing.assert_allclose(program.predict(X), want(), rtol=1e-5, atol=1e-6)
    assert len(drawn) == 4


def test_training_reads_them(drawn: list[str]) -> None:
    steps = [model().compile("cpu", batch_size=3, optimizer="sgd", loss="mse") for _ in range(2)]
    steps[1].predict(X)  # draws before the step
    y = np.zeros((3, 2), "float32")
    np.testing.assert_array_equal(*(p.fit(X, y, batch_size=3, verbose=0).history["loss"] for p in steps))
    np.testing.assert_array_equal(*(p.get_weights()[0] for p in steps))


def test_values_that_replace_them_are_not_drawn(drawn: list[str], tmp_path: Path) -> None:
    source = model()
    a = np.full((5, 7), 0.25, "float32")
    program = source.compile("cpu", batch_size=3)
    program.set_weights([a, np.zeros(7), np.ones((7, 2)), np.zeros(2)])
    np.testing.assert_allclose(program.predict(X), want(a, np.ones((7, 2))), rtol=1e-5)
    program.save_weights(tmp_path / "w.safetensors")
    other = model().compile("cpu", batch_size=3)
    other.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(other.predict(X), program.predict(X))
    assert drawn == []


def test_one_that_was_set_stays(drawn: list[str]) -> None:
    net = model()
    program = net.compile("cpu", batch_size=3)
    a = np.full((5, 7), 0.25, "float32")
    net.layers[0].kernel.assign(a)
    np.testing.assert_array_equal(program.executable.state("b/bias"), np.zeros(2))
    assert drawn == ["b/bias"]
    np.testing.assert_allclose(program.predict(X), want(a), rtol=1e-5, atol=1e-6)
    assert sorted(drawn) == ["a/bias", "b/bias", "b/kernel"]


def test_several_threads_may_be_the_first(drawn: list[str]) -> None:
    program, results = model().compile("cpu", batch_size=3), {}
    in_threads(lambda k: results.setdefault(k, program.predict(X)), [1, 2, 3, 4])
    for y in results.values():
        np.testing.assert_allclose(y, want(), rtol=1e-5, atol=1e-6)
    assert len(results) == 4 and len(drawn) == 4


def test_another_program_of_the_model_reads_them(drawn: list[str]) -> None:
    net = model()
    net.compile("cpu", batch_size=3)
    net.compile("cpu", batch_size=2)
    np.testing.assert_allclose(net.predict(X[:2]), want()[:2], rtol=1e-5, atol=1e-6)
    assert len(drawn) == 4


def test_an_interrupt_leaves_them_to_the_next() -> None:
    calls: list[str] = []

    def once(params: np.ndarray) -> None:
        calls.append("once")
        if len(calls) == 1:
            raise KeyboardInterrupt
        params[0] = 1

    first, params = FirstValues({"a": once}), np.zeros(1)
    with pytest.raises(KeyboardInterrupt):
        first.write(params)
    assert not first.is_written
    first.write_one("a", params)
    assert params[0] == 1 and first.is_written


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_devices_start_with_the_same(device: str, drawn: list[str]) -> None:
    if not zt.backends.get(device).is_available:
        pytest.skip(f"{device} is not available")
    np.testing.assert_allclose(model().compile(device, batch_size=3).predict(X), want(), rtol=1e-5, atol=1e-6)
