"""`fit`: the loop around native training steps, its callbacks and its history."""
