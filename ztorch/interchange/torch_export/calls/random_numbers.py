"""Random numbers, with PyTorch's distributions but not its generator."""

from __future__ import annotations

from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("rand_like", "randn_like")
def _like(c: OperatorCall) -> Result:
    op = "RandomUniformLike" if c.op == "rand_like" else "RandomNormalLike"
    return c.node(op, c.x(), dtype=c.result.dtype.onnx)


@call("rand", "randn")
def _random(c: OperatorCall) -> Result:
    op = "RandomUniform" if c.op == "rand" else "RandomNormal"
    return c.node(op, shape=c.integers("size"), dtype=c.result.dtype.onnx)


@call("bernoulli")
def _bernoulli(c: OperatorCall) -> Result:
    return c.node("Bernoulli", c.x(), dtype=c.result.dtype.onnx)
