"""The time of a kernel on a named GPU, predicted from its code: nothing is run."""
