"""The form of each operator of PyTorch, a file a family."""

from ztorch.interchange.torch_export.calls import (  # noqa: F401
    complex,
    convolution,
    creation,
    derived,
    elementwise,
    linear,
    losses,
    movement,
    normalization,
    pairs,
    parts,
    recurrent,
    reduction,
    windows,
)
