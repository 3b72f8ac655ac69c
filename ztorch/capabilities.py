"""docs/capabilities.md from the registries: what each target says by itself, and what each op takes.

    python -m ztorch.capabilities > docs/capabilities.md

Needs no device: opcodes are looked up in the templates, ops are lowered and rendered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS, Target
from ztorch.device_code import Kernels, within_limits
from ztorch.dtypes import ALL, DType, bf16, boolean, dtype, f16, f32, f64, i32, i64, u8
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS, Public, Sample, leaf, public_ops
from ztorch.graph.value import Graph, Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import OPCODES, SCALAR
from ztorch.lower.passes import decompose
from ztorch.lower.plan import Params, lower

# Backends whose kernels the tests run, beside the CPU; .ci/run demands these drivers.
RUN = ("opencl", "vulkan", "webgpu")
NATIVE, VIA, NO = "native", "via", "no"
# What an op's samples are tried with, by the kinds that they allow.
TRIED = {"f": (f32, f64, f16, bf16), "s": (i32, i64, dtype("i8")), "u": (dtype("u32"), u8),
         "b": (boolean,)}
DEPTH = 2  # every other word than arithmetic is tried on these
Cells = dict[str, str]  # by opcode or op

HEAD = """# Capabilities

From the registries, by `python -m ztorch.capabilities > docs/capabilities.md`; needs no device.

A target is native in an opcode where its templates have a word for it. Where a word is missing,
the opcode is rewritten by its `via` (a polynomial, say) into words that are there: *via*. Where that
does not end either, it is missing: *no*, and what needs it is an error while compiling. A cell names
the dtypes that differ from the others of the row. 16-bit floats are stored as such and computed in
float32 wherever a cell says *via* for them.
"""


def capabilities(ops: bool = True) -> str:
    """The page; the part about ops takes longest."""
    groups = grouped()
    lines = [HEAD, "## Targets", "", *_table(
        ("column", "targets", "language", "runs in the tests"),
        [(_title(g), ", ".join(t.name for t in g), g[0].chain[0], _run(g)) for g in groups])]
    lines += ["", "What runs in the tests runs there on drivers that imitate a GPU on the CPU. The "
              "others are compiled in the tests and their text is checked: see "
              "[devices.md](devices.md).", "", "## Opcodes", ""]
    cells = [opcode_cells(g[0]) for g in groups]
    titles = [_title(g) for g in groups]
    lines += _table(("opcode", "dtypes", *titles), [
        (f"`{o}`", _kinds(o), *(c[o] for c in cells)) for o in SCALAR])
    others = [o for o in OPCODES if o not in SCALAR]
    lines += ["", "Words that compute nothing by themselves: memory, structure, lanes, threads. What "
              "is missing here is not needed there: lowering for a grid uses no lanes, lowering for a "
              "processor no workgroups, and threads exchange values through shared memory where they "
              "have no `shuffle_xor`.", "",
              *_table(("opcode", *titles), [(f"`{o}`", *(c[o] for c in cells)) for o in others])]
    if ops:
        lines += ["", *_ops_part(groups)]
    return "\n".join(lines) + "\n"


def _ops_part(groups: Sequence[Sequence[Target]]) -> list[str]:
    kinds = "; ".join(", ".join(map(repr, some)) for some in TRIED.values())
    titles = [_title(g) for g in groups]
    rows = op_cells([g[0] for g in groups])
    return ["## Ops", "",
            f"All samples of an op, and the gradient of each in f32, lowered and rendered. *yes*: in "
            f"every dtype that the samples allow, of {kinds}. A cell names what is `Unsupported`. "
            "What compiles for a target that runs in the tests is run there as well, in f32 and f64 "
            "(where it compiles), i32, u32 and bool, and compared with float64.", "",
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
            key = (t.backend, t.chain, t.limits.grid is not None,
                   tuple(opcode_cells(t).items()))
            found.setdefault(key, []).append(t)
    return list(found.values())


def _title(group: Sequence[Target]) -> str:
    first = group[0].name
    return first if len(group) == 1 else f"{first} …"


def _run(group: Sequence[Target]) -> str:
    here = group[0].backend in RUN
    if group[0].backend == "cpu":
        return "where the processor has it" if not group[0].source else "where there is a C compiler"
    return "yes" if here else "no, compiled only"


# -- opcodes ---------------------------------------------------------------------------------------


def opcode_cells(target: Target) -> Cells:
    """For each opcode, what the target makes of it.

    >>> from ztorch.codegen.targets import TARGETS
    >>> opcode_cells(TARGETS["avx2"])["sqrt"]
    'native; via f16 bf16'
    """
    out = {o: _cell({d: scalar_state(o, d, target) for d in _dtypes(o)}) for o in SCALAR}
    words = renderer(target)
    for o in OPCODES:
        if o not in SCALAR:
            out[o] = "native" if _speaks_plain(o, words.words, target) else "–"
    return out


def _speaks_plain(opcode: str, words: Mapping[str, object], target: Target) -> bool:
    return opcode in words and opcode not in target.lacks and (opcode, "f32") not in target.lacks


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
    stored = limits.stored(d)
    args = []
    for k in range(row.arity):
        as_flag = opcode == "select" and k == 0
        name = b.memory(f"x{k}", limits.flag if as_flag else stored, 1)
        x = b.load(name, 0)
        args.append(b.ne(x, 0) if as_flag or d is boolean else x)
    result = _result(opcode, d)
    y = b.emit(opcode, *args, **({"dtype": result} if row.result == "attr" else {}))
    asked = next(i for i in b.body if i.dest is y)
    out = limits.stored(result)
    b.memory("y", out, 1, access="w")
    b.store("y", 0, b.cast(y, dtype=out) if result is boolean else y)
    return b.kernel(), asked


def _result(opcode: str, d: DType) -> DType:
    if opcode == "bitcast":
        return next(r for r in ALL if r.bits == d.bits and r is not d and r is not boolean)
    if opcode == "cast":
        return i32 if d is f32 else f32
    return boolean if OPCODES[opcode].result == "bool" else d


def _dtypes(opcode: str) -> list[DType]:
    return [d for d in ALL if d.kind in OPCODES[opcode].kinds]


def _kinds(opcode: str) -> str:
    words = {"f": "floats", "s": "signed", "u": "unsigned", "b": "bool"}
    return ", ".join(words[k] for k in OPCODES[opcode].kinds)


def _cell(states: Mapping[DType, str]) -> str:
    """The state of most dtypes, with those that differ; f32 and i32 decide where none has most."""
    counts = Counter(states.values())
    for d in (f32, i32):
        if d in states:
            counts[states[d]] += DEPTH
    usual = counts.most_common(1)[0][0]
    parts = [usual]
    for state in (NATIVE, VIA, NO):
        if state != usual and (which := [repr(d) for d, s in states.items() if s == state]):
            parts.append(f"{state} {' '.join(which)}")
    return "; ".join(parts)


# -- ops -------------------------------------------------------------------------------------------


def op_cells(targets: Sequence[Target]) -> dict[str, list[str]]:
    """For each op, on each target: yes, or the dtypes it cannot take."""
    rows: dict[str, list[str]] = {}
    for public in sorted(public_ops(), key=lambda p: p.name):
        refused: list[dict[str, None]] = [{} for _ in targets]
        tried = False
        for d, graph in _graphs(public):
            tried = True
            plans: dict[Limits, object] = {}
            for k, t in enumerate(targets):
                if not _compiles(graph, t, plans):
                    refused[k][repr(d)] = None
        if tried:
            rows[public.name] = [f"not {' '.join(r)}" if r else "yes" for r in refused]
    return rows


def _compiles(graph: Graph, target: Target, plans: dict[Limits, object]) -> bool:
    """Whether every kernel of a graph can be said in the target's words and limits; plans of
    targets with the same limits are shared."""
    if target.limits not in plans:
        try:
            plans[target.limits] = lower("op", graph, target.limits, Params(target.limits))
        except Unsupported:
            plans[target.limits] = None
    plan = plans[target.limits]
    if plan is None:
        return False
    kernels = Kernels(target)
    try:
        for step in plan.steps:  # type: ignore[attr-defined]
            if target.limits.grid is not None:
                within_limits(step, target)
            kernels.number(step.kernel)
    except Unsupported:
        return False
    return True


def _graphs(public: Public) -> Iterator[tuple[DType, Graph]]:
    """Each sample in each dtype that it allows, with its gradient in f32."""
    for sample in public.samples:
        for kind in sample.dtypes:
            for d in TRIED[kind]:
                made = _graph(public, sample, d)
                if made is not None:
                    yield d, made


def _graph(public: Public, sample: Sample, d: DType) -> Graph | None:
    leaves = []
    for k, given in enumerate(sample.shapes):
        array = isinstance(given, np.ndarray)
        of = d if not array or given.dtype.kind == "f" else dtype(given.dtype)
        if public.name == "where" and k == 0:
            of = boolean
        leaves.append(leaf("input", f"x{k}", np.shape(given) if array else given, of))
    try:
        made = public.call(*leaves, **sample.attrs)
    except ZtorchError:  # not an op of this dtype: shape rules say so for every target alike
        return None
    results = [made] if isinstance(made, Value) else list(made)
    roots = {f"y{k}": y for k, y in enumerate(results)}
    wrt = [v for v in leaves if v.dtype is f32]
    if d is f32 and wrt and results[0].dtype.is_float:
        roots |= {f"d{k}": g for k, g in enumerate(gradients(OPS.sum(results[0]), wrt))}
    return Graph(roots)


if __name__ == "__main__":
    print(capabilities(), end="")
