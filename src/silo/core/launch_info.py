"""Launch info: everything a driver needs besides the blob, and what the binary says of itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import cast

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
        names = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            raise ValueError(f"not launch info: {data!r}")
        layout, cluster = cast("list[list[str]]", data["layout"]), cast("list[int]", data["cluster"])
        if len(cluster) != 3:
            raise ValueError(f"a cluster has three dimensions: {cluster!r}")
        for name in (
            "num_warps",
            "threads",
            "shared_bytes",
            "scratch_bytes",
            "scratch_align",
            "profile_bytes",
            "profile_align",
        ):
            value = data[name]
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"launch info {name} is a natural number, not {value!r}")
        for name in ("cooperative", "pdl"):
            if not isinstance(data[name], bool):
                raise malformed(f"true or false, the {name} of launch info", data[name])
        for name in ("registers", "spills"):
            value = data[name]
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ValueError(f"launch info {name} is an integer or null, not {value!r}")
        if not isinstance(data["entry"], str):
            raise malformed("a string, the entry of launch info", data["entry"])
        members = {
            **data,
            "layout": tuple(LayoutSlot(name, AbiType(kind)) for name, kind in layout),
            "cluster": (cluster[0], cluster[1], cluster[2]),
        }
        return cls(**cast("dict[str, object]", members))  # pyright: ignore[reportArgumentType]
