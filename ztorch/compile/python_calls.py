"""The native functions through which CPython calls compiled code and records ops, and through
which other libraries return lent memory. They are compiled once and cached."""

from __future__ import annotations

import functools

from ztorch.abi import (
    BUFFER_ALIGN,
    BUSY,
    BYTES_HEAD,
    CONTROL_OFFSETS,
    DLPACK_DELETERS,
    ITEMS_AT,
    LENGTH_AT,
    LIST_AT,
    MOST_RECORDED_OPERANDS,
    PAGE,
    PAGED_BYTES,
    PYTHON_BUILDS,
    PYTHON_CALL,
    PYTHON_RECORD,
    PYTHON_RECORDING,
    PYTHON_STEPS,
    RECORDING_RECORD,
    SHARING,
    SHARING_RULE,
    TYPE_AT,
)
from ztorch.codegen.assemble import assemble
from ztorch.codegen.elf.link import link
from ztorch.codegen.llvm import llvm_identity
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.compile.targeting import target_for
from ztorch.host import assets
from ztorch.runtime.devices import resolve


@functools.cache
def python_calls() -> bytes | None:
    """The library with these functions; None if LLVM cannot generate code for this processor.

    >>> (python_calls() or bytes(4))[:4] in (b"\\x7fELF", bytes(4))
    True
    """
    target = target_for(resolve("cpu"))
    if target.assembler != "assemble":
        return None
    folder = assets.folder("templates") / "python_call"
    parts = [path.read_bytes() for path in sorted(folder.glob("*.j2"))]
    data = {"head": BYTES_HEAD, "type_at": TYPE_AT, "length_at": LENGTH_AT,
            "items_at": ITEMS_AT, "list_at": LIST_AT, "align": BUFFER_ALIGN, "page": PAGE,
            "paged": PAGED_BYTES, "fields": PYTHON_RECORD, "steps": PYTHON_STEPS,
            "builds": PYTHON_BUILDS, "deleters": DLPACK_DELETERS, "triple": target.llvm_triple,
            "cpu": target.llvm_cpu, "recording": PYTHON_RECORDING,
            "recording_fields": RECORDING_RECORD, "most_operands": MOST_RECORDED_OPERANDS,
            "sharing": SHARING, "control": CONTROL_OFFSETS, "busy": BUSY,
            **SHARING_RULE}

    def linked() -> bytes:
        from ztorch.codegen.templates import environment  # not needed for cached code

        text = environment().get_template("python_call/call.ll.j2").render(data)
        return link(assemble(text, target), soname="python_call.so",
                    exports=[PYTHON_CALL, PYTHON_RECORDING, *DLPACK_DELETERS])

    return cached((*parts, repr(data), canonical_text(target), llvm_identity()), linked)
