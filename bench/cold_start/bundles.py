"""The bundles that the benchmark opens, built once by ``python -m bench.cold_start.bundles FOLDER``.

``ten`` has ten kernels, as ``silo build`` makes them. ``one`` has the first of these kernels with one variant.
``thousand`` has the first kernel with 1,000 variants of other dtypes, specializations and configs, each with its own
code. ``spread`` has the ten kernels with 100 variants each.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleRules, BundleVariant
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.dispatch import DispatchRules
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype

NAMES = ("one", "ten", "spread", "thousand")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32")
WARPS = (1, 2, 4, 8)


def build(folder: Path) -> None:
    """Write the four bundles; needs Triton and a CUDA device (or the stub driver)."""
    from bench.cold_start import silo_kernels as cold_silo_kernels
    from silo.commands.build_bundle import build_bundle

    ten = folder / "ten.silo"
    build_bundle([Path(cold_silo_kernels.__file__)], ten, targets=["cuda"], tune="off")
    with open_bundle(ten) as bundle:
        kernels = [bundle.kernel(name) for name in bundle.kernel_names]
        first = replace(kernels[0], variants=kernels[0].variants[:1], cases=None, trials=None)
        write(folder / "one.silo", bundle, [first], {})
        blobs: dict[str, bytes] = {}
        write(folder / "thousand.silo", bundle, [multiplied(bundle, kernels[0], 1000, blobs)], blobs)
        blobs = {}
        write(folder / "spread.silo", bundle, [multiplied(bundle, one, 100, blobs) for one in kernels], blobs)


def multiplied(bundle: Bundle, kernel: BundleKernel, count: int, blobs: dict[str, bytes]) -> BundleKernel:
    """Return the kernel with ``count`` variants; add their code to ``blobs`` by its SHA-256.

    The variant that was built comes last, and is the only one that fits the benchmark's call. The code of every other
    variant is a copy of its code with a number after the end, which ELF does not read.
    """
    base = kernel.variants[0]
    original = base.artifact
    code = bundle.blob(original.blob.sha256)
    variants: list[BundleVariant] = []
    for number, (signature, specialization, config) in enumerate(_others(base, count - 1)):
        data = code + number.to_bytes(8, "little") + kernel.name.encode()
        sha256 = hashlib.sha256(data).hexdigest()
        blobs[sha256] = data
        artifact = replace(
            original,
            variant=replace(original.variant, signature=signature, specialization=specialization, config=config),
            blob=BlobRef(sha256, original.blob.kind, len(data)),
            job=sha256,
        )
        variants.append(replace(base, artifact=artifact))
    signature = original.variant.signature.without_effects()
    rules = BundleRules(
        original.variant.target,
        signature,
        DispatchRules.of(kernel.key, {}, original.variant.config),
    )
    return replace(
        kernel,
        variants=(*variants, base),
        rules=(rules,),
        config_names=tuple(sorted({*kernel.config_names, "num_stages"})),
        cases=None,
        trials=None,
    )


def _others(base: BundleVariant, count: int) -> Iterator[tuple[Signature, Specialization, Config]]:
    """Yield ``count`` signatures, specializations and configs, all different and none equal to those of ``base``."""
    variant = base.artifact.variant
    facts = variant.specialization.facts
    made = 0
    stages = 1
    while True:
        for element in DTYPES:
            parameters = tuple(
                replace(one, dtype=dtype(element)) if one.kind is ParameterKind.POINTER else one
                for one in variant.signature.parameters
            )
            for kept in (facts, facts[:1]):
                for warps in WARPS:
                    if made == count:
                        return
                    made += 1
                    config = Config.of(**{**variant.config.as_dict(), "num_warps": warps, "num_stages": stages})
                    specialization = Specialization(kept, variant.specialization.constants)
                    yield Signature(parameters), specialization, config
        stages += 1


def write(path: Path, bundle: Bundle, kernels: list[BundleKernel], blobs: dict[str, bytes]) -> None:
    """Write a bundle with these kernels; their blobs are in ``blobs`` or in the open bundle."""

    def read(sha256: str) -> bytes | None:
        return blobs.get(sha256) or bundle.blob(sha256)

    write_bundle(path, BundleContents(tuple(kernels), producer=(("name", "cold_start"),)), read)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
