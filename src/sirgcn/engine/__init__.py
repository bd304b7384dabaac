"""Experiments, the training loop, checkpoints and records.

`experiment` reads what to run, `plan` lists the runs, `pool` and `run` make them, `records` keeps the results.
"""
