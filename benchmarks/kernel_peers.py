"""The kernels of the gallery in PyTorch's words: functions of the module `torch` and of tensors."""

from __future__ import annotations

import math
from typing import Any


def call_price(torch: Any, price: Any, strike: Any, years: Any) -> Any:
    rate, volatility = 0.02, 0.3
    spread = volatility * years.sqrt()
    d = ((price / strike).log() + (rate + volatility * volatility / 2) * years) / spread
    share, cash = (0.5 + 0.5 * torch.erf(v * math.sqrt(0.5)) for v in (d, d - spread))
    return price * share - strike * torch.exp(-rate * years) * cash


def images(x: Any) -> Any:
    return x.permute(0, 3, 1, 2)


def conv2d(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(images(x), w.permute(3, 2, 0, 1), padding=1).permute(
        0, 2, 3, 1)


def depthwise(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(images(x), w.permute(2, 0, 1)[:, None], padding=1,
                                      groups=w.shape[-1]).permute(0, 2, 3, 1)


def layer_norm(torch: Any, x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    total = x + residual
    return total, torch.nn.functional.layer_norm(total, x.shape[1:], gamma, beta)


def _turns(torch: Any, x: Any) -> Any:
    """Cosines and sines of (positions, pairs)."""
    half = x.shape[-1] // 2
    turns = torch.arange(half, dtype=x.dtype) * (-math.log(10000.0) / half)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * turns.exp()
    return angle.cos(), angle.sin()


def rotary(torch: Any, x: Any) -> Any:
    c, s = _turns(torch, x)
    first, second = x.chunk(2, -1)
    return torch.cat([first * c - second * s, first * s + second * c], -1)


def rotary_interleaved(torch: Any, x: Any) -> Any:
    c, s = _turns(torch, x)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)


def swiglu(torch: Any, x: Any, gate: Any, up: Any, down: Any) -> Any:
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


def attention(torch: Any, *inputs: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*inputs)


def rms_norm(torch: Any, x: Any, gamma: Any) -> Any:
    return torch.nn.functional.rms_norm(x, x.shape[1:], gamma, 1e-6)


def transformer_block(torch: Any, x: Any, norm1: Any, wq: Any, wk: Any, wv: Any, wo: Any,
                      norm2: Any, gate: Any, up: Any, down: Any) -> Any:
    h = rms_norm(torch, x, norm1)
    q, k, v = ((h @ w).reshape(1, x.shape[0], 4, -1).transpose(1, 2) for w in (wq, wk, wv))
    seen = torch.nn.functional.scaled_dot_product_attention(
        rotary(torch, q), rotary(torch, k), v, is_causal=True)
    x = x + seen.transpose(1, 2).reshape(x.shape) @ wo
    return x + swiglu(torch, rms_norm(torch, x, norm2), gate, up, down)


def mandelbrot(torch: Any, re: Any, im: Any) -> Any:
    x, y = torch.zeros_like(re), torch.zeros_like(im)
    steps = torch.zeros(re.shape, dtype=torch.int32)
    for _ in range(100):
        inside = x * x + y * y < 4.0
        steps += inside
        x, y = (torch.where(inside, x * x - y * y + re, x),
                torch.where(inside, 2.0 * x * y + im, y))
    return steps


def leaky_sum(torch: Any, x: Any, keep: Any) -> Any:
    h, rows = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = keep[:, t] * h + x[:, t]
        rows.append(h)
    return torch.stack(rows, 1)


def k_means(torch: Any, points: Any, centres: Any) -> Any:
    labels = torch.cdist(points, centres).argmin(1)
    near = torch.nn.functional.one_hot(labels, centres.shape[0]).to(points.dtype)
    return near.T @ points / near.sum(0).clamp(min=1.0)[:, None]


def sparse_product(torch: Any, starts: Any, columns: Any, values: Any, x: Any) -> Any:
    return torch.sparse_csr_tensor(starts, columns, values, (len(starts) - 1, len(x))) @ x


def ragged_softmax(torch: Any, x: Any, starts: Any) -> Any:
    lengths = starts.diff().long()
    high = torch.segment_reduce(x, "max", lengths=lengths)
    parts = torch.exp(x - high.repeat_interleave(lengths))
    total = torch.segment_reduce(parts, "sum", lengths=lengths)
    return parts / total.repeat_interleave(lengths)
