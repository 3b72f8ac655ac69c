"""The kernels of a program as text in a target's language, each rendered once.

A process keeps the kernels of the programs that it compiled, because the next program may have the
same ones. It does not if the cache is off (`ZTORCH_CACHE=0`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.codegen.render import Renderer, renderer
from ztorch.codegen.targets import Target
from ztorch.compile.library_calls import prepared_calls, rendered_call
from ztorch.host.settings import current
from ztorch.ir.atomic_memories import with_atomic_memories
from ztorch.ir.kernel import Grid, Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.verify import verify
from ztorch.lower.cpu.vectorized_loops import vectorize_loops
from ztorch.lower.cpu.workgroup_loops import workgroups_as_loops
from ztorch.lower.params import KERNEL_SIZE, Lowered
from ztorch.lower.passes import decompose, launched, vectored
from ztorch.sized_cache import SizedCache

MOST_INSTRUCTIONS = 60_000  # of all kernels; a thousand take 0.8 MiB including their texts
CHARACTERS = 90  # in the text of an instruction
MOST_CHARACTERS = MOST_INSTRUCTIONS * CHARACTERS  # of their texts

# A body in a target's language and the grid of its launch, by the target's renderer and the
# identity of the body. The kernel is stored as well; otherwise its id could be reused.
_Rendered = SizedCache[tuple[Renderer, int], tuple[dict[str, Any], Grid, Kernel]]

_lowered: Lowered = SizedCache(MOST_INSTRUCTIONS)
_rendered: _Rendered = SizedCache(MOST_CHARACTERS)


def lowered_before() -> Lowered | None:
    """The kernels of earlier programs; None if the cache is off."""
    return None if current().cache is None else _lowered


def in_words(kernel: Kernel, target: Target, words: Renderer) -> tuple[Kernel, Grid]:
    """The kernel that one thread runs, in opcodes that its target supports, and the grid of its
    launch."""
    grid = target.limits.grid
    threads = kernel if grid is not None else _of_workers(kernel, target.limits)
    speakable, size = launched(decompose(threads, words.supports, target.name))
    if grid is not None:
        speakable = with_atomic_memories(speakable)
        speakable = vectored(speakable, grid.scalar_stores_readable_as_vectors)
    return speakable, size


def _of_workers(kernel: Kernel, limits: Limits) -> Kernel:
    """A kernel of explicit threads in the form that CPU workers run; other kernels unchanged."""
    shared_out = workgroups_as_loops(kernel)
    return kernel if shared_out is kernel else vectorize_loops(shared_out, limits)


class Kernels:
    """Renders kernels and numbers them. Kernels with the same text share one number.

    Args:
        target: The machine to render for.
    """

    def __init__(self, target: Target):
        self.target = target
        self.words = renderer(target)  # the macros and the module frame of the target
        self.rendered: list[dict[str, Any]] = []  # text, memories and symbol of each kernel
        self._number_of_text: dict[tuple, int] = {}
        # By the identity of the body. The kernel is stored as well; otherwise its id could be
        # reused.
        self._number_of_body: dict[int, tuple[int, Kernel]] = {}

    def number(self, kernel: Kernel) -> int:
        """The index of a kernel in `rendered`. Equal steps share one body."""
        body = id(kernel.body)
        if body not in self._number_of_body:
            self._number_of_body[body] = self._add(kernel), kernel
        return self._number_of_body[body][0]

    def _render(self, kernel: Kernel) -> tuple[dict[str, Any], Grid]:
        key, remembers = (self.words, id(kernel.body)), current().cache is not None
        if remembers and (before := _rendered.get(key)):
            return before[:2]
        verify(kernel)
        call = rendered_call(kernel, self.target.limits, self.words)
        if call is not None:
            return call, (1, 1, 1)
        speakable, size = in_words(kernel, self.target, self.words)
        data = self.words.kernel(speakable) | {"calls": prepared_calls(speakable)}
        if remembers:
            _rendered.put(key, (data, size, kernel),
                          len(data["body"]) + KERNEL_SIZE * CHARACTERS)
        return data, size

    def _add(self, kernel: Kernel) -> int:
        data, size = self._render(kernel)
        memories = (tuple((m.t, m.access, m.size) for m in data[kind])
                    for kind in ("memories", "locals", "shared"))
        text = (data["body"], data["workgroup"], data["cluster"], tuple(data["maps"]), size,
                *memories)
        if text not in self._number_of_text:
            self._number_of_text[text] = len(self.rendered)
            self.rendered.append({**data, "symbol": f"{kernel.name}_{len(self.rendered)}"})
        return self._number_of_text[text]

    def module(self, kernels: Sequence[dict[str, Any]]) -> str:
        """The text of a module that holds some of the rendered kernels."""
        return self.words.frame(kernels=kernels, limits=self.target.limits.grid,
                                chip=self.target.chip, **dict(self.target.frame_data))
