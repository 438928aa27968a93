"""Training: what is predicted, how wrong it was, how the parameters move, and in which order."""
