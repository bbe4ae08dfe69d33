"""What ``silo doctor`` says of the parts that Pallas kernels need. Imports none of them."""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.decisions import Rejected
from silo.core.findings import Finding
from silo.kinds.pallas.front.pallas_installation import INSTALL, jax_version, usable
from silo.sources.package_versions import version_of

__all__ = ["findings"]

_OPTIONAL = "optional"
_TPU_COMPILER = "the compiler for TPUs"


def findings() -> Sequence[Finding]:
    """Nothing where no jax is installed."""
    if jax_version() is None:
        return ()
    decision = usable()
    if isinstance(decision, Rejected):
        return (Finding("Pallas", _OPTIONAL, decision.reason, INSTALL),)
    libtpu = version_of("libtpu")
    if libtpu is None:
        reason = "libtpu is not installed: what is compiled for TPUs is exported, and not tried with their compiler"
        return (Finding(_TPU_COMPILER, _OPTIONAL, reason, "pip install 'jax[tpu]', of the jax that is here"),)
    return (Finding(_TPU_COMPILER, "ok", f"libtpu {libtpu}"),)
