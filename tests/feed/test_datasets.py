"""Datasets that are read by index: of PyTorch, Keras and Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, same_states
from ztorch import layers as L
from ztorch.errors import DataError
from ztorch.feed.array_batches import permutation
from ztorch.feed.row_shapes import row_shapes
from ztorch.model.model import Model

X, Y = flowers(20)


def torch_data() -> Any:
    """PyTorch's datasets. Only here: its import takes two seconds."""
    return pytest.importorskip("torch.utils.data")


def torch_rows() -> Any:
    """A map-style dataset of PyTorch: it never raises an IndexError."""

    class Rows(torch_data().Dataset):
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, k: int) -> Any:
            return X[k % len(X)], Y[k % len(X)]

    return Rows()


class PlainRows:
    """The protocol alone."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, k: int) -> Any:
        return X[k % len(X)].tolist(), int(Y[k % len(X)])


class KerasBatches:
    """A `PyDataset`: its items are batches, and it is told when an epoch ends."""

    def __init__(self) -> None:
        self.epochs = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return X[k * 5:k * 5 + 5], Y[k * 5:k * 5 + 5]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it is read by index")

    def on_epoch_end(self) -> None:
        self.epochs += 1


class HubDataset:
    """The protocol of Hugging Face's datasets: items are dicts, iterated row by row."""

    column_names = ("flower", "label")

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, k: int) -> Any:
        return {"flower": X[k], "label": int(Y[k])}

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[k] for k in indices]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it is read by index")


DATASETS: dict[str, Callable[[], Any]] = {
    "protocol": PlainRows, "torch": torch_rows, "keras": KerasBatches, "hub": HubDataset,
    "loader": lambda: torch_data().DataLoader(torch_rows(), batch_size=3),
    "subset": lambda: torch_data().Subset(torch_rows(), range(20))}


@pytest.mark.parametrize("kind", DATASETS)
def test_datasets_are_the_arrays_that_they_hold(kind: str) -> None:
    a, b, dataset = classifier(), classifier(), DATASETS[kind]()
    a.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    history = b.fit(dataset, epochs=2, shuffle=False, verbose=0, validation_data=dataset)
    assert same_states(a, b)
    expected = a.evaluate(X, Y, verbose=0)
    np.testing.assert_allclose(b.evaluate(dataset, verbose=0), expected, rtol=1e-5)
    np.testing.assert_allclose(history.history["val_loss"][-1], np.ravel(expected)[0], rtol=1e-5)
    np.testing.assert_array_equal(a.predict(X), b.predict(dataset))


class Column:
    """The protocol of a column of Hugging Face: a sequence, whose slices are lists or arrays."""

    def __init__(self, rows: Any):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: Any) -> Any:
        return self.rows[k]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it is read by slices")


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist], ids=["arrays", "lists"])
def test_columns_that_are_read_by_slices_are_arrays(form: Any) -> None:
    a, b = classifier(), classifier()
    x, y = Column(form(X)), Column(form(Y))
    a.fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y))
    b.fit(x, y, epochs=2, verbose=0, validation_data=(x, y))
    assert same_states(a, b)
    assert a.evaluate(X, Y, verbose=0) == b.evaluate(x, y, verbose=0)
    np.testing.assert_array_equal(a.predict(X), b.predict(x))
    assert row_shapes(x) == (None, *X.shape[1:])
    with pytest.raises(DataError, match="x is a dataset; y and sample_weight must come from it"):
        a.fit(torch_rows(), y)


def test_rows_are_shuffled_and_batches_too() -> None:
    """Rows as those of arrays are; of batches their order, as in Keras."""
    a, b, c = classifier(), classifier(), classifier()
    a.fit(X, Y, epochs=2, verbose=0)
    b.fit(torch_rows(), epochs=2, verbose=0)
    assert same_states(a, b)
    batches = KerasBatches()
    c.fit(batches, epochs=1, verbose=0)
    assert batches.epochs == 1
    order = np.concatenate([np.arange(k * 5, k * 5 + 5) for k in permutation(c.seed, 0, 4)])
    d = classifier()
    d.fit(X[order], Y[order], shuffle=False, verbose=0)
    assert same_states(c, d)


def test_columns_are_inputs_by_their_names() -> None:
    rows = [{"a": np.float32(k), "b": np.ones(2) * k, "answer": np.float32(k)} for k in range(6)]

    class Columns:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, k: int) -> Any:
            return rows[k]

    a, b = L.Input((1,), name="a"), L.Input((2,), name="b")
    model = Model([a, b], L.Dense(1, name="answer")(L.Concatenate()([a, b])))
    model.compile("cpu", batch_size=4, optimizer="sgd", loss="mse")
    with pytest.raises(DataError, match=r"columns a, b, answer, and it is not clear which"):
        model.fit(Columns(), verbose=0)
    for row in rows:
        row["label"] = row.pop("answer")
    arrays = {n: np.stack([row[n] for row in rows]) for n in ("a", "b")}
    model.fit(Columns(), verbose=0)
    np.testing.assert_array_equal(model.predict(Columns()), model.predict(arrays))


def test_what_is_wrong_with_a_dataset() -> None:
    class Empty(type(torch_rows())):  # type: ignore[misc]
        def __len__(self) -> int:
            return 0

    with pytest.raises(DataError, match=r"this Empty is empty: its len\(\) is 0"):
        classifier().fit(Empty(), verbose=0)
    with pytest.raises(DataError, match="x is a dataset; y and sample_weight must come from it"):
        classifier().fit(torch_rows(), Y, verbose=0)

    class Alone(type(torch_rows())):  # type: ignore[misc]
        def __getitem__(self, k: int) -> Any:
            return X[k]

    with pytest.raises(DataError, match=r"an item of this Alone has 1 parts; items are \(x, y\)"):
        classifier().fit(Alone(), verbose=0)
    np.testing.assert_array_equal(classifier().predict(Alone()), classifier().predict(X))


class Streamed:
    """As a streamed dataset of Hugging Face is: batches of named columns, a pass that is set by a method."""

    def __init__(self) -> None:
        self.passes: list[int] = []
        self._epoch = 0

    @property
    def epoch(self) -> int:
        return self._epoch

    def set_epoch(self, number: int) -> None:
        self._epoch = number

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.passes.append(self._epoch)
        for k in range(0, 12, 4):
            yield {"pixels": np.full((4, 3), k, np.float32), "label": np.arange(k, k + 4) % 2}


def test_streams_of_named_columns_get_the_epoch() -> None:
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(2, activation="softmax")], seed=2)
    model.compile("cpu:scalar", batch_size=6, optimizer="sgd", loss="sparse_categorical_crossentropy")
    source = Streamed()
    batches = list(source)
    x, y = (np.concatenate([b[name] for b in batches]) for name in ("pixels", "label"))
    want = model.evaluate(x, y, verbose=0)
    assert model.evaluate(source, verbose=0) == pytest.approx(want, rel=1e-6)
    np.testing.assert_allclose(model.predict({"pixels": b["pixels"]} for b in batches), model.predict(x), rtol=1e-6)
    source.passes.clear()
    model.fit(source, epochs=3, verbose=0)
    assert source.passes == [0, 1, 2]
    with pytest.raises(DataError, match="batch 0 of the iterator has the columns a, b, and it is not clear"):
        model.evaluate(iter([{"a": x, "b": y}]), verbose=0)


def test_splits_of_a_dataset_are_named() -> None:
    data = {"train": range(3), "test": range(2)}
    message = r"of the datasets train, test; pass one of them, such as data\['train'\]"
    with pytest.raises(DataError, match=f"validation_data is a dict {message}"):
        classifier().fit(X, Y, validation_data=data, verbose=0)
    with pytest.raises(DataError, match=f"x is a dict {message}"):
        classifier().predict(data)


def test_items_that_are_tables_of_one_row_or_of_another_shape() -> None:
    class Tables(PlainRows):
        def __getitem__(self, k: int) -> Any:  # without __getitems__, as Hugging Face's in the format of Arrow
            return Table({"x": X[[k]], "label": Y[[k]]})

    class Table(dict):  # type: ignore[type-arg]
        __dataframe__ = None
        column_names = property(dict.keys)

    plain, tables = classifier(), classifier()
    plain.fit(PlainRows(), verbose=0)
    tables.fit(Tables(), verbose=0)
    assert same_states(plain, tables)

    class Images(PlainRows):
        shape: tuple[int, ...] = (3, 4, 4)

        def __getitem__(self, k: int) -> Any:
            return np.zeros(self.shape, np.float32), 0

    model = zt.Sequential([L.Input((4, 4, 3)), L.Flatten(), L.Dense(2)])
    model.compile("cpu:scalar", loss="mse", optimizer="sgd")
    for shape, said in (((3, 4, 4), "put channels last"), ((5, 4, 3), "bring items to it")):
        Images.shape = shape
        with pytest.raises(DataError, match=rf"x of item 0 has shape .* rows of shape \(4, 4, 3\); {said}"):
            model.fit(Images(), verbose=0)


def test_items_of_a_py_dataset_are_batches_also_without_targets() -> None:
    class Inputs(zt.utils.PyDataset):  # type: ignore[misc]
        def __init__(self, parts: Callable[[Any], Any]):
            super().__init__()
            self.parts = parts

        def __len__(self) -> int:
            return 4

        def __getitem__(self, k: int) -> Any:
            return self.parts(X[k * 5:k * 5 + 5])

    for parts in (lambda x: x, lambda x: (x,)):
        model = zt.Sequential([L.Dense(3, kernel_initializer="ones")])
        np.testing.assert_allclose(model.predict(Inputs(parts)), np.repeat(
            X.sum(-1, keepdims=True), 3, -1), rtol=1e-5)
        assert model.input_shape == (None, X.shape[-1])
    first, second = L.Input((X.shape[-1],)), L.Input((X.shape[-1],))
    pair = zt.Model([first, second], first - 2.0 * second)
    np.testing.assert_allclose(pair.predict(Inputs(lambda x: ((x, 3.0 * x),))), -5.0 * X, rtol=1e-5)


def test_rows_of_a_dataset_that_differ_in_size() -> None:
    rows = [np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32) for n in (3, 5, 1, 4)]
    program = zt.Sequential([L.Input((None, 2)), L.GlobalAveragePooling1D()]).compile(
        "cpu:scalar", batch_size=2, sizes=(4, 8))
    means = [row.mean(0) for row in rows]
    for dataset in (rows, [np.stack([row, row]) for row in rows]):  # of rows, and of batches
        items = type("Items", (), {"__len__": lambda _: 4, "__getitem__": lambda _, k, d=dataset: d[k]})()
        expected = np.repeat(means, 1 if dataset is rows else 2, axis=0)
        np.testing.assert_allclose(program.predict(items), expected, rtol=1e-5, atol=1e-6)
