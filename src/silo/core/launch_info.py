"""Launch info: everything a driver needs besides the blob, and what the binary says of itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from silo.core.reading import read_bool, read_list, read_natural, read_object, read_pairs, read_text
from silo.core.values import JSON, malformed

__all__ = ["AbiType", "LaunchInfo", "LayoutSlot"]


class AbiType(Enum):
    """How one kernel parameter lies in memory: its size is fixed by the ABI.

    ``i1`` 1 byte for CPU code and 4 on GPUs as Triton passes it; pointers 8 bytes; ``tensormap`` 128 bytes aligned to
    64.
    """

    POINTER = "ptr"
    I1 = "i1"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    FP64 = "fp64"
    TENSORMAP = "tensormap"
    SCRATCH = "scratch"  # global scratch memory, null when its size is zero
    PROFILE = "profile"  # profiling scratch memory, null


@dataclass(frozen=True, slots=True)
class LayoutSlot:
    """One parameter of the binary: the kernel parameter it comes from ("" for scratch) and its ABI type."""

    name: str
    type: AbiType


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """How to launch one artifact. Sizes are in bytes; ``threads`` is per block (num_warps x warp size; 1 on a CPU).

    ``layout`` lists the parameters that remain after constants were folded away, in the binary's order.
    ``scratch_bytes`` is per program on a CPU thread's own stack of scratch, per program instance in global memory on
    a GPU. ``registers`` and ``spills`` are read from the binary; None where the target has no such thing.
    """

    entry: str
    layout: tuple[LayoutSlot, ...]
    num_warps: int = 1
    threads: int = 1
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    scratch_bytes: int = 0
    scratch_align: int = 1
    profile_bytes: int = 0
    profile_align: int = 1
    cooperative: bool = False
    pdl: bool = False
    registers: int | None = None
    spills: int | None = None

    def to_json(self) -> JSON:
        """The canonical form; every field is present."""
        data: dict[str, JSON] = {field.name: getattr(self, field.name) for field in fields(self)}
        data["layout"] = [[slot.name, slot.type.value] for slot in self.layout]
        data["cluster"] = list(self.cluster)
        return data

    @classmethod
    def from_json(cls, data: JSON) -> LaunchInfo:
        """The inverse of :meth:`to_json`; ``ValueError`` on unknown, missing or mistyped members."""
        members = read_object(data, [field.name for field in fields(cls)], "launch info")
        cluster = tuple(_positive(size, "a cluster") for size in read_list(members["cluster"], "a cluster"))
        if len(cluster) != 3:
            raise malformed("a cluster", members["cluster"])
        layout = read_pairs(members["layout"], "a parameter layout")

        def natural(name: str) -> int:
            return read_natural(members[name], f"the {name} of launch info")

        def optional(name: str) -> int | None:
            return None if members[name] is None else natural(name)

        return cls(
            entry=read_text(members["entry"], "the entry of launch info"),
            layout=tuple(LayoutSlot(name, AbiType(kind)) for name, kind in layout),
            num_warps=natural("num_warps"),
            threads=natural("threads"),
            cluster=cluster,
            shared_bytes=natural("shared_bytes"),
            scratch_bytes=natural("scratch_bytes"),
            scratch_align=natural("scratch_align"),
            profile_bytes=natural("profile_bytes"),
            profile_align=natural("profile_align"),
            cooperative=read_bool(members["cooperative"], "the cooperative flag of launch info"),
            pdl=read_bool(members["pdl"], "the pdl flag of launch info"),
            registers=optional("registers"),
            spills=optional("spills"),
        )


def _positive(data: JSON, what: str) -> int:
    value = read_natural(data, what)
    if value == 0:
        raise malformed(what, data)
    return value
