"""The peers of benchmarks.gpu: PyTorch on an NVIDIA GPU, eager and as a CUDA graph, with the
weights of our models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.convolution import modules
from ztorch.runtime.devices import ListedDevice


class Theirs(NamedTuple):
    """A model of PyTorch's: what it predicts, and what to time."""

    prediction: Callable[[], np.ndarray]
    runs: dict[str, Callable[[], object]]
    alone: Callable[[], object]  # the function itself, which does not wait


def torch_on(d: ListedDevice) -> Any:
    """PyTorch where the first GPU that it sees is that device, whoever drives it; else None."""
    torch = peers.module("torch")
    if not torch or not torch.cuda.is_available() or torch.cuda.get_device_name(0) not in d.name:
        return None
    torch.backends.cudnn.allow_tf32 = False  # convolutions of as many bits as everybody's
    return torch


def build(name: str, model: Any) -> Any:
    """A model of the zoo in PyTorch's words, with its weights; its last softmax is left out. Images
    come as rows of pixels, channels first.

    >>> from models import digits_mlp
    >>> bool(peers.module("torch")) and len(build("digits_mlp", digits_mlp.build()))
    6
    """
    torch = peers.module("torch")
    if name == "tiny_gpt":
        return _gpt(torch, model)
    return torch.nn.Sequential(*modules(torch, model.adopted))


def _gpt(torch: Any, model: Any) -> Any:
    nn = torch.nn
    letters, positions, *blocks, norm, head = (
        [torch.from_numpy(np.array(w.value)) for w in layer.weights] for layer in model.adopted)
    length, width = positions[0].shape
    first = model.adopted[2]

    class GPT(nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        """The same layers, in the same order."""

        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(len(letters[0]), width)
            self.positions = nn.Parameter(positions[0])
            self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(
                width, first.num_heads, first.intermediate_dim, first.dropout, "gelu",
                first.layer_norm_epsilon, batch_first=True, norm_first=True) for _ in blocks)
            self.norm = nn.LayerNorm(width, model.adopted[-2].epsilon)
            self.head = nn.Linear(width, len(letters[0]))
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

        def forward(self, x: Any) -> Any:
            h = self.letters(x) + self.positions
            for block in self.blocks:
                h = block(h, src_mask=self.mask, is_causal=True)
            return self.head(self.norm(h))

    gpt = GPT()
    parameters = [gpt.letters.weight]
    arrays = [letters[0]]
    for block, (*attending, scale, shift, up, up_bias, down, down_bias, scale_2, shift_2) in zip(
            gpt.blocks, blocks, strict=True):
        *qkv, out, out_bias = attending
        attention, flat = block.self_attn, [w.reshape(width, -1).T for w in qkv[::2]]
        parameters += [attention.in_proj_weight, attention.in_proj_bias]
        for module in (attention.out_proj, block.norm1, block.linear1, block.linear2, block.norm2):
            parameters += [module.weight, module.bias]
        arrays += [torch.cat(flat), torch.cat([b.flatten() for b in qkv[1::2]]),
                   out.reshape(-1, width).T, out_bias, scale, shift, up.T, up_bias, down.T,
                   down_bias, scale_2, shift_2]
    parameters += [gpt.norm.weight, gpt.norm.bias, gpt.head.weight, gpt.head.bias]
    arrays += [*norm, head[0].T, head[1]]
    with torch.no_grad():
        for parameter, array in zip(parameters, arrays, strict=True):
            parameter.copy_(array)
    return gpt


def inputs(x: np.ndarray) -> Any:
    """A batch as PyTorch takes it."""
    torch = peers.module("torch")
    there = torch.from_numpy(x)
    return there.permute(0, 3, 1, 2) if there.ndim == 4 else there


def contestants(name: str, model: Any, x: np.ndarray, y: np.ndarray, train: bool) -> Theirs:
    """PyTorch's prediction or step, eager and replayed as a CUDA graph; each waits until it is
    done."""
    torch = peers.module("torch")
    net, tx, ty = build(name, model).cuda(), inputs(x).cuda(), torch.from_numpy(y).cuda().long()
    optimizer = torch.optim.Adam(net.parameters(), capturable=True, fused=True)
    net.train(train)

    def predict() -> Any:
        with torch.inference_mode():
            return net(tx).softmax(-1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.cross_entropy(net(tx).flatten(0, -2), ty.flatten()).backward()
        optimizer.step()

    alone = step if train else predict
    return Theirs(lambda: predict().cpu().numpy(), both(alone), alone)


def both(function: Callable[[], object]) -> dict[str, Callable[[], object]]:
    """Eager, and recorded once to be replayed; the calls return when the GPU is done."""
    return {"PyTorch eager": waiting(function),
            "PyTorch CUDA graph": waiting(captured(function))}


def waiting(function: Callable[[], object]) -> Callable[[], object]:
    torch = peers.module("torch")

    def call() -> None:
        function()
        torch.cuda.synchronize()

    return call


def captured(function: Callable[[], object]) -> Callable[[], object]:
    torch = peers.module("torch")
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    replay: Callable[[], object] = graph.replay
    return replay
