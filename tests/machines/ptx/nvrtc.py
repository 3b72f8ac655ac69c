"""Reads the PTX that NVRTC makes of our CUDA C++: as text that `parse` takes, in which nothing but spelling differs."""

from __future__ import annotations

import re

REPLACED = (
    (r"^\s*//.*$|\.pragma \"nounroll\";", ""),
    (r"[\t ]+", " "),
    (r"\$L__", "L__"),
    (r"\.maxntid (\d+)$", r".reqntid \1, 1, 1"),
    (r"\.maxntid", ".reqntid"),
    (r"(\.minnctapersm \d+\s+)(\.explicitcluster\s+\.reqnctapercluster [\d, ]+\s+)", r"\2\1"),
    (r"\.param \.u64 \.ptr[^,)]* (\w+)", r".param .u64 \1"),
    (r"\b_ZN2zt7dynamicE\b", "dynamic"),
    (r"(shfl\.sync\.bfly\.b32 %\w+)\|%p\d+", r"\1"),  # which threads are there, which nobody asks
    # A factor of 2 ** n, n >= 0, loses no bit, so that a sum may be fused with it.
    (r"\bmul(\.f32 %\w+, %\w+, 0f(?:3F8|[4-7][0-9A-F][08])00000;)", r"mul.rn\1"),
)


def respelled(text: str) -> str:
    """The text in the spelling of our own PTX."""
    for old, new in REPLACED:
        text = re.sub(old, new, text, flags=re.M)
    if not re.search(r"\bmul\.f(32|64)", text):  # a sum is fused with none but such a product
        text = re.sub(r"\b(add|sub)\.f(32|64)", r"\1.rn.f\2", text)
    return re.sub(r"\.reg \.(\w+) (%\w+)<(\d+)>;", _numbered, text)


def _numbered(m: re.Match[str]) -> str:
    return f".reg .{m[1]} " + ", ".join(f"{m[2]}{k}" for k in range(int(m[3]))) + ";"
