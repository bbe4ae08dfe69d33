"""Being here puts this folder on the import path, so that tests of several folders share their samples."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _same_numbers(request):
    """A module's generator starts anew for each test: its numbers do not depend on which tests ran before."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(1).bit_generator.state
