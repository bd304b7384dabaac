import os

import torch
from hypothesis import HealthCheck, settings

# No deadline and no speed check: the first example of a test may load or compile a library.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# `pytest --hypothesis-profile thorough` looks for new counterexamples; the default repeats.
settings.register_profile("ci", parent=_UNTIMED, derandomize=True, max_examples=50)
settings.register_profile("thorough", parent=_UNTIMED, max_examples=2000)
settings.load_profile("ci")

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores; a thread pool in each would only wait for the others.
    torch.set_num_threads(1)
