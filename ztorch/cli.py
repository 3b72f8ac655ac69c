"""The command line: the group of commands, and those that share options with others.

The code of each command is in the file of its name in `commands/`. It imports the rooms that it
needs when it runs, which keeps --help fast. Commands with few options are declared here.
"""

from __future__ import annotations

from typing import Any

import click

from ztorch.commands import options
from ztorch.commands.completion import completion
from ztorch.commands.devices import list_devices
from ztorch.commands.explain import explain
from ztorch.commands.group import CommandGroup, examples
from ztorch.commands.option_types import BatchSizes, DataName, FamilyName
from ztorch.commands.report import report
from ztorch.commands.table_options import table_options
from ztorch.commands.tune import tune
from ztorch.commands.zoo import list_zoo
from ztorch.version import __version__


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]},
             epilog="A MODEL is a name of the zoo (`ztorch zoo`), path/to/file.py:name, an "
                    "artifact (.zt), a Keras (.keras) or ONNX (.onnx) file, or weights "
                    "(.safetensors) beside the .py file of their model.")
@click.version_option(__version__, prog_name="ztorch")
@examples("""ztorch demo
             ztorch train digits_mlp --out digits.zt
             ztorch run digits.zt rows.npy -o scores.npy""")
def main() -> None:
    """Train neural networks and ship them as native code."""


@main.command()
@click.option("-o", "--out", type=click.Path(), metavar="FILE.zt", help="Write the artifact here.")
@options.epochs
@options.device
@options.threads
@examples("""ztorch demo
             ztorch demo --out digits.zt --device cpu:avx2""")
def demo(**settings: Any) -> None:
    """Show the whole workflow in a few seconds.

    Trains on handwritten digits, exports, loads in a new process and predicts.
    """
    from ztorch.commands.demo import demo

    demo(**settings)


@main.command()
@options.model
@options.custom
@click.option("--data", "data_name", type=DataName(), metavar="DATA",
              help="Training data: a data set (digits, mnist, fashion_mnist, cifar10), a "
              "table.csv with the label last, .npz or .jsonl with x and y, x.npy,y.npy, or a "
              "folder with one folder of images or sounds per class. Default: from the model's "
              "file.")
@options.epochs
@options.batch_size
@options.sizes
@options.optimizer
@options.rate
@options.loss
@click.option("--metrics", type=FamilyName("metric"), metavar="NAMES", help="Metrics, such as "
              "accuracy,mae; for several outputs, by name: kind=accuracy,size=mae.")
@options.dtype
@options.device
@options.threads
@click.option("--val", metavar="FRACTION|DATA", help="Validation data: a fraction of the "
              "training data, such as 0.1, or other data.")
@click.option("-o", "--out", type=click.Path(), metavar="FILE",
              help="Write the program (.zt) or its weights (.safetensors).")
@options.weights
@table_options
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of shuffling and dropout.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@examples("""ztorch train digits_mlp --epochs 10 --val 0.1 --out digits.zt
             ztorch train net.py:build --data iris.csv --loss sparse_categorical_crossentropy
             ztorch train titanic.csv --target survived --out titanic.zt
             ztorch train two.py --data two.npz --loss kind=mse,size=mae
             ztorch train digits.zt --data digits --epochs 5 --out better.zt""")
def train(model: str, metrics: str | None, optimizer: str | None, quiet: bool,
          **settings: Any) -> None:
    """Train a model on data.

    MODEL may also be an artifact that can train: training continues from it. Or it may be a table,
    FILE.csv with a header: ztorch chooses a model for it, and the artifact stores the columns.
    """
    from ztorch.commands.train import train

    train(model, optimizer_=optimizer, verbose=0 if quiet else "auto", metrics=metrics, **settings)


@main.command()
@options.model
@options.custom
@click.option("-o", "--out", type=click.Path(), metavar="FILE", required=True,
              help="The file to write: .zt, .onnx, .keras, or .safetensors for weights only; with "
              "--so or --web, a folder.")
@options.weights
@options.dtype
@options.device
@options.batch_size
@options.sizes
@click.option("--random", is_flag=True, help="Write an untrained model.")
@click.option("--shapes", metavar="NAME=...", help="For a kernel or another function: sizes that "
              "its signature names, b=64,n=1024, or types, x=f32[64,1024].")
@click.option("--train", "trains", is_flag=True, help="Write an artifact that can train.")
@options.optimizer
@options.rate
@options.loss
@click.option("--so", "library", is_flag=True,
              help="Write C libraries and a header to the folder FILE; with --device c, C source.")
@click.option("--web", is_flag=True, help="Write a web page that runs the model on WebGPU or "
              "WebAssembly to the folder FILE.")
@click.option("--samples", metavar="DATA", help="Rows that the page offers: a data set, a CSV, NPZ "
              "or NPY file, or a folder of images or sounds. Default: the data of the model's "
              "file.")
@examples("""ztorch train digits_mlp --out digits.zt
             ztorch export digits.zt --device cpu:neon --batch-size 1 -o arm.zt
             ztorch export digits.zt --dtype mixed_bfloat16 -o half.zt
             ztorch export digits.zt --batch-size 1,8,32 -o any.zt
             ztorch export digits.zt --so --batch-size 1 -o c_library
             ztorch export digits.zt --so --device c --batch-size 1 -o c_source
             ztorch export digits.zt --web -o page
             ztorch export digits.zt -o digits.onnx
             ztorch export digits.zt -o digits.keras
             ztorch export digits_mlp --weights w.safetensors -o digits.zt
             ztorch export net.py:build --train --loss mse -o net.zt
             ztorch export kernels.py:scale --shapes b=64,n=1024 -o scale.zt""")
def export(model: str, optimizer: str | None, **settings: Any) -> None:
    """Compile a model and write it to a file.

    MODEL may also be a kernel or another function, FILE.py:function, with --shapes. The device need
    not be in this machine. A FILE named .onnx is written as ONNX, for any batch size unless
    --batch-size is given; one named .keras holds the model for Keras, without compiled code.
    """
    from ztorch.commands.export import export

    export(model, optimizer_=optimizer, **settings)


@main.command()
@options.model
@options.custom
@click.argument("sources", metavar="[INPUT...]", nargs=-1, type=click.Path())
@click.option("-o", "--out", type=click.Path(), metavar="FILE",
              help="Write to an .npy, .npz, .csv or .jsonl file. Default: CSV on standard output.")
@click.option("--classes", is_flag=True, help="Write each row's likeliest class, not its scores.")
@options.threads
@examples("""ztorch run digits.zt rows.npy -o scores.npy
             ztorch run digits.zt rows.csv --classes
             ztorch run words.zt lines.jsonl -o scores.jsonl
             ztorch run titanic.zt new.csv
             ztorch run cats.zt cat.png folder/
             cat new.csv | ztorch run titanic.zt -""")
def run(**settings: Any) -> None:
    """Predict with a trained model.

    INPUT holds rows: .npy, .npz with x, .csv without labels, or .jsonl with a row per line (rows
    may differ in length). - reads CSV, JSON lines or an image from standard input, as does a pipe
    without INPUT. In .npz and .jsonl, several inputs or outputs have names. An artifact trained on
    a table takes tables with its columns in any order; one trained on images takes files and
    folders. A file written by `ztorch export --shapes` takes a file or a number for each argument.
    """
    from ztorch.commands.run import run

    run(**settings)


@main.command()
@options.model
@options.custom
@click.argument("text", default="\n")
@options.drawing
@options.weights
@options.device
@options.threads
@examples("""ztorch train tiny_gpt --out gpt.zt
             ztorch generate gpt.zt "Shall I compare thee" --length 300 --temperature 0.7
             ztorch generate gpt.zt "once upon" --temperature 0""")
def generate(model: str, **settings: Any) -> None:
    """Continue a text with a trained character-level model.

    MODEL is an artifact that can generate, or a model with --weights.
    """
    from ztorch.commands.generate import generate

    generate(model, **settings)


@main.command()
@options.model
@options.custom
@options.as_json
@examples("""ztorch inspect digits.zt
             ztorch inspect digits.zt --json""")
def inspect(model: str, as_json: bool) -> None:
    """Check an artifact and print its contents.

    For another kind of MODEL, print the layers, and the training settings in its file.
    """
    from ztorch.commands.inspect import inspect

    inspect(model, as_json)


@main.command()
@options.model
@options.custom
@click.option("--stage", type=click.Choice(["graph", "plan", "ir", "text", "asm"]),
              default="graph", show_default=True,
              help="graph: tensor ops; plan: kernels in order; ir: their instructions; text: "
                   "generated source; asm: machine code.")
@click.option("--function", default="predict", show_default=True, metavar="NAME",
              help="predict, evaluate, train, prefill, generate or beams.")
@options.device
@options.batch_size
@options.sizes
@options.dtype
@options.loss
@examples("""ztorch show digits_mlp --stage plan --function train
             ztorch show digits_mlp --stage text --device cpu:neon""")
def show(model: str, **settings: Any) -> None:
    """Print a stage of the compilation of a model.

    The device need not be in this machine. If MODEL is an artifact, its model is compiled again,
    without metrics, for the device of its code.
    """
    from ztorch.commands.show import show

    show(model, **settings)


@main.command()
@options.model
@options.custom
@options.device
@options.batch_size
@options.sizes
@options.dtype
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, metavar="N",
              help="Training steps, if the model's file names a loss.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Seed of the random rows.")
@examples("""ztorch verify digits_mlp --device opencl
             ztorch verify net.py:build --device cpu:avx2 --steps 1
             ztorch verify digits.zt""")
def verify(model: str, **settings: Any) -> None:
    """Compare a device with float64, layer by layer.

    Predicts and trains on random rows. MODEL may also be an artifact: its compiled code then runs.
    """
    from ztorch.commands.verify import verify

    verify(model, **settings)


@main.command()
@options.model
@options.custom
@click.option("--batch-sizes", "--batch-size", type=BatchSizes(), default="1,32,128",
              show_default=True, metavar="N,N,...", help="Batch sizes to measure.")
@click.option("--seconds", type=click.FloatRange(0.01), default=0.5, show_default=True,
              help="Seconds for each measurement.")
@options.sizes
@options.dtype
@options.device
@options.threads
@click.option("--profile", is_flag=True, help="Measure each kernel too, on a CPU.")
@examples("ztorch bench digits_mlp --batch-sizes 1,64 --threads 1 --profile")
def bench(model: str, batch_sizes: int | tuple[int, ...], **settings: Any) -> None:
    """Measure the time of a prediction and a training step."""
    from ztorch.commands.bench import bench

    bench(model, batch_sizes if isinstance(batch_sizes, tuple) else (batch_sizes,), **settings)


for command in (list_zoo, list_devices, tune, report, explain, completion):
    main.add_command(command)
