"""A whole block of a transformer in one kernel that calls the others.

Kernels that a kernel calls are taken into it and compiled together. In `.debug` all of them run as
plain Python.
"""

import ztorch as zt

from .flash_attention import flash_attention
from .layer_norm import rms_norm
from .matmul import matmul
from .rotary import rotary_halves
from .swiglu import swiglu


@zt.kernel
def split_heads(x, heads: int):
    """(positions, width) to (1, heads, positions, width / heads)."""
    positions, width = x.shape
    return x.reshape(1, positions, heads, width // heads).transpose(0, 2, 1, 3)


@zt.kernel
def transformer_block(x, norm1, wq, wk, wv, wo, norm2, gate, up, down, heads=2, block=16):
    """x is (positions, width); `block` divides the positions."""
    h = rms_norm(x, norm1)
    q = rotary_halves(split_heads(matmul(h, wq), heads))
    k = rotary_halves(split_heads(matmul(h, wk), heads))
    v = split_heads(matmul(h, wv), heads)
    seen = flash_attention(q, k, v, block, causal=True)
    x = x + matmul(seen.transpose(0, 2, 1, 3).reshape(*x.shape), wo)
    return x + swiglu(rms_norm(x, norm2), gate, up, down)
