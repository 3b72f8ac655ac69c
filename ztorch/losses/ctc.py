"""Connectionist temporal classification: labels without their places in time."""

from __future__ import annotations

from ztorch import dtypes
from ztorch.config import positive
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, Shape, TargetSpec
from ztorch.ops.control import scan

_NEVER = -1e30  # logarithm of the probability of what cannot be; finite, so that gradients are


class CTC(Loss, names=("ctc",)):
    """The negative log-likelihood of labels, over all ways to place them in time.

    Predictions are logits `(batch, steps, classes)`, and class 0 stands for no label. Targets are
    class numbers `(batch, labels)` as int32; zeros at the end fill up shorter ones.

    Args:
        max_length: Number of labels of a row of targets. `None` means as many as there are steps.
            Default: `None`.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> CTC(max_length=5).target((8, 20, 30), f32).shape
        (8, 5)
    """

    def __init__(self, max_length: int | None = None):
        self.max_length = None if max_length is None else positive("CTC(max_length=...)",
                                                                   max_length)

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        if len(shape) != 3 or shape[-1] < 2:
            raise shape_error("loss 'ctc' needs logits (steps, classes) of a row, not", shape[1:],
                              fix="end the model with Dense(classes) on a sequence")
        return TargetSpec((shape[0], self.max_length or shape[1]), dtypes.i32, shape[-1])

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        rows, labels = y_true.shape
        classes, places = y_pred.shape[-1], 2 * labels + 1  # a blank around each label
        blank = OPS.zeros_like(y_true)
        doubled = OPS.reshape(OPS.stack([blank, y_true], axis=2), (rows, 2 * labels))
        extended = OPS.pad(doubled, (0, 0), (0, 1))  # blank, first label, blank ...
        hit = OPS.equal(OPS.expand_dims(extended, -1),
                        OPS.iota((rows, places, classes), -1, "int32"))
        logs = OPS.log_softmax(y_pred, axis=-1)
        # The logarithm of each place's probability at each step: (steps, rows, places).
        at = OPS.transpose(OPS.matmul(OPS.cast(hit, logs.dtype),
                                      OPS.transpose(logs, (0, 2, 1))), (2, 0, 1))
        place = OPS.iota((rows, places), 1, "int32")
        two_back = OPS.pad(extended, (0, 2), (0, 0))[:, :places]
        may_skip = OPS.logical_and(OPS.not_equal(extended, 0),
                                   OPS.not_equal(extended, two_back))

        def later(paths: Value, places_back: int) -> Value:
            """Paths that come from so many places before."""
            moved = OPS.pad(paths, (0, places_back), (0, 0))[:, :places]
            return OPS.where(place >= places_back, moved, _NEVER)

        def step(paths: Value, now: Value) -> tuple[Value, None]:
            skipped = OPS.where(may_skip, later(paths, 2), _NEVER)
            return _log_sum(paths, later(paths, 1), skipped) + now, None

        first = OPS.where(place < 2, at[0], _NEVER)
        last = scan(step, first, at[1:])[0] if y_pred.shape[1] > 1 else first
        count = OPS.sum(OPS.cast(OPS.not_equal(y_true, 0), "int32"), axis=1, keepdims=True)
        ends = OPS.logical_or(OPS.equal(place, count * 2), OPS.equal(place, count * 2 - 1))
        return -OPS.logsumexp(OPS.where(ends, last, _NEVER), axis=1)


def _log_sum(a: Value, b: Value, c: Value) -> Value:
    """log(exp(a) + exp(b) + exp(c))."""
    largest = OPS.maximum(OPS.maximum(a, b), c)
    return largest + OPS.log(OPS.exp(a - largest) + OPS.exp(b - largest) + OPS.exp(c - largest))
