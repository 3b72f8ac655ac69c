"""ztorch train: trains a model, or an artifact that can train."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands import data, loss_options, named_arrays
from ztorch.commands.data import TrainingData
from ztorch.commands.named_arrays import PortShapes
from ztorch.commands.table_options import TableOptions
from ztorch.commands.train_table import SUFFIXES, train_table
from ztorch.data.locations import MissingFiles
from ztorch.data.registry import class_names
from ztorch.data.registry import load as load_data
from ztorch.errors import ConfigError
from ztorch.model.late_compile import LateCompile
from ztorch.program.program import Program, load
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import Recipe, optimizer
from ztorch.terminal.progress import numbers_of

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.model.model import Model


def compiled(recipe: Recipe, device: str, batch_size: int | tuple[int, ...] | None = None, *,
             sizes: Iterable[tuple[str, tuple[int, ...]]] = (), optimizer_: Any = None,
             rate: Any = None, loss: Any = None, metrics: tuple[Any, ...] = (),
             seed: int | None = None, threads: int | None = None,
             dtype: str | None = None) -> Program:
    """A program that trains. The recipe has the values of arguments that are None."""
    loss = loss or recipe.loss
    if loss is None:
        raise ConfigError(f"the file of model {recipe.model.name!r} names no LOSS; say which, such "
                          "as --loss mse or --loss sparse_categorical_crossentropy")
    if rate is None and optimizer_ is None:
        rate = recipe.schedule or recipe.learning_rate
    return recipe.model.compile(
        device, batch_size=batch_size or recipe.batch_size, loss=loss,
        optimizer=optimizer(recipe.optimizer if optimizer_ is None else optimizer_, rate),
        metrics=metrics or recipe.metrics, seed=seed, threads=threads, decode=recipe.decode,
        dtype=dtype or recipe.dtype, sizes=dict(sizes) or recipe.sizes)


def train(name: str, *, data_name: str | None, epochs: int | None,
          batch_size: int | tuple[int, ...] | None,
          sizes: Iterable[tuple[str, tuple[int, ...]]], optimizer_: str | None,
          rate: float | None, loss: str | None, metrics: str | None, device: str,
          threads: int | None, val: str | None, out: str | None, seed: int | None,
          weights: str | None, table: TableOptions, verbose: int | str,
          dtype: str | None = None) -> None:
    """Trains a model, an artifact, or a model for a table; writes the program or its weights."""
    data.need_writable(out, (".zt", ".safetensors"))
    if name.lower().endswith(SUFFIXES):
        _refuse(name, "is a table, for which a model is chosen", {
            "--data": data_name, "--loss": loss, "--metrics": metrics, "--weights": weights,
            "--sizes": sizes or None})
        trained = train_table(
            name, table, epochs=epochs, batch_size=batch_size, optimizer_=optimizer_, rate=rate,
            device=device, threads=threads, val=val, seed=seed, dtype=dtype, verbose=verbose)
        return _write(trained, out, verbose)
    _refuse_table_options(name, table)
    program = recipe = None
    compiles = any(option is not None for option in (
        optimizer_, loss, metrics, batch_size, sizes or None, seed, weights, dtype))
    if is_artifact(name) and not compiles and device == "auto":
        program = _load_trainable(name, threads)
        shapes = named_arrays.of_program(program)
    else:
        recipe = find(name)
        shapes = named_arrays.of_model(recipe.model)
    objectives = {} if recipe is None else {"loss": loss_options.loss(loss, shapes),
                                            "metrics": loss_options.metrics(metrics, shapes)}
    data_name = data_name or _default_data(name, recipe)
    rows = _read_data(data_name, shapes, program)  # before compiling, which takes longer
    split, validation = _validation(val, shapes, rows, program)
    if recipe is not None:
        if weights:
            recipe.model.load_weights(weights)
        if recipe.model.open_axes and not (sizes or recipe.sizes):
            sizes = _sizes_of(recipe.model, verbose, rows.train, rows.test, validation)
        program = compiled(recipe, device, batch_size, sizes=sizes, optimizer_=optimizer_,
                           rate=rate, seed=seed, threads=threads, dtype=dtype, **objectives)
    assert program is not None
    if recipe is None and rate is not None:
        program.learning_rate = rate
    learns_x = (table.target or (recipe.target if recipe else "y")) == "x"
    _fit(program, rows, validation, learns_x, verbose, validation_split=split,
         epochs=epochs or (recipe.epochs if recipe else 10))
    classes = rows.classes or class_names(data_name)
    if classes and program.pipeline is None:
        _name_classes(program, classes, Path(data_name).is_dir(), rows.rate)
    _write(program, out, verbose)


def _refuse_table_options(name: str, table: TableOptions) -> None:
    """Raises if an option for tables is set for something else."""
    _refuse(name, "is not a table", {"--balance": table.balance or None, **{
        f"--{kind}": columns or None for kind, columns in table.kinds.items()}})
    if table.target not in (None, "x", "y"):
        raise ConfigError(f"--target {table.target} names a column of a table, and {name} is none; "
                          f"train FILE.csv --target {table.target}")


def _default_data(name: str, recipe: Recipe | None) -> str:
    """The name of the data that a recipe trains on by default."""
    data_name = _data_of(recipe) if recipe else None
    if data_name is None:
        small = (f"; or train {name}:small, which trains on {recipe.small_data}"
                 if recipe and recipe.small_data else "")
        raise ConfigError(f"{name} has no default training data; add --data NAME or --data FILE"
                          f"{small}")
    return data_name


def _fit(program: Program, rows: TrainingData, validation: Pair | None, learns_x: bool,
         verbose: int | str, **options: Any) -> None:
    """Trains a program, and prints its scores on test rows."""
    if validation is not None:
        validation = _with_targets(validation, learns_x, program)
    if rows.classes is not None:
        _need_outputs(program, rows.classes)
    if rows.classes is not None and verbose:
        print("Labels: " + ", ".join(f"{k} is {text}" for k, text in enumerate(rows.classes)))
    program.fit(*_with_targets(rows.train, learns_x, program), validation_data=validation,
                verbose=verbose, **options)
    if rows.test is not None and verbose:
        scores = program.evaluate(*_with_targets(rows.test, learns_x, program), verbose=0,
                                  return_dict=True)
        print(f"On {len(rows.test[0])} rows it was not trained on: {format_scores(scores)}")


def _sizes_of(model: Model, verbose: int | str, *parts: Pair | None
              ) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The sizes of a model's open axes that hold all rows of some data."""
    late = LateCompile({"sizes": None})
    for part in parts:
        if part is not None:
            late.hold(model, part[0])
    if verbose:
        text = "; ".join(f"{axis} {', '.join(map(str, n))}" for axis, n in late.sizes.items())
        print(f"Sizes that hold all rows: {text}")
    return tuple(late.sizes.items())


def _data_of(recipe: Recipe) -> str | None:
    """The data that a recipe names, or its stand-in if the files of the data are missing."""
    if recipe.data is None or recipe.stand_in is None:
        return recipe.data
    try:
        load_data(recipe.data)
    except MissingFiles:
        print(f"The files of {recipe.data} are not here, so this trains on {recipe.stand_in}, "
              f"which comes with ztorch; --data {recipe.data} says how to get them")
        return recipe.stand_in
    return recipe.data


def _need_outputs(program: Program, classes: tuple[str, ...]) -> None:
    """Raises if the only output of a program is too narrow for the named classes."""
    shape = program.metadata.output_shape.get("", ())
    if len(shape) == 1 and 1 < shape[0] < len(classes):
        names = ", ".join(classes[:8]) + (" ..." if len(classes) > 8 else "")
        raise ConfigError(f"the data have {len(classes)} classes ({names}), and the model "
                          f"{shape[0]} outputs; its last layer needs {len(classes)}")


def _name_classes(program: Program, classes: tuple[str, ...], of_files: bool,
                  rate: int | None) -> None:
    """Names the outputs of a program if there is one for each class."""
    from ztorch.tabular.pipeline import Pipeline

    if program.metadata.output_shape.get("") == (len(classes),):
        program.pipeline = Pipeline.of_classes(classes, of_files and rate is None, rate)


def _refuse(name: str, because: str, options: dict[str, Any]) -> None:
    """Raises if an option has no effect for this kind of training."""
    if set_ := [option for option, value in options.items() if value is not None]:
        raise ConfigError(f"{name} {because}, so {set_[0]} has no meaning; omit it")


def _load_trainable(path: str, threads: int | None) -> Program:
    """Loads an artifact, which must be able to train."""
    program = load(path, threads)
    if "train" not in program.executable.functions:
        raise ConfigError(f"{path} only predicts; to compile its model again, set a loss: "
                          "add --loss, such as --loss mse")
    return program


def _read_data(name: str, shapes: PortShapes, program: Program | None,
               rate: int | None = None) -> TrainingData:
    """The data with a name. The program, if there is one, may know the meaning of columns or the
    rate of sounds; `rate` is the rate otherwise."""
    pipeline = program and program.pipeline
    if pipeline and pipeline.record.columns and name.lower().endswith(SUFFIXES):
        from ztorch.data import table

        assert pipeline.record.target is not None
        return TrainingData(pipeline.arrays(table(name, pipeline.record.target.name)))
    if shapes.several:
        return TrainingData(named_arrays.read_training(name, shapes))
    program_rate = pipeline.record.rate if pipeline else 0
    return data.read_training(name, shapes.x, program_rate or rate)


def _with_targets(pair: Pair, learns_x: bool, program: Program) -> Pair:
    """x and the target to learn: y, or x itself."""
    return pair[0], pair[0] if learns_x else named_arrays.targets_of(pair[1], program)


def _validation(val: str | None, shapes: PortShapes, rows: TrainingData,
                program: Program | None) -> tuple[float, Pair | None]:
    """The value of --val: a fraction of the data, or separate data."""
    if val is None:
        return 0.0, None
    try:
        return float(val), None
    except ValueError:
        return 0.0, _read_data(val, shapes, program, rows.rate).numbered_like(rows)


def format_scores(scores: dict[str, Any]) -> str:
    """Scores as text; accuracies in percent."""
    return ", ".join(f"{name} {value:.2%}" if "accuracy" in name else f"{name} {value:.4g}"
                     for name, value in numbers_of(scores).items())


def _write(program: Program, out: str | None, verbose: int | str) -> None:
    if out is None:
        if verbose:
            print("Nothing was written; --out model.zt keeps the program, --out "
                  "model.safetensors the weights")
        return
    program.save(out) if out.endswith(".zt") else program.save_weights(out)
    if verbose:
        print(f"Wrote {out} ({Path(out).stat().st_size:,} bytes)")
