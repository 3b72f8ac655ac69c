"""Side-by-side runs against PyTorch, Keras and ONNX Runtime: `python -m benchmarks.cpu`."""
