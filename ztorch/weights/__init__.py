"""Reads and writes files of weights: ours, and those of Keras, PyTorch and llama.cpp."""
