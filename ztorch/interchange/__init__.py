"""Models and weights of other frameworks, in and out."""
