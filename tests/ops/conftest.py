"""What the tests of the operation share: every instruction set of the C kernels, and threads as they were before."""

from collections.abc import Iterator

import pytest
import torch

from sirgcn.ops import native

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

ISAS: list[str] = _kernels.isas() if native.UNAVAILABLE is None else []


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The C kernels limited to one instruction set."""
    native.limit_isa(request.param)
    yield request.param
    native.limit_isa(ISAS[0])


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
