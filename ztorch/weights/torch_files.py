"""State dicts of PyTorch in files: .pt of torch.save and .safetensors. PyTorch is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ztorch.dtypes import from_storage
from ztorch.errors import Unsupported, WeightsError
from ztorch.files.safetensors import Tensors
from ztorch.files.zips import StoredZip
from ztorch.weights import pickles
from ztorch.weights.matching import natural
from ztorch.weights.parts import Module, Stored
from ztorch.weights.pickles import Tensor

LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how torch.save began before its zips
_INSIDE = ("state_dict", "model_state_dict", "model", "module", "net", "params")
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile
_RECURRENT = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))_l(\d{1,6})(_reverse)?")
_ENDS = {"weight", "bias", "running_mean", "running_var", "in_proj_weight", "in_proj_bias",
         "q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k", "bias_v"}


def is_state(archive: StoredZip) -> bool:
    """Whether this zip is one that torch.save writes."""
    return any(_is_pickle(name) for name in archive.names)


def _is_pickle(name: str) -> bool:
    return name.rpartition("/")[2] == "data.pkl"


def state_dict(archive: StoredZip) -> Tensors:
    """The tensors of a file of torch.save, in the order of the model."""
    where = archive.where
    [first, *more] = [name for name in archive.names if _is_pickle(name)]
    root = first.removesuffix("data.pkl")
    if f"{root}constants.pkl" in archive:
        raise Unsupported(f"{where} is a TorchScript program, not weights; write its weights: "
                          "torch.save(torch.jit.load(path).state_dict(), other_path)")
    if more or archive.size(first) > pickles.MOST_BYTES:
        raise WeightsError(f"{where} has no pickle that could be a state dict's; write the state "
                           "dict alone: torch.save(model.state_dict(), path)")
    if f"{root}byteorder" in archive and archive.read(f"{root}byteorder") != b"little":
        raise Unsupported(f"{where} was written on a machine with the bytes of numbers in another "
                          "order; write it as safetensors there")
    found = pickles.load(archive.read(first), lambda key: archive.read(f"{root}data/{key}"), where)
    return {name: (t.dtype, t.array) for name, t in _tensors(found, where).items()}


def _tensors(found: Any, where: str) -> dict[str, Tensor]:
    """The state dict in what was pickled: that itself, or an entry of a checkpoint."""
    def of(x: Any) -> dict[str, Tensor]:
        return {k: v for k, v in x.items() if isinstance(k, str) and isinstance(
            v, Tensor)} if isinstance(x, dict) else {}

    if of(found):
        return of(found)
    entries = found if isinstance(found, dict) else {}
    inside = [key for key in _INSIDE if of(entries.get(key))]
    if len(inside) == 1:
        return of(entries[inside[0]])
    shown = ", ".join(repr(key)[:40] for key in list(entries)[:8]) or type(found).__name__
    raise WeightsError(f"{where} holds no state dict, but {shown}; write one: "
                       "torch.save(model.state_dict(), path)")


def modules(state: Tensors, ordered: bool) -> list[Module]:
    """The modules that the names of tensors tell of; without an order, sorted by name."""
    for wrapper in _WRAPPERS:
        if state and all(name.startswith(wrapper) for name in state):
            state = {name.removeprefix(wrapper): t for name, t in state.items()}
    names = list(state) if ordered else sorted(state, key=natural)
    found: dict[str, dict[str, Stored]] = {}
    for name in names:
        module, end = _parted(name, state)
        if end != "num_batches_tracked":
            found.setdefault(module, {})[end] = _stored(state[name])
    return [Module((name,), tensors) for name, tensors in found.items()]


def _stored(tensor: Any) -> Stored:
    d, array = tensor
    return Stored(tuple(array.shape), lambda: from_storage(d, array))


def _parted(name: str, state: Mapping[str, Any]) -> tuple[str, str]:
    """A module's name and which of its tensors this is."""
    module, _, end = name.rpartition(".")
    outer, _, last = module.rpartition(".")
    above = f"{outer}." if outer else ""
    if last == "out_proj" and (f"{above}in_proj_weight" in state
                               or f"{above}q_proj_weight" in state):
        return outer, f"out_proj.{end}"
    layer = _RECURRENT.fullmatch(end)
    if layer:  # each layer of a deep LSTM is one of ours
        what, k, reverse = layer[1], int(layer[2]), layer[3] or ""
        return (f"{module}[{k}]" if k else module), f"{what}_l0{reverse}"
    if end in _ENDS or end == "num_batches_tracked":
        return module, end
    return name, "weight"  # a parameter of the model itself
