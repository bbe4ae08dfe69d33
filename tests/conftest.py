"""Being here puts this folder on the import path, for the package ``fuzz``; pyproject.toml puts ``samples`` there."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

if "SILO_HOME" not in os.environ:
    # A store of this run alone, before any test imports silo: what an earlier run kept decides nothing. The processes
    # that share the tests inherit it from the first, which removes it.
    os.environ["SILO_HOME"] = tempfile.mkdtemp(prefix="silo-tests-")
    atexit.register(shutil.rmtree, os.environ["SILO_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _same_numbers(request):
    """A module's generator starts anew for each test: its numbers do not depend on which tests ran before."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(1).bit_generator.state


@pytest.fixture(scope="module")
def samples_in_processes():
    """Processes that tests start find ``samples`` too: the compiler that needs no toolchain is there."""
    paths = [str(Path(__file__).parent / "samples"), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(autouse=True)
def _same_logging():
    """The command line and imported libraries configure logging for their process: the next test finds it as it was."""
    logs = [logging.getLogger(), logging.getLogger("silo")]
    before = [(log, log.level, list(log.handlers)) for log in logs]
    yield
    for log, level, handlers in before:
        log.setLevel(level)
        log.handlers[:] = handlers
