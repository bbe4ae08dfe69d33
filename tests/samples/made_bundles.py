"""A bundle of small kernels, made without a kernel compiler: C functions with the CPU's ABI, texts for the stub GPUs.

``add`` has variants by specialization; ``kinds`` has a parameter of every type and a constant; ``fails`` fails in every
program; the grid of ``shaped`` depends on an array's shape; ``bare`` has no grid; ``scratched`` needs scratch memory,
``clustered`` launch attributes, ``in_blocks`` a grid of whole clusters; ``described`` takes a tensor descriptor (GPUs
only); ``fixed`` was built for one shape, ``strict`` for aligned memory; ``hungry`` needs more memory than exists; no
CPU can load ``odd``.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpu_stub import text
from made_binaries import make_elf, pack
from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import Basis, BundleContents, BundleKernel, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core import expressions
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, ConfigValue, Const, Extent, Node, OpKind
from silo.core.extents import Extents
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value, dtype
from silo.core.variant import Variant

_SOURCE = """
#include <stdint.h>
#include <string.h>
#define KERNEL(name) int32_t name(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, \\
                                  void *scratch, void *context)
#define UNUSED (void)params, (void)grid, (void)begin, (void)end, (void)scratch, (void)context
struct fault { uint32_t bytes; int32_t claimed; char text[1016]; };
#define ADD(name, block) KERNEL(name) { \\
    UNUSED; \\
    const float *x = *(const float **)params[0], *y = *(const float **)params[1]; \\
    float *out = *(float **)params[2]; \\
    const int64_t n = NUMBER(params[3]); \\
    for (uint64_t p = begin; p < end; p++) \\
        for (int64_t i = (int64_t)p * block; i < (int64_t)(p + 1) * block && i < n; i++) \\
            out[i] = x[i] + y[i]; \\
    return 0; \\
}
#define NUMBER(p) *(int32_t *)(p)
ADD(add_64, 64) ADD(add_any, 64) ADD(add_256, 256)
#undef NUMBER
#define NUMBER(p) *(int64_t *)(p)
ADD(add_wide, 64)
KERNEL(kinds) {
    UNUSED;
    unsigned char *out = *(unsigned char **)params[0];
    static const int sizes[] = {8, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
    for (int i = 1; i < 14; i++)
        memcpy(out + 8 * i, params[i], (size_t)sizes[i]);
    return 0;
}
KERNEL(fails) {
    UNUSED;
    struct fault *fault = context;
    if (fault != 0 && fault->bytes >= sizeof *fault && !fault->claimed) {
        fault->claimed = 1;
        strcpy(fault->text, "assertion failed: n < 3");
    }
    return 7;
}
KERNEL(rows) {
    UNUSED;
    int32_t *out = *(int32_t **)params[0];
    for (uint64_t p = begin; p < end; p++)
        out[p] = (int32_t)(grid[0] * 1000 + p);
    return 0;
}
"""

POINTER, CONSTANT, INTEGER = ParameterKind.POINTER, ParameterKind.CONSTEXPR, ParameterKind.INTEGER
READ, WRITE = Effect.READ, Effect.WRITE
_BASELINE = {"x86_64": "cpu:x86-64-v2", "aarch64": "cpu:aarch64-armv8.2"}


@cache
def _object() -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "kernels.so")
        words = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(built)]
        subprocess.run(words, input=_SOURCE.encode(), check=True)
        return built.read_bytes()


def _ptx(entry: str, sizes: Sequence[int]) -> bytes:
    return text(entry, params=",".join(map(str, sizes)))


def _hsaco(entry: str, sizes: Sequence[int]) -> bytes:
    """Return a code object with metadata about its parameters, and one hidden parameter that the runtime fills in."""
    own = [{".offset": 8 * i, ".size": size, ".value_kind": "by_value"} for i, size in enumerate(sizes)]
    hidden = {".offset": 8 * len(own), ".size": 4, ".value_kind": "hidden_block_count_x"}
    kernel = {".name": entry, ".vgpr_count": 8, ".args": [*own, hidden]}
    numbers = (".vgpr_spill_count", ".private_segment_fixed_size", ".group_segment_fixed_size")
    kernel |= dict.fromkeys(numbers, 0)
    body = pack({"amdhsa.kernels": [kernel], "amdhsa.target": "amdgcn-amd-amdhsa--gfx942"})
    note = struct.pack("<III", 7, len(body), 32) + b"AMDGPU\0\0" + body + bytes(-len(body) % 4)
    names = b"\0" + entry.encode() + b"\0"
    return make_elf([(".note", 7, 0, note, None), (".strtab", 3, 0, names, None)], machine=224, os_abi=64, flags=0x54C)


class _Maker:
    def __init__(self, cpu: str) -> None:
        self.blobs: dict[str, bytes] = {}
        self.kernels: list[BundleKernel] = []
        self._cpu = cpu

    def put(self, kind: str, data: bytes) -> BlobRef:
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        return BlobRef(sha256, kind, len(data))

    def variant(
        self,
        kernel: str,
        target: str,
        entry: str,
        signature: Signature,
        *layout: tuple[str, ...],
        config: dict[str, Value] | None = None,
        facts: Specialization | None = None,
        kind: str = "",
        **launch: Any,
    ) -> BundleVariant:
        slots = tuple(LayoutSlot(name, AbiType(abi), *part) for name, abi, *part in layout)
        parsed = Target.parse(target)
        if parsed.kind == "cpu":
            blob = self.put(kind or "so", _object())
        else:
            sizes = [slot.bytes for slot in slots]
            made_code = {"cuda": _ptx, "hip": _hsaco}[parsed.kind](entry, sizes)
            blob = self.put(kind or {"cuda": "ptx", "hip": "hsaco"}[parsed.kind], made_code)
        if parsed.kind != "cpu":
            launch = {"threads": 128, "num_warps": 4, **launch}
        info = LaunchInfo(entry, slots, **launch)
        made = Variant(
            kernel=kernel,
            source=hashlib.sha256(kernel.encode()).hexdigest(),
            signature=signature,
            specialization=facts or Specialization(),
            config=Config.of(**(config or {})),
            target=parsed,
        )
        digest = hashlib.sha256(f"{kernel} {target} {entry} {len(self.blobs)}".encode()).hexdigest()
        return BundleVariant(Artifact(made, info, blob, (), "made up 1.0", digest), "made up", Basis.HEURISTIC)

    def add(self, name: str, signature: Signature, variants: list[BundleVariant], *grid: Node, **more: Any) -> None:
        self.kernels.append(
            BundleKernel(name=name, signature=signature, grid=grid or None, variants=tuple(variants), **more)
        )

    def targets(self) -> list[str]:
        return [self._cpu, "cuda:sm_80", "hip:gfx942"]


def _cdiv(name: str, by: str) -> Node:
    return expressions.make(OpKind.CDIV, Argument(name), ConfigValue(by))


def _typed_add(width: str) -> Signature:
    return Signature(
        (
            Parameter("x", POINTER, dtype("float32"), READ),
            Parameter("y", POINTER, dtype("float32"), READ),
            Parameter("out", POINTER, dtype("float32"), WRITE),
            Parameter("n", INTEGER, dtype(width)),
            Parameter("BLOCK", CONSTANT),
        )
    )


def _add(maker: _Maker) -> None:
    def layout(width: str) -> list[tuple[str, ...]]:
        return [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", width)]

    aligned = tuple((name, Fact.ALIGNED_16) for name in ("out", "x", "y"))
    facts = Specialization(facts=tuple(sorted((*aligned, ("n", Fact.DIVISIBLE_16)))))
    found: list[BundleVariant] = []
    for target in maker.targets():
        for entry, width, block, assumed in (
            ("add_64", "i32", 64, facts),
            ("add_256", "i32", 256, facts),
            ("add_any", "i32", 64, None),
            ("add_wide", "i64", 64, None),
        ):
            one = maker.variant(
                "add",
                target,
                entry,
                _typed_add({"i32": "int32", "i64": "int64"}[width]),
                *layout(width),
                config={"BLOCK": block, "num_warps": 4},
                facts=assumed,
            )
            found.append(one)
    names = ("x", "y", "out", "n")
    signature = Signature((*(Parameter(name) for name in names), Parameter("BLOCK", CONSTANT)))
    maker.add("add", signature, found, _cdiv("n", "BLOCK"), key=("n",), config_names=("BLOCK", "num_warps"))


_SCALARS = (
    ("b", ParameterKind.BOOL, "bool", "i1"),
    *((f"i{bits}", INTEGER, f"int{bits}", f"i{bits}") for bits in (8, 16, 32, 64)),
    *((f"u{bits}", INTEGER, f"uint{bits}", f"u{bits}") for bits in (8, 16, 32, 64)),
    *((name, ParameterKind.FLOAT, kind, name) for name, kind in (("fp16", "float16"), ("bf16", "bfloat16"))),
    *((name, ParameterKind.FLOAT, kind, name) for name, kind in (("fp32", "float32"), ("fp64", "float64"))),
)


def _kinds(maker: _Maker) -> None:
    typed = tuple(Parameter(name, kind, dtype(element)) for name, kind, element, _ in _SCALARS)
    out = Parameter("out", POINTER, dtype("uint8"), WRITE)
    last = Parameter("MODE", CONSTANT, default="plain")
    layout = [("out", "ptr"), *((name, abi) for name, _, _, abi in _SCALARS)]
    signature = Signature((out, *typed, last))
    found = [
        maker.variant("kinds", target, "kinds", signature, *layout, facts=Specialization(constants=(("MODE", mode),)))
        for target in maker.targets()
        for mode in ("plain", "relu", 3, 2.5, True, None, dtype("float16"))
    ]
    maker.add("kinds", signature, found, Const(1))


def _others(maker: _Maker) -> None:
    n = Parameter("n", INTEGER, dtype("int32"))
    rows = Signature((Parameter("out", POINTER, dtype("int32"), WRITE), n))
    layout = [("out", "ptr"), ("n", "i32")]
    for name, entry, grid in (
        ("fails", "fails", (Argument("n"),)),
        ("shaped", "rows", (Extent("out", 0), Const(1), expressions.make(OpKind.SUB, Argument("n"), Const(1)))),
        ("bare", "rows", ()),
    ):
        found = [maker.variant(name, target, entry, rows, *layout) for target in maker.targets()]
        maker.add(name, rows, found, *grid)
    gpus = maker.targets()[1:]
    more = [*layout, ("", "scratch"), ("", "profile")]
    sizes = {"scratch_bytes": 256, "scratch_align": 128, "profile_bytes": 16, "profile_align": 16}
    found = [maker.variant("scratched", target, "scratched", rows, *more, **sizes) for target in gpus]
    maker.add("scratched", rows, found, Argument("n"))
    more = [("", "empty"), *layout, ("", "empty")]
    maker.add("emptied", rows, [maker.variant("emptied", one, "emptied", rows, *more) for one in gpus], Argument("n"))
    special = {"cluster": (2, 1, 1), "cooperative": True, "shared_bytes": 2048}
    found = [maker.variant("clustered", "cuda:sm_90", "clustered", rows, *layout, **special)]
    maker.add("clustered", rows, found, Argument("n"))
    special = {"cluster": (2, 3, 1), "counts_blocks": True}
    found = [maker.variant("in_blocks", "cuda:sm_90", "clustered", rows, *layout, **special)]
    maker.add("in_blocks", rows, found, Argument("n"))
    found = [
        maker.variant(
            "fixed",
            target,
            "rows",
            rows,
            *layout,
            facts=Specialization(extents=(("out", Extents((4,), (1,))),)),
        )
        for target in maker.targets()
    ]
    maker.add("fixed", rows, found, Const(2))
    aligned = Specialization(facts=(("out", Fact.ALIGNED_16),))
    found = [maker.variant("strict", target, "rows", rows, *layout, facts=aligned) for target in maker.targets()]
    maker.add("strict", rows, found, Const(1))
    found = [maker.variant("hungry", maker.targets()[0], "rows", rows, *layout, scratch_bytes=1 << 46)]
    maker.add("hungry", rows, found, Const(1))
    found = [maker.variant("odd", maker.targets()[0], "rows", rows, *layout, kind="hsaco")]
    maker.add("odd", rows, found, Const(1))
    descriptor = Parameter("source", ParameterKind.DESCRIPTOR, dtype("float16"), READ)
    described = Signature((descriptor, Parameter("out", POINTER, dtype("int32"), WRITE)))
    block = Specialization(constants=(("source", (64, 32)),))
    encoded = TensorMap("source", swizzle=2, element_bytes=2, element_type=6, box=(64, 32))
    axes = [f"{what}.{axis}" for what in ("shape", "stride") for axis in range(2)]
    apart = [("source", "ptr", ""), *(("source", "i64", part) for part in axes), ("out", "ptr", "")]
    found = [
        maker.variant(
            "described",
            "cuda:sm_90",
            "described",
            described,
            ("source", "tensormap"),
            ("out", "ptr"),
            facts=block,
            tensor_maps=(encoded,),
        ),
        maker.variant("described", "hip:gfx942", "described", described, *apart, facts=block),
    ]
    maker.add("described", described, found, Extent("source", 0))
    mapped = Signature(
        (Parameter("source", POINTER, dtype("float16"), READ), Parameter("out", POINTER, dtype("float16"), WRITE))
    )
    maps = (
        TensorMap("source", swizzle=3, element_bytes=2, element_type=6, box=(128, 64), axes=(0, 1)),
        TensorMap("source", swizzle=2, element_bytes=2, element_type=6, box=(64, 32), axes=(1, 0)),
        TensorMap("out", swizzle=2, element_bytes=2, element_type=6, box=(64, 32), axes=((1024, 512), (512, 1))),
    )
    slots = [(name, "tensormap") for name in ("source", "out")]
    found = [maker.variant("mapped", "cuda:sm_90", "mapped", mapped, *slots, tensor_maps=(maps[0], maps[2]))]
    maker.add("mapped", mapped, found, Const(4))
    found = [maker.variant("turned", "cuda:sm_90", "mapped", mapped, *slots, tensor_maps=maps[1:])]
    maker.add("turned", mapped, found, Const(4))


def write_made(path: Path, machine: str = "", *, raw: bool = False) -> Path:
    """Write the bundle for ``machine`` (``platform.machine()`` by default); with ``raw``, without compression."""
    import platform

    maker = _Maker(_BASELINE.get(machine or platform.machine(), "cpu:x86-64-v2"))
    _add(maker)
    _kinds(maker)
    _others(maker)
    contents = BundleContents(tuple(sorted(maker.kernels, key=lambda one: one.name)))
    write_bundle(path, contents, maker.blobs.get, raw=raw)
    return path
