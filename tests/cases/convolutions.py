"""A convolution and its gradients as products of windows."""

from __future__ import annotations

from ztorch import ops
from ztorch.graph.autodiff import pullback
from ztorch.graph.op import leaf
from ztorch.graph.value import Value


def same(x: Value, w: Value) -> Value:
    return ops.conv(x, w, padding="same")


def of_images(g: Value, w: Value) -> Value:
    """The gradient of the images."""
    x = leaf("input", "x", (*g.shape[:-1], w.shape[-2]), g.dtype)
    return pullback({same(x, w): g}, [x])[0]


def of_kernel(x: Value, g: Value) -> Value:
    """The gradient of a kernel of 3 x 3."""
    w = leaf("input", "w", (3, 3, x.shape[-1], g.shape[-1]), x.dtype)
    return pullback({same(x, w): g}, [w])[0]
