"""Operators that read elements at positions."""

from __future__ import annotations

import numpy as np

from ztorch.interchange.torch_export.calls.movement import axis_of
from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("embedding")
def _embedding(c: OperatorCall) -> Result:
    return c.node("Gather", c.x("weight"), c.x("indices"), axis=0)


@call("index_select")
def _index_select(c: OperatorCall) -> Result:
    return c.node("Gather", c.x(), c.x("index"), axis=axis_of(c, c.tensor()))


@call("gather")
def _gather(c: OperatorCall) -> Result:
    return c.node("GatherElements", c.x(), c.x("index"), axis=axis_of(c, c.tensor()))


@call("one_hot")
def _one_hot(c: OperatorCall) -> Result:
    return c.node("OneHot", c.x(), c.constant(np.int64(c.get("num_classes"))),
                  c.constant(np.array([0, 1], np.int64)))


@call("embedding_bag.padding_idx", "embedding_bag", "_embedding_bag",
      "_embedding_bag_forward_only")
def _embedding_bag(c: OperatorCall) -> Result:
    weights, padding = c.get("per_sample_weights"), c.get("padding_idx", -1)
    inputs = [c.x("weight"), c.x("indices"), c.x("offsets")]
    size = c.tensor("weight").dims[0]
    return c.nodes("EmbeddingBag", inputs if weights is None else [*inputs, weights.name], 1,
                   domain="ztorch", mode=("sum", "mean", "max")[c.get("mode", 0)],
                   ends=int(c.get("include_last_offset", False)),
                   padding=padding % size if padding is not None and padding != -1 else None)
