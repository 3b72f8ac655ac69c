"""Transformers as PyTorch modules with random weights: one layer of BERT and of GPT, BERT-base, and
small models of four families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.image_networks import module_of


def _nn() -> Any:
    return peers.module("torch").nn


def attention(width: int, heads: int, causal: bool = False, pairs: int = 0,
              rotary: bool = False) -> Any:
    """Attention of a sequence to itself; `pairs` heads of keys and values, each for some heads of
    queries. Rotary positions turn halves of heads."""
    torch, nn, size = peers.module("torch"), _nn(), width // heads
    pairs = pairs or heads

    def split(x: Any, count: int) -> Any:
        return x.unflatten(-1, (count, size)).transpose(1, 2)

    def turned(x: Any) -> Any:
        steps = torch.arange(x.shape[2], dtype=x.dtype)
        rates = 10000.0 ** (-torch.arange(size // 2, dtype=x.dtype) / (size // 2))
        angles = torch.outer(steps, rates)
        left, right = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def forward(m: Any, x: Any) -> Any:
        q, k, v = split(m.q(x), heads), split(m.k(x), pairs), split(m.v(x), pairs)
        if rotary:
            q, k = turned(q), turned(k)
        if pairs < heads:
            k, v = (t.repeat_interleave(heads // pairs, 1) for t in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return m.out(y.transpose(1, 2).flatten(2))

    def linear(out: int) -> Any:
        return nn.Linear(width, out, bias=not rotary)

    return module_of(forward, q=linear(width), k=linear(pairs * size), v=linear(pairs * size),
                     out=linear(width))


def encoder(width: int, heads: int) -> Any:
    """BERT's layer: norms follow the sums."""
    nn = _nn()
    feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(m: Any, x: Any) -> Any:
        x = m.first(x + m.attention(x))
        return m.second(x + m.feed(x))

    return module_of(forward, attention=attention(width, heads), feed=feed,
                     first=nn.LayerNorm(width), second=nn.LayerNorm(width))


def block(width: int, heads: int, causal: bool, gelu: str = "none") -> Any:
    """The layer of GPT, of ViT and of Whisper's encoder: norms come first."""
    nn = _nn()
    feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width),
                         nn.GELU(approximate=gelu), nn.Linear(4 * width, width))

    def forward(m: Any, x: Any) -> Any:
        x = x + m.attention(m.norm(x))
        return x + m.feed(x)

    return module_of(forward, attention=attention(width, heads, causal), feed=feed,
                     norm=nn.LayerNorm(width))


def rms_norm(width: int) -> Any:
    """Written out, as transformers do: the exporter does not know PyTorch's."""
    torch = peers.module("torch")
    return module_of(lambda m, x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * m.scale,
                     scale=_nn().Parameter(torch.ones(width)))


def llama_block(width: int, heads: int, pairs: int, inner: int) -> Any:
    """RMS norms, rotary positions, grouped heads and a gated layer, without biases."""
    nn = _nn()

    def forward(m: Any, x: Any) -> Any:
        x = x + m.attention(m.first(x))
        h = m.second(x)
        return x + m.down(nn.functional.silu(m.gate(h)) * m.up(h))

    return module_of(forward, attention=attention(width, heads, True, pairs, rotary=True),
                     first=rms_norm(width), second=rms_norm(width),
                     gate=nn.Linear(width, inner, False), up=nn.Linear(width, inner, False),
                     down=nn.Linear(inner, width, False))


def text(layers: list[Any], width: int, words: int, places: int, last: Any) -> Any:
    """Layers between embeddings of words, with positions unless there are no places, and `last`."""
    nn = _nn()

    def forward(m: Any, x: Any) -> Any:
        h = m.words(x)
        return m.last(m.layers(h + m.places if places else h))

    positions = nn.Parameter(0.02 * peers.module("torch").randn(places, width))
    return module_of(forward, words=nn.Embedding(words, width), places=positions,
                     layers=nn.Sequential(*layers), last=last)


def vit(width: int = 192, heads: int = 3, depth: int = 4) -> Any:
    """196 patches of an image of 224 x 224."""
    nn = _nn()
    positions = nn.Parameter(0.02 * peers.module("torch").randn(196, width))
    return module_of(lambda m, x: m.head(m.norm(m.layers(
        m.patches(x).flatten(2).transpose(1, 2) + m.places)).mean(1)),
        patches=nn.Conv2d(3, width, 16, 16), places=positions,
        layers=nn.Sequential(*(block(width, heads, False) for _ in range(depth))),
        norm=nn.LayerNorm(width), head=nn.Linear(width, 1000))


def whisper(width: int = 192, heads: int = 3, depth: int = 4) -> Any:
    """An encoder of 80 bands of 400 moments, which it halves."""
    nn = _nn()
    positions = nn.Parameter(0.02 * peers.module("torch").randn(200, width))
    stem = nn.Sequential(nn.Conv1d(80, width, 3, padding=1), nn.GELU(),
                         nn.Conv1d(width, width, 3, 2, padding=1), nn.GELU())
    return module_of(lambda m, x: m.norm(m.layers(m.stem(x).transpose(1, 2) + m.places)),
                     stem=stem, places=positions, norm=nn.LayerNorm(width),
                     layers=nn.Sequential(*(block(width, heads, False) for _ in range(depth))))


@dataclass(frozen=True)
class Network:
    """How to make a module, and the shape of its input: numbers, or words below `words`."""

    make: Callable[[], Any]
    shape: tuple[int, ...]
    words: int = 0

    def example(self) -> np.ndarray:
        """An input."""
        random = np.random.default_rng(1)
        if self.words:
            return random.integers(0, self.words, self.shape)
        return random.standard_normal(self.shape, np.float32)


def _bert(words: int = 30522) -> Any:
    nn = _nn()
    return text([nn.LayerNorm(768), *(encoder(768, 12) for _ in range(12))], 768, words, 128,
                nn.Identity())


def _gpt(words: int = 1000) -> Any:
    nn = _nn()
    return text([*(block(256, 4, True, "tanh") for _ in range(4)), nn.LayerNorm(256)], 256, words,
                64, nn.Linear(256, words))


def _llama(words: int = 1000) -> Any:
    nn = _nn()
    return text([*(llama_block(256, 8, 2, 688) for _ in range(4)), rms_norm(256)], 256, words, 0,
                nn.Linear(256, words, False))


NETWORKS = {
    "BERT layer, 128": Network(lambda: encoder(768, 12), (1, 128, 768)),
    "BERT-base, 128": Network(_bert, (1, 128), 30522),
    "GPT layer, 512": Network(lambda: block(768, 12, True, "tanh"), (1, 512, 768)),
    "small GPT, 64": Network(_gpt, (1, 64), 1000),
    "small Llama, 64": Network(_llama, (1, 64), 1000),
    "small ViT": Network(vit, (1, 3, 224, 224)),
    "small Whisper encoder": Network(whisper, (1, 80, 400)),
}
TRAINED = {
    "small BERT layer, 32 x 64": Network(lambda: encoder(128, 4), (32, 64, 128)),
    "BERT layer, 8 x 128": Network(lambda: encoder(768, 12), (8, 128, 768)),
    "small GPT, 8 x 64": Network(_gpt, (8, 64), 1000),
    "small ViT, batch 8": Network(vit, (8, 3, 224, 224)),
}
