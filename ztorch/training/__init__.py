"""What `fit` does: the loop around native training steps, its callbacks and its record."""
