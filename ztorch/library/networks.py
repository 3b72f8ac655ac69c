"""Routines of neural networks: convolution, attention, batch normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.dtypes import boolean
from ztorch.errors import ConfigError, ShapeError, unknown
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.library.buffers import Strided, need_dtypes, need_shape, need_tensors, whole_numbers
from ztorch.library.elementwise import result_of
from ztorch.library.raw_device import RawDevice
from ztorch.library.strides import read

# The axes of NHWC and of HWIO, by their places in each layout.
IMAGES = {"NHWC": (0, 1, 2, 3), "NCHW": (0, 2, 3, 1)}
KERNELS = {"HWIO": (0, 1, 2, 3), "KCRS": (2, 3, 1, 0)}

Pair = int | Sequence[int]


class Networks(RawDevice):
    """The routines of neural networks."""

    def conv2d_forward(self, x: Strided, kernel: Strided, y: Strided,
                       bias: Strided | None = None, *, stride: Pair = 1,
                       padding: int | str | Sequence[Any] = 0, dilation: Pair = 1,
                       groups: int = 1, layout: str = "NHWC", kernel_layout: str = "HWIO") -> None:
        """A convolution of images.

        Args:
            x: Images, in the axes of `layout`.
            kernel: The filters: (height, width, channels / groups, filters) with "HWIO", (filters,
                channels / groups, height, width) with "KCRS".
            y: The result, in the axes of `layout`.
            bias: Added to each filter's results, `(filters,)`. `None` means none. Default: `None`.
            stride: Step of the window: a number, or one for rows and one for columns. Default: `1`.
            padding: Zeros around the images: a number, one for rows and one for columns, a pair
                (before, after) for each, "same" or "valid". Default: `0`.
            dilation: Distance between the elements that a window reads, as `stride`. Default: `1`.
            groups: Each part of the filters reads its own part of the channels. Default: `1`.
            layout: "NHWC" or "NCHW". Default: `"NHWC"`.
            kernel_layout: "HWIO" or "KCRS". Default: `"HWIO"`.

        Raises:
            ShapeError: The operands do not fit.
            Unsupported: The device cannot compute this dtype.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, y = zt.backends.get("cpu"), np.zeros((1, 2, 2, 1), np.float32)
            >>> x, k = np.ones((1, 3, 3, 1), np.float32), np.ones((2, 2, 1, 1), np.float32)
            >>> cpu.conv2d_forward(*(cpu.wrap(a).tensor(a.shape) for a in (x, k, y)))
            >>> y.reshape(2, 2).tolist()
            [[4.0, 4.0], [4.0, 4.0]]
        """
        for kind, chosen, known in (("layout", layout, IMAGES),
                                    ("kernel layout", kernel_layout, KERNELS)):
            if chosen not in known:
                raise unknown(kind, chosen, known)
        need_tensors("conv2d_forward", "bias", x=x, kernel=kernel, y=y, bias=bias)
        self._need_dtype("conv2d_forward", x.dtype)
        need_dtypes("conv2d_forward", x.dtype, kernel=kernel, y=y, bias=bias)
        for label, t in (("x", x), ("kernel", kernel), ("y", y)):
            if len(t.shape) != 4:
                raise ShapeError(f"conv2d_forward: {label} has shape {t.shape}, and must have four "
                                 "axes")
        if bias is not None:
            filters = kernel.shape[KERNELS[kernel_layout][3]]
            need_shape("conv2d_forward", "bias", bias, (filters,))
        if not y.size:
            return
        if not (x.size and kernel.size):
            raise ShapeError(f"conv2d_forward of no elements: x has shape {x.shape}, the kernel "
                             f"{kernel.shape}")
        around = _padding(padding)
        reads = {"x": x, "kernel": kernel} | ({} if bias is None else {"bias": bias})

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            images = OPS.transpose(read(v["x"], x.shape, x.strides), IMAGES[layout])
            filters = OPS.transpose(read(v["kernel"], kernel.shape, kernel.strides),
                                    KERNELS[kernel_layout])
            result = OPS.conv(images, filters, _pair(stride), around, _pair(dilation), groups)
            if bias is not None:
                result = result + read(v["bias"], bias.shape, bias.strides)
            places = IMAGES[layout]
            result = OPS.transpose(result, tuple(places.index(k) for k in range(4)))
            return {"out": result_of("conv2d_forward", result, y, v)}

        key = _pair(stride), around, _pair(dilation), groups, layout, kernel_layout
        self._run("conv2d_forward", key, function, reads, {"out": y})

    def attention(self, q: Strided, k: Strided, v: Strided, y: Strided, *,
                  scale: float | None = None, causal: bool = False,
                  mask: Strided | None = None) -> None:
        """`softmax(q @ k.T * scale) @ v` in each head.

        Strides describe a layout with heads behind the positions. Several heads of `q` may
        share one of `k` and `v`.

        Args:
            q: Queries `(batch, heads, queries, dim)`.
            k: Keys `(batch, heads, keys, dim)`.
            v: Values `(batch, heads, keys, value dim)`.
            y: The result `(batch, heads, queries, value dim)`.
            scale: Factor of the scores. `None` means `1 / sqrt(dim)`. Default: `None`.
            causal: Whether key `j` is hidden from query `i` for `j > i`. Default: `False`.
            mask: Bools that broadcast to `(batch, heads, queries, keys)`: true where a query may
                see a key. `None` shows all. Default: `None`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, y = zt.backends.get("cpu"), np.zeros((1, 1, 2, 1), np.float32)
            >>> q, v = np.zeros((1, 1, 2, 4), np.float32), np.array([1, 3], np.float32)
            >>> queries, values = cpu.wrap(q).tensor(q.shape), cpu.wrap(v).tensor((1, 1, 2, 1))
            >>> cpu.attention(queries, queries, values, cpu.wrap(y).tensor(y.shape), causal=True)
            >>> y.reshape(-1).tolist()
            [1.0, 2.0]
        """
        need_tensors("attention", "mask", q=q, k=k, v=v, y=y, mask=mask)
        self._need_dtype("attention", q.dtype)
        need_dtypes("attention", q.dtype, k=k, v=v, y=y)
        if mask is not None:
            need_dtypes("attention", boolean, mask=mask)
        if not y.size:
            return
        operands = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
        for label, t in operands.items():
            if not t.size:
                raise ShapeError(f"attention: {label} has no elements: {t!r}")

        def function(values: Mapping[str, Value]) -> dict[str, Value]:
            seen = {n: read(values[n], t.shape, t.strides) for n, t in operands.items()}
            result = OPS.attention(seen["q"], seen["k"], seen["v"], seen.get("mask"), causal, scale)
            return {"out": result_of("attention", result, y, values)}

        self._run("attention", (scale, bool(causal)), function, operands, {"out": y})

    def batch_norm(self, x: Strided, y: Strided, mean: Strided, variance: Strided,
                   scale: Strided | None = None, offset: Strided | None = None, *,
                   axis: int = -1, epsilon: float = 1e-3, training: bool = False,
                   momentum: float = 0.99) -> None:
        """`y = (x - mean) / sqrt(variance + epsilon) * scale + offset` of each feature.

        With `training` the mean and the variance are those of `x`, and the moving ones become
        `old * momentum + new * (1 - momentum)`.

        Args:
            x: The operand.
            y: The result, of the same shape and dtype; may be `x`.
            mean: Moving mean of each feature, `(features,)`.
            variance: Moving variance of each feature, `(features,)`.
            scale: Factor of each feature. `None` means none. Default: `None`.
            offset: Added to each feature. `None` means none. Default: `None`.
            axis: The axis of the features. Default: `-1`.
            epsilon: Added to the variance. Default: `0.001`.
            training: Whether to use and remember the statistics of `x`. Default: `False`.
            momentum: Share of the moving statistics that training keeps. Default: `0.99`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.array([[1.0], [3.0]], np.float32)
            >>> m, v = np.zeros(1, np.float32), np.ones(1, np.float32)
            >>> tensor = cpu.wrap(x).tensor((2, 1))
            >>> cpu.batch_norm(tensor, tensor, cpu.wrap(m).tensor((1,)), cpu.wrap(v).tensor((1,)),
            ...                epsilon=0.0, training=True, momentum=0.5)
            >>> x.tolist(), m.tolist()
            ([[-1.0], [1.0]], [1.0])
        """
        need_tensors("batch_norm", "scale", "offset", x=x, y=y, mean=mean, variance=variance,
                     scale=scale, offset=offset)
        self._need_dtype("batch_norm", x.dtype)
        need_dtypes("batch_norm", x.dtype, y=y)
        need_shape("batch_norm", "y", y, x.shape)
        rank = len(x.shape)
        if not -rank <= axis < rank:
            raise ConfigError(f"batch_norm: axis {axis} of a tensor of shape {x.shape}")
        parameters = {"mean": mean, "variance": variance, "scale": scale, "offset": offset}
        tensors = {n: t for n, t in parameters.items() if t is not None}
        for label, t in tensors.items():
            need_shape("batch_norm", label, t, (x.shape[axis],))
        if not x.size:
            return
        others = tuple(k for k in range(rank) if k != axis % rank)

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            images = read(v["x"], x.shape, x.strides)
            seen = {n: read(v[n], t.shape, t.strides) for n, t in tensors.items()}
            moving = seen["mean"], seen["variance"]
            results: dict[str, Value] = {}
            if training:
                wide = OPS.cast(images, mean.dtype)
                now = OPS.mean(wide, others), OPS.var(wide, others)
                for label, t, old, new in zip(("mean", "variance"), (mean, variance), moving, now,
                                              strict=True):
                    average = old * momentum + new * (1.0 - momentum)
                    results[label] = result_of("batch_norm", average, t, v, label)
                moving = now
            result = OPS.batch_norm(images, *moving, seen.get("scale"), seen.get("offset"),
                                    axis % rank, epsilon)
            return {"out": result_of("batch_norm", result, y, v), **results}

        writes = {"out": y} | ({"mean": mean, "variance": variance} if training else {})
        key = axis % rank, epsilon, bool(training), momentum
        self._run("batch_norm", key, function, {"x": x, **tensors}, writes)


def _pair(x: Pair) -> tuple[int, int]:
    sizes = (x, x) if isinstance(x, int) else whole_numbers("stride or dilation", x)
    if len(sizes) != 2:
        raise ConfigError(f"{x!r} must be a number, or one for rows and one for columns")
    return sizes


def _padding(x: int | str | Sequence[Any]) -> Any:
    """The padding for ops.conv: a word, or a pair for rows and one for columns."""
    if isinstance(x, str):
        return x
    sizes = (x, x) if isinstance(x, int) else tuple(x)
    if len(sizes) != 2:
        raise ConfigError(f"padding {x!r} must be a number, one for rows and one for columns, or a "
                          "pair for each")
    return tuple((p, p) if isinstance(p, int) else tuple(p) for p in sizes)
