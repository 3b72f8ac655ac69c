"""The form of each operator of PyTorch, a file a family."""

from ztorch.interchange.torch_export.calls import (  # noqa: F401
    chosen,
    complex,
    convolution,
    creation,
    derived,
    elementwise,
    fourier,
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
