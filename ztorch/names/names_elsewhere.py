"""Names of other libraries that ztorch lacks, with the equivalent."""

from __future__ import annotations

from typing import Any

REPLACEMENTS = {
    "nn": "zt.layers",
    "optim": "zt.optimizers",
    # Modules and names of Keras
    "applications": "zt.load_keras(path), which loads models of keras.applications, and the zoo "
                    "(`ztorch zoo`); ztorch downloads nothing",
    "datasets": "zt.data.load(name, path) for files on your disk, or zt.data.load('digits'); "
                "ztorch downloads nothing",
    "distillation": "your own compute_loss or train_step, as in "
                    "examples/from_keras/images_distillation.py",
    "distribution": "nothing: a program runs on one device",
    "legacy": "nothing: only the names of Keras 3 exist",
    "quantizers": "nothing: weights are floats, of 16 bits with compile(dtype='mixed_bfloat16')",
    "Quantizer": "nothing: weights are floats, of 16 bits with compile(dtype='mixed_bfloat16')",
    "visualization": "program.plot, history.plot and `ztorch report`",
    "wrappers": "nothing: fit and predict of a model take arrays and data frames directly",
    "FloatDTypePolicy": "zt.DTypePolicy", "Function": "zt.Model(inputs, outputs)",
    "KerasTensor": "the result of zt.Input and layers; zt.utils.is_keras_tensor(x) tests it",
    "Operation": "zt.Layer", "name_scope": "the name= of layers",
    "remat": "zt.ops.checkpoint(function), and zt.layers.Checkpoint",
    "RematScope": "zt.layers.Checkpoint, and compile(memory_limit=...)",
    "GradientTape": "self.gradients(loss, weights) in a train_step, and zt.grad(f) elsewhere",
    "StatelessScope": "zt.grad of functions, and model.stateless_call",
    "SymbolicScope": "nothing: layers are called on the result of zt.Input",
    **dict.fromkeys(("save", "savez"), "zt.save_tensors(tree, path) for tensors, and "
                    "save(path) of models and programs"),
    "load_weights": "model.load_weights(path)",
    "save_weights": "model.save_weights(path)",
    "manual_seed": "zt.set_seed for tensors, and the seed= of models",
    "array": "zt.tensor(data)", "as_tensor": "zt.asarray(data)",
    "from_numpy": "zt.tensor(array), or zt.asarray(array), which shares memory",
    "seed": "zt.set_seed", "ndarray": "zt.Tensor", "custom_vjp": "zt.custom_gradient",
    **{name: f"the string {name!r}" for name in (
        "float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8")},
    "jit": "zt.compiled", "pmap": "zt.vmap, on one device", "lax": "zt.ops",
    **dict.fromkeys(("jacfwd", "jacrev"), "zt.jacobian"),
    "no_grad": "nothing: only functions passed to zt.grad are differentiated",
    "set_printoptions": "np.set_printoptions, which also applies to tensors",
    "pi": "math.pi", "e": "math.e", "inf": "math.inf", "nan": "math.nan", "newaxis": "None",
    "linalg": "zt.ops, which has its functions, and zt.array_api.linalg",
    "fft": "zt.ops.fft, zt.ops.rfft and so on, and zt.array_api.fft",
    "Parameter": "zt.Variable", "autograd": "zt.grad, and zt.custom_gradient",
    "amp": "compile(dtype='mixed_bfloat16')",
    "numpy": "zt.ops", "cuda": "compile(\"cuda\"); zt.devices() lists the devices"}

_OF_LAYERS = {  # and of models, in PyTorch and Keras
    "enable_lora": "a frozen layer (trainable = False), to whose output two small layers add: "
                   "base(x) + Dense(units, use_bias=False)(Dense(rank, use_bias=False)(x))",
    "quantize": "compile(dtype='mixed_bfloat16'); weights are floats",
    **dict.fromkeys(("parameters", "named_parameters"), "weights, each of which has a path"),
    "state_dict": "get_weights(), or save_weights(path) for a file",
    "load_state_dict": "set_weights(arrays), or load_weights(path) for a file",
    **dict.fromkeys(("to", "cuda", "cpu"), "the device of compile, such as model.compile('cuda')"),
    "train": "fit", "eval": "nothing: predict and evaluate never act as in training",
    "forward": "call; predict(x) computes it for arrays",
    "zero_grad": "nothing: gradients do not add up from step to step",
    "to_onnx": "export('model.onnx')",
    "register_buffer": "add_weight(..., trainable=False)",
    "register_parameter": "add_weight, or zt.Variable as an attribute",
    **dict.fromkeys(("register_forward_hook", "register_forward_pre_hook"), "a model that also "
                    "returns what the layer computes: zt.Model(model.inputs, [layer.output])"),
    "modules": "layers", "children": "layers", "requires_grad_": "trainable = False",
    **dict.fromkeys(("half", "bfloat16", "float", "double"), "compile(dtype=...)")}

OF_UTILS = {  # of keras.utils
    "enable_interactive_logging": "fit(verbose=...)",
    "disable_interactive_logging": "fit(verbose=...)",
    "is_interactive_logging_enabled": "fit(verbose=...)",
    "get_file": "nothing: ztorch downloads nothing; pass the path of a local file",
    # Of torch.utils and torch.nn.utils
    "clip_grad_norm_": "global_clipnorm= of an optimizer",
    "clip_grad_value_": "clipvalue= of an optimizer",
    "data": "fit, which takes a DataLoader of PyTorch and any iterable of batches",
    "checkpoint": "zt.ops.checkpoint(function), and zt.layers.Checkpoint"}


def no_attribute(layer: Any, name: str) -> AttributeError:
    """The error for an attribute that a layer or model lacks. Python adds the nearest that it has.

    Args:
        layer: The layer.
        name: The attribute.
    """
    hint = f"; here it is {_OF_LAYERS[name]}" if name in _OF_LAYERS else ""
    return AttributeError(f"{type(layer).__name__!r} object has no attribute {name!r}{hint}",
                          name=name, obj=layer)
