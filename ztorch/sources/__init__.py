"""Finds models wherever they are: the zoo, Python files, artifacts, files of Keras and ONNX."""
