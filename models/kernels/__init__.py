"""Kernels to copy: one idea a file, written as loops over elements and compiled for every device.

    from ztorch.models.kernels.softmax import softmax
    softmax(np.ones((2, 8), np.float32))
"""
