"""The frameworks we are measured against, each optional, and one model in all their words."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from ztorch import Sequential
from ztorch import layers as L

Weights = Sequence[np.ndarray]
Arrays = Mapping[str, np.ndarray]


@cache
def module(name: str) -> Any:
    """A package that may be missing, as Any: its types are no concern of ours."""
    if name == "keras":
        os.environ.setdefault("KERAS_BACKEND", "torch")
    if name == "jax":
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false "
                                           "intra_op_parallelism_threads=1")
    try:
        found = importlib.import_module(name)
        if name == "jax":
            importlib.import_module("jax.scipy.special")
            found.config.update("jax_cpu_enable_async_dispatch", False)
        return found
    except ImportError as error:
        print(f"without {name}: {error}", flush=True)
        return None


def set_threads(count: int) -> None:
    """The same number of threads for every peer of this process."""
    torch = module("torch")
    if torch:
        torch.set_num_threads(count)
    if not machine.blas_threads(count):
        print("NumPy's threads cannot be set here; its times use what it chooses", flush=True)


@cache
def no_compiler() -> str:
    """Why torch.compile does not work here; empty if it does."""
    torch = module("torch")
    if "ATEN_CPU_CAPABILITY" in os.environ:  # exp is off by 1e34, steps of training are NaN
        return "torch.compile is left out: it computes wrongly where AVX-512 is hidden from PyTorch"
    try:
        with torch.inference_mode():
            torch.compile(lambda x: x * 2 + 1)(torch.ones(64))
    except Exception as error:
        reason = f"torch.compile is left out: {type(error).__name__}: {str(error).splitlines()[0]}"
        print(reason, flush=True)
        return reason
    return ""


def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """torch.compile of a function, compiled anew for the threads now set."""
    torch = module("torch")
    if not torch or no_compiler():
        return None
    torch._dynamo.reset()
    return torch.compile(function)


# -- one model in everybody's words ----------------------------------------------------------------


def mlp(sizes: Sequence[int] = (784, 512, 512, 10), name: str = "mlp") -> Sequential:
    """Ours: ReLU between the layers, softmax after the last."""
    hidden = [L.Dense(n, activation="relu") for n in sizes[1:-1]]
    return Sequential([L.Input((sizes[0],)), *hidden, L.Dense(sizes[-1], activation="softmax")],
                      name=name, seed=7)


def torch_mlp(weights: Weights, softmax: bool = True) -> Any:
    """PyTorch's, with copies of the same weights; it keeps kernels as (out, in)."""
    torch = module("torch")
    parts: list[Any] = []
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        linear = torch.nn.Linear(*kernel.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(kernel.T)))
            linear.bias.copy_(torch.from_numpy(bias))
        parts += [linear, torch.nn.ReLU()]
    parts[-1:] = [torch.nn.Softmax(-1)] if softmax else []
    return torch.nn.Sequential(*parts)


def keras_mlp(weights: Weights) -> Any:
    """Keras', with the same weights."""
    keras = module("keras")
    sizes = [kernel.shape[1] for kernel in weights[::2]]
    model = keras.Sequential([
        keras.Input((weights[0].shape[0],)),
        *(keras.layers.Dense(n, activation="relu") for n in sizes[:-1]),
        keras.layers.Dense(sizes[-1], activation="softmax")])
    model.set_weights(list(weights))
    return model


def write_onnx(weights: Weights, batch: int, path: Path) -> bool:
    """The model as an ONNX file, node by node: needs no exporter."""
    onnx = module("onnx")
    if not onnx:
        return False
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    nodes, stored, x = [], [], "x"
    last = len(weights) // 2 - 1
    for k, (kernel, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        stored += [onnx.numpy_helper.from_array(kernel, f"kernel{k}"),
                   onnx.numpy_helper.from_array(bias, f"bias{k}")]
        nodes += [helper.make_node("Gemm", [x, f"kernel{k}", f"bias{k}"], [f"z{k}"]),
                  helper.make_node("Softmax" if k == last else "Relu", [f"z{k}"],
                                   ["y" if k == last else f"h{k}"])]
        x = f"h{k}"
    graph = helper.make_graph(
        nodes, "mlp", [helper.make_tensor_value_info("x", f32, [batch, weights[0].shape[0]])],
        [helper.make_tensor_value_info("y", f32, [batch, weights[-1].shape[0]])], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              str(path))
    return True


def onnx_session(path: Path | bytes, threads: int) -> Any:
    """ONNX Runtime's session on a file, or on the bytes of one; None without it."""
    ort = module("onnxruntime")
    if not ort:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return ort.InferenceSession(path if isinstance(path, bytes) else str(path), options,
                                providers=["CPUExecutionProvider"])


def onnx_op(name: str, inputs: Arrays, threads: int, domain: str = "",
            weights: Arrays | None = None, result: str = "float32",
            **attributes: Any) -> Callable[[], np.ndarray] | None:
    """One operator of ONNX Runtime, its arrays bound, those of `weights` stored in the file; None
    without it, or where AVX-512 is hidden from the others: it cannot be told."""
    onnx = module("onnx")
    if not onnx or not module("onnxruntime") or "ATEN_CPU_CAPABILITY" in os.environ:
        return None
    helper, stored = onnx.helper, weights or {}

    def declared(n: str, d: Any, shape: Any) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(d))
        return helper.make_tensor_value_info(n, kind, shape)

    graph = helper.make_graph(
        [helper.make_node(name, [*inputs, *stored], ["y"], domain=domain, **attributes)], name,
        [declared(n, x.dtype, x.shape) for n, x in inputs.items()], [declared("y", result, None)],
        [onnx.numpy_helper.from_array(x, n) for n, x in stored.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    file = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnx_session(file, threads)
    binding = session.io_binding()
    for n, x in inputs.items():
        binding.bind_cpu_input(n, x)
    binding.bind_output("y")

    def once() -> np.ndarray:
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()

    return once


def numpy_mlp(weights: Weights, x: np.ndarray) -> np.ndarray:
    """The exact results of the model, in float64."""
    h = x.astype(np.float64)
    for k in range(0, len(weights), 2):
        h = h @ weights[k].astype(np.float64) + weights[k + 1]
        h = np.maximum(h, 0) if k < len(weights) - 2 else h
    e = np.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def worst(got: Any, wanted: np.ndarray) -> float:
    """The largest error, as a share of the largest number wanted."""
    got = np.asarray(got.detach() if hasattr(got, "detach") else got)
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def checked(case: str, tolerance: float, **errors: float) -> float:
    """Our error, once nobody's is above the tolerance: what is wrong is not worth timing."""
    for name, error in errors.items():
        if not error <= tolerance:  # also NaN
            raise SystemExit(f"{case}: {name} is wrong by {error:.2e}, more than {tolerance:.0e}")
    return errors["ztorch"]
