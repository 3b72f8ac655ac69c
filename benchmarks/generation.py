"""Generating with tiny_gpt and a wider one, beside PyTorch with caches of the same kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.report import Section, duration
from benchmarks.timing import Contestant, Effort, compare
from models import tiny_gpt

PROMPT = [7, 4, 11, 11, 14, 2, 8, 1]  # numbers of letters
MADE = 24  # numbers after the prompt: together they fill the 32 positions
SIZES = {"tiny_gpt": (2, 48, 4), "tiny_gpt of 6 blocks, width 384": (6, 384, 6)}
EPSILONS = (1e-5, 1e-3)  # of the layer normalisations of blocks, and of the last one


def run(threads: list[int], effort: Effort) -> Section:
    """Prefill and 24 numbers, the likeliest ones or drawn, through the calls that users make."""
    s = Section("generate", f"Generating {MADE} numbers after a prompt of {len(PROMPT)}",
                "for small models the overhead of calls; for larger ones reading all weights, for "
                "the prompt and for each number but the last, at the read bandwidth for that many "
                "bytes, which is measured in the same rounds.")
    for n in threads:
        peers.set_threads(n)
        for name, size in SIZES.items():
            _case(s, n, effort, name, size, {"temperature": 0})
            _case(s, n, effort, name, size, {"temperature": 0.8, "top_k": 8})
    return s


def _case(s: Section, threads: int, effort: Effort, name: str, size: tuple[int, int, int],
          how: dict[str, Any]) -> None:
    program = tiny_gpt.build(*size).compile("cpu", batch_size=1, decode=True, threads=threads)
    program.set_weights([w * 2 for w in program.get_weights()])  # so that no logits are close
    case = f"{name}, {'greedy' if how['temperature'] == 0 else 'top-k 8'}"
    contestants = [Contestant("ztorch", lambda: program.generate(PROMPT, MADE, **how)),
                   Contestant("ztorch, streamed", lambda: list(
                       program.generate(PROMPT, MADE, stream=True, **how)))]
    torch = peers.module("torch")
    if torch:
        theirs = CachedTorch(torch, program.weight_arrays(), size)
        contestants.append(Contestant("PyTorch eager", lambda: theirs.generate(**how)))
        if how["temperature"] == 0:
            want = program.generate(PROMPT, MADE, temperature=0).tolist()
            got = theirs.generate(temperature=0)
            assert got == want, f"{case}: PyTorch makes {got}, ztorch {want}"
    weights = sum(w.nbytes for w in program.get_weights())
    read, nbytes = machine.read_call(threads, weights)
    *timings, reading = compare([*contestants, Contestant("reading", read)], threads == 1, effort)
    limit = reading.ratio * MADE * weights / nbytes  # in times of ours
    more = {"PyTorch at the limit": f"x{timings[-1].ratio / limit:.2f}"} if torch else {}
    s.compared(case, threads, timings, 0.0, weights=f"{weights / 1e6:.3g} MB",
               limit=duration(limit * timings[0].seconds), **more)


class CachedTorch:
    """tiny_gpt in PyTorch: one product for queries, keys and values, caches that are written in
    place, and attention to the positions that are there."""

    def __init__(self, torch: Any, weights: dict[str, np.ndarray], size: tuple[int, int, int]):
        self.torch, (self.blocks, self.width, self.heads) = torch, size
        self.w = {name: torch.from_numpy(np.ascontiguousarray(w)) for name, w in weights.items()}
        for k in range(self.blocks):
            path = f"block_{k}/self_attention"
            for kind, shape in (("kernel", (self.width, -1)), ("bias", (-1,))):
                parts = [self.w[f"{path}/{part}/{kind}"].reshape(shape)
                         for part in ("query", "key", "value")]
                self.w[f"{path}/{kind}"] = torch.cat(parts, -1)
            out = f"{path}/attention_output/kernel"
            self.w[out] = self.w[out].reshape(self.width, self.width)
        cache = (self.blocks, self.heads, 32, self.width // self.heads)
        self.keys, self.values = torch.zeros(cache), torch.zeros(cache)

    def step(self, tokens: Any, first: int) -> Any:
        """The logits after some tokens, the first of which is at a position."""
        torch, w = self.torch, self.w
        function, end = torch.nn.functional, first + len(tokens)
        x = w["letters/embeddings"][tokens] + w["positions/position_embeddings"][first:end]
        for k in range(self.blocks):
            path = f"block_{k}/self_attention"
            y = self._normal(x, f"{path}_norm", EPSILONS[0])
            y = torch.addmm(w[f"{path}/bias"], y, w[f"{path}/kernel"])
            q, key, value = y.view(len(tokens), 3, self.heads, -1).permute(1, 2, 0, 3)
            self.keys[k, :, first:end], self.values[k, :, first:end] = key, value
            y = function.scaled_dot_product_attention(
                q[None], self.keys[None, k, :, :end], self.values[None, k, :, :end],
                is_causal=len(tokens) > 1)
            y = y[0].transpose(0, 1).reshape(len(tokens), self.width)
            x = x + torch.addmm(w[f"{path}/attention_output/bias"], y,
                                w[f"{path}/attention_output/kernel"])
            y = self._normal(x, f"block_{k}/feedforward_norm", EPSILONS[0])
            y = function.gelu(torch.addmm(w[f"block_{k}/intermediate/bias"], y,
                                          w[f"block_{k}/intermediate/kernel"]))
            x = x + torch.addmm(w[f"block_{k}/output/bias"], y, w[f"block_{k}/output/kernel"])
        x = self._normal(x[-1:], "norm", EPSILONS[1])
        return torch.addmm(w["next_letter/bias"], x, w["next_letter/kernel"])[0]

    def _normal(self, x: Any, name: str, epsilon: float) -> Any:
        return self.torch.nn.functional.layer_norm(
            x, (self.width,), self.w[f"{name}/gamma"], self.w[f"{name}/beta"], epsilon)

    def generate(self, temperature: float, top_k: int | None = None) -> list[int]:
        """The numbers after the prompt."""
        torch, made = self.torch, []
        with torch.inference_mode():
            tokens, first = torch.tensor(PROMPT), 0
            for _ in range(MADE):
                logits = self.step(tokens, first)
                first += len(tokens)
                if temperature == 0:
                    tokens = logits.argmax(-1, keepdim=True)
                else:
                    best, which = torch.topk(logits / temperature, top_k)
                    tokens = which[torch.multinomial(torch.softmax(best, -1), 1)]
                made.append(tokens.item())
        return made
