"""ztorch explain: the cost of each kernel of a model, on a CPU or a GPU, which need not be in this
machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ztorch.commands import options
from ztorch.commands.group import examples
from ztorch.terminal.work_line import working

if TYPE_CHECKING:
    from ztorch.codegen.targets import Target
    from ztorch.machines.gpus import Gpu


@click.command()
@options.model
@options.custom
@options.device
@click.option("--gpu", "gpu_name", metavar="NAME", help="The GPU, such as H200 or 'RTX 4090'; a "
              "wrong name lists all. Default: the first that runs the device's code.")
@click.option("--function", default="predict", show_default=True, metavar="NAME",
              help="predict, evaluate, train, prefill, generate or beams.")
@options.batch_size
@options.sizes
@options.dtype
@options.loss
@click.option("--assemble", is_flag=True, help="Ask NVIDIA's assembler for registers and spills; "
              "they are estimated otherwise.")
@click.option("--measure", is_flag=True, help="Run each kernel on this CPU, or on a GPU that is "
              "here, such as cuda:0; times are estimated otherwise.")
@options.threads
@click.option("--picture", type=click.Path(), metavar="FILE", help="Draw the kernels under the "
              "roofline of this CPU, with --measure: a .svg, .png or .pdf file.")
@click.option("--rows", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="Kernels that are listed, those that take longest.")
@options.as_json
@examples("""ztorch explain digits_cnn --measure
             ztorch explain digits_mlp --function train --measure --picture roofline.svg
             ztorch explain digits_mlp --device cuda:sm_90a --function train
             ztorch explain digits_cnn --gpu A100 --json""")
def explain(model: str, device: str, gpu_name: str | None, function: str,
            batch_size: int | tuple[int, ...] | None, loss: str | None, dtype: str | None,
            assemble: bool, rows: int, as_json: bool, measure: bool, threads: int | None,
            picture: str | None, sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Explain each kernel: time, bottleneck and fused ops.

    On a CPU, times are estimated, or measured with --measure, and lines below each kernel say why
    it is not fused with others. A GPU need not be in this machine: its times are computed from the
    code, and nothing runs without --measure.
    """
    import json

    from ztorch.commands.tracing import traced_model

    target, row, device_id = _machine(model, device, gpu_name)
    if row is not None and picture:
        raise click.UsageError("--picture is for CPUs: a GPU's times are printed")
    if row is not None and measure and not device_id:
        raise click.UsageError(f"--measure needs a device of this machine, such as "
                               f"{target.backend}:0; {target.name} names a chip")
    traced = traced_model(model, batch_size, function, loss, dtype, dict(sizes))
    graph, title = traced.functions[function], f"{function} of {model}"
    if row is None:
        from ztorch.tune.explained import explain_function

        times = explain_function(title, function, graph, target, measure, threads)
        print(json.dumps({"model": model, **times.to_json()}, indent=1) if as_json else
              times.text(rows))
        if picture:
            times.plot(picture)
        return
    from ztorch.commands.explain_table import as_text
    from ztorch.performance.step import predict_functions

    with working(f"explain {model}"):
        predicted = predict_functions({function: graph}, target, row, assemble=assemble,
                                      tuned=True)[function]
        if measure:
            from ztorch.commands.explain_measured import measured

            predicted = measured(predicted, graph, device_id)
    if as_json:
        print(json.dumps({"model": model, "device": target.name, **predicted.to_json()}, indent=1))
    else:
        print(as_text(title, target.name, predicted, rows))


def _machine(model: str, device: str,
             gpu_name: str | None) -> tuple[Target, Gpu | None, str]:
    """The target of the code, the GPU that runs it (None for a CPU), and the device, empty if it is
    not of this machine."""
    from ztorch.codegen.targets import target
    from ztorch.commands.tracing import device_of
    from ztorch.compile.targeting import target_for
    from ztorch.errors import Unsupported
    from ztorch.machines.gpus import GPUS, gpu, gpu_of_device, gpus_of
    from ztorch.runtime.devices import devices

    if device == "auto" and gpu_name is not None:
        row = gpu(gpu_name)
        return target(row.targets[0]), row, ""
    resolved = device_of(model, device)
    target_ = target_for(resolved)
    device_id = "" if resolved.ordinal is None else f"{resolved.backend}:{resolved.ordinal}"
    if target_.backend == "cpu" and not target_.emits_source and gpu_name is None:
        return target_, None, device_id
    gpus = gpus_of(target_.name)
    if target_.limits.grid is None or not (gpus or gpu_name):
        raise Unsupported(f"explain: there are no figures for {target_.name}; name a GPU with "
                          f"--gpu: {', '.join(GPUS)}")
    if gpu_name:
        return target_, gpu(gpu_name), device_id
    # The list queries every driver, so it is only made for a device of this machine.
    names = [d.name for d in devices() if d.id == device_id] if device_id else []
    return target_, (gpu_of_device(names[0]) if names else None) or gpus[0], device_id
