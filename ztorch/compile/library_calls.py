"""Kernels of a device that are calls of another library: data in place of code."""

from __future__ import annotations

import json
from typing import Any

from ztorch.abi import LIBRARY_CALL
from ztorch.codegen.render import Renderer
from ztorch.ir.kernel import Kernel
from ztorch.ir.library_convolutions import DESCRIPTION, results_of
from ztorch.ir.library_products import MATRICES
from ztorch.ir.limits import Limits


def rendered_call(kernel: Kernel, limits: Limits, words: Renderer) -> dict[str, Any] | None:
    """A kernel that is a call, in the form in which others are rendered: its body is the call as
    JSON, with the fields of `backends/cublaslt.py` or `cudnn.py`. None if it has code."""
    convolves = "library_convolution" in kernel.opcodes()
    if limits.grid is None or not (convolves or "library_product" in kernel.opcodes()):
        return None
    [call] = kernel.body
    a, names = call.attrs, [m.name for m in kernel.memories]
    memories = [kernel.memory(a[name]) for name, *_ in MATRICES]
    starts = [(index.number + a[off]) * m.dtype.bytes for index, (_, off, *_), m in zip(
        call.args, MATRICES, memories, strict=True)]
    if convolves:
        sizes = {"y": results_of(a), "transforms": limits.transforms,
                 **{n: a[n] for n in (*DESCRIPTION, "mirrored", "swapped")}}
    else:
        sizes = {"m": a["m"], "n": a["n"], "k": a["k"],
                 "pitches": [a[pitch] for _, _, pitch, *_ in MATRICES],
                 "transposed": [a["source_transposed"], a["right_transposed"]]}
    fields = {**sizes, "starts": starts,
              "dtypes": [memories[0].dtype.name, memories[1].dtype.name],
              "mantissa_bits": limits.product_mantissa_bits if memories[1].dtype.bits == 32 else 23,
              "places": [names.index(m.name) for m in memories]}
    spelled = [words.spelling.memory(m, str(k)) for k, m in enumerate(kernel.memories)]
    return {"body": json.dumps(fields), "call": True, "memories": spelled, "locals": [],
            "shared": [], "above": {}, "workgroup": (1, 1, 1), "cluster": 1, "maps": [],
            "dynamic_shared": 0}


def prepared_calls(kernel: Kernel) -> dict[str, str]:
    """By the names of calls, what libraries of the processor prepare for them when the program is
    loaded, as JSON."""
    return {i.attrs["call"]: json.dumps({name: i.attrs[name] for name in DESCRIPTION}
                                        | {"y": results_of(i.attrs), "bias": bool(i.attrs["bias"])})
            for i in kernel.body if i.opcode == "library_convolution"}


def is_call(kernel: dict[str, Any]) -> bool:
    """Whether a rendered kernel is a call."""
    return "call" in kernel


def call_code(kernel: dict[str, Any]) -> bytes:
    """The part of a program's code that stands for such a kernel."""
    return LIBRARY_CALL + kernel["body"].encode()
