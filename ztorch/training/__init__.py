"""fit, evaluate and predict: Python around native steps, and nothing of it inside one."""
