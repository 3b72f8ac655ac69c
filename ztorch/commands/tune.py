"""ztorch tune: measures or predicts schedules, and manages the measurements."""

from __future__ import annotations

from typing import Any

import click

from ztorch.commands import options
from ztorch.commands.group import examples
from ztorch.commands.option_types import ModelName


class TuneGroup(click.Group):
    """The commands that manage schedules. Any other first argument is a model to tune."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["model", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Any:
        return [*ModelName().shell_complete(ctx, tune_model.params[0], incomplete),
                *super().shell_complete(ctx, incomplete)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=TuneGroup, subcommand_metavar="MODEL [OPTIONS] | list | export | import | clear")
@examples("""ztorch tune digits_mlp --batch-size 64
             ztorch tune lenet --device cpu:avx2 --threads 1 --seconds 120
             ztorch tune resnet18 --device cuda:sm_90a
             ztorch tune list
             ztorch tune export schedules.json""")
def tune() -> None:
    """Measure how kernels are computed fastest here.

    Tries other tiles, orders of loops and the like than the rules of the compiler choose, and keeps
    the fastest in the cache, where every later compilation finds them. Tuning is optional: results
    are the same but for rounding. On a device of this machine, kernels are run; for a chip, such as
    cuda:sm_90a, the performance model predicts their times. `ztorch tune model --help` has the
    options of `ztorch tune MODEL`.
    """


@tune.command("model")
@options.model
@options.custom
@options.device
@options.threads
@options.batch_size
@options.sizes
@options.dtype
@options.loss
@click.option("--seconds", type=click.FloatRange(0), default=60.0, show_default=True,
              help="For how long to measure; kernels with the most work come first.")
@click.option("--again", is_flag=True, help="Repeat measurements that are in the cache.")
def tune_model(model: str, device: str, loss: str | None, dtype: str | None, sizes: Any,
               batch_size: Any, **settings: Any) -> None:
    """Measure the kernels of a model, which is `ztorch tune MODEL`.

    If the model's file names a loss, also the kernels of training.
    """
    from ztorch.commands import loss_options, named_arrays
    from ztorch.sources.find import find
    from ztorch.sources.recipe import training_options

    recipe = find(model)
    loss_ = loss_options.loss(loss, named_arrays.of_model(recipe.model)) or recipe.loss
    training = training_options(recipe, loss_)
    training.pop("loss_weights", None)
    print(recipe.model.tune(
        "cpu" if device == "auto" else device, batch_size=batch_size or recipe.batch_size,
        dtype=dtype or recipe.dtype, sizes=dict(sizes) or recipe.sizes, **training, **settings))


@tune.command("list")
@options.as_json
def list_measurements(as_json: bool) -> None:
    """List the measurements."""
    import json

    from ztorch.tune.exchange import stored_kernels
    from ztorch.tune.report import stored_table

    kernels = stored_kernels()
    data = [k.to_json() for k in kernels]
    print(json.dumps(data, indent=2) if as_json else stored_table(kernels))


@tune.command("export")
@click.argument("file", type=click.Path())
def export(file: str) -> None:
    """Write all measurements to a file."""
    from ztorch.tune.exchange import export_file

    print(f"Wrote {export_file(file)} kernels to {file}")


@tune.command("import")
@click.argument("file", type=click.Path())
def import_(file: str) -> None:
    """Add the measurements in a file from `ztorch tune export`.

    Schedules are only used on machines like the one where they were measured.
    """
    from ztorch.tune.exchange import import_file

    print(f"Read {import_file(file)} kernels from {file}")


@tune.command("clear")
def clear() -> None:
    """Remove all measurements."""
    from ztorch.tune.exchange import clear

    print(f"Removed {clear()} files")
