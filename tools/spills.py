"""Which kernels of the zoo's models NVIDIA's assemblers cannot hold in registers.

    python -m tools.spills                          all models, chips and dtypes: some 50 minutes
    python -m tools.spills bert_base --chip sm_80   one model on one chip
    python -m tools.spills --function predict       inference of all models

Each line replaces its line in `benchmarks/results/spills.md`; others stay, with their dates. A line
names a digest of the text that was assembled and of the assemblers' versions. While it is the same,
nothing is assembled, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import itertools
from collections.abc import Mapping
from pathlib import Path

from benchmarks import report
from benchmarks.report import Section
from ztorch.codegen import ptx
from ztorch.codegen.targets import Target, target
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.ir.kernel import Kernel
from ztorch.lower.plan import KernelStep
from ztorch.machines.chips import chips_of
from ztorch.performance.assembled import assembled_modules, resources_of
from ztorch.sources.find import zoo

DTYPES = ("float32", "mixed_bfloat16")
FUNCTIONS = ("train", "predict")
DIGITS = 12  # of a digest in hexadecimal: enough to tell the texts of one line apart
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
METHOD = (
    "NVIDIA's assembler on the kernels of a training step and of inference of each model of the "
    "zoo, in its usual batch size. A line is a training step unless it names `predict`. A kernel "
    "spills where a thread keeps values in memory for lack of registers. `text` is a digest of the "
    "kernels and the assemblers' versions: a line holds while they are the same. "
    "`python -m tools.spills` writes this page.")


def kernels_of(model: str, dtype: str, function: str, made_for: Target) -> dict[int, Kernel]:
    """The kernels of a function of a model."""
    module = importlib.import_module(f"models.{model}")
    traced = module.build().trace(module.BATCH_SIZE, optimizer=module.OPTIMIZER, loss=module.LOSS,
                                  dtype=dtype)
    functions, watch = {function: traced.functions[function]}, Watch()
    params = declare_states(functions, made_for)
    plan = plan_functions(simplify(functions, passes.DEFAULT, watch), made_for, params,
                          watch)[function]
    return {n: s.kernel for n, s in enumerate(plan.steps) if isinstance(s, KernelStep)}


def renew(folder: Path, case: str, kernels: Mapping[int, Kernel], made_for: Target) -> bool:
    """Writes a line of the table, in place of an earlier one; False where that one was of the same
    text and of no spills."""
    earlier = report.sections(folder / "spills.json").get("spills")
    texts, symbols = assembled_modules(kernels, made_for)
    digest = hashlib.sha256("\n".join([ptx.assembler_versions(), *texts]).encode()).hexdigest()
    text = digest[:DIGITS]
    same = {"case": case, "device": made_for.chip, "text": text, "spilled": "none"}
    if earlier and any(same.items() <= line.items() for line in earlier.lines):
        return False
    used = resources_of(texts, symbols, made_for)
    section = Section("spills", "Kernels that spill, by chip", "registers of a thread")
    spilled = {kernels[n].name: r.spilled for n, r in used.items() if r.spilled}
    today = f"{datetime.date.today()}"
    section.line({
        "case": case, "device": made_for.chip, "date": today, "text": text,
        "kernels": f"{len(used)}", "most registers": f"{max(r.registers for r in used.values())}",
        "spilled": ", ".join(f"{name} {n} bytes" for name, n in spilled.items()) or "none"})
    report.write(folder, "spills", {"date": today}, [section.after(earlier)], False,
                 "Spilled registers", METHOD)
    return True


def main() -> None:
    """Writes a line for each model, dtype, function and chip."""
    chips = [c.name for c in chips_of("cuda")]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*")
    parser.add_argument("--chip", action="append", choices=chips)
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--function", action="append", choices=FUNCTIONS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the table")
    options = parser.parse_args()
    for model, dtype, function, chip in itertools.product(
            options.model or zoo(), options.dtype or DTYPES, options.function or FUNCTIONS,
            options.chip or chips):
        case = f"{model}, {dtype}" + (", predict" if function == "predict" else "")
        made_for = target(f"cuda:{chip}")
        renew(options.out, case, kernels_of(model, dtype, function, made_for), made_for)


if __name__ == "__main__":
    main()
