"""ztorch train and ztorch demo."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.commands import aims, data, named
from ztorch.commands.data import Given
from ztorch.commands.named import Ports
from ztorch.commands.recipe import Recipe, find, optimizer
from ztorch.errors import ConfigError, ZtorchError
from ztorch.program.program import Program, load

if TYPE_CHECKING:
    from ztorch.data import Pair


def compiled(recipe: Recipe, device: str, batch_size: int | None = None, *, optimizer_: Any = None,
             rate: Any = None, loss: Any = None, metrics: tuple[Any, ...] = (),
             seed: int | None = None, threads: int | None = None,
             dtype: str | None = None) -> Program:
    """A program that trains, by what was asked for, else by what the model's file says."""
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
        dtype=dtype or "float32")


def train(name: str, *, data_name: str | None, epochs: int | None, batch_size: int | None,
          optimizer_: str | None, rate: float | None, loss: str | None, metrics: str | None,
          device: str, threads: int | None, val: str | None, out: str | None, seed: int | None,
          weights: str | None, target: str | None, verbose: int | str,
          dtype: str | None = None) -> None:
    """Trains a model, or an artifact that trains, and writes what came out."""
    data.writable(out, (".zt", ".safetensors"))
    program = recipe = None
    if name.endswith(".zt"):
        options = {"--optimizer": optimizer_, "--loss": loss, "--metrics": metrics,
                   "--batch-size": batch_size, "--seed": seed, "--weights": weights,
                   "--dtype": dtype}
        if fixed := [option for option, value in options.items() if value is not None]:
            raise ConfigError(f"{name} is compiled already, so {fixed[0]} comes too late; train "
                              "the model it was made from")
        program = load(name, threads)
        if "train" not in program.executable.functions:
            raise ConfigError(f"{name} only predicts; train the model it was made from, or export "
                              "that with --train")
        ports = named.of_program(program)
    else:
        recipe = find(name)
        ports = named.of_model(recipe.model)
    wanted = {} if recipe is None else {"loss": aims.loss(loss, ports),
                                        "metrics": aims.metrics(metrics, ports)}
    data_name = data_name or (recipe.data if recipe else None)
    if data_name is None:
        raise ConfigError(f"{name} does not say what to train on; add --data NAME or --data FILE")
    itself = (target or (recipe.target if recipe else "y")) == "x"
    given = _data(data_name, ports)  # before compiling, which takes longer
    if (recipe and recipe.small is not None and not ports.several and data_name == recipe.data
            and given.train[0].shape[1:] != ports.x):
        raise ConfigError(f"the data that {name} names, {data_name}, are for its small variant; "
                          f"train {name}:small, or give --data with rows of shape {ports.x}")
    split, validation = _validation(val, ports, given)
    if recipe is not None:
        if weights:
            recipe.model.load_weights(weights)
        program = compiled(recipe, device, batch_size, optimizer_=optimizer_, rate=rate,
                           seed=seed, threads=threads, dtype=dtype, **wanted)
    assert program is not None
    if recipe is None and rate is not None:
        program.learning_rate = rate
    if validation is not None:
        validation = _aimed(validation, itself, program)
    if given.classes is not None and verbose:
        print("Labels: " + ", ".join(f"{k} is {text}" for k, text in enumerate(given.classes)))
    program.fit(*_aimed(given.train, itself, program),
                epochs=epochs or (recipe.epochs if recipe else 10),
                validation_split=split, validation_data=validation, verbose=verbose)
    if given.test is not None and verbose:
        scores = program.evaluate(*_aimed(given.test, itself, program), verbose=0,
                                  return_dict=True)
        print(f"On {len(given.test[0])} rows it was not trained on: {_spell(scores)}")
    if out is None:
        if verbose:
            print("Nothing was written; --out model.zt keeps the program, --out "
                  "model.safetensors the weights")
        return
    program.save(out) if out.endswith(".zt") else program.save_weights(out)
    if verbose:
        print(f"Wrote {out} ({Path(out).stat().st_size:,} bytes)")


def _data(name: str, ports: Ports) -> Given:
    return Given(named.training(name, ports)) if ports.several else data.training(name, ports.x)


def _aimed(pair: Pair, itself: bool, program: Program) -> Pair:
    """What a model sees and what it shall give: for an autoencoder the same."""
    return (pair[0], pair[0] if itself else named.aimed_at(pair[1], program))


def _validation(val: str | None, ports: Ports, given: Given) -> tuple[float, Pair | None]:
    """--val as a fraction of the data, or as data of its own."""
    if val is None:
        return 0.0, None
    try:
        return float(val), None
    except ValueError:
        return 0.0, _data(val, ports).numbered_like(given)


def _spell(scores: dict[str, float]) -> str:
    return ", ".join(f"{k} {v:.2%}" if "accuracy" in k else f"{k} {v:.4g}"
                     for k, v in scores.items())


def demo(out: str | None, epochs: int | None, device: str, threads: int | None) -> None:
    """Trains on the digits that come with ztorch, exports, and predicts in a fresh process."""
    data.writable(out, (".zt",))
    recipe = find("digits_mlp")
    train_set, (x, y), _ = data.training("digits")  # type: ignore[misc]
    start = time.perf_counter()
    program = compiled(recipe, device, threads=threads)
    print(f"1. Compiled {program.name} for {program.device}: forward, loss, backward and optimizer "
          f"as one library of {len(program.executable.code):,} bytes, in "
          f"{time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    epochs = epochs or recipe.epochs
    print(f"2. Training on {len(train_set[0])} handwritten digits:")
    program.fit(*train_set, epochs=epochs)
    scores = program.evaluate(x, y, verbose=0, return_dict=True)
    print(f"   {program.epochs_trained} epochs in {time.perf_counter() - start:.1f} s; on {len(x)} "
          f"other digits: {_spell(scores)}")
    with tempfile.TemporaryDirectory(prefix="ztorch-demo-") as folder:
        file = out or os.path.join(folder, "digits.zt")
        program.save(file)
        print(f"3. Exported to {file}: {Path(file).stat().st_size:,} bytes, with weights and "
              "optimizer, so it can go on training")
        expected = program.predict(x)
        given = _in_fresh_process(file, x, folder)
    if not np.array_equal(given, expected):
        raise ZtorchError("the artifact predicts other numbers than the program it was made from; "
                          "please report this")
    print("4. A fresh process without the compiler loaded it and predicts the same, bit for bit:")
    k = int(np.flatnonzero(given.argmax(1) == y)[7])
    print(_drawn(x[k, :, :, 0], f"-> {given[k].argmax()}, {given[k].max():.1%} sure"))
    print(f"Next: ztorch inspect {out}" if out else
          "Next: ztorch demo --out digits.zt, then ztorch inspect digits.zt")


_PREDICT = """
import sys
for compiler in ("llvmlite", "jinja2"):
    sys.modules[compiler] = None
import numpy, ztorch
numpy.save(sys.argv[3], ztorch.load(sys.argv[1]).predict(numpy.load(sys.argv[2])))
"""


def _in_fresh_process(artifact: str, x: np.ndarray, folder: str) -> np.ndarray:
    given, answer = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
    np.save(given, x)
    root = str(Path(__file__).parents[2])  # where this very ztorch lies, installed or not
    command = f"import sys; sys.path.insert(0, {root!r})\n{_PREDICT}"
    ran = subprocess.run([sys.executable, "-c", command, artifact, given, answer],
                         capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ZtorchError(f"the fresh process failed:\n{ran.stderr}")
    return np.load(answer)


def _drawn(pixels: np.ndarray, caption: str) -> str:
    shades = " .:-=+*#%@"
    rows = ["".join(shades[int(p * (len(shades) - 1))] * 2 for p in row) for row in pixels]
    rows[len(rows) // 2] += f"    {caption}"
    return "\n".join(f"      {row}" for row in rows)
