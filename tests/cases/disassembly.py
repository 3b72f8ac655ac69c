"""Machine code of NVIDIA's GPUs as lists of instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ztorch.codegen.nvidia_programs import PACKAGES, installed

disassembled = pytest.mark.skipif(not installed("nvdisasm"), reason=f"needs nvdisasm: pip install {PACKAGES['nvdisasm']}")


class Disassembled(NamedTuple):
    """A kernel, or a subroutine that the assembler added."""

    name: str
    opcodes: list[str]  # with their suffixes
    loops: list[list[str]]  # opcodes of each innermost loop that does something

    def of_loops(self, word: str) -> list[list[str]]:
        """The loops with an instruction of this name."""
        return [loop for loop in self.loops if word in named(loop)]


def named(opcodes: list[str]) -> Counter[str]:
    return Counter(opcode.split(".")[0] for opcode in opcodes)


def parts(listing: str) -> Iterator[Disassembled]:
    for section in re.split(r"^//-+ \.text\.", listing, flags=re.MULTILINE)[1:]:
        opcodes: list[str] = []
        labels: dict[str, int] = {}
        back: list[tuple[int, int]] = []
        called: dict[int, str] = {}
        for line in section.split("\n")[1:]:
            if label := re.match(r"(\.L_x_\d+):", line):
                labels[label[1]] = len(opcodes)
            elif result := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P(?:\d|T)\s+)?([A-Z][\w.]*)(.*);", line):
                opcodes.append(result[1])
                if result[1].startswith("CALL") and (to := re.search(r"\.L_x_\d+", result[2])):
                    called[len(opcodes) - 1] = to[0]
                if result[1].startswith("BRA") and (to := re.search(r"\.L_x_\d+", result[2])) and to[0] in labels:
                    back.append((labels[to[0]], len(opcodes)))
        for at, behind in called.items():  # the code right behind a loop: the assembler may leave it there
            if labels.get(behind) == at + 2 and at + 2 in {end for _, end in back}:
                opcodes[at] = "BRA"
        inner = [(a, b) for a, b in back if b - a > 1 and not any(
            a <= c and d <= b and (a, b) != (c, d) for c, d in back)]
        yield Disassembled(section.split()[0], opcodes, [opcodes[a:b] for a, b in inner])
