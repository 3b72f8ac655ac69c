"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import click

from ztorch.commands.option_types import (
    AxisSizes,
    BatchSizes,
    DeviceName,
    FamilyName,
    ModelName,
    OneOfNames,
)

Sizes = tuple[str, tuple[int, ...]]


def _merge_sizes(ctx: click.Context, param: click.Parameter, pairs: Iterable[Sizes]
            ) -> tuple[Sizes, ...]:
    """The sizes by axis: an axis may be given several times."""
    sizes: dict[str, tuple[int, ...]] = {}
    for axis, numbers in pairs:
        sizes[axis] = sizes.get(axis, ()) + numbers
    return tuple(sizes.items())


def _import(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Runs the file that --custom names, which registers its classes."""
    if path is not None:
        from pathlib import Path

        from ztorch.sources.python_files import import_file

        import_file(Path(path))


model = click.argument("model", type=ModelName())
custom = click.option("--custom", type=click.Path(), metavar="FILE.py", callback=_import,
                      expose_value=False,
                      help="A file that defines layers of your own, which an artifact names.")
device = click.option("--device", type=DeviceName(), default="auto", show_default=True,
                      metavar="NAME", help="The device: cpu, cpu:LEVEL (avx2, neon ...), cpu:zen3 "
                      "or cpu:avx2:zen4 for a processor, c (C source), cuda:sm_90 or another chip "
                      "(rocm:gfx942 ...), webgpu, or one that `ztorch devices` lists.")
threads = click.option("--threads", type=click.IntRange(1), metavar="N",
                       help="Worker threads on a CPU. Default: one per core.")
epochs = click.option("--epochs", type=click.IntRange(1), metavar="N",
                      help="Passes over the data. Default: from the model's file.")
batch_size = click.option("--batch-size", type=BatchSizes(), metavar="N[,N...]",
                          help="Rows of a batch, or several sizes. Default: the model's file's.")
sizes = click.option("--sizes", type=AxisSizes(), multiple=True, metavar="AXIS=N[,N...]",
                     callback=_merge_sizes,
                     help="Sizes of an axis that the model leaves open, such as time=64,128.")
optimizer = click.option("--optimizer", type=FamilyName("optimizer"), metavar="NAME",
                         help="Optimizer: adam, adamw, sgd ...")
rate = click.option("--lr", "--learning-rate", "rate", type=float, metavar="RATE",
                    help="Learning rate.")
loss = click.option("--loss", type=FamilyName("loss"), metavar="NAME",
                    help="Loss: mse, sparse_categorical_crossentropy ...; for several outputs by "
                         "name: kind=mse,size=mae.")
dtype = click.option("--dtype", metavar="NAME", type=OneOfNames(
    "float32", "float64", "mixed_bfloat16", "mixed_float16"), help="float32, float64, "
    "mixed_bfloat16 or mixed_float16 (matrix products in 16 bits). Default: float32.")
weights = click.option("--weights", type=click.Path(), metavar="FILE",
                       help="File of initial weights, from save_weights() or --out *.safetensors.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_DRAWING = (
    click.option("--length", type=click.IntRange(1), default=200, show_default=True, metavar="N",
                 help="Letters to write."),
    click.option("--temperature", type=click.FloatRange(0), metavar="T",
                 help="Above 1: more surprises; 0: always the likeliest. Default: 0.5."),
    click.option("--top-k", type=click.IntRange(1), metavar="N", help="Draw only from N letters."),
    click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), metavar="P",
                 help="Draw only from the likeliest that together have this probability."),
    click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), metavar="X",
                 help="Above 1: letters that are there become less likely."),
    click.option("--stop", default="", metavar="LETTERS", help="Letters that end the text."),
    click.option("--seed", type=click.IntRange(0), metavar="N",
                 help="Seed of the draws. Default: 0."),
    click.option("--beams", type=click.IntRange(2), metavar="N", help="Search the likeliest text."),
    click.option("--alphabet", metavar="LETTERS",
                 help="The letter of each number. Default: that of the data sets verse "
                 "and poets."),
)


def drawing(command: Any) -> Any:
    """Adds the options for sampling when a model generates."""
    return reduce(lambda decorated, option: option(decorated), reversed(_DRAWING), command)
