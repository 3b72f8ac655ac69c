"""Which kernels of the zoo's training steps NVIDIA's assemblers cannot hold in registers.

    python -m tools.spills                          all models, chips and dtypes: some 40 minutes
    python -m tools.spills bert_base --chip sm_80   one model on one chip
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

from ztorch.codegen.targets import Target, target
from ztorch.compile.pipeline import declare_states, plan_functions, simplify
from ztorch.compile.watch import Watch
from ztorch.graph import passes
from ztorch.lower.plan import KernelStep
from ztorch.machines.chips import chips_of
from ztorch.performance.assembled import KernelResources, assembled_resources
from ztorch.sources.find import zoo

DTYPES = ("float32", "mixed_bfloat16")


def resources(model: str, dtype: str, made_for: Target) -> Iterator[tuple[str, KernelResources]]:
    """The name and the resources of each kernel of a model's training step."""
    module = importlib.import_module(f"models.{model}")
    traced = module.build().trace(module.BATCH_SIZE, optimizer=module.OPTIMIZER, loss=module.LOSS,
                                  dtype=dtype)
    functions, watch = {"train": traced.functions["train"]}, Watch()
    params = declare_states(functions, made_for)
    plan = plan_functions(simplify(functions, passes.DEFAULT, watch), made_for, params,
                          watch)["train"]
    kernels = {n: s.kernel for n, s in enumerate(plan.steps) if isinstance(s, KernelStep)}
    for n, used in assembled_resources(kernels, made_for).items():
        yield kernels[n].name, used


def main() -> None:
    """Prints a line for each model, dtype and chip, and below it the kernels that spill."""
    chips = [c.name for c in chips_of("cuda")]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*")
    parser.add_argument("--chip", action="append", choices=chips)
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    options = parser.parse_args()
    for model in options.model or zoo():
        for dtype in options.dtype or DTYPES:
            for chip in options.chip or chips:
                used = dict(resources(model, dtype, target(f"cuda:{chip}")))
                spilled = {name: r for name, r in used.items() if r.spilled}
                print(f"{model} {dtype} {chip}: {len(used)} kernels, {len(spilled)} spill",
                      flush=True)
                for name, r in spilled.items():
                    print(f"    {name}: {r.registers} registers, {r.spilled} bytes", flush=True)


if __name__ == "__main__":
    main()
