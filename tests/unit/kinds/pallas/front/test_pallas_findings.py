"""What ``silo doctor`` says of jax and of the compiler for TPUs."""

import pytest

from silo.core.decisions import Rejected
from silo.errors import ToolchainError
from silo.kinds.pallas.front import pallas_installation


@pytest.fixture
def installed(monkeypatch):
    """Which packages there are, as a test says."""
    versions = {"jax": "0.10.2", "jaxlib": "0.10.2", "flatbuffers": "25.1", "ml_dtypes": "0.5"}
    monkeypatch.setattr(pallas_installation, "version_of", versions.get)
    return versions


def test_jax_of_a_version_that_is_not_known_is_refused(installed):
    assert pallas_installation.usable()
    installed["jax"] = "0.13.0"
    assert "jax 0.13.0 is installed, and Silo knows 0.10 to 0.12" in pallas_installation.usable().reason
    with pytest.raises(ToolchainError, match=r"pip install 'kernel-silo\[pallas\]'"):
        pallas_installation.jax_module()
    assert [one.state for one in pallas_installation.findings()] == ["optional"]
    installed["jax"] = "0.12.0.1"
    del installed["flatbuffers"]
    assert "is installed without flatbuffers" in pallas_installation.usable().reason
    del installed["jax"]
    assert isinstance(pallas_installation.usable(), Rejected)
    assert pallas_installation.findings() == ()


def test_the_compiler_for_tpus_is_optional(installed):
    assert "libtpu is not installed" in pallas_installation.findings()[0].detail
    installed["libtpu"] = "0.0.42.1"
    assert pallas_installation.findings()[0].detail == "libtpu 0.0.42.1"
