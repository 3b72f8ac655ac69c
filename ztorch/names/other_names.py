"""Other libraries' names of layers, losses, metrics, optimizers and devices, where the nearest name
here would mislead: our name, or an alternative."""

from __future__ import annotations

_ACTIVATION = "Activation({!r})"
_CROSSENTROPY = ("'categorical_crossentropy' for one-hot rows, or "
                 "'sparse_categorical_crossentropy' for labels")

OTHER_NAMES: dict[str, dict[str, str]] = {  # by family: a name in lower case, and the alternative
    "layer": {
        "linear": "Dense", "layernorm": "LayerNormalization", "batchnorm": "BatchNormalization",
        **{f"batchnorm{n}d": "BatchNormalization" for n in (1, 2, 3)},
        **{f"dropout{n}d": f"SpatialDropout{n}D" for n in (1, 2, 3)},
        **{f"instancenorm{end}": "GroupNormalization(groups=-1)" for end in ("", "1d", "2d", "3d")},
        **{name: _ACTIVATION.format(name) for name in (
            "silu", "gelu", "sigmoid", "tanh", "softplus", "softsign", "selu", "mish", "relu6")},
        "swish": _ACTIVATION.format("silu"), "hardswish": _ACTIVATION.format("hard_swish"),
        "hardsigmoid": _ACTIVATION.format("hard_sigmoid"),
        "thresholdedrelu": "ReLU(threshold=...)", "merge": "Add, Concatenate and similar layers",
        "sum": "Add", "cat": "Concatenate", "upsample": "UpSampling2D",
        "cudnnlstm": "LSTM", "cudnngru": "GRU", "bilstm": "Bidirectional(LSTM(...))",
        "randomresizedcrop": "RandomCrop and Resizing", "pixelshuffle": "Reshape and Permute"},
    "device": {
        **dict.fromkeys(("gpu", "gpus", "gpu:0"), "'auto' for the best device found, or 'cuda', "
                        "'rocm', 'metal', 'vulkan' or 'opencl'"),
        **dict.fromkeys(("raspberry", "raspberrypi", "pi", "rpi", "rpi4"), "'cpu:cortex-a72'"),
        "mps": "'metal'", "hip": "'rocm'", "xpu": "'opencl' or 'vulkan'", "tpu": "none"},
    "dtype": {
        "float": "'float32'", "single": "'float32'", "int": "'int32'", "uint": "'uint32'",
        "byte": "'uint8'", "long": "'int64'", "mixed": "'mixed_float16' or 'mixed_bfloat16'"},
    "argument": {  # in a call that takes the alternative
        "lr": "learning_rate", "p": "rate", "bias": "use_bias", "out_features": "units",
        "out_channels": "filters", "hidden_size": "units", "num_embeddings": "input_dim",
        "embedding_dim": "output_dim", "weight_init": "kernel_initializer",
        "monitor_metric": "monitor", "nb_epoch": "epochs", "n_epochs": "epochs"},
    "command": {
        "predict": "run", "infer": "run", "list": "zoo", "ls": "zoo", "models": "zoo",
        "info": "inspect", "convert": "export", "compile": "export", "build": "export",
        "evaluate": "report", "eval": "report", "test": "report", "fit": "train",
        "profile": "bench --profile", "help": "--help", "version": "--version"},
    "option": {
        "format": "the suffix of --out, such as .onnx; C source is --so --device c",
        "f": "the suffix of --out, such as .onnx; C source is --so --device c",
        "gpu": "--device cuda, vulkan or another that `ztorch devices` lists",
        "cuda": "--device cuda", "cpu": "--device cpu", "opt": "--optimizer"},
    "loss": {
        "crossentropyloss": _CROSSENTROPY, "cross_entropy": _CROSSENTROPY,
        "crossentropy": _CROSSENTROPY, "nllloss": "'sparse_categorical_crossentropy'",
        "nll": "'sparse_categorical_crossentropy'", "bceloss": "'binary_crossentropy'",
        "bcewithlogitsloss": "BinaryCrossentropy(from_logits=True)", "l1loss": "'mae'",
        "mseloss": "'mse'", "l1": "'mae'", "l2": "'mse'", "smoothl1loss": "'huber'",
        "kldivloss": "'kl_divergence'",
        "rmse": "'mse', with the metric 'rmse'"},
    "optimizer": {
        "momentum": "SGD(momentum=0.9)", "sgdm": "SGD(momentum=0.9)",
        "nesterov": "SGD(momentum=0.9, nesterov=True)", "asgd": "SGD(use_ema=True)",
        "radam": "Adam, with a warmup of the rate: schedules.CosineDecay(warmup_steps=...)",
        "sparseadam": "Adam", "sgdw": "SGD(weight_decay=0.01)",
        "lr_scheduler": "zt.schedules, for learning_rate=, as in Adam(learning_rate=schedule)",
        "lbfgs": "Adam; or pass zt.value_and_grad(loss) to a library, with jac=True to SciPy's"},
    "learning-rate schedule": {
        "steplr": "ExponentialDecay(rate, step_size, gamma, staircase=True)",
        "exponentiallr": "ExponentialDecay(rate, 1, gamma)",
        "multisteplr": "PiecewiseConstantDecay(boundaries, values)",
        "cosineannealinglr": "CosineDecay(rate, decay_steps)",
        "cosineannealingwarmrestarts": "CosineDecayRestarts(rate, first_decay_steps)",
        "onecyclelr": "CosineDecay(rate, decay_steps, warmup_target=..., warmup_steps=...)",
        **dict.fromkeys(("polynomiallr", "linearlr"), "PolynomialDecay(rate, decay_steps)"),
        "reducelronplateau": "the callback zt.callbacks.ReduceLROnPlateau",
        **dict.fromkeys(("lambdalr", "multiplicativelr"), "the callback "
                        "zt.callbacks.LearningRateScheduler, or a subclass of "
                        "LearningRateSchedule with graph(self, step)")},
    "metric": {
        "f1": "F1Score", "r2": "R2Score", "top_5": "TopKCategoricalAccuracy(k=5)",
        "topkaccuracy": "TopKCategoricalAccuracy for one-hot rows, or "
                        "SparseTopKCategoricalAccuracy for labels",
        "auroc": "AUC", "rocauc": "AUC", "roc_auc": "AUC", "jaccardindex": "IoU"},
}
