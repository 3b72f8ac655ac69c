"""Loads models from PyTorch modules in memory, through a file of torch.export."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.errors import ConfigError, Unsupported
from ztorch.interchange.torch_export.archive import read
from ztorch.interchange.torch_export.load import model_of_program
from ztorch.model.model import Model


@checked
def load_torch(module: Any, *inputs: Any, sizes: Mapping[str, int] | None = None,
               name: str | None = None, keep_dtypes: bool = False) -> Model:
    """Loads a model from a PyTorch module. It compiles, trains and exports like any other.

    PyTorch's own `torch.export` traces the module, as `module.eval()` computes: without dropout,
    and with the stored statistics of BatchNormalization. Any batch size works. Where the code of
    the module fixes it, a warning says so, and batches are as large as in the example. For other
    axes of varying size, and to read a file without PyTorch, see `zt.torch_export.load`.

    Args:
        module: A `torch.nn.Module`, or the program that `torch.export.export` returned, which takes
            no inputs here.
        *inputs: Example inputs of the module: tensors of PyTorch, or arrays. Only shapes and
            dtypes matter. The first axis of each is the batch.
        sizes: Sizes for open axes, by name, to fix them. Default: `None`.
        name: The name of the model; `None` means the module's class. Default: `None`.
        keep_dtypes: Whether to compute in the float dtypes of the module rather than in the dtype
            of `compile`. Default: `False`.

    Returns:
        A Sequential for one input and one output, else a Model. Its weights are copies.

    Raises:
        ConfigError: The argument is no module, or PyTorch cannot export it.
        Unsupported: It has calls that ztorch cannot import; the message lists all of them.

    Examples:
        >>> import torch                                              # doctest: +SKIP
        >>> net = torch.nn.Linear(4, 2)                               # doctest: +SKIP
        >>> model = zt.load_torch(net, torch.zeros(1, 4))             # doctest: +SKIP
        >>> program = model.compile(batch_size=8)                     # doctest: +SKIP
    """
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    own = type(module).__name__
    if torch is None or not isinstance(module, (torch.nn.Module, torch.export.ExportedProgram)):
        raise ConfigError(f"zt.load_torch takes a torch.nn.Module, not a {own}; for files there "
                          "are zt.load_model(path) and model.load_weights(path)")
    if isinstance(module, torch.export.ExportedProgram):
        exported, own = module, "model"
    elif not inputs:
        raise ConfigError(f"zt.load_torch({own}) needs an example of each input: "
                          "zt.load_torch(net, x)")
    else:
        exported = _exported(torch, module, [_example(torch, x) for x in inputs])
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, f"{own}.pt2")
        torch.export.save(exported, file)
        program = replace(read(file), path=f"module {own}")  # its name in errors
    return model_of_program(program, sizes, name or own, keep_dtypes)


def _example(torch: Any, x: Any) -> Any:
    """A tensor of PyTorch with the shape and dtype of an example."""
    if isinstance(x, tuple | list):
        raise ConfigError(f"zt.load_torch: an example is a {type(x).__name__}, but must be a "
                          "tensor; several inputs are arguments: zt.load_torch(net, a, b)")
    x = x.detach() if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x))
    if x.ndim == 0:
        raise ConfigError("zt.load_torch: an example has no axes; its first one is the batch")
    return x


def _exported(torch: Any, module: Any, examples: list[Any]) -> Any:
    """The program of a module, for any batch size if its code allows."""
    batch = torch.export.Dim("batch")
    # PyTorch takes a batch of one for a constant.
    rows = [torch.cat([x, x]) if len(x) == 1 else x for x in examples]
    name, size = type(module).__name__, len(examples[0])
    with _evaluating(module):
        try:
            return torch.export.export(module, tuple(rows),
                                       dynamic_shapes=tuple({0: batch} for _ in rows))
        except Exception as error:  # whatever the code of the module raises
            reason = _first_line(error)
        try:
            exported = torch.export.export(module, tuple(examples))
        except Exception as error:
            raise Unsupported(
                f"torch.export cannot export {name} ({_first_line(error)}); change its forward, "
                "or pass torch.export.export(...) of your own") from error
    if all(len(x) == size for x in examples):  # else loading says that there is no batch
        warnings.warn(f"zt.load_torch: {name} takes batches of {size} only, as in the example, for "
                      f"torch.export finds no program for any size ({reason})", stacklevel=4)
    return exported


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Has a module compute as in evaluation meanwhile."""
    was_training = {m for m in module.modules() if m.training}
    module.eval()
    try:
        yield
    finally:
        for m in was_training:
            m.training = True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200].rstrip(".")
