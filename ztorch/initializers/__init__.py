"""Initial values of weights, drawn by NumPy on the host.

Each weight has its own random stream, which depends only on the model's seed and the weight's name.
So a new layer does not change other weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.initializers.initializer import Initializer, Shape, stream
from ztorch.names.member_names import member

if TYPE_CHECKING:  # the files of members load when a member is first named
    from ztorch.initializers.constant import Constant, Identity, Ones, Zeros
    from ztorch.initializers.random import (
        Orthogonal,
        RandomNormal,
        RandomUniform,
        TruncatedNormal,
    )
    from ztorch.initializers.spectral import STFT
    from ztorch.initializers.variance_scaling import (
        GlorotNormal,
        GlorotUniform,
        HeNormal,
        HeUniform,
        LecunNormal,
        LecunUniform,
        VarianceScaling,
    )

_OTHER_NAMES = {f"{name}Initializer": name for name in ("Identity", "Orthogonal", "STFT")}  # Keras'

__all__ = ["STFT", "Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "Identity",
           "Initializer", "LecunNormal", "LecunUniform", "Ones", "Orthogonal", "RandomNormal",
           "RandomUniform", "Shape", "TruncatedNormal", "VarianceScaling", "Zeros", "get",
           "stream"]

get = Initializer.get


def __getattr__(name: str) -> Any:
    return member(Initializer, _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return __all__
