"""A model's weights on disk: in our files, in those of Keras and in those of PyTorch."""
