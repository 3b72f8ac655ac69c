"""The operators of PyTorch that programs of torch.export may call, for docs/onnx.md.

`python -m ztorch.interchange.torch_export.tables` prints them.
"""

from __future__ import annotations

from ztorch.interchange.torch_export import calls
from ztorch.interchange.torch_export.translation import CALLS, COMPLEX_CALLS

__all__ = ["translated"]
assert calls  # imported because it fills the registry


def translated() -> str:
    """A table of operators by family. A name stands for all its overloads that are supported.

    >>> "`addmm`" in translated()
    True
    """
    families: dict[str, set[str]] = {}
    for key, translator in (*CALLS.items(), *COMPLEX_CALLS.items()):
        space, name, *_ = key.split(".")
        family = translator.__module__.rpartition(".")[2]
        families.setdefault(family, set()).add(
            name if space == "aten" else f"{space.removeprefix('_')}.{name}")
    rows = [f"| {family} | {', '.join(f'`{name}`' for name in sorted(names))} |"
            for family, names in sorted(families.items())]
    return "\n".join(["| family | operators |", "| --- | --- |", *rows])


if __name__ == "__main__":
    print(translated())
