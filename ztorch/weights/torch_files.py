"""Reads PyTorch's state dicts from .pt and .safetensors files, without PyTorch."""

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
from ztorch.weights.modules import FileModule, StoredTensor
from ztorch.weights.pickles import PickledTensor

LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # first bytes of torch.save before 1.6
_STATE_DICT_KEYS = (  # keys of checkpoints under which the state dict may be
    "state_dict", "model_state_dict", "model", "module", "net", "params")
_WRAPPERS = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile
_RECURRENT = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))_l(\d{1,6})(_reverse)?")
_ENDS = {"weight", "bias", "running_mean", "running_var", "in_proj_weight", "in_proj_bias",
         "q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k", "bias_v"}


def is_state(archive: StoredZip) -> bool:
    """Whether torch.save wrote this zip."""
    return any(_is_pickle(name) for name in archive.names)


def _is_pickle(name: str) -> bool:
    return name.rpartition("/")[2] == "data.pkl"


def state_dict(archive: StoredZip) -> Tensors:
    """The tensors in a file of torch.save, in the order of the model."""
    source = archive.where
    [first, *others] = [name for name in archive.names if _is_pickle(name)]
    root = first.removesuffix("data.pkl")
    if f"{root}constants.pkl" in archive:
        raise Unsupported(f"{source} is a TorchScript program, not weights; write its weights: "
                          "torch.save(torch.jit.load(path).state_dict(), other_path)")
    if others or archive.size(first) > pickles.MOST_BYTES:
        raise WeightsError(f"{source} does not have the pickle of a state dict; save only the "
                           "state dict: torch.save(model.state_dict(), path)")
    if f"{root}byteorder" in archive and archive.read(f"{root}byteorder") != b"little":
        raise Unsupported(f"{source} is not in little endian; save it as safetensors on the "
                          "machine that wrote it")
    content = pickles.load(archive.read(first), lambda key: archive.read(f"{root}data/{key}"),
                           source)
    return {name: (t.dtype, t.array) for name, t in _tensors(content, source).items()}


def _tensors(content: Any, source: str) -> dict[str, PickledTensor]:
    """The state dict in an unpickled object: the object itself, or an entry of a checkpoint."""
    def tensors_in(x: Any) -> dict[str, PickledTensor]:
        return {k: v for k, v in x.items() if isinstance(k, str) and isinstance(
            v, PickledTensor)} if isinstance(x, dict) else {}

    if tensors_in(content):
        return tensors_in(content)
    entries = content if isinstance(content, dict) else {}
    keys = [key for key in _STATE_DICT_KEYS if tensors_in(entries.get(key))]
    if len(keys) == 1:
        return tensors_in(entries[keys[0]])
    contents = ", ".join(repr(key)[:40] for key in list(entries)[:8]) or type(content).__name__
    raise WeightsError(f"{source} has no state dict, but {contents}; save one: "
                       "torch.save(model.state_dict(), path)")


def modules(state: Tensors, ordered: bool) -> list[FileModule]:
    """The modules of a state dict, in the order of the file if `ordered`, else sorted by name."""
    for wrapper in _WRAPPERS:
        if state and all(name.startswith(wrapper) for name in state):
            state = {name.removeprefix(wrapper): t for name, t in state.items()}
    names = list(state) if ordered else sorted(state, key=natural)
    by_module: dict[str, dict[str, StoredTensor]] = {}
    for name in names:
        module, end = _split_name(name, state)
        if end != "num_batches_tracked":
            by_module.setdefault(module, {})[end] = _stored(state[name])
    return [FileModule((name,), tensors) for name, tensors in by_module.items()]


def _stored(tensor: Any) -> StoredTensor:
    d, array = tensor
    return StoredTensor(tuple(array.shape), lambda: from_storage(d, array))


def _split_name(name: str, state: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the module that a tensor belongs to, and its name in the module."""
    module, _, end = name.rpartition(".")
    outer, _, last = module.rpartition(".")
    above = f"{outer}." if outer else ""
    if last == "out_proj" and (f"{above}in_proj_weight" in state
                               or f"{above}q_proj_weight" in state):
        return outer, f"out_proj.{end}"
    layer = _RECURRENT.fullmatch(end)
    if layer:  # each layer of a stacked LSTM is a layer of ours
        tensor, k, reverse = layer[1], int(layer[2]), layer[3] or ""
        return (f"{module}[{k}]" if k else module), f"{tensor}_l0{reverse}"
    if end in _ENDS or end == "num_batches_tracked":
        return module, end
    return name, "weight"  # a parameter of the model itself
