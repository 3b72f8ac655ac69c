"""What each operator of PyTorch becomes, a file a family."""

from ztorch.interchange.torch_export.calls import (  # noqa: F401
    convolution,
    creation,
    elementwise,
    linear,
    movement,
    normalization,
    pairs,
    parts,
    recurrent,
    reduction,
)
