"""The models of benchmarks.gpu in PyTorch's words: the same layers and sizes, with weights of their
own, since only time is compared. What is right or wrong is compared with our own CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import peers


def cuda() -> Any:
    """PyTorch where it has a GPU, else None."""
    torch = peers.module("torch")
    return torch if torch and torch.cuda.is_available() else None


def build(name: str) -> Any:
    """The module of a model of the zoo, on the GPU."""
    torch = cuda()
    return {"digits_mlp": _mlp, "digits_cnn": _cnn, "tiny_gpt": _gpt}[name](torch.nn).cuda()


def _mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def _cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Flatten(1), nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10))


def _gpt(nn: Any) -> Any:
    torch, width, length, letters = peers.module("torch"), 48, 32, 36

    class GPT(nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(letters, width)
            self.positions = nn.Parameter(torch.zeros(length, width))
            block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu",
                                               batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
            h = self.blocks(self.letters(x) + self.positions, mask=mask, is_causal=True)
            return self.head(self.norm(h))

    return GPT()


def contestants(name: str, x: Any, y: Any, train: bool) -> dict[str, Callable[[], None]]:
    """PyTorch's calls of a prediction or a step, eager and replayed as a CUDA graph; each waits
    until it is done."""
    torch = cuda()
    if not torch:
        return {}
    model = build(name)
    tx = torch.from_numpy(x).cuda()
    ty = torch.from_numpy(y).cuda().long()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, fused=True)
    model.train(train)

    def once() -> None:
        if not train:
            with torch.inference_mode():
                model(tx).softmax(-1)
            return
        optimizer.zero_grad(set_to_none=False)
        out = model(tx)
        torch.nn.functional.cross_entropy(out.flatten(0, -2), ty.flatten()).backward()
        optimizer.step()

    return {"PyTorch eager": waiting(once), "PyTorch CUDA graph": waiting(captured(once))}


def waiting(function: Callable[[], object]) -> Callable[[], None]:
    """A call that returns when the GPU is done."""
    torch = cuda()

    def call() -> None:
        function()
        torch.cuda.synchronize()

    return call


def captured(function: Callable[[], object]) -> Callable[[], None]:
    """The function recorded once, to be replayed."""
    torch = cuda()
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    replay: Callable[[], None] = graph.replay
    return replay
