"""Calls functions of users on symbolic tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ztorch.errors import ConfigError, ZtorchError


class NotTraced(ConfigError, TypeError):
    """A user's function that fails on symbolic tensors, such as one that calls NumPy."""


def traced(function: Callable[..., Any], culprit: str, *tensors: Any) -> Any:
    """Calls a user's function on symbolic tensors.

    Args:
        function: The function.
        culprit: Its owner, for the error, such as `"loss 'mine'"`.
        *tensors: Its arguments.

    Returns:
        Its result.

    Raises:
        NotTraced: It failed, probably because it computes with NumPy or PyTorch.
    """
    try:
        return function(*tensors)
    except ZtorchError:
        raise
    except (TypeError, AttributeError) as error:
        fix = ("; compute with zt.ops, such as ops.relu(x), not with NumPy or PyTorch"
               if "Value" in str(error) else "")
        raise NotTraced(f"{culprit}: its function failed with {type(error).__name__}: {error}{fix}"
                        ) from error
