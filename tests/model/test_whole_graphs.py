"""Models whose batch is one whole: the nodes of a graph, which its adjacency matrix multiplies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops

NODES = 6
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(NODES, 4)).astype(np.float32)
EDGES = (RANDOM.random((NODES, NODES)) < 0.5).astype(np.float32)
Y = RANDOM.integers(0, 3, NODES)


class GraphConvolution(L.Layer):
    """relu(adjacency @ (x @ w)), with the adjacency as an input or as an attribute."""

    def __init__(self, units: int, edges: Any = None) -> None:
        super().__init__()
        self.units, self.edges = units, edges

    def build(self, shapes: Any) -> None:
        features = shapes[-1] if self.edges is not None else shapes[0][-1]
        self.w = self.add_weight(shape=(features, self.units), name="w")

    def call(self, inputs: Any) -> Any:  # type: ignore[override]
        x, edges = inputs if self.edges is None else (inputs, self.edges)
        return ops.relu(edges @ (x @ self.w))


class GraphNetwork(zt.Model):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = GraphConvolution(8), L.Dense(3, activation="softmax")

    def call(self, inputs: Any) -> Any:  # type: ignore[override]
        return self.head(self.convolution(inputs))


def with_inputs() -> tuple[Any, Any]:
    x, edges = L.Input(batch_shape=(NODES, 4)), L.Input(batch_shape=(NODES, NODES))
    return zt.Model([x, edges], L.Dense(3, activation="softmax")(
        GraphConvolution(8)([x, edges]))), [X, EDGES]


def with_attribute() -> tuple[Any, Any]:
    x = L.Input(batch_shape=(NODES, 4))
    return zt.Model(x, L.Dense(3, activation="softmax")(GraphConvolution(8, EDGES)(x))), X


def with_class() -> tuple[Any, Any]:
    return GraphNetwork(), (X, EDGES)


@pytest.mark.parametrize("make", [with_inputs, with_attribute, with_class])
def test_the_nodes_of_a_graph_are_a_batch(make: Any) -> None:
    model, x = make()
    model.compile(zt.optimizers.SGD(0.5), "sparse_categorical_crossentropy")
    weights = np.array([1, 1, 1, 0, 0, 1], np.float32)  # some nodes are not labeled
    arguments = {"sample_weight": weights, "batch_size": NODES, "verbose": 0}
    before = model.fit(x, Y, **arguments).history["loss"]
    first, head, bias = (w.astype(np.float64) for w in model.get_weights())
    hidden = np.maximum(EDGES @ (X @ first), 0.0) @ head + bias
    chances = np.exp(hidden) / np.exp(hidden).sum(1, keepdims=True)
    for y in (model.predict(x, batch_size=NODES, verbose=0), model(x).numpy()):
        np.testing.assert_allclose(y, chances, rtol=1e-4, atol=1e-6)
    loss = -(weights * np.log(chances[np.arange(NODES), Y])).sum() / NODES
    assert loss < before[0]
    np.testing.assert_allclose(model.evaluate(x, Y, **arguments), loss, rtol=1e-4)
