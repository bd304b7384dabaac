"""Experiments, the training loop, checkpoints and results."""
