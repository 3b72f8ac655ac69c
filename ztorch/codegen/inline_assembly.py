"""The operands of inline assembly: the registers and memories of a word of another language, as
numbered names of the assembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.codegen.views import MemoryView, OperandView
from ztorch.dtypes import dtype


@dataclass(frozen=True)
class AssemblyOperand:
    """An operand of the assembly."""

    expression: str  # its text in the language around the assembly
    t: str = ""  # its type there
    space: str = ""  # of a memory: global or shared; map: a tensor map, by its number


@dataclass
class AssemblyOperands:
    """A word's operands for the template `inline`, named `$0`, `$1` and so on: results first."""

    written: list[AssemblyOperand] = field(default_factory=list)
    updated: list[AssemblyOperand] = field(default_factory=list)
    read: list[AssemblyOperand] = field(default_factory=list)
    memories: list[AssemblyOperand] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)  # numbers of operands that are true or false
    operands: list[OperandView] = field(default_factory=list)  # as the word receives them
    attributes: dict[str, Any] = field(default_factory=dict)

    def _view(self, view: OperandView, registers: list[AssemblyOperand]) -> OperandView:
        """The view with names of the assembly. Constant integers stay as they are."""
        spelled = dtype(view.dtype).spelled
        if view.c is not None and view.k != "f":
            return replace(view, r=str(int(view.c)), t=spelled.ptx_register, suffix=spelled.ptx)
        first = len(self.written) + len(self.updated) + len(self.read)
        registers += [AssemblyOperand(part, view.t) for part in view.parts]
        names = tuple(f"${first + n}" for n in range(len(view.parts)))
        if view.k == "b":
            self.flags.append(first)
            names = (f"$p{first}",)
        return replace(view, r=names[0], parts=names, t=spelled.ptx_register, suffix=spelled.ptx)

    def _place(self, expression: str, space: str) -> str:
        number = len(self.written) + len(self.updated) + len(self.read) + len(self.memories)
        self.memories.append(AssemblyOperand(expression, space=space))
        return f"${number}"

    def _attribute(self, name: str, attribute: Any) -> Any:
        if isinstance(attribute, MemoryView):
            return replace(attribute, r=self._place(attribute.r, attribute.space))
        return self._place(attribute, name) if name == "map" else attribute


def inlined(d: OperandView, operands: Sequence[OperandView],
            attributes: Mapping[str, Any]) -> AssemblyOperands:
    """The operands of a word as inline assembly.

    Args:
        d: Its result.
        operands: Its operands. Variables are updated, others read.
        attributes: Its attributes, memories among them.
    """
    to = AssemblyOperands()
    result = to._view(d, to.written) if d.kind != "token" else d
    variables = {k: to._view(o, to.updated) for k, o in enumerate(operands) if o.kind == "variable"}
    others = {k: to._view(o, to.read) for k, o in enumerate(operands) if k not in variables}
    to.operands = [result, *((variables | others)[k] for k in range(len(operands)))]
    to.attributes = {name: to._attribute(name, a) for name, a in attributes.items()}
    return to
