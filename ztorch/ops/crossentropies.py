"""Cross-entropies for losses, and ops that look up the class of a label."""

from __future__ import annotations

import numpy as np

from ztorch.graph.composition import composition
from ztorch.graph.op import OPS, Sample, normal_axes, shape_error
from ztorch.graph.value import Value
from ztorch.ops.formulas import as_floats
from ztorch.ops.reduction import widened

EPSILON = 1e-7  # as in Keras: probabilities are clipped to this distance from 0 and 1
_YES = np.array([[1.0, 0.0, 1.0]] * 2)
_LABELS = np.array([2, 0], np.int32)


def log_probabilities(output: Value, from_logits: bool) -> Value:
    """Logarithms of probabilities that sum to 1 along the last axis."""
    if from_logits:
        return OPS.log_softmax(output, axis=-1)
    wide = widened(output)
    p = wide / OPS.sum(wide, axis=-1, keepdims=True)
    return OPS.cast(OPS.log(OPS.clip(p, EPSILON, 1.0 - EPSILON)), output.dtype)


def at_label(x: Value, labels: Value) -> Value:
    """The element of the last axis at each label; 0 for labels out of range."""
    position = OPS.iota(x.shape, -1, labels.dtype)
    hit = OPS.equal(OPS.expand_dims(labels, -1), position)
    return OPS.sum(OPS.where(hit, x, 0.0), axis=-1)


@composition(Sample((_YES, (2, 3)), low=0.1, high=0.9), Sample((_YES, (2, 3)), {
    "from_logits": True}))
def binary_crossentropy(target: Value, output: Value, from_logits: bool = False) -> Value:
    """The negative log-likelihood of independent binary outputs.

    Args:
        target: 0 or 1, or probabilities.
        output: Probabilities, or logits, of the same shape.
        from_logits: Whether `output` holds logits, before the sigmoid. Default: `False`.

    Returns:
        A tensor of the shape of `output`.
    """
    if target.shape != output.shape:
        raise shape_error("ops.binary_crossentropy compares element by element, not", target.shape,
                          output.shape)
    [output] = as_floats(output)
    y = OPS.cast(target, output.dtype)
    if from_logits:
        return OPS.softplus(output) - output * y
    p = OPS.clip(widened(output), EPSILON, 1.0 - EPSILON)  # in 16 bits, 1 - EPSILON is 1
    y = OPS.cast(y, p.dtype)
    return OPS.cast(-(y * OPS.log(p) + (1.0 - y) * OPS.log(1.0 - p)), output.dtype)


@composition(Sample((_YES, (2, 3)), low=0.1, high=0.9), Sample((_YES, (2, 3)), {
    "from_logits": True}))
def categorical_crossentropy(target: Value, output: Value, from_logits: bool = False,
                             axis: int = -1) -> Value:
    """The negative log-likelihood of the true class.

    Args:
        target: One probability per class.
        output: Probabilities, or logits, of the same shape.
        from_logits: Whether `output` holds logits, before the softmax. Default: `False`.
        axis: Axis of the classes. Default: `-1`.

    Returns:
        A tensor without that axis.
    """
    if target.shape != output.shape:
        raise shape_error("ops.categorical_crossentropy compares element by element, not",
                          target.shape, output.shape)
    [output] = as_floats(output)
    y, x = (OPS.moveaxis(v, axis, -1) for v in (OPS.cast(target, output.dtype), output))
    return -OPS.sum(y * log_probabilities(x, from_logits), axis=-1)


@composition(Sample((_LABELS, (2, 3)), low=0.1, high=0.9), Sample((_LABELS, (2, 3)), {
    "from_logits": True}))
def sparse_categorical_crossentropy(target: Value, output: Value, from_logits: bool = False,
                                    axis: int = -1) -> Value:
    """The negative log-likelihood of the true class.

    Args:
        target: Class numbers.
        output: Probabilities, or logits, with one axis more.
        from_logits: Whether `output` holds logits, before the softmax. Default: `False`.
        axis: Axis of the classes. Default: `-1`.

    Returns:
        A tensor without that axis.
    """
    [x] = as_floats(OPS.moveaxis(output, axis, -1))
    if target.rank == x.rank and target.shape[-1:] == (1,):
        target = OPS.squeeze(target, -1)
    if target.shape != x.shape[:-1]:
        raise shape_error("ops.sparse_categorical_crossentropy needs a class number for each "
                          "prediction, not", target.shape, output.shape)
    labels = OPS.cast(target, "int32")
    if not from_logits:
        return -at_label(log_probabilities(x, from_logits), labels)
    if not x.size:
        return OPS.full(labels.shape, 0.0, x.dtype)
    # The logarithm of a row is subtracted from one element: from all, each would have to be kept
    # until it is known. The largest is subtracted from all, so one kernel has both sums.
    wide = widened(x)
    below = wide - OPS.stop_gradient(OPS.max(wide, -1, True))
    loss = OPS.log(OPS.sum(OPS.exp(below), -1)) - at_label(below, labels)
    in_range = OPS.logical_and(labels >= 0, labels < x.shape[-1])
    return OPS.cast(OPS.where(in_range, loss, 0.0), x.dtype)


@composition(Sample((_LABELS, (2, 3)), {"k": 1}))
def in_top_k(targets: Value, predictions: Value, k: int) -> Value:
    """Whether each label is among the k most likely classes. Ties do not count against it.

    Args:
        targets: Class numbers.
        predictions: Numbers for each class `(rows, classes)`.
        k: Number of classes.

    Returns:
        A bool vector; false where the prediction of the label is not finite.
    """
    labels = OPS.cast(targets, "int32")
    own = at_label(predictions, labels)
    better = OPS.sum(OPS.cast(predictions > OPS.expand_dims(own, -1), "int32"), axis=-1)
    [last] = normal_axes(-1, predictions.rank)
    in_range = OPS.logical_and(labels >= 0, labels < predictions.shape[last])
    return OPS.logical_and(OPS.logical_and(better < k, OPS.isfinite(own)), in_range)


@composition(Sample(((3, 2), np.array([-1.0, 0.0, 1.0]))))
def digitize(x: Value, bins: Value) -> Value:
    """The bin of each number among ascending boundaries; 0 below the first.

    Args:
        x: Tensor of numbers.
        bins: Vector of ascending boundaries.

    Returns:
        An int32 tensor of the shape of `x`.
    """
    return OPS.searchsorted(bins, x, "right")
