"""ztorch: declare a model, compile it ahead of time, train it, ship it.

The names below load on first use, so running an artifact imports no compiler.
"""

from __future__ import annotations

import sys

from ztorch import dispatch
from ztorch.version import __version__ as __version__

TYPE_CHECKING = False  # importing it from typing would take longer than this whole file
if TYPE_CHECKING:
    from typing import Any

    from ztorch import (  # isort: skip
        activations as activations,
        backends as backends,
        callbacks as callbacks,
        constraints as constraints,
        data as data,
        errors as errors,
        initializers as initializers,
        layers as layers,
        losses as losses,
        metrics as metrics,
        ops as ops,
        optimizers as optimizers,
        preprocessing as preprocessing,
        regularizers as regularizers,
        schedules as schedules,
        tree as tree,
    )
    import ztorch.arrays.distributions as random  # noqa: F401  # isort: skip
    import ztorch.conveniences as utils  # noqa: F401  # isort: skip
    from ztorch.arrays import array_api as array_api
    from ztorch.arrays.applying import allow_transfers as allow_transfers
    from ztorch.arrays.complex_tensor import ComplexTensor as ComplexTensor
    from ztorch.arrays.creation import asarray as asarray
    from ztorch.arrays.creation import empty as empty
    from ztorch.arrays.creation import from_dlpack as from_dlpack
    from ztorch.arrays.creation import full as full
    from ztorch.arrays.creation import ones as ones
    from ztorch.arrays.creation import tensor as tensor
    from ztorch.arrays.creation import zeros as zeros
    from ztorch.arrays.custom_gradient import custom_gradient as custom_gradient
    from ztorch.arrays.explaining import explain as explain
    from ztorch.arrays.exporting import export as export
    from ztorch.arrays.functions import compiled as compiled
    from ztorch.arrays.gradients import grad as grad
    from ztorch.arrays.gradients import hessian as hessian
    from ztorch.arrays.gradients import jacobian as jacobian
    from ztorch.arrays.gradients import jvp as jvp
    from ztorch.arrays.gradients import value_and_grad as value_and_grad
    from ztorch.arrays.gradients import vjp as vjp
    from ztorch.arrays.placement import device as device
    from ztorch.arrays.placement import set_default_device as set_default_device
    from ztorch.arrays.random import permutation as permutation
    from ztorch.arrays.random import rand as rand
    from ztorch.arrays.random import randint as randint
    from ztorch.arrays.random import randn as randn
    from ztorch.arrays.random import set_seed as set_seed
    from ztorch.arrays.ranges import arange as arange
    from ztorch.arrays.ranges import empty_like as empty_like
    from ztorch.arrays.ranges import eye as eye
    from ztorch.arrays.ranges import full_like as full_like
    from ztorch.arrays.ranges import linspace as linspace
    from ztorch.arrays.ranges import ones_like as ones_like
    from ztorch.arrays.ranges import zeros_like as zeros_like
    from ztorch.arrays.recording import lazy as lazy
    from ztorch.arrays.saving import load_tensors as load_tensors
    from ztorch.arrays.saving import save_tensors as save_tensors
    from ztorch.arrays.tensor import Tensor as Tensor
    from ztorch.arrays.vmap import vmap as vmap
    from ztorch.initializers.initializer import Initializer as Initializer
    from ztorch.interchange import onnx as onnx
    from ztorch.interchange import torch_export as torch_export
    from ztorch.interchange.keras import load_keras as load_keras
    from ztorch.interchange.torch_export.live import load_torch as load_torch
    from ztorch.kernels import Hints as Hints
    from ztorch.kernels import atomic_add as atomic_add
    from ztorch.kernels import atomic_cas as atomic_cas
    from ztorch.kernels import atomic_exchange as atomic_exchange
    from ztorch.kernels import atomic_max as atomic_max
    from ztorch.kernels import atomic_min as atomic_min
    from ztorch.kernels import barrier as barrier
    from ztorch.kernels import grid as grid
    from ztorch.kernels import kernel as kernel
    from ztorch.kernels import lane as lane
    from ztorch.kernels import shared as shared
    from ztorch.kernels import shuffle as shuffle
    from ztorch.kernels import shuffle_xor as shuffle_xor
    from ztorch.kernels import subgroup_max as subgroup_max
    from ztorch.kernels import subgroup_min as subgroup_min
    from ztorch.kernels import subgroup_sum as subgroup_sum
    from ztorch.kernels import threads as threads
    from ztorch.layers import defaults as backend  # noqa: F401
    from ztorch.layers import policies as dtype_policies  # noqa: F401
    from ztorch.layers import policies as mixed_precision  # noqa: F401
    from ztorch.layers.core import Input as Input
    from ztorch.layers.input_spec import InputSpec as InputSpec
    from ztorch.layers.layer import Layer as Layer
    from ztorch.layers.policies import DTypePolicy as DTypePolicy
    from ztorch.layers.variable import Variable as Variable
    from ztorch.losses.loss import Loss as Loss
    from ztorch.metrics.metric import Metric as Metric
    from ztorch.model.model import Model as Model
    from ztorch.model.sequential import Sequential as Sequential
    from ztorch.ops.elementwise import stop_gradient as stop_gradient
    from ztorch.optimizers.optimizer import Optimizer as Optimizer
    from ztorch.program.function import load_function as load_function
    from ztorch.program.program import Program as Program
    from ztorch.program.program import load as load
    from ztorch.regularizers.regularizer import Regularizer as Regularizer
    from ztorch.runtime.devices import best_device as best_device
    from ztorch.runtime.devices import devices as devices
    from ztorch.sources import keras_models as models  # noqa: F401
    from ztorch.sources import saving as saving
    from ztorch.sources.load_model import load_model as load_model
    from ztorch.tabular.pipeline import Pipeline as Pipeline

_MODULES = ("backends", "callbacks", "constraints", "data", "errors", "initializers", "layers",
            "losses", "metrics", "ops", "optimizers", "regularizers", "schedules", "activations",
            "config", "preprocessing", "tree")
_NAMES = {"Input": "layers.core", "Layer": "layers.layer", "InputSpec": "layers.input_spec",
          "Loss": "losses.loss", "Metric": "metrics.metric", "Optimizer": "optimizers.optimizer",
          "Initializer": "initializers.initializer", "Regularizer": "regularizers.regularizer",
          "DTypePolicy": "layers.policies", "Variable": "layers.variable", "Model": "model.model",
          "Sequential": "model.sequential", "Program": "program.program",
          "load": "program.program", "load_keras": "interchange.keras",
          "load_torch": "interchange.torch_export.live",
          "load_model": "sources.load_model",
          "Pipeline": "tabular.pipeline", "best_device": "runtime.devices",
          "devices": "runtime.devices", "compiled": "arrays.functions",
          "explain": "arrays.explaining", "export": "arrays.exporting",
          "load_function": "program.function",
          **dict.fromkeys(("Hints", "kernel", "grid", "threads", "shared", "barrier", "atomic_add",
                           "atomic_min", "atomic_max", "atomic_exchange", "atomic_cas", "lane",
                           "shuffle", "shuffle_xor", "subgroup_sum", "subgroup_max",
                           "subgroup_min"), "kernels"),
          "ComplexTensor": "arrays.complex_tensor", "complex64": "dtypes", "complex128": "dtypes",
          "Tensor": "arrays.tensor", "allow_transfers": "arrays.applying",
          "custom_gradient": "arrays.custom_gradient",
          "lazy": "arrays.recording", "vmap": "arrays.vmap", "stop_gradient": "ops",
          **dict.fromkeys(("tensor", "asarray", "from_dlpack", "full", "zeros", "ones", "empty"),
                          "arrays.creation"),
          **dict.fromkeys(("full_like", "zeros_like", "ones_like", "empty_like", "arange",
                           "linspace", "eye"), "arrays.ranges"),
          **dict.fromkeys(("rand", "randn", "randint", "permutation", "set_seed"),
                          "arrays.random"),
          **dict.fromkeys(("save_tensors", "load_tensors"), "arrays.saving"),
          **dict.fromkeys(("grad", "value_and_grad", "vjp", "jvp", "jacobian", "hessian"),
                          "arrays.gradients"),
          **dict.fromkeys(("device", "set_default_device"), "arrays.placement")}
# Modules of rooms.
_INNER = {"array_api": "arrays.array_api", "backend": "layers.defaults",
          "mixed_precision": "layers.policies",
          "onnx": "interchange.onnx",
          "settings": "host.settings", "random": "arrays.distributions",
          "utils": "conveniences", "preprocessing.image": "preprocessing",
          "preprocessing.sequence": "preprocessing", "optimizers.schedules": "schedules",
          "models": "sources.keras_models", "saving": "sources.saving",
          "dtype_policies": "layers.policies",
          "torch_export": "interchange.torch_export"}

def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES or name in _INNER:
        return importlib.import_module(f"ztorch.{_INNER.get(name, name)}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"ztorch.{_NAMES[name]}"), name)
        globals()[name] = value  # later uses do not call this function
        return value
    hint = ""
    if not name.startswith("_"):
        from ztorch.errors import nearest
        from ztorch.graph.op import ALIASES, REGISTRY
        from ztorch.names.names_elsewhere import REPLACEMENTS
        from ztorch.ops.absent import INSTEAD

        replacement = REPLACEMENTS.get(name)
        if replacement is None and (name in REGISTRY or name in ALIASES):
            replacement = f"zt.ops.{name}"
        hint = (f"; here it is {replacement}" if replacement else
                f"; {INSTEAD[name]}" if name in INSTEAD else nearest(name, __dir__(), 0.7)
                or nearest(name, REGISTRY, 0.7).replace(" '", " 'zt.ops."))
    raise AttributeError(f"module 'ztorch' has no attribute {name!r}{hint}")


class _InnerModules:
    """Finds modules of rooms by their public names: `from ztorch.utils import to_categorical`."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        if name.startswith("ztorch.") and name.removeprefix("ztorch.") in _INNER:
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, _InnerModules())  # type: ignore[arg-type]
        if name.startswith("ztorch.") and name.count(".") == 1:  # no real module has this path
            from ztorch.names.names_elsewhere import REPLACEMENTS

            replacement = REPLACEMENTS.get(name.removeprefix("ztorch."))
            if replacement is not None:
                raise ModuleNotFoundError(f"No module named {name!r}; here it is {replacement}",
                                          name=name)
        return None

    def create_module(self, spec: Any) -> Any:
        import importlib

        module = importlib.import_module(f"ztorch.{_INNER[spec.name.removeprefix('ztorch.')]}")
        self._spec = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self._spec  # the import set it to the spec of the public name


sys.meta_path.append(_InnerModules)


def _dispatch(attribute: str, room: str, name: str) -> None:
    """Lets `dispatch` call a function of a room. The room is imported at the first call."""

    def call(*args: Any, **options: Any) -> Any:
        import importlib

        function = getattr(importlib.import_module(f"ztorch.{room}"), name)
        setattr(dispatch, attribute, function)
        return function(*args, **options)

    setattr(dispatch, attribute, call)


_dispatch("on_arrays", "arrays.tensor", "on_arrays")
_dispatch("on_complex", "arrays.complex_calls", "on_complex")
_dispatch("function_of_tensors", "arrays.keras_functions", "named")
_dispatch("on_loop", "arrays.control", "on_loop")
_dispatch("on_kernel", "arrays.kernel_calls", "on_kernel")
_dispatch("on_known_kernel", "arrays.kernel_calls", "on_known_kernel")
_dispatch("grad", "arrays.gradients", "grad")
_dispatch("schedules_of", "arrays.explaining", "schedules_of")
_dispatch("array_namespace", "arrays.array_api", "namespace")
_dispatch("update", "arrays.updates", "update")
_dispatch("optimizer_state", "arrays.updates", "get_state")
_dispatch("set_optimizer_state", "arrays.updates", "set_state")
_dispatch("call_layer", "arrays.layer_calls", "call_layer")
_dispatch("on_numbers", "arrays.value_functions", "on_numbers")
_dispatch("predict", "arrays.program_calls", "predict")
_dispatch("call_function", "arrays.program_calls", "call_function")
_dispatch("feed", "arrays.program_feed", "feed")
_dispatch("row_gather", "arrays.row_gather", "row_gather")
_dispatch("serialize", "interchange.keras_objects", "serialize_keras_object")
_dispatch("deserialize", "interchange.keras_objects", "deserialize_keras_object")
_dispatch("setting", "layers.defaults", "setting")
_dispatch("encode", "layers.encoded", "encode")
_dispatch("save_onnx", "interchange.onnx", "save")
_dispatch("weight", "arrays.program_weights", "weight")
_dispatch("set_weight", "arrays.program_weights", "set_weight")
_dispatch("weight_tensor", "arrays.weight_tensors", "weight_tensor")
_dispatch("on_weights", "arrays.weight_tensors", "on_weights")
_dispatch("constant", "arrays.weight_tensors", "constant")
_dispatch("apply_gradients", "arrays.updates", "apply")
_dispatch("added_losses", "arrays.layer_calls", "added_losses")
_dispatch("reset_states", "arrays.layer_calls", "reset_states")
_dispatch("stateless_call", "arrays.layer_calls", "stateless_call")
_dispatch("from_library", "library", "public")


def __dir__() -> list[str]:
    return sorted([*_MODULES, *(n for n in _INNER if "." not in n), *_NAMES, "__version__"])
