"""Networks of torchvision, transformers, timm and torch.nn with random weights, and their ONNX
files."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers

BATCH = 2  # rows of the example: exporters take sizes of 1 for constants


@dataclass(frozen=True)
class Network:
    """A network of a package, how it is made, and what it takes."""

    package: str  # that has it
    make: Callable[[], Any]  # a PyTorch module
    inputs: Mapping[str, tuple[int, ...]]  # shapes of a row, by name
    ids: int = 0  # integers below it are the inputs, not floats


def torchvision(name: str, side: int = 64, section: str = "") -> Network:
    """A network of torchvision by the name of its function."""

    def make() -> Any:
        module = importlib.import_module(f"torchvision.models{section}")
        no_download = {"weights_backbone": None} if section else {}
        more = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        return getattr(module, name)(weights=None, **no_download, **more)

    return Network("torchvision", make, {"x": (3, side, side)})


def backbone(name: str, side: int = 96, part: str = "backbone") -> Network:
    """The part of a detector of torchvision before it proposes boxes."""

    def make() -> Any:
        models = importlib.import_module("torchvision.models.detection")
        return getattr(getattr(models, name)(weights=None, weights_backbone=None), part)

    return Network("torchvision", make, {"x": (3, side, side)})


def timm(name: str, side: int = 224) -> Network:
    """A network of timm by its name; the older exporter knows no word for fused attention."""

    def make() -> Any:
        importlib.import_module("timm.layers").set_fused_attn(False)
        return importlib.import_module("timm").create_model(name)

    return Network("timm", make, {"x": (3, side, side)})


def transformers(kind: str, config: dict[str, Any], inputs: Mapping[str, tuple[int, ...]],
                 ids: int = 0, config_of: str = "", masked: str = "") -> Network:
    """A network of transformers of a small config. `masked`: the name of a mask that shows all of
    the last input; the older exporter knows no word for what happens without one."""

    def make() -> Any:
        module = importlib.import_module("transformers")
        family = config_of or kind.removesuffix("Model")
        settings = getattr(module, f"{family}Config")(**config, attn_implementation="eager")
        return Tensors(getattr(module, kind)(settings), tuple(inputs), masked)

    return Network("transformers", make, inputs, ids)


def recurrent(kind: str) -> Network:
    """A reader of texts: two layers of torch.nn's LSTM, GRU or RNN, in both directions."""

    def make() -> Any:
        torch = peers.module("torch")

        class Reader(torch.nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.words = torch.nn.Embedding(100, 32)
                self.layers = getattr(torch.nn, kind)(32, 32, 2, batch_first=True,
                                                      bidirectional=True)
                self.end = torch.nn.Linear(64, 10)

            def forward(self, x: Any) -> Any:
                return self.end(self.layers(self.words(x))[0][:, -1])

        return Reader()

    return Network("torch", make, {"input_ids": (16,)}, 100)


def Tensors(net: Any, names: tuple[str, ...], masked: str) -> Any:
    """A module of transformers that takes tensors in order and returns the first that it computes:
    exporters know no outputs by name."""
    torch = peers.module("torch")

    class Module(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, y: Any = None) -> Any:
            given = dict(zip(names, (x, y), strict=False))
            if masked:
                given[masked] = torch.ones_like(x if y is None else y)
            caches = {} if not hasattr(net.config, "use_cache") else {"use_cache": False}
            return self.net(**given, **caches, return_dict=False)[0]

    return Module()


_VISION = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 128, "image_size": 64, "patch_size": 16}
_TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "vocab_size": 100}

NETWORKS: dict[str, Network] = {
    "bert": transformers("BertModel", _TEXT, {"input_ids": (16,), "attention_mask": (16,)}, 2),
    "bert classifier": transformers("BertForSequenceClassification", _TEXT, {
        "input_ids": (16,)}, 100, "Bert"),
    "roberta": transformers("RobertaModel", _TEXT, {"input_ids": (16,)}, 100),
    "distilbert": transformers("DistilBertModel", {
        "vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        {"input_ids": (16,)}, 100),
    "gpt2": transformers("GPT2LMHeadModel", {
        "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "tie_word_embeddings": False},
        {"input_ids": (16,)}, 100, "GPT2", "attention_mask"),
    "llama": transformers("LlamaForCausalLM", {**_TEXT, "num_key_value_heads": 2},
                          {"input_ids": (16,)}, 100, "Llama",
                          "attention_mask"),
    "mistral": transformers("MistralForCausalLM", {
        **_TEXT, "num_key_value_heads": 2, "head_dim": 16}, {"input_ids": (16,)}, 100, "Mistral",
        "attention_mask"),
    "t5": transformers("T5ForConditionalGeneration", {
        "vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
        {"input_ids": (16,), "decoder_input_ids": (8,)}, 100, "T5"),
    "vit": transformers("ViTForImageClassification", _VISION, {"pixel_values": (3, 64, 64)},
                        config_of="ViT"),
    "deit": transformers("DeiTModel", _VISION, {"pixel_values": (3, 64, 64)}),
    "swin": transformers("SwinModel", {
        "image_size": 64, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4}, {"pixel_values": (3, 64, 64)}),
    "resnet": transformers("ResNetModel", {
        "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2]},
        {"pixel_values": (3, 64, 64)}),
    "segformer": transformers("SegformerForSemanticSegmentation", {
        "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32},
        {"pixel_values": (3, 64, 64)}, config_of="Segformer"),
    "whisper": transformers("WhisperModel", {
        "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128, "num_mel_bins": 20, "max_source_positions": 32,
        "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1}, {"input_features": (20, 64), "decoder_input_ids": (8,)}, 100,
        masked="decoder_attention_mask"),
    "wav2vec2": transformers("Wav2Vec2Model", {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 32, "conv_dim": [32, 32, 32],
        "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3], "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4}, {"input_values": (1600,)}),
    "lstm": recurrent("LSTM"),
    "gru": recurrent("GRU"),
    **{name: timm(name) for name in (
        "mixer_s32_224", "gmixer_12_224", "resmlp_12_224", "gmlp_ti16_224", "poolformer_s12",
        "convmixer_768_32", "mobilevit_xxs", "coatnet_nano_rw_224", "eva02_tiny_patch14_224")},
    **{name: torchvision(name) for name in (
        "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "mobilenet_v2",
        "mobilenet_v3_small", "mobilenet_v3_large", "shufflenet_v2_x0_5", "mnasnet0_5",
        "efficientnet_b0", "efficientnet_v2_s", "regnet_x_400mf", "regnet_y_400mf",
        "squeezenet1_1", "googlenet", "convnext_tiny", "swin_t", "swin_v2_t")},
    **{name: torchvision(name, 224) for name in ("vgg11_bn", "alexnet")},  # pools of even windows
    "inception_v3": torchvision("inception_v3", 96),
    "vit_b_32": torchvision("vit_b_32", 224),
    "maxvit_t": torchvision("maxvit_t", 224),
    **{name: torchvision(name, section=".segmentation") for name in (
        "fcn_resnet50", "deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50",
        "lraspp_mobilenet_v3_large")},
    "fasterrcnn_resnet50_fpn.backbone": backbone("fasterrcnn_resnet50_fpn"),
    "fasterrcnn_mobilenet_v3_large_fpn.backbone": backbone("fasterrcnn_mobilenet_v3_large_fpn"),
    "retinanet_resnet50_fpn_v2.backbone": backbone("retinanet_resnet50_fpn_v2"),
    "ssd300_vgg16.backbone": backbone("ssd300_vgg16", 300),
    "ssdlite320_mobilenet_v3_large.backbone": backbone("ssdlite320_mobilenet_v3_large", 320),
}


def example(network: Network) -> dict[str, Any]:
    """Tensors that a network takes."""
    torch = peers.module("torch")
    torch.manual_seed(1)
    return {name: torch.randint(0, network.ids, (BATCH, *shape))
            if network.ids and ("ids" in name or "mask" in name)
            else torch.randn(BATCH, *shape) for name, shape in network.inputs.items()}


def module_of(network: Network) -> Any:
    """The module with random weights, to predict."""
    torch = peers.module("torch")
    torch.manual_seed(0)
    net = network.make().eval()
    with torch.no_grad():  # zeros and ones would hide a fault
        for norm in net.modules():
            if isinstance(norm, torch.nn.modules.batchnorm._BatchNorm) and \
                    norm.running_mean is not None:
                norm.running_mean.normal_(0, 0.1)
                norm.running_var.uniform_(0.8, 1.2)
        for weights in net.parameters():
            if weights.is_floating_point() and (weights == weights.flatten()[0]).all():
                weights.add_(0.05 * torch.randn(weights.shape))
    return net


def export(net: Any, x: Mapping[str, Any], path: Path, dynamo: bool) -> bool:
    """Writes the network as an ONNX file, for any batch size where the exporter can; says whether
    it can."""
    torch = peers.module("torch")
    torch.backends.mha.set_fastpath_enabled(False)  # the older exporter knows no word for it
    for dynamic in (True, False):
        axes: dict[str, Any] = {}
        if dynamic and dynamo:
            axes = {"dynamic_shapes": tuple({0: torch.export.Dim("batch")} for _ in x)}
        elif dynamic:
            axes = {"dynamic_axes": {name: {0: "batch"} for name in x}}
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                torch.onnx.export(net, tuple(x.values()), path, dynamo=dynamo, input_names=list(x),
                                  **axes, **({"verbose": False} if dynamo else {}))
            return dynamic
        except Exception:
            if not dynamic:
                raise
    return False
