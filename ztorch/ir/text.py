"""Writes kernels as text that parses back to the same kernel, bit for bit.

Every id that an operand can refer to is written. The token of a store, a set or an end is left out
if its id is the next free one; otherwise it is written after a `#`. The dtype of a constant is left
out if its position implies it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.ir.kernel import Instr, Kernel, Operand, constant
from ztorch.ir.opcodes import OPCODES
from ztorch.ir.parse import Ids, Type, parse

__all__ = ["parse", "show"]


def show(kernel: Kernel) -> str:
    """The text of a kernel. `parse` turns it back into an equal kernel.

    >>> from ztorch.dtypes import f32
    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("double")
    >>> _ = b.memory("x", f32, 8), b.memory("y", f32, 8, access="w")
    >>> with b.loop(0, 8) as i:
    ...     b.store("y", i, b.mul(b.load("x", i), 2.0))
    >>> print(show(b.kernel()), end="")
    kernel double index=i64 exact {
      global x f32[8] r
      global y f32[8] w
      loop %0 = 0, 8, 1 serial {
        %1:f32 = load x[%0]
        %2:f32 = mul %1, 2.0
        store y[%0], %2
      }
    }
    """
    lines = _declarations(kernel)
    written = [*kernel.variables, *(i.dest for i in kernel.body if i.dest.kind != "token")]
    depth, ids = 1, Ids({v.id for v in written})
    for instr in kernel.body:
        if instr.opcode in ("end_loop", "else", "end_if"):
            depth -= 1
        text = _instruction(instr, kernel.index)
        if instr.dest.kind == "token" and instr.dest.id != ids.following():
            text += f" #{instr.dest.id}"
        ids.note(instr.dest.id)
        if instr.opcode in ("loop", "if", "else"):
            text += " {"
        lines.append("  " * max(depth, 0) + text)
        if instr.opcode in ("loop", "if", "else"):
            depth += 1
    return "\n".join(lines) + "\n}\n"


def _declarations(k: Kernel) -> list[str]:
    """The lines before the instructions: the head, the origin, memories and variables."""
    head = f"kernel {k.name} index={k.index!r} {'exact' if k.exact else 'contract'}"
    if k.workgroup != (1, 1, 1):
        head += f" workgroup=({', '.join(map(str, k.workgroup))})"
    if k.cluster != 1:
        head += f" cluster={k.cluster}"
    if k.resident_threads:
        head += f" resident_threads={k.resident_threads}"
    lines = [head + " {"]
    if k.origin:
        lines.append(f"  origin {json.dumps(list(k.origin))}")
    for m in k.memories:
        vec = f" vec={m.vec}" if m.vec != 1 else ""
        kind = " swizzled" * m.swizzled + " streamed" * m.streamed
        lines.append(f"  {m.space} {m.name} {m.dtype!r}[{m.size}] {m.access}{vec}{kind}")
    return [*lines, *(f"  var %{v.id}:{_type(v)}" for v in k.variables)]


def _type(o: Operand) -> str:
    name = o.dtype.name if o.lanes == 1 else f"{o.dtype.name}x{o.lanes}"
    if o.fragment is None:
        return name
    layout = f" {o.fragment.layout}" if o.fragment.layout else ""
    return f"{name}@{o.fragment.role}({o.fragment.shape}{layout})"


def _instruction(i: Instr, index: DType) -> str:
    if i.opcode in ("end_loop", "end_if"):
        return "}"
    if i.opcode == "else":
        return "} else"
    attrs = dict(i.attrs)
    if i.opcode == "loop":
        bounds = ", ".join(_operand(a, (index, 1, None)) for a in i.args)
        text = f"loop %{i.dest.id} = {bounds} {attrs.pop('kind', '?')}"
        return text + "".join(f" {key}={_attr(value)}" for key, value in attrs.items())
    text, args = i.opcode, i.args
    masks: tuple[Operand, ...] = ()
    if "mem" in attrs:
        position, off = _operand(i.args[0], (index, 1, None)), attrs.pop("off", 0)
        position += f" {'+-'[off < 0]} {abs(off)}" if off else ""
        text += f" {attrs.pop('mem')}[{position}]"
        arity = OPCODES[i.opcode].arity
        if OPCODES[i.opcode].variadic:
            arity = len(i.args)
        args, masks = i.args[1:arity], i.args[arity:]
        text += "," if args else ""
        if not attrs.get("align", 1):
            del attrs["align"]
    elif i.opcode == "if":
        attrs.pop("els", None)
    text += "".join(f"{',' * (n > 0)} {_operand(a, _expected(i))}" for n, a in enumerate(args))
    text += "".join(f" mask {_operand(a, None)}" for a in masks)
    text += "".join(f" {key}={_attr(value)}" for key, value in attrs.items())
    if i.dest.kind == "token":
        return text
    return f"%{i.dest.id}:{_type(i.dest)} = {text}"


def _expected(i: Instr) -> Type | None:
    """The type of a constant operand that is written without its type."""
    if i.opcode == "set":
        return i.args[0].type
    return None if i.dest.kind == "token" else i.dest.type


def _operand(a: Operand, expected: Type | None) -> str:
    if not a.is_const:
        return f"%{a.id}"
    text = _number(a)
    return text if expected == a.type else f"{text}:{_type(a)}"


def _number(a: Operand) -> str:
    """The shortest decimal that parses to the same bits, or else the bits in hexadecimal."""
    d, number = a.dtype, a.number
    if d.kind == "b":
        return "true" if number else "false"
    if d.is_int:
        return str(number)
    in_own_precision = str(np.array(number).astype(d.working)[()])
    for text in sorted((repr(number), in_own_precision), key=len):
        if constant(float(text), d).bits == a.bits:
            return text
    return f"{a.bits:#x}"


def _attr(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


