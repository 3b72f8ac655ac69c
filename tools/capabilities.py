"""docs/capabilities.md from the registries: what each target says by itself, which ops it runs.

    python -m tools.capabilities > docs/capabilities.md

Needs no device: opcodes are looked up in the templates, ops are lowered and rendered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

import ztorch.ops  # noqa: F401 (fills the registry)
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS, Target
from ztorch.compile.device_code import Kernels, within_limits
from ztorch.dtypes import (
    ALL,
    DType,
    bf16,
    boolean,
    dtype,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    lying,
    u8,
    u32,
)
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, Public, Sample, leaf, public_ops
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import COMPUTING, OPCODES, SCALAR
from ztorch.lower.passes import decompose
from ztorch.lower.placement import Params
from ztorch.lower.plan import Plan, lower

# Backends whose kernels the tests run, beside the CPU, in the language of the target of that name;
# .ci/run demands these drivers.
RUN = ("opencl", "vulkan", "webgpu")
NATIVE, VIA, NO = "native", "via", "no"
# What an op's samples are tried with, by the kinds that they allow.
TRIED = {"f": (f32, f64, f16, bf16), "s": (i32, i64, i8), "u": (u32, u8),
         "b": (boolean,)}

HEAD = """# Capabilities

From the registries, by `python -m tools.capabilities > docs/capabilities.md`; needs no device.

*native*: the target's templates have a word for the opcode. *via*: they have none, and the compiler
rewrites the opcode into others (a polynomial for `exp`, a guarded machine division for `div`), with
the same meaning. *no*: there is no rewriting, and a model that needs the opcode does not compile. A
cell is about float32, or int32 where the opcode takes no floats, and names the dtypes that differ;
the first table lists the dtypes that a target does not have. 16-bit floats are computed in float32
where a cell says *via* for them, 8- and 16-bit integers in 32 bits.
"""


def capabilities() -> str:
    """The page."""
    groups = grouped()
    return "\n".join([*words_part(groups), "", *ops_part(groups)]) + "\n"


def words_part(groups: Sequence[Sequence[Target]]) -> list[str]:
    """Targets and opcodes."""
    lines = [HEAD, "## Targets", "", *_table(
        ("column", "targets", "language", "dtypes it has not", "runs in the tests"),
        [(_title(g), ", ".join(t.name for t in g),
          ", ".join(dict.fromkeys(t.template_folders[0] for t in g)),
          " ".join(repr(d) for d in ALL if not has(g[0], d)) or "–", _run(g)) for g in groups])]
    lines += ["", "What runs in the tests runs there on drivers that imitate a GPU on the CPU. The "
              "others are compiled in the tests and their text is checked: see "
              "[devices.md](devices.md).", "", "## Opcodes", ""]
    cells = [opcode_cells(g[0]) for g in groups]
    titles = [_title(g) for g in groups]
    lines += _table(("opcode", "dtypes", *titles), [
        (f"`{o}`", _kinds(o), *(c[o] for c in cells)) for o in SCALAR])
    others = [o for o in OPCODES if o not in COMPUTING]
    lines += ["", "Words that compute nothing by themselves: memory, structure, lanes, threads. "
              "What is missing here is not needed there: lowering for a grid uses lanes only to "
              "load neighbours at once, that for a processor uses no workgroups, and threads "
              "exchange values through shared memory where they have no `shuffle_xor`.", "",
              *_table(("opcode", *titles), [(f"`{o}`", *(c[o] for c in cells)) for o in others])]
    return [*lines, "", *matrices_part()]


def matrices_part() -> list[str]:
    """What targets have `mma` for."""
    found: dict[str, list[str]] = {}
    for t in TARGETS.values():
        if t.limits.grid is not None and t.limits.grid.mma_shapes:
            shapes = ", ".join(f"`{s}`" for s in t.limits.grid.mma_shapes)
            found.setdefault(shapes, []).append(t.name)
    return ["Matrices that threads multiply together: rows, columns, depth, what is multiplied and "
            "what sums are in; *f32:10* is float32 of which 10 bits of mantissa count, for "
            "`matmul_precision=\"tf32\"`. The first shape that loses nothing is taken; other "
            "products are computed thread by thread.", "",
            *_table(("targets", "shapes"), [(", ".join(names), s) for s, names in found.items()])]


def ops_part(groups: Sequence[Sequence[Target]], only: Container[str] | None = None) -> list[str]:
    """All ops, or those of some names: it is this part that takes its time."""
    kinds = "; ".join(", ".join(map(repr, some)) for some in TRIED.values())
    titles = [_title(g) for g in groups]
    rows = op_cells([g[0] for g in groups], only)
    return ["## Ops", "",
            "All samples of an op and their gradients, lowered and rendered. *yes*: in every dtype "
            f"that the samples allow, of {kinds} and that the target has. Otherwise a cell names "
            "the dtypes that are `Unsupported`; *in part*: for some samples, or for the gradient "
            "alone, mostly where a fused kernel names more buffers than the target promises (a "
            "device may allow more than that). What compiles for a target that runs in the tests "
            "is run there as well and compared with float64: all of it in f32, f64, i32, u32 and "
            "bool, each op's first sample also in the other dtypes of its kinds.", "",
            *_table(("op", *titles), [(f"`{name}`", *found) for name, found in rows.items()])]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    spelled = [[c.replace("|", "\\|") for c in row] for row in (head, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in spelled]
    return [lines[0], "| --- " * len(head) + "|", *lines[1:]]


# -- targets ---------------------------------------------------------------------------------------


def grouped() -> list[list[Target]]:
    """Targets of one language that say the same words, together; the first stands for all."""
    found: dict[tuple, list[Target]] = {}
    for t in TARGETS.values():
        if t.backend != "dummy":  # which computes nothing
            key = (t.backend, t.template_suffix, t.limits.grid is not None,
                   tuple(opcode_cells(t).items()))
            found.setdefault(key, []).append(t)
    return list(found.values())


def _title(group: Sequence[Target]) -> str:
    first = group[0].name
    return first if len(group) == 1 else f"{first} …"


def _run(group: Sequence[Target]) -> str:
    first = group[0]
    if first.backend == "cpu":
        return f"where there is {'a C compiler' if first.emits_source else 'such a processor'}"
    return "yes" if first.name in RUN else "no, compiled only"


# -- opcodes ---------------------------------------------------------------------------------------


def opcode_cells(target: Target) -> dict[str, str]:
    """For each opcode, what the target makes of it.

    >>> from ztorch.codegen.targets import TARGETS
    >>> opcode_cells(TARGETS["avx2"])["sqrt"]
    'native; via f16 bf16'
    """
    words, able = renderer(target), [d for d in ALL if has(target, d)]
    out = {o: _cell({d: scalar_state(o, d, target) for d in able if d.kind in OPCODES[o].kinds})
           for o in SCALAR}
    for o in OPCODES:
        if o not in COMPUTING:
            said = o in words.words and not {o, (o, "f32")} & target.missing_opcodes
            out[o] = NATIVE if said else "–"
    return out


def has(target: Target, d: DType) -> bool:
    """Whether the target has a dtype at all, if only to store it.

    >>> from ztorch.codegen.targets import TARGETS
    >>> has(TARGETS["avx2"], f64), has(TARGETS["webgpu"], f64)
    (True, False)
    """
    # Dtypes that are stored and never converted are moved as whole numbers.
    moved = d.name in target.stored_dtypes and d.name not in target.converted_dtypes
    return moved or bool(str(renderer(target).spelling.type(d.name, 1)))


def scalar_state(opcode: str, d: DType, target: Target) -> str:
    """native, via or no: for one dtype, from registers to a register.

    >>> from ztorch.codegen.targets import TARGETS
    >>> scalar_state("exp", f32, TARGETS["avx2"]), scalar_state("add", f32, TARGETS["avx2"])
    ('via', 'native')
    """
    words = renderer(target)
    kernel, asked = _alone(opcode, d, target.limits)
    try:
        plain = decompose(kernel, words.speaks, target.name)
        words.kernel(plain)
    except Unsupported:
        return NO
    return NATIVE if words.speaks(asked) else VIA


def _alone(opcode: str, d: DType, limits: Limits) -> tuple[Kernel, Instr]:
    """A kernel around one opcode, and its instruction."""
    row = OPCODES[opcode]
    b = Builder(f"{opcode}_{d!r}", limits.index)
    stored = lying(d)
    args = []
    for k in range(row.arity):
        as_flag = opcode == "select" and k == 0
        name = b.memory(f"x{k}", u8 if as_flag else stored, 1)
        x = b.load(name, 0)
        args.append(b.ne(x, 0) if as_flag or d is boolean else x)
    result = _result(opcode, d)
    y = b.emit(opcode, *args, **({"dtype": result} if row.result == "attr" else {}))
    asked = next(i for i in b.body if i.dest is y)
    out = lying(result)
    b.memory("y", out, 1, access="w")
    b.store("y", 0, b.cast(y, dtype=out) if result is boolean else y)
    return b.kernel(), asked


def _result(opcode: str, d: DType) -> DType:
    if opcode == "bitcast":
        return next(r for r in ALL if r.bits == d.bits and r is not d and r is not boolean)
    if opcode == "cast":
        return i32 if d is f32 else f32
    return boolean if OPCODES[opcode].result == "bool" else d


def _kinds(opcode: str) -> str:
    words = {"f": "floats", "s": "signed", "u": "unsigned", "b": "bool"}
    return ", ".join(words[k] for k in OPCODES[opcode].kinds)


def _cell(states: Mapping[DType, str]) -> str:
    """The state of float32, or where that is not taken of int32, and the dtypes that differ."""
    usual = states[next(d for d in (f32, i32, u32, boolean) if d in states)]
    parts = [usual]
    for state in (NATIVE, VIA, NO):
        if state != usual and (which := [repr(d) for d, s in states.items() if s == state]):
            parts.append(f"{state} {' '.join(which)}")
    return "; ".join(parts)


# -- ops -------------------------------------------------------------------------------------------


def op_cells(targets: Sequence[Target],
             only: Container[str] | None = None) -> dict[str, list[str]]:
    """For each op, on each target: yes, or the dtypes that it cannot take."""
    able = [[d for d in ALL if has(t, d)] for t in targets]
    rows: dict[str, list[str]] = {}
    for public in sorted(public_ops(), key=lambda p: p.name):
        if only is not None and public.name not in only:
            continue
        answers: list[dict[DType, list[bool]]] = [{} for _ in targets]
        for d, graph in _graphs(public):
            plans: dict[Limits, Plan | None] = {}
            for k, t in enumerate(targets):
                if d in able[k]:
                    answers[k].setdefault(d, []).append(_compiles(graph, t, plans))
        if any(answers):
            rows[public.name] = [_answer(a) for a in answers]
    return rows


def _answer(found: Mapping[DType, Sequence[bool]]) -> str:
    none = [repr(d) for d in ALL if d in found and not any(found[d])]
    some = [repr(d) for d in ALL if d in found and any(found[d]) and not all(found[d])]
    return "; ".join([f"not {' '.join(none)}"] * bool(none) + [f"{' '.join(some)} in part"] *
                     bool(some)) or "yes"


def _compiles(graph: Graph, target: Target, plans: dict[Limits, Plan | None]) -> bool:
    """Whether every kernel of a graph can be said in the target's words and limits; targets with
    the same limits share plans."""
    try:
        if target.limits not in plans:
            plans[target.limits] = None
            plans[target.limits] = lower("op", graph, target.limits, Params(target.limits))
        plan, kernels = plans[target.limits], Kernels(target)
        for step in plan.steps if plan is not None else ():
            if target.limits.grid is not None:
                within_limits(step, target)
            kernels.number(step.kernel)
    except Unsupported:
        return False
    return plan is not None


def _graphs(public: Public) -> Iterator[tuple[DType, Graph]]:
    """Each sample and its gradient in the first dtype of each kind that it allows, and the first
    sample in the others."""
    first = True
    for sample in public.samples:
        for kind in sample.dtypes:
            for d in TRIED[kind] if first else TRIED[kind][:1]:
                yield from ((d, graph) for graph in _made(public, sample, d))
        first = False


def _made(public: Public, sample: Sample, d: DType) -> list[Graph]:
    """The graph of an op's results, and that of its gradient."""
    leaves = []
    for k, given in enumerate(sample.shapes):
        array = isinstance(given, np.ndarray)
        of = d if not array or given.dtype.kind == "f" else dtype(given.dtype)
        if public.name == "where" and k == 0:
            of = boolean
        leaves.append(leaf("input", f"x{k}", np.shape(given) if array else given, of))
    try:
        made = public.call(*leaves, **sample.attrs)
    except ZtorchError:  # an op's own rule, on every target alike
        return []
    results = [made] if isinstance(made, Value) else list(made)
    graphs = [Graph({f"y{k}": y for k, y in enumerate(results)})]
    wrt = [v for v in leaves if v.dtype is f32]
    if wrt and results[0].dtype.is_float:
        found = gradients(OPS.sum(results[0]), wrt)
        graphs.append(Graph({f"d{k}": g for k, g in enumerate(found)}))
    return graphs


if __name__ == "__main__":
    print(capabilities(), end="")
