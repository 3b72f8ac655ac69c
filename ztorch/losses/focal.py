"""Losses for imbalanced classes: cross-entropies that give easy examples less weight."""

from __future__ import annotations

from ztorch.config import fraction, number
from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.losses.classification import ProbabilityLoss, need_classes, smoothed_classes
from ztorch.losses.loss import EPSILON, Shape, TargetSpec


class BinaryFocalCrossentropy(ProbabilityLoss, names=("binary_focal_crossentropy",)):
    """Binary cross-entropy times `(1 - p) ** gamma`, where p is the probability of the target.

    Targets hold 0 or 1, or probabilities, in the shape of the predictions.

    Args:
        apply_class_balancing: Whether to weight positives by `alpha` and negatives by `1 - alpha`.
            Default: `False`.
        alpha: Weight of the positives, from 0 to 1. Default: `0.25`.
        gamma: Focus on hard examples. A number of at least 0. Default: `2.0`.
        from_logits: Whether predictions are logits, before the sigmoid. With `False`, a model that
            ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: How far targets are moved towards 0.5, from 0 to 1. Default: `0.0`.

    Examples:
        >>> BinaryFocalCrossentropy(gamma=3.0).gamma
        3.0
    """

    logits_of = "sigmoid"

    def __init__(self, apply_class_balancing: bool = False, alpha: float = 0.25,
                 gamma: float = 2.0, from_logits: bool = False, label_smoothing: float = 0.0):
        super().__init__(from_logits, label_smoothing)
        self.apply_class_balancing = apply_class_balancing
        self.alpha = fraction("BinaryFocalCrossentropy(alpha=...)", alpha, below_one=False)
        self.gamma = number("BinaryFocalCrossentropy(gamma=...)", gamma, least=0)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        s = self.label_smoothing
        y = y_true * (1.0 - s) + 0.5 * s if s else y_true
        if from_logits:
            p, entropy = OPS.sigmoid(y_pred), OPS.softplus(y_pred) - y_pred * y
        else:
            p, clipped = y_pred, OPS.clip(y_pred, EPSILON, 1.0 - EPSILON)
            entropy = -(y * OPS.log(clipped) + (1.0 - y) * OPS.log(1.0 - clipped))
        wrong = y * (1.0 - p) + (1.0 - y) * p  # 1 - the probability of the target
        wrong = OPS.maximum(wrong, EPSILON)  # the slope of 0 ** gamma may be infinite
        focal = entropy * OPS.power(wrong, self.gamma)
        if self.apply_class_balancing:
            focal = focal * (y * self.alpha + (1.0 - y) * (1.0 - self.alpha))
        return focal


class CategoricalFocalCrossentropy(ProbabilityLoss, names=("categorical_focal_crossentropy",)):
    """Categorical cross-entropy times `alpha * (1 - p) ** gamma`, where p is the probability of a
    class.

    Targets hold one probability per class.

    Args:
        alpha: A factor of the loss, from 0 to 1. Default: `0.25`.
        gamma: Focus on hard examples. A number of at least 0. Default: `2.0`.
        from_logits: Whether predictions are logits, before the softmax. With `False`, a model that
            ends in that activation is still computed from its logits. Default: `False`.
        label_smoothing: Fraction of the target that is spread evenly over all classes, from 0 to 1.
            Default: `0.0`.

    Examples:
        >>> CategoricalFocalCrossentropy().alpha
        0.25
    """

    logits_of = "softmax"

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, from_logits: bool = False,
                 label_smoothing: float = 0.0):
        super().__init__(from_logits, label_smoothing)
        self.alpha = fraction("CategoricalFocalCrossentropy(alpha=...)", alpha, below_one=False)
        self.gamma = number("CategoricalFocalCrossentropy(gamma=...)", gamma, least=0)

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        need_classes(self.name, shape)
        return TargetSpec(shape, d)

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        y = smoothed_classes(y_true, self.label_smoothing)
        p = (OPS.softmax(y_pred, axis=-1) if from_logits else
             y_pred / OPS.sum(y_pred, axis=-1, keepdims=True))
        p = OPS.clip(p, EPSILON, 1.0 - EPSILON)
        logarithm = OPS.log_softmax(y_pred, axis=-1) if from_logits else OPS.log(p)
        return -OPS.sum(y * logarithm * OPS.power(1.0 - p, self.gamma), axis=-1) * self.alpha
