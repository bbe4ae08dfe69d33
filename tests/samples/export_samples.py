"""Kernels made up for exports: with every kind of parameter, and with names that no programming language allows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bundle_samples import put
from silo.artifacts.artifact import Artifact
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant
from silo.bundle.update import document_blob
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, ConfigValue, Const, Extent, Node, OpKind, make
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.recipes import ArrayRecipe, CaseRecipe, ExpectedRecipe, ScalarRecipe
from silo.core.signature import NO_DEFAULT, Effect, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value, dtype
from silo.core.variant import Variant

GRID = (make(OpKind.CDIV, Argument("n"), ConfigValue("BLOCK")),)
SHAPED_GRID = (make(OpKind.CDIV, Extent("x", 0), Const(128)),)

_KINDS = {"i": ParameterKind.INTEGER, "f": ParameterKind.FLOAT, "b": ParameterKind.BOOL, "c": ParameterKind.CONSTEXPR}


def parameter(name: str, text: str, default: Value | NoDefault = NO_DEFAULT) -> Parameter:
    """Return one typed parameter from a letter and a dtype.

    The letters: ``r``, ``w`` array that is read or written, ``d`` descriptor; ``i``, ``f``, ``b`` number; ``c``
    constant.
    """
    letter, _, element = text.partition(" ")
    if letter in _KINDS:
        return Parameter(name, _KINDS[letter], dtype(element) if element else None, default=default)
    kind = ParameterKind.DESCRIPTOR if letter == "d" else ParameterKind.POINTER
    effect = {"r": Effect.READ, "w": Effect.WRITE}.get(letter, Effect.BOTH)
    return Parameter(name, kind, dtype(element) if element else None, effect, default)


class Maker:
    """Makes kernels, and keeps their blobs."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def variant(
        self,
        kernel: str,
        parameters: Sequence[Parameter],
        specialization: Specialization | None = None,
        *,
        target: str = "cpu:x86-64-v2",
        kind: str = "so",
        config: Config | None = None,
        source: str = "",
    ) -> BundleVariant:
        number = len(self.blobs)
        of = Variant(
            kernel,
            "ab" * 32,
            Signature(tuple(parameters)),
            specialization or Specialization(),
            config or Config.of(BLOCK=64, num_warps=4),
            Target.parse(target),
        )
        entry = f"entry_{number}"
        text = source or f"int32_t {entry}(void) {{ return 0; }}\n"
        artifact = Artifact(
            of,
            LaunchInfo(entry=entry, layout=(LayoutSlot("n", AbiType.I32),), num_warps=1, threads=1),
            put(self.blobs, kind, f"code {number}".encode() * 9),
            (put(self.blobs, "c", text.encode()),) if kind == "so" else (),
            "made-up 1.0",
            f"{number:064x}",
        )
        return BundleVariant(artifact, "made up")

    def kernel(
        self,
        name: str,
        variants: Sequence[BundleVariant],
        *,
        grid: tuple[Node, ...] | None = GRID,
        cases: Sequence[CaseRecipe] = (),
        defaults: dict[str, Value] | None = None,
    ) -> BundleKernel:
        defaults = defaults or {}
        typed = variants[0].artifact.variant.signature.parameters
        ref = None
        if cases:
            ref, data = document_blob("cases", tuple(case.to_json() for case in cases))
            self.blobs[ref.sha256] = data
        return BundleKernel(
            name=name,
            signature=Signature(
                tuple(
                    Parameter(
                        one.name,
                        one.kind if one.kind is ParameterKind.CONSTEXPR else ParameterKind.ANY,
                        default=defaults.get(one.name, NO_DEFAULT),
                    )
                    for one in typed
                )
            ),
            config_names=("BLOCK", "num_warps"),
            grid=grid,
            variants=tuple(variants),
            cases=ref,
        )

    def write(self, path: Path, kernels: Sequence[BundleKernel]) -> Path:
        write_bundle(path, BundleContents(tuple(kernels)), self.blobs.get)
        return path


def add_kernel(maker: Maker, name: str = "add", elements: Sequence[str] = ("float32",)) -> BundleKernel:
    """Return ``add(x, out, n, BLOCK)`` for each element type, on a CPU and a GPU, with a case of the first type."""
    variants = [
        maker.variant(name, add_parameters(element), target=target, kind=kind)
        for element in elements
        for target, kind in (("cpu:x86-64-v2", "so"), ("cuda:sm_80", "cubin"))
    ]
    case = CaseRecipe(
        "n=100",
        (
            ("x", ArrayRecipe.of("normal", (100,), elements[0], seed=3)),
            ("out", ArrayRecipe.of("empty", (100,), elements[0])),
            ("n", ScalarRecipe(100)),
        ),
        (("out", ExpectedRecipe(dtype("float32"), (100,), bytes(400))),),
    )
    return maker.kernel(name, variants, cases=[case])


def add_parameters(element: str = "float32") -> tuple[Parameter, ...]:
    return (
        parameter("x", f"r {element}"),
        parameter("out", f"w {element}"),
        parameter("n", "i int32"),
        parameter("BLOCK", "c"),
    )
