"""Code generation: kernels become text, text becomes objects, objects become libraries."""
