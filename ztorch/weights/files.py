"""Loads and saves the weights of a model, in our files or those of Keras, PyTorch and others."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ztorch.dtypes import dtype
from ztorch.errors import ConfigError, Unsupported, WeightsError
from ztorch.files import npz, safetensors
from ztorch.files.atomic import need_name, write_atomic
from ztorch.files.zips import StoredZip
from ztorch.layers.network import Network
from ztorch.layers.weight import Weight
from ztorch.weights import gguf, keras_files, keras_layouts, own_files, torch_files, torch_layouts
from ztorch.weights.channels import Channels
from ztorch.weights.matching import Mismatch, check_names, match, renamed
from ztorch.weights.modules import FileModule, ModelPart, read_pairs

LAYOUTS = ("ztorch", "keras", "torch")


def save(model: Network, path: str | os.PathLike[str], layout: str | None = None,
         names: Mapping[str, str] | None = None, flatten_from: str | None = None) -> None:
    """Writes the weights of a model. Arguments as in `Model.save_weights`. Without a layout, the
    suffix decides: .h5 is Keras', .gguf is PyTorch's, all others are ours."""
    layout, suffix = _layout_and_suffix(path, layout)
    if (names or flatten_from) and layout != "torch":
        raise ConfigError("names and flatten_from are for layout='torch'")
    _need_mapping(names)
    if layout == "ztorch":
        arrays = {n: w.value for n, w in model.named_weights().items()}
        if suffix == ".npz":
            write_atomic(path, npz.packed(arrays))
        else:
            own_files.write(path, arrays, model.name)
        return
    values = {w: w.value for w in model.weights}
    if layout == "keras":
        write_atomic(path, keras_files.write(keras_layouts.parts(model), values, model.name))
        return
    tensors = _torch_tensors(model, values, names or {}, flatten_from)
    if suffix == ".gguf":
        write_atomic(path, gguf.packed(tensors, model.name))
    elif suffix == ".npz":
        write_atomic(path, npz.packed(tensors))
    else:
        safetensors.write(path, {n: (dtype(a.dtype), a) for n, a in tensors.items()},
                          {"format": "pt"})


def _layout_and_suffix(path: str | os.PathLike[str], layout: str | None) -> tuple[str, str]:
    """The layout of a file to write, by its name if None, and the suffix that its format has."""
    file = os.fspath(path)
    h5, is_gguf, is_npz = (file.lower().endswith(end) for end in (".h5", ".gguf", ".npz"))
    if layout not in (None, *LAYOUTS):
        raise ConfigError(f"layout={layout!r} must be one of {', '.join(LAYOUTS)}")
    layout = layout or ("keras" if h5 else "torch" if is_gguf else "ztorch")
    fix = ("use a path that ends in .weights.h5 for Keras, .npz for NumPy, .gguf for llama.cpp, "
           "or in .safetensors for ztorch and PyTorch (safetensors.torch.load_file reads it)")
    if is_gguf and layout != "torch":
        raise ConfigError(f"cannot write {file!r} in the layout {layout!r}: GGUF files have "
                          "PyTorch's; omit layout")
    if layout == "keras" and not h5:
        raise ConfigError(f"cannot write {file!r} in the layout 'keras'; {fix}")
    suffix = (".h5" if h5 and layout == "keras" else ".gguf" if is_gguf else ".npz" if is_npz
              else ".safetensors")
    need_name(path, f"weights in the layout {layout!r}", suffix, fix)
    return layout, suffix


def _torch_tensors(model: Network, values: Mapping[Weight, np.ndarray], names: Mapping[str, str],
                   flatten_from: str | None) -> dict[str, np.ndarray]:
    """The weights of a model in PyTorch's layouts, by their names in the file."""
    tensors: dict[str, np.ndarray] = {}
    parts = torch_layouts.parts(model, Channels(model, flatten_from))
    check_names(parts, names)
    for part in parts:
        prefix = renamed(part.names[0], names)
        tensors |= {f"{prefix}.{end}" if prefix else end: array
                    for end, array in part.write(values).items()}
    return tensors


def _need_mapping(names: object) -> None:
    if names is not None and not isinstance(names, Mapping):
        raise ConfigError(f"names={names!r} must map layers to their names in the file: "
                          "names={'dense': 'fc1'}")


@dataclass(frozen=True)
class IntoModel:
    """A model, and the arguments of `Model.load_weights`."""

    model: Network
    source: str
    names: Mapping[str, str]
    flatten_from: str | None
    skip_mismatch: bool

    def complete(self, values: Mapping[Weight, np.ndarray]) -> list[np.ndarray]:
        """Values for all weights, in the order of the model. Weights without one keep theirs."""
        missing = [name for name, w in self.model.named_weights().items() if w not in values]
        if missing:
            others = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            warnings.warn(f"{self.source} has no weights for {', '.join(missing[:8])}{others}, "
                          "which keep their values", stacklevel=4)
        return [values.get(w, w.value) for w in self.model.weights]


def load(model: Network, path: str | os.PathLike[str], names: Mapping[str, str] | None = None,
         flatten_from: str | None = None, skip_mismatch: bool = False) -> list[np.ndarray]:
    """The weights in a file, in the order of the model. The first bytes of the file tell its
    format. Arguments as in `Model.load_weights`."""
    _need_mapping(names)
    data, source = whole_file(path), os.fspath(path)
    to = IntoModel(model, source, names or {}, flatten_from, skip_mismatch)
    if data.startswith(gguf.SIGNATURE):
        return _from_names(to, gguf.tensors(data, source), {})
    if data[:4] == b"PK\3\4" and npz.is_npz(data):
        return _from_names(to, npz.unpack(data, source), {})
    if data[:4] == b"PK\3\4":
        archive = StoredZip(data, source)
        if keras_files.is_archive(archive):
            return _from_keras(to, archive.read(keras_files.WEIGHTS))
        if torch_files.is_state(archive):
            state = torch_files.state_dict(archive)
            return _from_torch(to, state, True)
        kind = ("a ztorch artifact: write its weights to a separate file with zt.load(path)."
                "save_weights('weights.safetensors')" if "manifest.json" in archive.names else
                "a zip file, but not one of Keras or PyTorch")
        raise WeightsError(f"{source} is {kind}")
    if data.startswith(keras_files.SIGNATURE):
        return _from_keras(to, data)
    if data.startswith(torch_files.LEGACY) or data[:2] in (b"\x80\2", b"\x80\3", b"\x80\4"):
        raise Unsupported(f"{source} is a bare pickle, as PyTorch wrote before 1.6; write it again "
                          "with a newer PyTorch: torch.save(torch.load(path, weights_only=True), "
                          "other_path)")
    tensors, metadata = safetensors.unpack(data, source)
    return _from_names(to, tensors, metadata)


def _from_names(to: IntoModel, tensors: safetensors.Tensors,
                metadata: Mapping[str, str]) -> list[np.ndarray]:
    """The weights among tensors with our names, or with those of PyTorch."""
    weights = to.model.named_weights()
    shapes = {n: w.shape for n, w in weights.items()}
    if metadata.get("format", "").startswith("ztorch") or any(n in tensors for n in shapes):
        arrays = own_files.fitting_arrays(tensors, shapes, to.model.name, to.source,
                                          to.skip_mismatch)
        return to.complete({weights[name]: a for name, a in arrays.items()})
    return _from_torch(to, tensors, False)


def whole_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise WeightsError(f"{os.fspath(path)} is not a regular file; check the path")
            return file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"cannot read {os.fspath(path)}: "
                           f"{getattr(error, 'strerror', None) or error}; check the path") from None


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would block


def _from_keras(to: IntoModel, data: bytes) -> list[np.ndarray]:
    to.model.build()
    parts = [_plain(part) for part in keras_layouts.parts(to.model)]
    strict = replace(to, names={}, skip_mismatch=False)
    try:
        return _by_keras_names(strict, parts, data, use_layer_names=False)
    except Mismatch as error:
        try:
            return _by_keras_names(strict, parts, data, use_layer_names=True)
        except WeightsError:
            if not to.skip_mismatch:
                raise error from None
    return _by_keras_names(replace(to, names={}), parts, data, use_layer_names=False)


def _by_keras_names(to: IntoModel, parts: Sequence[ModelPart], data: bytes,
                    use_layer_names: bool) -> list[np.ndarray]:
    with keras_files.reading(data, to.source, use_layer_names) as modules:
        return _match_and_read(to, parts, modules, ordered=True, by_order=False)


def _plain(part: ModelPart) -> ModelPart:
    """The part with names as files have them when they are read: without leading underscores."""
    path, name = part.names
    plain_path = "/".join(p.removeprefix("_") for p in path.split("/"))
    return replace(part, names=(plain_path, name))


def _from_torch(to: IntoModel, state: safetensors.Tensors, ordered: bool) -> list[np.ndarray]:
    parts = torch_layouts.parts(to.model, Channels(to.model, to.flatten_from))
    modules = torch_files.modules(state, ordered)
    return _match_and_read(to, parts, modules, ordered=ordered, by_order=True)


def _match_and_read(to: IntoModel, parts: Sequence[ModelPart], modules: Sequence[FileModule], *,
                    ordered: bool, by_order: bool) -> list[np.ndarray]:
    pairs = match(parts, modules, ordered=ordered, by_order=by_order, names=to.names,
                  source=to.source, skip_mismatch=to.skip_mismatch)
    return to.complete(read_pairs(pairs))
