"""Bundles made up for tests: small, of every form, and with the same bytes in every process."""

from __future__ import annotations

import hashlib
import random
import struct
from dataclasses import dataclass

import zstandard

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import Basis, BundleContents, BundleKernel, BundleRules, BundleVariant
from silo.bundle.update import document_blob
from silo.core import expressions
from silo.core.config import Config
from silo.core.device import Target
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step
from silo.core.expressions import Argument, ConfigValue, OpKind
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant

UNSEEN = DecisionList(
    (Step((Bound("n", 16, 4096),), Config.of(BLOCK=64)), Step((), Config.of(BLOCK=128))),
)


@dataclass
class Sample:
    contents: BundleContents
    blobs: dict[str, bytes]

    def read_blob(self, sha256: str) -> bytes | None:
        return self.blobs.get(sha256)


def put(blobs: dict[str, bytes], kind: str, data: bytes) -> BlobRef:
    sha256 = hashlib.sha256(data).hexdigest()
    blobs[sha256] = data
    return BlobRef(sha256, kind, len(data))


def code(rng: random.Random, size: int) -> bytes:
    """Return bytes that compress about as well as machine code."""
    words = [rng.randbytes(8) for _ in range(24)]
    return b"".join(rng.choice(words) for _ in range(size // 8))


def typed(element: str) -> Signature:
    kind = ParameterKind
    return Signature(
        (
            Parameter("x", kind.POINTER, dtype(element), Effect.READ),
            Parameter("out", kind.POINTER, dtype(element), Effect.WRITE),
            Parameter("n", kind.INTEGER, dtype("int32")),
            Parameter("BLOCK", kind.CONSTEXPR),
        )
    )


def variant(kernel: str, number: int, target: str, element: str = "float32") -> Variant:
    return Variant(
        kernel=kernel,
        source=hashlib.sha256(kernel.encode()).hexdigest(),
        signature=typed(element),
        specialization=Specialization(facts=(("x", Fact.ALIGNED_16), ("n", Fact.DIVISIBLE_16)) if number % 2 else ()),
        config=Config.of(BLOCK=64 << (number % 8), num_warps=1 << (number // 8 % 4), num_stages=1 + number // 32),
        target=Target.parse(target),
    )


def sample(
    kernels: int = 2,
    variants: int = 3,
    *,
    blob_bytes: int = 400,
    targets: tuple[str, ...] = ("cpu:x86-64-v3", "cuda:sm_90"),
) -> Sample:
    """Return a bundle of ``kernels`` kernels with ``variants`` variants; CPU variants have an object and C source."""
    rng = random.Random(5)
    blobs: dict[str, bytes] = {}
    found: list[BundleKernel] = []
    for k in range(kernels):
        name = f"kernel_{k}"
        items: list[BundleVariant] = []
        for v in range(variants):
            target = targets[v % len(targets)]
            on_cpu = target.startswith("cpu")
            blob = put(blobs, "so" if on_cpu else "cubin", code(rng, blob_bytes))
            sidecars = (
                (put(blobs, "c", f"/* {name} {v} */ int f(void) {{ return {v}; }}\n".encode() * 4),) if on_cpu else ()
            )
            launch = LaunchInfo(
                entry=name,
                layout=(
                    LayoutSlot("x", AbiType.POINTER),
                    LayoutSlot("out", AbiType.POINTER),
                    LayoutSlot("n", AbiType.I32),
                ),
                num_warps=4,
                threads=1 if on_cpu else 128,
                shared_bytes=0 if on_cpu else 1024 * (v % 5),
                registers=None if on_cpu else 24 + v % 100,
                spills=None if on_cpu else v % 2,
            )
            artifact = Artifact(
                variant(name, v // len(targets), target), launch, blob, sidecars, "made-up 1.0", rng.randbytes(32).hex()
            )
            items.append(
                BundleVariant(
                    artifact,
                    "winner of n<=1024" if v % 2 else "first config",
                    Basis.MEASURED if v % 2 else Basis.HEURISTIC,
                )
            )
        trials, data = document_blob(
            "trials", tuple({"config": v, "time_ns": 1000 + v, "status": "ok"} for v in range(3))
        )
        blobs[trials.sha256] = data
        cases, data = document_blob("cases", ({"n": 1 << 16, "kernel": k},))
        blobs[cases.sha256] = data
        found.append(
            BundleKernel(
                name=name,
                signature=Signature(
                    (
                        Parameter("x"),
                        Parameter("out"),
                        Parameter("n", default=5),
                        Parameter("BLOCK", ParameterKind.CONSTEXPR),
                    )
                ),
                key=("n",),
                config_names=("BLOCK", "num_warps"),
                derived=(
                    (
                        "EVEN",
                        expressions.make(
                            OpKind.EQ,
                            expressions.make(OpKind.MOD, Argument("n"), ConfigValue("BLOCK")),
                            expressions.Const(0),
                        ),
                    ),
                ),
                grid=(expressions.make(OpKind.CDIV, Argument("n"), ConfigValue("BLOCK")),) if k % 2 == 0 else None,
                variants=tuple(items),
                rules=(
                    BundleRules(
                        Target.parse(targets[0]),
                        typed("float32"),
                        DispatchRules.of(
                            ["n"], {(1024,): Config.of(BLOCK=64)}, Config.of(BLOCK=128), UNSEEN if k % 2 else None
                        ),
                        5 * k,
                    ),
                ),
                cases=cases,
                trials=trials,
            )
        )
    contents = BundleContents(
        tuple(found),
        producer=(("name", "kernel-silo"), ("version", "0.1.0")),
        toolchain=(("triton", "3.9.0"),),
        notes=(("license", "Apache-2.0"),),
    )
    return Sample(contents, blobs)


def sealed(data: bytes, manifest: bytes, *, compress: bool) -> bytes:
    """Return the bundle's bytes with another manifest, and with a header that fits that manifest."""
    offset = struct.unpack_from("<Q", data, 16)[0]
    stored = zstandard.ZstdCompressor().compress(manifest) if compress else manifest
    head = data[:12] + struct.pack("<IQQ", int(compress), offset, len(stored)) + hashlib.sha256(stored).digest()
    return head + data[64:offset] + stored
