"""Writes docs/capabilities.md: the opcodes that each target has, and the ops that it runs.

    python -m tools.capabilities > docs/capabilities.md

Needs no device: opcodes are looked up in the templates, ops are lowered and rendered.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tools.op_support import SAMPLE_DTYPES, op_cells
from tools.opcode_support import has, kinds_of, opcode_cells
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import ALL
from ztorch.ir.opcodes import COMPUTING, OPCODES, SCALAR
from ztorch.machines.backends import running_on_cpu

HEAD = """# Capabilities

From the registries, by `python -m tools.capabilities > docs/capabilities.md`; needs no device.

*native*: the target's templates have a macro for the opcode. *via*: the compiler rewrites the
opcode into others with the same meaning (a polynomial for `exp`, a guarded machine division for
`div`). *no*: there is no rewriting, and a model that needs the opcode does not compile. A cell is
about float32, or int32 for opcodes without floats, and names the dtypes that differ. The first
table lists the dtypes that a target lacks. If a cell says *via* for 16-bit floats, they are
computed in float32; 8- and 16-bit integers are computed in 32 bits. `cuda:c:sm_90a`, CUDA C++ for
a chip, has what `cuda:sm_90a` has, and so on.
"""


def capabilities() -> str:
    """The page."""
    groups = grouped()
    return "\n".join([*words_part(groups), "", *ops_part(groups)]) + "\n"


def words_part(groups: Sequence[Sequence[Target]]) -> list[str]:
    """Targets and opcodes."""
    lines = [HEAD, "## Targets", "", *table(
        ("column", "targets", "language", "dtypes it has not", "runs in the tests"),
        [(title(g), ", ".join(t.name for t in g),
          ", ".join(dict.fromkeys(t.template_folders[0] for t in g)),
          " ".join(repr(d) for d in ALL if not has(g[0], d)) or "–", _run(g)) for g in groups])]
    lines += ["", "What runs in the tests runs there on drivers that imitate a GPU on the CPU. The "
              "others are compiled in the tests and their text is checked: see "
              "[devices.md](devices.md).", "", "## Opcodes", ""]
    cells = [opcode_cells(g[0]) for g in groups]
    titles = [title(g) for g in groups]
    lines += table(("opcode", "dtypes", *titles), [
        (f"`{o}`", kinds_of(o), *(c[o] for c in cells)) for o in SCALAR])
    others = [o for o in OPCODES if o not in COMPUTING]
    lines += ["", "Words that compute nothing by themselves: memory, structure, lanes, threads. "
              "What is missing here is not needed there: lowering for a grid uses lanes only to "
              "load neighbors at once, that for a processor uses no workgroups, and threads "
              "exchange values through shared memory where they have no `shuffle_xor`.", "",
              *table(("opcode", *titles), [(f"`{o}`", *(c[o] for c in cells)) for o in others])]
    return [*lines, "", *matrices_part()]


def matrices_part() -> list[str]:
    """The shapes of matrices that targets can multiply (`mma`)."""
    targets_of: dict[str, list[str]] = {}
    for t in listed():
        if t.limits.grid is not None and t.limits.grid.mma_shapes:
            shapes = ", ".join(f"`{s}`" for s in t.limits.grid.mma_shapes)
            targets_of.setdefault(shapes, []).append(t.name)
    return ["Matrices that threads multiply together: rows, columns, depth, what is multiplied and "
            "what sums are in; *f32:10* is float32 of which 10 bits of mantissa count, for "
            "`matmul_precision=\"tf32\"`, and *f32:20* is two such parts, for `\"high\"`. The "
            "first shape that loses nothing is taken; other products are computed thread by "
            "thread.", "",
            *table(("targets", "shapes"),
                   [(", ".join(names), s) for s, names in targets_of.items()])]


def ops_part(groups: Sequence[Sequence[Target]], only: Container[str] | None = None) -> list[str]:
    """All ops, or only those with these names. This part takes some minutes."""
    kinds = "; ".join(", ".join(map(repr, dtypes)) for dtypes in SAMPLE_DTYPES.values())
    titles = [title(g) for g in groups]
    rows = op_cells([g[0] for g in groups], only)
    return ["## Ops", "",
            "All samples of an op and their gradients, lowered and rendered. *yes*: in every dtype "
            f"that the samples allow, of {kinds} and that the target has. Otherwise a cell names "
            "the dtypes that are `Unsupported`; *in part*: for some samples, or for the gradient "
            "alone, mostly where a fused kernel names more buffers than the target promises (a "
            "device may allow more than that). Ops that compile for a target of the tests are run "
            "there as well and compared with float64: all of them in f32, f64, i32, u32 and bool, "
            "each op's first sample also in the other dtypes of its kinds.", "",
            *table(("op", *titles), [(f"`{name}`", *cells) for name, cells in rows.items()])]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown, as lines."""
    spelled = [[c.replace("|", "\\|") for c in row] for row in (head, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in spelled]
    return [lines[0], "| --- " * len(head) + "|", *lines[1:]]


def listed() -> list[Target]:
    """The targets without CUDA C++ for a chip, whose words are those of PTX for it."""
    return [t for t in TARGETS.values() if not t.name.startswith("cuda:c:")]


def grouped() -> list[list[Target]]:
    """Groups of targets with the same language and opcodes; the first of each stands for all."""
    groups: dict[tuple, list[Target]] = {}
    for t in listed():
        if t.backend != "dummy":  # which computes nothing
            key = (t.backend, t.template_suffix, t.limits.grid is not None,
                   tuple(opcode_cells(t).items()))
            groups.setdefault(key, []).append(t)
    return list(groups.values())


def title(group: Sequence[Target]) -> str:
    """The name of a group of targets: that of its first one."""
    first = group[0].name
    return first if len(group) == 1 else f"{first} …"


def _run(group: Sequence[Target]) -> str:
    first = group[0]
    if first.backend == "cpu":
        return f"where there is {'a C compiler' if first.emits_source else 'such a processor'}"
    return "yes" if first.name in running_on_cpu() else "no, compiled only"


if __name__ == "__main__":
    print(capabilities(), end="")
