"""Writes the folders beside it: models of transformers with few random weights, and their results.
`python -m tests.interchange.folders.write`, where transformers and PyTorch are installed."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
TEXT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 20,
        "intermediate_size": 12, "max_position_embeddings": 10, "eos_token_id": 1, "bos_token_id": 0,
        "pad_token_id": 0}
SPEECH = {"vocab_size": 10, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 3,
          "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 12,
          "decoder_ffn_dim": 12, "max_source_positions": 6, "max_target_positions": 4,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
CLASSES = {"id2label": {k: f"class {k}" for k in range(3)}}
MODELS: dict[str, dict[str, Any]] = {
    "BertModel": TEXT, "BertForMaskedLM": TEXT,
    "BertForSequenceClassification": {**TEXT, **CLASSES},
    "GPT2LMHeadModel": {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 10, "vocab_size": 20,
                        "eos_token_id": 1, "bos_token_id": 0},
    "LlamaForCausalLM": {**TEXT, "num_key_value_heads": 2, "rope_theta": 5000.0},
    "ViTForImageClassification": {**CLASSES, "hidden_size": 8, "num_hidden_layers": 1,
                                  "num_attention_heads": 2, "intermediate_size": 12,
                                  "image_size": 8, "patch_size": 4},
    "ResNetForImageClassification": {**CLASSES, "embedding_size": 4, "hidden_sizes": [4, 8],
                                     "depths": [2, 1]},
    "ResNetModel": {"embedding_size": 4, "hidden_sizes": [8, 8], "depths": [1, 1],
                    "layer_type": "basic", "downsample_in_first_stage": True},
    "WhisperModel": SPEECH,
}


def main() -> None:
    """Writes a folder for each model."""
    torch, transformers = map(importlib.import_module, ("torch", "transformers"))
    for name, settings in MODELS.items():
        torch.manual_seed(0)
        kind = getattr(transformers, name)
        net = kind(kind.config_class(**settings)).eval()
        tensors = [*net.named_parameters(), *net.named_buffers()]
        with torch.no_grad():
            for path, tensor in tensors:
                if path.endswith("running_var"):
                    tensor.uniform_(0.5, 1.5)
                elif tensor.is_floating_point() and "inv_freq" not in path:
                    tensor.add_(0.1 * torch.randn(tensor.shape))
        bfloat16 = name == "LlamaForCausalLM"
        # Its computation has the weights as they are stored.
        stored = net.to(torch.bfloat16).to(torch.float32) if bfloat16 else net
        x = example(name, np.random.default_rng(0))
        with torch.no_grad():
            results = computed(stored, name, {k: torch.tensor(v) for k, v in x.items()})
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        net.to(torch.bfloat16 if bfloat16 else torch.float32).save_pretrained(
            folder, max_shard_size="3KB" if name == "GPT2LMHeadModel" else "1GB")
        for unused in ("generation_config.json",):
            if (folder / unused).exists():
                os.remove(folder / unused)
        np.savez(folder / "expected.npz", **{f"x/{k}": v for k, v in x.items()},
                 **{f"y/{k}": y.numpy() for k, y in results.items()})


def example(name: str, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Two rows that a model takes."""
    if name.startswith("Whisper"):
        return {"input_features": random.normal(size=(2, 3, 12)).astype(np.float32)}
    if name.startswith(("ViT", "ResNet")):
        side = 8 if name.startswith("ViT") else 16
        return {"pixel_values": random.normal(size=(2, 3, side, side)).astype(np.float32)}
    x = {"input_ids": random.integers(0, 20, (2, 7))}
    if name.startswith("Bert"):
        mask = np.ones((2, 7), np.int64)
        mask[1, 4:] = 0
        x |= {"token_type_ids": random.integers(0, 2, (2, 7)), "attention_mask": mask}
    return x


def computed(net: Any, name: str, x: dict[str, Any]) -> dict[str, Any]:
    """The results of a model, by the names of its outputs: "" where there is one."""
    if name.startswith("Whisper"):
        return {"": net.encoder(**x).last_hidden_state}
    results = net(**x)
    if "logits" in results:
        return {"": results.logits}
    return {k: results[k] for k in ("last_hidden_state", "pooler_output")}


if __name__ == "__main__":
    main()
