"""Translators of PyTorch's operators, a file for each family."""

from ztorch.interchange.torch_export.calls import (  # noqa: F401
    complex,
    convolution,
    creation,
    derived,
    elementwise,
    fourier,
    joining,
    linear,
    losses,
    matrices,
    movement,
    normalization,
    own_ops,
    pairs,
    parts,
    random_numbers,
    recurrent,
    reduction,
    short_time,
    windows,
)
