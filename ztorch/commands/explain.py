"""ztorch explain: what each kernel of a model will take on a GPU, which need not be here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ztorch.commands import options
from ztorch.commands.group import examples

if TYPE_CHECKING:
    from ztorch.codegen.targets import Target
    from ztorch.machines.gpus import Gpu


@click.command()
@options.model
@options.custom
@options.device
@click.option("--gpu", "gpu_name", metavar="NAME", help="The GPU: H200, H100, A100, L4, "
              "'RTX 4090', MI300X, 'RX 7900 XTX' or 'M2 Max'. Default: the first that runs the "
              "device's code.")
@click.option("--function", default="predict", show_default=True, metavar="NAME",
              help="predict, evaluate, train, prefill, generate or beams.")
@options.batch_size
@options.sizes
@options.dtype
@options.loss
@click.option("--assemble", is_flag=True, help="Ask NVIDIA's assembler for registers and spills; "
              "they are estimated otherwise.")
@click.option("--rows", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="Kernels that are listed, those that take longest.")
@options.as_json
@examples("""ztorch explain digits_mlp --device cuda:sm_90a --function train
             ztorch explain digits_cnn --gpu A100 --json""")
def explain(model: str, device: str, gpu_name: str | None, function: str,
            batch_size: int | tuple[int, ...] | None, loss: str | None, dtype: str | None,
            assemble: bool, rows: int, as_json: bool,
            sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Predict the time of each kernel on a GPU, and its bound.

    The GPU need not be in this machine: times are computed from the code, and nothing is run.
    """
    import json

    from ztorch.commands.explain_table import as_text
    from ztorch.commands.tracing import traced_model
    from ztorch.performance.step import predict_functions
    from ztorch.work_line import working

    target, row = _machine(model, device, gpu_name)
    with working(f"explain {model}"):
        traced = traced_model(model, batch_size, function, loss, dtype, dict(sizes))
        predicted = predict_functions({function: traced.functions[function]}, target, row,
                                      assemble=assemble)[function]
    if as_json:
        print(json.dumps({"model": model, "device": target.name, **predicted.to_json()}, indent=1))
    else:
        print(as_text(f"{function} of {model}", target.name, predicted, rows))


def _machine(model: str, device: str, gpu_name: str | None) -> tuple[Target, Gpu]:
    """What code is made for, and the GPU that runs it."""
    from ztorch.codegen.targets import target
    from ztorch.commands.tracing import device_of
    from ztorch.compile.targeting import target_for
    from ztorch.errors import Unsupported
    from ztorch.machines.gpus import GPUS, gpu, gpus_of

    if device == "auto" and gpu_name is not None:
        row = gpu(gpu_name)
        return target(row.targets[0]), row
    chosen = target_for(device_of(model, device))
    known = gpus_of(chosen.name)
    if chosen.limits.grid is None or not (known or gpu_name):
        raise Unsupported(f"explain: there are no figures for {chosen.name}; name a GPU with "
                          f"--gpu: {', '.join(GPUS)}")
    return chosen, gpu(gpu_name) if gpu_name else known[0]
