"""The command line: commands, options and help.

What a command does is in the file of its name in `commands/`. That is imported when the command
runs, so that --help is quick.
"""

from __future__ import annotations

from typing import Any

import click

from ztorch.commands.completion import completion
from ztorch.commands.group import AxisSizes, BatchSizes, CommandGroup, ModelName, examples
from ztorch.commands.report import report
from ztorch.commands.table_options import table_options
from ztorch.version import __version__

model = click.argument("model", type=ModelName())
artifact = click.argument("artifact", type=click.Path())
device = click.option("--device", default="auto", show_default=True, metavar="NAME",
                      help="The device to compile for: cpu, cpu:LEVEL, c (C source) or one that "
                           "`ztorch devices` lists.")
threads = click.option("--threads", type=click.IntRange(1), metavar="N",
                       help="Worker threads on a CPU. Default: one per core.")
epochs = click.option("--epochs", type=click.IntRange(1), metavar="N",
                      help="Passes over the data. Default: what the model's file says.")
batch_size = click.option("--batch-size", type=BatchSizes(), metavar="N[,N...]",
                          help="Rows of a batch, or several sizes. Default: the model's file's.")
sizes = click.option("--sizes", type=AxisSizes(), multiple=True, metavar="AXIS=N[,N...]",
                     help="Sizes of an axis that the model leaves open, such as time=64,128.")
optimizer = click.option("--optimizer", metavar="NAME", help="Optimizer: adam, adamw, sgd ...")
rate = click.option("--lr", "rate", type=float, metavar="RATE", help="Learning rate.")
loss = click.option("--loss", metavar="NAME", help="Loss: mse, sparse_categorical_crossentropy "
                    "...; for several outputs by name: kind=mse,size=mae.")
dtype = click.option("--dtype", metavar="NAME", help="float32, float64, mixed_bfloat16 or "
                     "mixed_float16 (matrix products in 16 bits). Default: float32.")
weights = click.option("--weights", type=click.Path(), metavar="FILE",
                       help="File of initial weights, from save_weights() or --out *.safetensors.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]},
             epilog="A MODEL is a name from the zoo, such as digits_mlp, or path/to/file.py:name, "
                    "a Sequential or Model, or a function that returns one.")
@click.version_option(__version__, prog_name="ztorch")
@examples("""ztorch demo
             ztorch train digits_mlp --out digits.zt
             ztorch inspect digits.zt
             ztorch run digits.zt rows.npy -o scores.npy""")
def main() -> None:
    """Train neural networks and ship them as native code."""


@main.command()
@click.option("--out", type=click.Path(), metavar="FILE.zt", help="Write the artifact here.")
@epochs
@device
@threads
@examples("""ztorch demo
             ztorch demo --out digits.zt --device cpu:avx2""")
def demo(**options: Any) -> None:
    """Show it all in a few seconds.

    Trains on handwritten digits, exports, loads in a new process and predicts.
    """
    from ztorch.commands.demo import demo

    demo(**options)


@main.command()
@model
@click.option("--data", "data_name", metavar="DATA", help="Training data: a data set "
              "(digits, mnist, fashion_mnist, cifar10), a table.csv with the label last, file.npz "
              "with x and y, x.npy,y.npy, or a folder with a folder of images per class. Default: "
              "what the model's file says.")
@epochs
@batch_size
@sizes
@optimizer
@rate
@loss
@click.option("--metrics", metavar="NAMES", help="Metrics: accuracy,mae; for several "
              "outputs by name: kind=accuracy,size=mae.")
@dtype
@device
@threads
@click.option("--val", metavar="FRACTION|DATA", help="Validation data: a fraction of the data, "
              "such as 0.1, or data of its own.")
@click.option("--out", type=click.Path(), metavar="FILE",
              help="Write the program (.zt) or its weights (.safetensors).")
@weights
@table_options
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of shuffling and dropout.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@examples("""ztorch train digits_mlp --epochs 10 --val 0.1 --out digits.zt
             ztorch train net.py:build --data iris.csv --loss sparse_categorical_crossentropy
             ztorch train titanic.csv --target survived --out titanic.zt
             ztorch train two.py --data two.npz --loss kind=mse,size=mae
             ztorch train digits.zt --data digits --epochs 5 --out better.zt""")
def train(model: str, metrics: str | None, optimizer: str | None, quiet: bool,
          **options: Any) -> None:
    """Train a model on data.

    MODEL may also be an artifact that can train: it continues where it was saved. Or it is a table,
    FILE.csv with a header: a model for it is chosen, and the artifact keeps what columns mean.
    """
    from ztorch.commands.train import train

    train(model, optimizer_=optimizer, verbose=0 if quiet else "auto", metrics=metrics, **options)


@main.command()
@model
@click.option("-o", "--out", type=click.Path(), metavar="FILE", required=True,
              help="The file to write, .zt or .onnx; with --so or --web a folder.")
@weights
@dtype
@device
@batch_size
@sizes
@click.option("--train", "trains", is_flag=True, help="Write an artifact that can train.")
@optimizer
@rate
@loss
@click.option("--so", "library", is_flag=True,
              help="Write C libraries and a header to the folder FILE; with --device c, C source.")
@click.option("--web", is_flag=True,
              help="Write a page for browsers, which runs the model on WebGPU, to the folder FILE.")
@examples("""ztorch export digits_mlp --weights w.safetensors -o digits.zt
             ztorch export digits_mlp --device cpu:neon --batch-size 1 -o arm.zt
             ztorch export digits_mlp --dtype mixed_bfloat16 -o half.zt
             ztorch export digits_mlp --batch-size 1,8,32 -o any.zt
             ztorch export net.py:build --train --loss mse -o net.zt
             ztorch export digits_mlp --so --batch-size 1 -o c_library
             ztorch export digits_mlp --so --device c --batch-size 1 -o c_source
             ztorch export digits_mlp --web --weights w.safetensors -o page
             ztorch export digits_mlp -o digits.onnx""")
def export(model: str, optimizer: str | None, **options: Any) -> None:
    """Compile a model and write an artifact.

    The device need not be in this machine. A FILE named .onnx becomes an ONNX file, for any batch
    size unless --batch-size is given.
    """
    from ztorch.commands.export import export

    export(model, optimizer_=optimizer, **options)


@main.command()
@artifact
@click.argument("sources", metavar="INPUT...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--out", type=click.Path(), metavar="FILE",
              help="Write to an .npy, .npz or .csv file. Default: CSV on standard output.")
@click.option("--classes", is_flag=True, help="Write each row's likeliest class, not its scores.")
@threads
@examples("""ztorch run digits.zt rows.npy -o scores.npy
             ztorch run digits.zt rows.csv --classes
             ztorch run titanic.zt new.csv
             ztorch run cats.zt cat.png folder/
             cat new.csv | ztorch run titanic.zt -""")
def run(**options: Any) -> None:
    """Predict with an artifact.

    INPUT holds rows: .npy, .npz with x, or .csv without labels; - reads CSV from standard input.
    Several inputs or outputs are arrays of an .npz, by name. An artifact that was trained on a
    table takes tables with its columns in any order, one of images takes files and folders.
    """
    from ztorch.commands.run import run

    run(**options)


@main.command()
@model
@click.argument("text", default="\n")
@click.option("--length", type=click.IntRange(1), default=200, show_default=True, metavar="N",
              help="Letters to write.")
@click.option("--temperature", type=click.FloatRange(0), metavar="T",
              help="Above 1: more surprises; 0: always the likeliest. Default: 0.5.")
@click.option("--top-k", type=click.IntRange(1), metavar="N", help="Draw only from N letters.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), metavar="P",
              help="Draw only from the likeliest that together have this probability.")
@click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), metavar="X",
              help="Above 1: letters that are there become less likely.")
@click.option("--stop", default="", metavar="LETTERS", help="Letters that end the text.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the draws. Default: 0.")
@click.option("--beams", type=click.IntRange(2), metavar="N", help="Search the likeliest text.")
@click.option("--alphabet", metavar="LETTERS", help="The letter of each number. Default: that of "
              "the data sets verse and poets.")
@weights
@device
@threads
@examples("""ztorch train tiny_gpt --out gpt.zt
             ztorch generate gpt.zt "Shall I compare thee" --length 300 --temperature 0.7
             ztorch generate gpt.zt "once upon" --temperature 0""")
def generate(model: str, **options: Any) -> None:
    """Continue a text with a trained model of letters.

    MODEL is an artifact that can generate, or a model with --weights.
    """
    from ztorch.commands.generate import generate

    generate(model, **options)


@main.command()
@artifact
@as_json
@examples("""ztorch inspect digits.zt
             ztorch inspect digits.zt --json""")
def inspect(artifact: str, as_json: bool) -> None:
    """Check an artifact and print what is in it."""
    from ztorch.commands.inspect import inspect

    inspect(artifact, as_json)


@main.command()
@model
@click.option("--stage", type=click.Choice(["graph", "plan", "ir", "text", "asm"]),
              default="graph", show_default=True,
              help="graph: tensor ops; plan: kernels in order; ir: their instructions; text: "
                   "generated source; asm: machine code.")
@click.option("--function", default="predict", show_default=True, metavar="NAME",
              help="predict, evaluate, train, prefill, generate or beams.")
@device
@batch_size
@sizes
@dtype
@loss
@examples("""ztorch show digits_mlp --stage plan --function train
             ztorch show digits_mlp --stage text --device cpu:neon""")
def show(model: str, **options: Any) -> None:
    """Print a stage of compiling a model.

    The device need not be in this machine. MODEL may also be an artifact: the model that it
    describes is compiled again, without metrics, for the device of its code.
    """
    from ztorch.commands.show import show

    show(model, **options)


@main.command()
@model
@device
@batch_size
@sizes
@dtype
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, metavar="N",
              help="Training steps, where the model's file names a loss.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Seed of the random rows.")
@examples("""ztorch verify digits_mlp --device opencl
             ztorch verify net.py:build --device cpu:avx2 --steps 1
             ztorch verify digits.zt""")
def verify(model: str, **options: Any) -> None:
    """Compare a device with float64, layer by layer.

    Predicts and trains on random rows. MODEL may also be an artifact: its own code runs then.
    """
    from ztorch.commands.verify import verify

    verify(model, **options)


@main.command()
@as_json
@examples("ztorch devices")
def devices(as_json: bool) -> None:
    """List devices, and why others are missing."""
    from ztorch.commands.devices import list_devices

    list_devices(as_json)


@main.command()
@model
@click.option("--batch-sizes", type=BatchSizes(), default="1,32,128", show_default=True,
              metavar="N,N,...", help="Batch sizes to measure.")
@click.option("--seconds", type=click.FloatRange(0.01), default=0.5, show_default=True,
              help="Seconds for each measurement.")
@dtype
@device
@threads
@examples("ztorch bench digits_mlp --batch-sizes 1,64 --threads 1")
def bench(model: str, batch_sizes: int | tuple[int, ...], **options: Any) -> None:
    """Measure the time of a prediction and a training step."""
    from ztorch.commands.bench import bench

    sizes = batch_sizes if isinstance(batch_sizes, tuple) else (batch_sizes,)
    bench(model, batch_sizes=sizes, **options)


main.add_command(report)
main.add_command(completion)
