"""Weights of attention layers as PyTorch has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import references

# -- PyTorch -------------------------------------------------------------------------------------------


def attention_arrays(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Keras' layout of attention as PyTorch's."""
    def rows(name: str) -> np.ndarray:
        kernel = weights[f"{prefix}/{name}/kernel"]
        return kernel.reshape(len(kernel), -1).T

    out = weights[f"{prefix}/attention_output/kernel"]
    names = ("query", "key", "value")
    return {"in_proj_weight": np.concatenate([rows(n) for n in names]),
            "in_proj_bias": np.concatenate([weights[f"{prefix}/{n}/bias"].reshape(-1)
                                            for n in names]),
            "out_proj.weight": out.reshape(-1, out.shape[-1]).T,
            "out_proj.bias": weights[f"{prefix}/attention_output/bias"]}


def loaded(module: Any, arrays: dict[str, np.ndarray], d: str = "float64") -> Any:
    torch = references.torch()
    module = module.to(getattr(torch, d))
    module.load_state_dict({n: torch.tensor(np.ascontiguousarray(a)) for n, a in arrays.items()})
    return module
