"""Pages of the documentation that come from the code; a hook of MkDocs (see mkdocs.yml).

- `reference/*.md`: the API, a page a family, by mkdocstrings from the docstrings
- `tuned_constants.md`: the table of `ztorch/lower/tuning/`
- `architecture.md`, `contributing.md`, `changelog.md`: the files of the root, links turned
- `pictures/plan.svg`: the plan of a training step of `digits_mlp`, as `program.plot` draws it
- in every page, a line `<!-- show: graph -->` becomes the output of `ztorch show digits_mlp
  --stage graph` for the target avx2 (`<!-- show: ir 40 -->`: 40 lines of it at most)

Nothing of this is in git, so nothing of it can be out of date.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ztorch
from ztorch import callbacks, data, losses, metrics, optimizers, schedules
from ztorch.commands.show import show
from ztorch.config import Named
from ztorch.layers import LAYERS
from ztorch.library.buffers import Buffer, Strided
from ztorch.library.builder import BackendBuilder
from ztorch.library.capabilities import Capabilities
from ztorch.library.device_library import DeviceLibrary
from ztorch.lower.tuning import constants

ROOT = Path(__file__).parent.parent
ARRAYS = (  # functions of tensors, in the order of their page
    "tensor", "asarray", "from_dlpack", "full", "zeros", "ones", "empty", "full_like", "zeros_like",
    "ones_like", "empty_like", "arange", "linspace", "eye", "rand", "randn", "randint",
    "permutation", "set_seed", "ComplexTensor", "save_tensors", "load_tensors", "grad",
    "value_and_grad", "vjp", "jvp", "jacobian",
    "hessian", "vmap", "custom_gradient", "stop_gradient", "compiled", "kernel", "grid", "explain",
    "export", "load_function", "lazy", "device", "set_default_device", "allow_transfers")
MODEL, DEVICE = "digits_mlp", "cpu:avx2"
FAMILIES = {  # of layers, by the file that holds them
    "core": "Input, Dense and shapes", "activation": "Activations",
    "convolution": "Convolutions", "pooling": "Pooling, resampling and borders",
    "normalization": "Normalization", "regularization": "Dropout and noise",
    "gated": "Recurrent layers", "bidirectional": "Both ways", "rnn": "Loops over cells",
    "cells": "Cells", "conv_lstm": "Convolutions with a state",
    "embedding": "Embeddings", "attention": "Attention",
    "transformer": "Transformers", "merge": "Merging", "containers": "Layers of layers",
    "preprocessing": "Preparing data", "augmentation": "Changing images by chance",
    "volume_windows": "Convolutions and pooling of volumes",
    "volume_shapes": "Borders and sizes of volumes",
    "score_attention": "Attention without projections", "einsum_dense": "Products by a formula",
    "branch_scaling": "Branches of deep networks", "kernel_layer": "Kernels"}


# -- the API reference ---------------------------------------------------------------------------


def reference() -> dict[str, str]:
    """The pages of the reference: name -> Markdown.

    >>> sorted(reference())
    ['arrays', 'backends', 'callbacks', 'data', 'devices', 'index', 'layers', 'models', 'training']
    """
    pages = {**_models_and_layers(), **_data_and_devices()}
    pages["index"] = page("API", "From the docstrings of the code, whose examples are run by the "
                          "tests.", [
        "| page | contents |", "| --- | --- |",
        "| [Models and programs](models.md) | `Model`, `Sequential`, `Program`, `load` |",
        f"| [Layers](layers.md) | {len(LAYERS)} layers, and `Layer` for your own |",
        "| [Losses, metrics, optimizers](training.md) | arguments of `compile` |",
        "| [Callbacks](callbacks.md) | arguments of `fit` |",
        "| [Data sets](data.md) | `zt.data` |",
        "| [Devices and exports](devices.md) | `zt.devices`, C libraries, pages |",
        "| [For authors of libraries](backends.md) | `zt.backends` |",
        "| [Ops](../ops.md) | all functions of `zt.ops` |",
        "| [Functions in kernels](../kernel_functions.md) | what a `zt.kernel` may call |"])
    return pages


def _models_and_layers() -> dict[str, str]:
    model_members = ("compile", "summary", "get_layer", "set_weights", "get_weights",
                     "save_weights", "load_weights", "export", "trace", "to_json", "from_json")
    return {
        "models": page("Models and programs", "A model declares; `compile` returns a program, "
                       "which trains, evaluates, predicts and is saved.", [
            *entry(ztorch.Model, model_members), *entry(ztorch.Sequential, ()),
            *entry(ztorch.Program, own_members(ztorch.Program)), *entry(ztorch.load),
            *entry(ztorch.load_model), *entry(ztorch.load_keras), *entry(ztorch.load_torch),
            *entry(ztorch.onnx.load),
            *entry(ztorch.onnx.save)]),
        "arrays": page("Tensors and gradients", "[Arrays and gradients](../guides/arrays.md) tells "
                       "how they work together.", [
            *entry(ztorch.Tensor, own_members(ztorch.Tensor)),
            *(line for name in ARRAYS for line in entry(getattr(ztorch, name)))]),
        "layers": page("Layers", "All of them are `zt.layers.NAME`, and take `name=`, `trainable=` "
                       "and `input_shape=` besides their own arguments.", layer_entries()),
        "training": page("Losses, metrics, optimizers, schedules", "Each can be given by name, as "
                         "in `loss=\"mse\"`, or as an instance with arguments.", [
            "## Losses", "", *entries(losses.Loss), "## Metrics", "",
            *entries(metrics.Metric), "## Optimizers", "",
            *entries(optimizers.Optimizer), "## Learning-rate schedules", "",
            *entries(schedules.LearningRateSchedule), "## Initializers", "",
            *entries(ztorch.initializers.Initializer), "## Regularizers", "",
            *entries(ztorch.regularizers.Regularizer), "## Constraints", "",
            *entries(ztorch.constraints.Constraint)]),
        "callbacks": page("Callbacks", "For `fit(callbacks=[...])`.", [
            line for name in callbacks.__all__ for line in entry(getattr(callbacks, name))])}


def _data_and_devices() -> dict[str, str]:
    return {
        "data": page("Data sets", "[Data](../data.md) says how to use them.", [
            line for name in data.__all__ if callable(getattr(data, name)) and name not in (
                "Pair", "Split") for line in entry(getattr(data, name))] + [
            "## Tables", "", *entry(ztorch.Pipeline, own_members(ztorch.Pipeline)),
            "## Helpers of Keras: `zt.utils`", "",
            *(line for name in ztorch.utils.__all__ for line in entry(getattr(ztorch.utils, name)))
            ]),
        "devices": page("Devices and exports", "", [
            *entry(ztorch.devices), *entry(ztorch.best_device),
            *(line for path in ("ztorch.compile.c_library.export_c",
                                "ztorch.compile.web_page.export_web",
                                "ztorch.artifact.write.write_artifact")
              for line in [f"::: {path}", ""])]),
        "backends": page("For authors of libraries", "[The guide](../guides/backends.md) tells "
                         "what they are for.", [
            *entry(ztorch.backends.get), *entry(DeviceLibrary, own_members(DeviceLibrary)),
            *entry(Buffer, ("at", "tensor")), *entry(Strided, ()),
            *entry(Capabilities, own_members(Capabilities)), *entry(BackendBuilder, ("build",))])}


def page(title: str, about: str, lines: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", about, "", *lines]) + "\n"


def entry(member: Any, members: Iterable[str] | None = None) -> list[str]:
    """A directive of mkdocstrings; `members` of a class are those to be shown."""
    lines = [f"::: {member.__module__}.{member.__qualname__}"]
    if inspect.isclass(member):
        shown = list(members or ())
        lines += ["    options:", "      merge_init_into_class: true",
                  f"      members: {shown}",
                  f"      inherited_members: {shown or 'false'}"]
    return [*lines, ""]


def entries(base: type[Named]) -> list[str]:
    """The base of a family and all members in its room, in the order of their files."""
    room = ".".join(base.__module__.split(".")[:2])
    members = [c for c in base.known.values() if f"{c.__module__}.".startswith(f"{room}.")]
    return [line for c in dict.fromkeys((base, *members)) for line in entry(c, own_members(c))]


def own_members(cls: type) -> list[str]:
    """The public functions that a class defines by itself or has from a base of this package."""
    if cls not in (ztorch.Program, DeviceLibrary):
        return [name for name, member in vars(cls).items() if not name.startswith("_")
                and inspect.isfunction(member) and member.__doc__]
    return [name for kind in cls.__mro__ if kind.__module__.startswith("ztorch")
            for name, member in vars(kind).items() if not name.startswith("_")
            and (inspect.isfunction(member) or isinstance(member, property))]


def layer_entries() -> Iterator[str]:
    from ztorch.layers.layer import Layer

    yield from ["## A layer of your own", "", *entry(Layer, ["build", "call", "add_weight"])]
    families: dict[str, list[type]] = {}
    for layer in dict.fromkeys(LAYERS.values()):
        family = layer.__module__.rpartition(".")[2]
        if layer.__module__.startswith("ztorch.layers.") and not layer.__name__.startswith("_"):
            families.setdefault(family, []).append(layer)
    for family in [*FAMILIES, *sorted(set(families) - set(FAMILIES))]:
        if family in families:
            yield from [f"## {FAMILIES.get(family, family.capitalize())}", ""]
            for layer in families[family]:
                yield from entry(layer, ["adapt"] if hasattr(layer, "adapt") else ())


# -- tuned constants ------------------------------------------------------------------------------


def tuned_constants() -> str:
    """A page with every tuned constant of lowering."""
    return page("Tuned constants", "The numbers by which the compiler chooses schedules, from the "
                "table in `ztorch/lower/tuning/`.", [
        "| constant | value | unit | meaning | measured |", "| --- | --- | --- | --- | --- |",
        *(f"| `{c.name}` | {c.value} | {c.unit} | {c.meaning} | {c.evidence} |"
          for c in constants())])


# -- a model's stages, and pictures --------------------------------------------------------------


@functools.cache
def stage(name: str) -> str:
    """The output of `ztorch show digits_mlp` for a stage."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show(MODEL, stage=name, **SHOWN)
    return out.getvalue().rstrip()


SHOWN: dict[str, Any] = {"function": "predict", "device": DEVICE, "batch_size": None, "dtype": None,
                         "loss": None}


def shown(match: re.Match[str]) -> str:
    """The stage that a line asks for, as a block of code."""
    lines = stage(match[1]).split("\n")
    most = int(match[2] or len(lines))
    if len(lines) > most:
        lines = [*lines[:most], f"... {len(lines) - most:,} more lines"]
    language = {"text": "llvm", "asm": "gas"}.get(match[1], "text")
    return "\n".join([f"```{language}", *lines, "```"])


@functools.cache
def plan_picture() -> str:
    """The plan of a training step, as `program.plot` draws it."""
    from ztorch.codegen.targets import target
    from ztorch.compile.pipeline import compile_functions
    from ztorch.program.picture import draw_plan
    from ztorch.runtime.devices import resolve
    from ztorch.sources.find import find

    recipe = find(MODEL)
    traced = recipe.model.trace(32, "adam", recipe.loss, recipe.metrics)
    device = target(resolve(DEVICE, must_be_local=False).target)
    compiled = compile_functions(traced.functions, device, MODEL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.svg"
        draw_plan(compiled.spec, "train", path)
        return path.read_text()


# -- files of the root ----------------------------------------------------------------------------

OF_ROOT = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md",
           "CHANGELOG.md": "changelog.md", "README.md": "index.md"}


def from_root(text: str) -> str:
    """A page of the root, with links as they are from docs/.

    >>> from_root("[rooms](ARCHITECTURE.md) and [ops](docs/ops.md#top)")
    '[rooms](architecture.md) and [ops](ops.md#top)'
    """
    def turned(link: re.Match[str]) -> str:
        target = link[2].removeprefix("docs/")
        name, _, anchor = target.partition("#")
        target = OF_ROOT.get(name, name) + (f"#{anchor}" if anchor else "")
        if link[2].startswith(("docs/", "http", "#")) or name in OF_ROOT:
            return f"[{link[1]}]({target})"
        return f"{link[1]} (`{link[2]}`)"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", turned, text)


# -- the hook -------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made here."""
    from mkdocs.structure.files import File

    for name, text in reference().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    files.append(File.generated(config, "tuned_constants.md", content=tuned_constants()))
    for source, name in OF_ROOT.items():
        if source != "README.md":
            text = from_root((ROOT / source).read_text())
            files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "pictures/plan.svg", content=plan_picture()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"^<!-- show: (\w+)(?: (\d+))? -->$", shown, markdown, flags=re.MULTILINE)
