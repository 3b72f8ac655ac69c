"""What `compile` and `load` return: a model in memory that runs."""
