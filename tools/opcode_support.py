"""Which opcodes and dtypes each target has, looked up in its templates."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.codegen.render import renderer
from ztorch.codegen.targets import Target
from ztorch.dtypes import ALL, DType, boolean, f32, i32, storage_dtype, u8, u32
from ztorch.errors import Unsupported
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import ATOMICS, COMPUTING, OPCODES, SCALAR
from ztorch.lower.passes import decompose

NATIVE, VIA, NO = "native", "via", "no"


def opcode_cells(target: Target) -> dict[str, str]:
    """Whether the target has each opcode: native, via others, or not.

    >>> from ztorch.codegen.targets import TARGETS
    >>> opcode_cells(TARGETS["avx2"])["sqrt"]
    'native; via f16 bf16'
    """
    vocabulary = (target.template_folders, target.template_suffix, target.missing_opcodes,
                  target.stored_dtypes, target.converted_dtypes, target.limits.index)
    if vocabulary not in _CELLS:
        _CELLS[vocabulary] = _opcode_cells(target)
    return dict(_CELLS[vocabulary])


_CELLS: dict[tuple, dict[str, str]] = {}  # by their inputs, which many targets share


def _opcode_cells(target: Target) -> dict[str, str]:
    words, able = renderer(target), [d for d in ALL if has(target, d)]
    out = {o: _cell({d: scalar_state(o, d, target) for d in able if d.kind in OPCODES[o].kinds})
           for o in SCALAR}
    for o in OPCODES:
        if o in ATOMICS:
            out[o] = _cell({d: atomic_state(o, d, target) for d in able
                            if d.bits >= 32 and d.kind in OPCODES[o].kinds})
        elif o not in COMPUTING:
            supported = o in words.words and not {o, (o, "f32")} & target.missing_opcodes
            out[o] = NATIVE if supported else "–"
    return out


def has(target: Target, d: DType) -> bool:
    """Whether the target has a dtype at all, if only to store it.

    >>> from ztorch.codegen.targets import TARGETS
    >>> from ztorch.dtypes import f64
    >>> has(TARGETS["avx2"], f64), has(TARGETS["webgpu"], f64)
    (True, False)
    """
    return renderer(target).spelling.has(d)


def scalar_state(opcode: str, d: DType, target: Target) -> str:
    """native, via or no: for one dtype, from registers to a register.

    >>> from ztorch.codegen.targets import TARGETS
    >>> scalar_state("exp", f32, TARGETS["avx2"]), scalar_state("add", f32, TARGETS["avx2"])
    ('via', 'native')
    """
    words = renderer(target)
    kernel, instruction = _alone(opcode, d, target.limits)
    try:
        plain = decompose(kernel, words.supports, target.name)
        words.kernel(plain)
    except Unsupported:
        return NO
    return NATIVE if words.supports(instruction) else VIA


def atomic_state(opcode: str, d: DType, target: Target) -> str:
    """native, via or no: the update of an element of a buffer.

    >>> from ztorch.codegen.targets import TARGETS
    >>> atomic_state("atomic_add", i32, TARGETS["vulkan"])
    'native'
    >>> atomic_state("atomic_add", f32, TARGETS["vulkan"])
    'via'
    """
    words, b = renderer(target), Builder(opcode, target.limits.index)
    b.memory("y", d, 1, access="rw")
    x = b.const(1, d)
    b.atomic(opcode.removeprefix("atomic_"), "y", 0, *(x,) * (OPCODES[opcode].arity - 1))
    try:
        words.kernel(decompose(b.kernel(), words.supports, target.name))
    except Unsupported:
        return NO
    return NATIVE if words.supports(b.body[0]) else VIA


def _alone(opcode: str, d: DType, limits: Limits) -> tuple[Kernel, Instr]:
    """A kernel around one opcode, and its instruction."""
    row = OPCODES[opcode]
    b = Builder(f"{opcode}_{d!r}", limits.index)
    stored = storage_dtype(d)
    args = []
    for k in range(row.arity):
        as_flag = opcode == "select" and k == 0
        name = b.memory(f"x{k}", u8 if as_flag else stored, 1)
        x = b.load(name, 0)
        args.append(b.ne(x, 0) if as_flag or d is boolean else x)
    result = _result(opcode, d)
    y = b.emit(opcode, *args, **({"dtype": result} if row.result == "attr" else {}))
    instruction = next(i for i in b.body if i.dest is y)
    out = storage_dtype(result)
    b.memory("y", out, 1, access="w")
    b.store("y", 0, b.cast(y, dtype=out) if result is boolean else y)
    return b.kernel(), instruction


def _result(opcode: str, d: DType) -> DType:
    if opcode == "bitcast":
        return next(r for r in ALL if r.bits == d.bits and r is not d and r is not boolean)
    if opcode == "cast":
        return i32 if d is f32 else f32
    return boolean if OPCODES[opcode].result == "bool" else d


def kinds_of(opcode: str) -> str:
    words = {"f": "floats", "s": "signed", "u": "unsigned", "b": "bool"}
    return ", ".join(words[k] for k in OPCODES[opcode].kinds)


def _cell(states: Mapping[DType, str]) -> str:
    """The state of float32, or where that is not taken of int32, and the dtypes that differ."""
    usual = states[next(d for d in (f32, i32, u32, boolean) if d in states)]
    parts = [usual]
    for state in (NATIVE, VIA, NO):
        if state != usual and (dtypes := [repr(d) for d, s in states.items() if s == state]):
            parts.append(f"{state} {' '.join(dtypes)}")
    return "; ".join(parts)
