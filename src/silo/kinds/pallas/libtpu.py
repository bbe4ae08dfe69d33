"""Checks in a worker whether the compiler for TPUs accepts an exported program for a chip. Needs no TPU."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from silo.core.decisions import Rejected
from silo.errors import CompileError, ResourceError
from silo.kinds.pallas.chips import Chip
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.settings import hold_in_environment
from silo.sources.package_versions import version_of

__all__ = ["LIBTPU", "accept", "libtpu_version", "refusal"]

LIBTPU = "libtpu"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = r"([0-9.]+)([KMG]?)B?"
_SCOPED = re.compile(rf"size {_SIZE} and limit {_SIZE} exceeded")
_ALLOCATION = re.compile(rf"Allocation \(size={_SIZE}\) would exceed memory \(size={_SIZE}\)[^\n]*space=(vmem|smem)")
_USED = re.compile(rf"Used {_SIZE} of {_SIZE} (vmem|smem)")
_MOST_SAID = 12  # lines of the compiler's output, which contains whole programs


def libtpu_version() -> str | None:
    """Returns the version of the compiler; None if it is not installed."""
    return version_of(LIBTPU)


def accept(program: bytes, chip: Chip, kernel: str, table: str) -> str | Rejected:
    """Compiles an exported program for a chip and drops the result; returns the compiler's name and version.

    ``table`` has the estimated memory of each argument, for the error. Rejected: the compiler cannot be used here.

    Raises:
        ResourceError: it takes more memory than the chip has.
        CompileError: the compiler refuses it.
    """
    version = libtpu_version()
    if version is None:
        return Rejected("libtpu is not installed")
    device = _device(chip.topology)
    if isinstance(device, Rejected):
        return device
    jax, export = jax_module(), jax_module("jax.export")
    exported = export.deserialize(bytearray(program))
    here = jax.sharding.SingleDeviceSharding(device)
    operands = [jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=here) for one in exported.in_avals]
    try:
        jax.jit(exported.call).trace(*operands).lower(lowering_platforms=("tpu",)).compile()
    except Exception as error:  # any error here is a refusal by the compiler
        raise refusal(str(error), chip, kernel, table) from error
    return f"{LIBTPU} {version}"


@cache
def _device(topology: str) -> Any:  # noqa: ANN401  # a device of jax, or Rejected
    # Without a TPU, libtpu's queries to the cloud get no answer, and jax must not look for a TPU either. Nor may one
    # process lock out others, as it must for a real TPU: several workers compile.
    hold_in_environment({"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"})
    try:
        jax_module().config.update("jax_platforms", "cpu")
        return jax_module("jax.experimental.topologies").get_topology_desc(topology, platform="tpu").devices[0]
    except Exception as error:  # noqa: BLE001  # libtpu of an older jax, a TPU that another process uses, ...
        first = (str(error).splitlines() or [""])[0]
        return Rejected(f"libtpu {libtpu_version()} cannot be used: {type(error).__name__}: {first}")


def refusal(said: str, chip: Chip, kernel: str, table: str = "") -> CompileError:
    """Returns the error for the compiler's message: with the sizes if it is about memory, else its first lines.

    >>> from silo.kinds.pallas.chips import CHIPS
    >>> error = refusal("Scoped allocation with size 24.00M and limit 16.00M exceeded", CHIPS["v5e"], "add")
    >>> type(error).__name__, error.need >> 20, error.capacity >> 20
    ('ResourceError', 24, 16)
    """
    found = _USED.search(said) or _SCOPED.search(said) or _ALLOCATION.search(said)
    lines = [line for line in said.splitlines() if line.strip()][:_MOST_SAID]
    if found is None:
        return CompileError(f"{kernel} for tpu:{chip.arch}: the compiler for TPUs refuses it: " + "\n".join(lines))
    need, capacity = _bytes(found[1], found[2]), _bytes(found[3], found[4])
    kind = "vmem" if found.re is _SCOPED else found[5]
    return ResourceError(
        f"{kernel} for tpu:{chip.arch} takes {found[1]}{found[2]}iB of {kind.upper()}, and the compiler allows "
        f"{found[3]}{found[4]}iB:\n{table}",
        kind=kind,
        need=need,
        capacity=capacity,
    )


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])
