"""Losses: of each element, or their mean or sum."""

from __future__ import annotations

from ztorch.interchange.torch_export.translation import CallTensor, OperatorCall, Result, call


def _total(c: OperatorCall, y: str) -> str:
    """The losses of elements, their mean or their sum, as `reduction` says."""
    kind = ("", "ReduceMean", "ReduceSum")[c.get("reduction", 1)]
    return c.node(kind, y, keepdims=0) if kind else y


def _weighted(c: OperatorCall, y: str) -> str:
    weight = c.get("weight")
    return _total(c, y if weight is None else c.node("Mul", y, weight.name))


def _below_margin(c: OperatorCall, margin: float, y: str) -> str:
    """By how much y is below the margin; at least 0."""
    return c.node("Relu", c.node("Sub", c.number(margin, c.result.dtype), y))


# -- regression ------------------------------------------------------------------------------------


@call("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def _distance(c: OperatorCall) -> Result:
    (x, target), d = c.promoted("self", "target")
    difference = c.node("Sub", x, target)
    square, size = c.node("Mul", difference, difference), c.node("Abs", difference)
    width = c.get("delta", c.get("beta", 1.0))
    if c.op == "mse_loss":
        return _total(c, square)
    if c.op == "l1_loss" or not width:
        return _total(c, size)
    edge, half = c.number(width, d), c.number(0.5, d)
    inner = c.node("Mul", half, square)
    outer = c.node("Mul", edge, c.node("Sub", size, c.number(width / 2, d)))
    y = c.node("Where", c.node("Less", size, edge), inner, outer)
    return _total(c, y if c.op == "huber_loss" else c.node("Div", y, edge))


@call("soft_margin_loss")
def _soft_margin(c: OperatorCall) -> Result:
    product = c.node("Mul", *c.promoted("self", "target")[0])
    return _total(c, c.node("Softplus", c.node("Neg", product)))


@call("margin_ranking_loss")
def _ranking(c: OperatorCall) -> Result:
    (target, a, b), _ = c.promoted("target", "input1", "input2")
    return _total(c, _below_margin(c, c.get("margin", 0.0), c.node(
        "Mul", target, c.node("Sub", a, b))))


@call("hinge_embedding_loss", "cosine_embedding_loss")
def _pair_loss(c: OperatorCall) -> Result:
    """A loss of pairs that should be equal (target 1) or differ (target -1)."""
    target, d = c.tensor("target"), c.result.dtype
    if c.op == "hinge_embedding_loss":
        equal_loss, different_loss = c.x(), _below_margin(c, c.get("margin", 1.0), c.x())
    else:
        a, b = c.x("input1"), c.x("input2")

        def product(x: str, y: str) -> str:
            return c.node("ReduceSum", c.node("Mul", x, y), c.ints(-1), keepdims=0)

        least = c.number(1e-12, d)
        sizes = [c.node("Add", product(x, x), least) for x in (a, b)]
        cosine = c.node("Div", product(a, b), c.node("Sqrt", c.node("Mul", *sizes)))
        equal_loss = c.node("Sub", c.number(1, d), cosine)
        different_loss = c.node("Relu", c.node("Sub", cosine, c.number(c.get("margin", 0.0), d)))
    equal = c.node("Equal", target.name, c.number(1, target.dtype))
    return _total(c, c.node("Where", equal, equal_loss, different_loss))


@call("triplet_margin_loss")
def _triplet(c: OperatorCall) -> Result:
    order, d = c.get("p", 2.0), c.result.dtype
    if order not in (1, 2):
        c.unsupported(f"distances of order {order}")
    least = c.number(c.get("eps", 1e-6), d)

    def distance(a: str, b: str) -> str:
        difference = c.node("Add", c.node("Sub", a, b), least)
        return c.node(f"ReduceL{int(order)}", difference, c.ints(-1), keepdims=0)

    anchor, near, far = (c.x(name) for name in ("anchor", "positive", "negative"))
    further = distance(anchor, far)
    if c.get("swap", False):
        further = c.node("Min", further, distance(near, far))
    return _total(c, _below_margin(c, c.get("margin", 1.0),
                                   c.node("Sub", further, distance(anchor, near))))


# -- probabilities ---------------------------------------------------------------------------------


@call("binary_cross_entropy")
def _binary(c: OperatorCall) -> Result:
    x, target, d = c.x(), c.x("target"), c.tensor().dtype
    one, least = c.number(1, d), c.number(-100, d)
    yes, no = (c.node("Max", c.node("Log", p), least) for p in (x, c.node("Sub", one, x)))
    likely = c.node("Add", c.node("Mul", target, yes),
                    c.node("Mul", c.node("Sub", one, target), no))
    return _weighted(c, c.node("Neg", likely))


@call("binary_cross_entropy_with_logits")
def _binary_with_logits(c: OperatorCall) -> Result:
    x, target, one = c.x(), c.x("target"), c.number(1, c.tensor().dtype)
    no, positive = c.node("Sub", one, target), c.get("pos_weight")
    y = c.node("Softplus", c.node("Neg", x))
    if positive is not None:
        y = c.node("Mul", y, c.node("Add", no, c.node("Mul", target, positive.name)))
    return _weighted(c, c.node("Add", c.node("Mul", no, x), y))


@call("kl_div")
def _divergence(c: OperatorCall) -> Result:
    x, target, d = c.x(), c.x("target"), c.tensor("target").dtype
    if c.get("log_target", False):
        return _total(c, c.node("Mul", c.node("Exp", target), c.node("Sub", target, x)))
    safe = c.node("Where", c.node("Greater", target, c.number(0, d)), target, c.number(1, d))
    entropy = c.node("Mul", target, c.node("Log", safe))
    return _total(c, c.node("Sub", entropy, c.node("Mul", target, x)))


@call("poisson_nll_loss")
def _poisson(c: OperatorCall) -> Result:
    if c.get("full", False):
        c.unsupported("full=True")
    x, target = c.x("input"), c.x("target")
    if c.get("log_input", True):
        return _total(c, c.node("Sub", c.node("Exp", x), c.node("Mul", target, x)))
    least = c.number(c.get("eps", 1e-8), c.result.dtype)
    return _total(c, c.node("Sub", x, c.node("Mul", target, c.node("Log", c.node(
        "Add", x, least)))))


# -- classes ---------------------------------------------------------------------------------------


@call("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward",
      "cross_entropy_loss")
def _class_loss(c: OperatorCall) -> Result:
    x, target, first = c.tensor(), c.tensor("target"), c.ints(0)
    unbatched = x.rank == 1
    name, classes = (c.node("Unsqueeze", v.name, first) if unbatched else v.name
                     for v in (x, target))
    likely = c.node("LogSoftmax", name, axis=1) if c.op == "cross_entropy_loss" else name
    smooth = c.get("label_smoothing", 0.0)
    if target.dtype.is_float:
        y = _soft_target_loss(c, x, likely, classes, smooth)
    else:
        y = _label_loss(c, x, likely, classes)
        if smooth:
            smoothed = _all_class_loss(c, x, likely, classes)
            share = c.number(smooth / int(x.dims[not unbatched]), x.dtype)
            y = c.node("Add", c.node("Mul", y, c.number(1 - smooth, x.dtype)),
                       c.node("Mul", smoothed, share))
    return c.node("Squeeze", y, first) if unbatched and not c.get("reduction", 1) else y


def _weights(c: OperatorCall) -> list[str]:
    weight = c.get("weight")
    return [] if weight is None else [weight.name]


def _label_loss(c: OperatorCall, x: CallTensor, likely: str, classes: str) -> str:
    """The loss for targets that are class numbers."""
    _, labels = _split_labels(c, classes)
    losses = c.node("GatherElements", _weighted_log_loss(c, x, likely),
                  c.node("Unsqueeze", labels, c.ints(1)), axis=1)
    return _reduce_labels(c, x, c.node("Squeeze", losses, c.ints(1)), classes)


def _weighted_log_loss(c: OperatorCall, x: CallTensor, likely: str) -> str:
    """Minus the log-probabilities, times the weights of classes."""
    shape = c.ints(-1, *[1] * max(x.rank - 2, 0))
    for weight in _weights(c):
        likely = c.node("Mul", likely, c.node("Reshape", weight, shape))
    return c.node("Neg", likely)


def _soft_target_loss(c: OperatorCall, x: CallTensor, likely: str, shares: str,
                      smooth: float) -> str:
    """The loss for targets that are probabilities of classes."""
    if smooth:
        least = c.number(smooth / int(x.dims[x.rank > 1]), x.dtype)
        shares = c.node("Add", c.node("Mul", shares, c.number(1 - smooth, x.dtype)), least)
    losses = c.node("Mul", _weighted_log_loss(c, x, likely), shares)
    return _total(c, c.node("ReduceSum", losses, c.ints(1), keepdims=0))


def _all_class_loss(c: OperatorCall, x: CallTensor, likely: str, classes: str) -> str:
    """The sum over the losses with each class as the target."""
    losses = c.node("ReduceSum", _weighted_log_loss(c, x, likely), c.ints(1), keepdims=0)
    return _reduce_labels(c, x, losses, classes)


def _split_labels(c: OperatorCall, classes: str) -> tuple[str, str]:
    """Which labels are ignored, and the labels with 0 in place of these."""
    d = c.tensor("target").dtype
    ignored = c.node("Equal", classes, c.number(c.get("ignore_index", -100), d))
    return ignored, c.node("Where", ignored, c.number(0, d), classes)


def _reduce_labels(c: OperatorCall, x: CallTensor, losses: str, classes: str) -> str:
    """The losses of labels, 0 for ignored ones. Their mean is weighted by class."""
    ignored, labels = _split_labels(c, classes)
    zero, one = c.number(0, x.dtype), c.number(1, x.dtype)
    losses = c.node("Where", ignored, zero, losses)
    if c.get("reduction", 1) != 1:
        return _total(c, losses)
    weight = c.node("Gather", _weights(c)[0], labels, axis=0) if _weights(c) else one
    counts = c.node("ReduceSum", c.node("Where", ignored, zero, weight), keepdims=0)
    return c.node("Div", c.node("ReduceSum", losses, keepdims=0), counts)
