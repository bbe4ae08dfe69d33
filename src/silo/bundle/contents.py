"""The contents of a bundle, as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core import nodes
from silo.core.dispatch import DispatchRules
from silo.core.nodes import Node
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON, PARSE_BUDGET, canonical_json, digest, parse_json
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.consent import HostCases, HostCode, HostText
    from silo.core.extents import ArrayExtents
    from silo.core.variant import Variant

__all__ = [
    "Basis",
    "BundleContents",
    "BundleKernel",
    "BundleRules",
    "BundleVariant",
    "Coverage",
    "RulesKey",
    "VariantCode",
    "VariantGroup",
    "calls_of",
    "decode_document",
    "encode_documents",
    "host_cases",
    "host_code",
    "host_text",
    "parse_document",
    "rules_key",
    "variant_calls",
]

RulesKey: TypeAlias = "tuple[Target, Signature, tuple[tuple[str, ArrayExtents], ...]]"


class Basis(Enum):
    """Why a config was chosen."""

    MEASURED = "measured"
    HEURISTIC = "heuristic"


@frozen
class BundleVariant:
    """One compiled variant; ``reason`` says in words why it is in the bundle."""

    artifact: Artifact
    reason: str
    basis: Basis = Basis.HEURISTIC

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """Its blobs, the driver's first."""
        return (self.artifact.blob, *self.artifact.sidecars)


@frozen
class VariantGroup:
    """Variants of a kernel that differ in nothing but their configs as far as a call is concerned.

    ``numbers`` are their places in the order of preference.
    """

    target: Target
    blob_kind: str
    signature: Signature
    specialization: Specialization
    numbers: tuple[int, ...]


@frozen
class VariantCode:
    """Variants of a kernel for one target and of one kind of blob; ``numbers`` as in :class:`VariantGroup`."""

    target: Target
    blob_kind: str
    numbers: tuple[int, ...]


def rules_key(variant: Variant) -> RulesKey:
    """The :attr:`BundleRules.key` of the rules that a variant's config is chosen by."""
    return variant.target, variant.signature.without_effects(), variant.specialization.extents


@frozen
class BundleRules:
    """Dispatch for one target and one typed signature; ``space``: of how many configs it was built, 0 if not known.

    Where the code is made for certain extents, for these ``extents``: another shape is another problem.
    """

    target: Target
    signature: Signature
    rules: DispatchRules
    space: int = 0
    extents: tuple[tuple[str, ArrayExtents], ...] = ()

    @property
    def key(self) -> RulesKey:
        """Which calls they are for, config and facts aside."""
        return self.target, self.signature, self.extents


@frozen
class Coverage:
    """How many of the configs of a space are packed for one target and typed signature, and perhaps certain extents."""

    target: Target
    signature: Signature
    packed: int
    space: int
    extents: tuple[tuple[str, ArrayExtents], ...] = ()


@frozen
class BundleKernel:
    """One kernel. The order of ``variants`` is one of preference, so it is kept.

    ``signature`` is the source's, untyped, with its defaults; ``key`` the arguments that tuning depends on;
    ``config_names`` the constexprs and options that a config sets; ``derived`` constexprs computed from the call;
    ``grid`` an expression per axis (None: the caller passes it). ``cases`` and ``trials`` are documents (JSON lines).
    ``kind`` is the kind of its source; "" of kinds that there were before bundles named them. ``contiguous`` are the
    arrays that calls must give contiguous.
    """

    name: str
    signature: Signature
    key: tuple[str, ...] = ()
    config_names: tuple[str, ...] = ()
    derived: tuple[tuple[str, Node], ...] = ()
    grid: tuple[Node, ...] | None = None
    variants: tuple[BundleVariant, ...] = ()
    rules: tuple[BundleRules, ...] = ()
    cases: BlobRef | None = None
    trials: BlobRef | None = None
    kind: str = ""
    contiguous: tuple[str, ...] = ()

    @property
    def refs(self) -> Iterator[BlobRef]:
        """Every blob it refers to, with repeats."""
        for variant in self.variants:
            yield from variant.refs
        for document in (self.cases, self.trials):
            if document is not None:
                yield document

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What is packed of the spaces that are known."""
        found: dict[RulesKey, set[bytes]] = {}
        for one in self.variants:
            variant = one.artifact.variant
            found.setdefault(rules_key(variant), set()).add(variant.config.order_key)
        return tuple(
            Coverage(rules.target, rules.signature, len(found.get(rules.key, ())), rules.space, rules.extents)
            for rules in self.rules
            if rules.space
        )


@frozen
class BundleContents:
    """Everything but the bytes of the blobs.

    ``producer`` and ``toolchain`` are names and versions, ``notes`` free text by name (licence, source commit).
    None of them may hold a time or a path, so that the same inputs give the same file. ``attachments`` are files that
    travel with the kernels, by name; no launch reads them.
    """

    kernels: tuple[BundleKernel, ...]
    producer: tuple[tuple[str, str], ...] = ()
    toolchain: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    attachments: tuple[tuple[str, BlobRef], ...] = ()


def calls_of(kernel: BundleKernel) -> str:
    """What a bundle says of the calls of a kernel, whichever variant serves them, as a digest (``calls/1``).

    The kernel's ``variants`` are not looked at, so a kernel that was read without them does.
    """
    return digest(
        "calls/1",
        {
            "signature": kernel.signature.to_json(),
            "config_names": list(kernel.config_names),
            "derived": [[name, nodes.to_json(node)] for name, node in kernel.derived],
            "grid": None if kernel.grid is None else [nodes.to_json(axis) for axis in kernel.grid],
        },
    )


def host_code(one: BundleVariant, calls: str) -> HostCode:
    """What consent to a variant's native code is about: all that decides how it is called.

    ``calls`` is :func:`calls_of` its kernel.
    """
    return one.artifact.host_code(variant_calls(one, calls))


def variant_calls(one: BundleVariant, calls: str) -> JSON:
    """What a bundle says of the calls of one variant; ``calls`` is :func:`calls_of` its kernel."""
    return [calls, one.artifact.variant.config.to_json()]


def host_cases(kernel: BundleKernel, codes: Iterable[HostCode]) -> HostCases | None:
    """What it is to vouch for running ``codes``, all the native code of a kernel, on its cases; None without either."""
    from silo.core.consent import HostCases  # noqa: PLC0415  # a call of a kernel needs no cases

    digests = tuple(code.digest for code in codes)
    return None if kernel.cases is None or not digests else HostCases(kernel.cases.sha256, digests)


def host_text(one: BundleVariant, code: HostCode) -> HostText | None:
    """The C text beside ``code``, the native code of a variant; None without one."""
    from silo.core.consent import HostText  # noqa: PLC0415  # only builds, exports and commands about trust need it

    text = next((ref.sha256 for ref in one.artifact.sidecars if ref.kind == "c"), None)
    return None if text is None else HostText(text, code.digest)


def encode_documents(documents: Iterable[JSON]) -> bytes:
    r"""Canonical JSON, one document a line: how cases and trials are stored.

    >>> encode_documents([{"n": 1}, {"n": 2}])
    b'{"n":1}\n{"n":2}\n'
    """
    return b"".join(canonical_json(document) + b"\n" for document in documents)


def parse_document(text: bytes, budget: int = PARSE_BUDGET) -> JSON:
    """Parse JSON from a file; ``ValueError`` for floats, repeated keys, and strings that UTF-8 cannot hold.

    Also for text that would take more than ``budget`` bytes of memory.
    """
    document = parse_json(text, budget)
    if b"\\u" in text and re.search(rb"\\u[dD][89a-fA-F]", text):
        try:
            canonical_json(document)  # raises for a lone surrogate, which would fail wherever it is printed or hashed
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None
    return document


def decode_document(line: bytes, budget: int = PARSE_BUDGET) -> JSON:
    r"""The document of one line that :func:`encode_documents` wrote, its end included; ``ValueError`` for another.

    >>> decode_document(b'{"n":1}\n')
    {'n': 1}
    """
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    return parse_document(line[:-1], budget)
