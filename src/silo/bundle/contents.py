"""The contents of a bundle as Python values, and the JSON form of each in the manifest.

Each field of a class here also declares the member of the manifest's JSON that stores the field's value, for example
``kind: str = field(default="", form=NAME, since=2)``. The writer (``encode.py``), the reader (``reader.py``) and the
lists of the native reader (``native/core/manifest_members.h``, printed by ``scripts/manifest_members.py``) are derived
from the declarations of this module, and of the classes whose values are rows of the manifest's tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core import expressions
from silo.core.config import Config
from silo.core.device import TARGET, Target
from silo.core.dispatch import DispatchRules
from silo.core.expressions import Node
from silo.core.json_reader import (
    NAME,
    TEXT,
    Form,
    enumerated,
    integer,
    listed,
    members_of,
    optional,
    paired,
    read_mapping,
    value_of,
)
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import EXTENTS, Specialization
from silo.core.values import JSON, PARSE_BUDGET, Value, canonical_json, digest, identity_of, parse_json
from silo.core.variant import Variant
from silo.frozen import Field, field, frozen

if TYPE_CHECKING:
    from silo.core.consent import HostCases, HostCode, HostPlan, HostText
    from silo.core.extents import ArrayExtents
    from silo.core.recorded_plans import RecordedPlan

__all__ = [
    "CPU_KIND",
    "INLINED",
    "TABLES",
    "Basis",
    "Blob",
    "BlobEntry",
    "Blobs",
    "BundleContents",
    "BundleKernel",
    "BundleRules",
    "BundleVariant",
    "CallHead",
    "Coverage",
    "Entries",
    "EntryMember",
    "NamedBlobs",
    "PackedCode",
    "Row",
    "Rows",
    "RulesKey",
    "VariantCode",
    "VariantGroup",
    "calls_of",
    "decode_document",
    "encode_documents",
    "entry_members",
    "host_cases",
    "host_code",
    "host_plan",
    "host_plans",
    "host_text",
    "parse_document",
    "rules_key",
    "variant_calls",
]

CPU_KIND: Final = "cpu"  # the kind of the CPU's targets
# ---- Forms of members that refer to tables, blobs or other objects of the manifest ----

TABLES: Final[Mapping[str, Form[Any]]] = {
    "compilers": TEXT,
    "configs": value_of(Config),
    "launches": value_of(LaunchInfo),
    "reasons": TEXT,
    "signatures": value_of(Signature),
    "sources": listed(TEXT),
    "specializations": value_of(Specialization),
    "targets": TARGET,
}
"""The tables of the manifest: how the rows of each are read from JSON and written."""


@frozen
class Row:
    """Declares that a member of the manifest's JSON is the index of a row of a table."""

    table: str


@frozen
class Rows:
    """Declares that a member of the manifest's JSON is a list of indices of rows of a table."""

    table: str


@frozen
class Blob:
    """Declares that a member of the manifest's JSON is the index of a blob, or null for None."""


@frozen
class Blobs:
    """Declares that a member of the manifest's JSON is a list of indices of blobs."""


@frozen
class NamedBlobs:
    """Declares that a member of the manifest's JSON is a list of pairs of a name and a blob's index, sorted by name."""


@frozen
class Entries:
    """Declares that a member of the manifest's JSON is a list of objects of the class ``of``.

    The fields of that class declare the members of the objects.
    """

    of: type


_NODE: Final[Form[Node]] = Form(lambda data, what: expressions.from_json(data), expressions.to_json)  # noqa: ARG005
_NAMES: Final = listed(TEXT)
_TEXTS: Final[Form[tuple[tuple[str, str], ...]]] = Form(
    lambda data, what: tuple(sorted((name, TEXT.read(text, what)) for name, text in read_mapping(data, what).items())),
    dict,
)


def _read_plans(data: JSON, label: str) -> tuple[RecordedPlan, ...]:
    from silo.core.recorded_plans import RecordedPlan  # noqa: PLC0415  # most bundles have no plans

    return listed(value_of(RecordedPlan)).read(data, label)


_PLANS: Final[Form[tuple[RecordedPlan, ...]]] = Form(_read_plans, lambda plans: [plan.to_json() for plan in plans])

RulesKey: TypeAlias = "tuple[Target, Signature, tuple[tuple[str, ArrayExtents], ...]]"


class Basis(Enum):
    """Why a config was chosen."""

    MEASURED = "measured"
    HEURISTIC = "heuristic"


@frozen
class BundleVariant:
    """One compiled variant. ``reason`` explains, in words, why it is in the bundle."""

    artifact: Artifact = field(form=value_of(Artifact))
    reason: str = field(form=Row("reasons"))
    basis: Basis = field(default=Basis.HEURISTIC, form=enumerated(Basis))

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """The references of the variant's blobs, beginning with the code."""
        return (self.artifact.blob, *self.artifact.sidecars)


@frozen
class VariantGroup:
    """Variants of a kernel that differ only in their config.

    ``numbers`` are their indices, in the order of preference.
    """

    target: Target
    blob_kind: str
    signature: Signature
    specialization: Specialization
    numbers: tuple[int, ...]


@frozen
class VariantCode:
    """Variants of a kernel for one target and with one kind of blob.

    ``numbers`` are their indices, in order of preference.
    """

    target: Target
    blob_kind: str
    numbers: tuple[int, ...]


def rules_key(variant: Variant) -> RulesKey:
    """Returns the :attr:`BundleRules.key` of the rules that choose among the configs of a variant."""
    return variant.target, variant.signature.without_effects(), variant.specialization.extents


@frozen
class BundleRules:
    """Dispatch rules for one target and typed signature.

    ``space`` is the number of configs that were chosen from, 0 if unknown. If code is made for certain extents, the
    rules are only for these ``extents``. ``compilers`` are the compilers whose code is chosen, if the bundle has code
    by several: one for each rule, one for the fallback, and one for each step of the decision list. If ``compilers`` is
    empty, the first variant with the config is chosen, whatever compiled it.
    """

    target: Target = field(form=Row("targets"))
    signature: Signature = field(form=Row("signatures"))
    rules: DispatchRules = field(form=value_of(DispatchRules))
    space: int = field(default=0, form=integer(1), since=1)
    extents: tuple[tuple[str, ArrayExtents], ...] = field(default=(), form=EXTENTS, since=2)
    compilers: tuple[str, ...] = field(default=(), form=Rows("compilers"), since=9)

    def __post_init__(self) -> None:
        steps = () if self.rules.unseen is None else self.rules.unseen.steps
        if self.compilers and len(self.compilers) != len(self.rules.rules) + 1 + len(steps):
            raise ValueError(
                f"{len(self.compilers)} compilers for {len(self.rules.rules)} rules, a fallback and {len(steps)} steps"
            )

    @property
    def fallback_compiler(self) -> str:
        """The compiler of the fallback's config; "" if any compiler's code serves."""
        return self.compilers[len(self.rules.rules)] if self.compilers else ""

    @property
    def rule_compilers(self) -> tuple[str, ...]:
        """The compilers of the rules, in their order; "" for each if any compiler's code serves."""
        return self.compilers[: len(self.rules.rules)] or ("",) * len(self.rules.rules)

    @property
    def step_compilers(self) -> tuple[str, ...]:
        """The compilers of the decision list's steps, in their order; "" for each if any compiler's code serves."""
        steps = () if self.rules.unseen is None else self.rules.unseen.steps
        return self.compilers[len(self.rules.rules) + 1 :] or ("",) * len(steps)

    @property
    def key(self) -> RulesKey:
        """The calls that the rules are for: target, signature, extents."""
        return self.target, self.signature, self.extents


@frozen
class Coverage:
    """The number of configs that are packed for one target, typed signature and, if they decide the code, extents."""

    target: Target
    signature: Signature
    packed: int
    space: int
    extents: tuple[tuple[str, ArrayExtents], ...] = ()


@frozen
class BundleKernel:
    """One kernel. ``variants`` are in the order of preference, so writers keep their order.

    ``signature`` is the source's, untyped, with its defaults; ``key`` names the arguments that tuning depends on;
    ``config_names`` the constexprs and options that a config sets; ``derived`` are constexprs computed from the call;
    ``grid`` has an expression per axis (None: the caller passes the grid). ``cases`` and ``trials`` are documents (JSON
    lines). ``kind`` is the kind of the source (Triton, ...); it is "" in files of versions of the format that did not
    store it. ``contiguous`` names the arrays that calls must pass contiguous.
    """

    name: str = field(form=NAME)
    signature: Signature = field(form=Row("signatures"))
    key: tuple[str, ...] = field(default=(), form=_NAMES)
    config_names: tuple[str, ...] = field(default=(), form=_NAMES)
    derived: tuple[tuple[str, Node], ...] = field(default=(), form=paired(_NODE))
    grid: tuple[Node, ...] | None = field(default=None, form=optional(listed(_NODE)))
    variants: tuple[BundleVariant, ...] = field(default=(), form=Entries(BundleVariant))
    rules: tuple[BundleRules, ...] = field(default=(), form=Entries(BundleRules))
    cases: BlobRef | None = field(default=None, form=Blob())
    trials: BlobRef | None = field(default=None, form=Blob())
    kind: str = field(default="", form=NAME, since=2)
    contiguous: tuple[str, ...] = field(default=(), form=_NAMES, since=6)

    @property
    def refs(self) -> Iterator[BlobRef]:
        """The references of all of the kernel's blobs, with repetitions."""
        for variant in self.variants:
            yield from variant.refs
        for document in (self.cases, self.trials):
            if document is not None:
                yield document

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The number of packed configs of each space whose size is known."""
        configs: dict[RulesKey, set[bytes]] = {}
        for packed in self.variants:
            variant = packed.artifact.variant
            configs.setdefault(rules_key(variant), set()).add(variant.config.order_key)
        return tuple(
            Coverage(rules.target, rules.signature, len(configs.get(rules.key, ())), rules.space, rules.extents)
            for rules in self.rules
            if rules.space
        )


@frozen
class BundleContents:
    """The contents of a bundle, except the bytes of the blobs.

    ``producer`` and ``toolchain`` are names and versions, ``notes`` free text by name (licence, source commit). None of
    them may hold a time or a path, so that the same inputs give the same file. ``attachments`` are files that are
    stored beside the kernels, by name; no launch reads them. ``plans`` are sequences of launches of the kernels.
    """

    kernels: tuple[BundleKernel, ...] = field(form=Entries(BundleKernel))
    producer: tuple[tuple[str, str], ...] = field(default=(), form=_TEXTS)
    toolchain: tuple[tuple[str, str], ...] = field(default=(), form=_TEXTS)
    notes: tuple[tuple[str, str], ...] = field(default=(), form=_TEXTS)
    attachments: tuple[tuple[str, BlobRef], ...] = field(default=(), form=NamedBlobs(), since=4)
    plans: tuple[RecordedPlan, ...] = field(default=(), form=_PLANS, since=7)


# ---- Parts of an open bundle ----


@frozen
class BlobEntry:
    """One blob of the file: SHA-256 and size of its raw bytes, and offset, size and codec of its stored bytes."""

    sha256: str
    kind: str
    raw_bytes: int
    codec: str
    offset: int
    stored_bytes: int

    @property
    def ref(self) -> BlobRef:
        """The reference to the blob by its content."""
        return BlobRef(self.sha256, self.kind, self.raw_bytes)

    def to_json(self) -> JSON:
        """The blob's row in the manifest."""
        return [self.sha256, self.kind, self.raw_bytes, self.codec, self.offset, self.stored_bytes]


@frozen
class CallHead:
    """The part of a :class:`BundleKernel` that decoding a call's arguments needs: no expressions, no dispatch rules.

    ``derived`` are the names of the constexprs that expressions compute.
    """

    name: str
    signature: Signature
    key: tuple[str, ...]
    config_names: tuple[str, ...]
    derived: tuple[str, ...]
    contiguous: tuple[str, ...]


@frozen
class PackedCode:
    """The values that are needed to load and call a variant.

    ``kernel`` is the kernel's name in its source; ``target`` and ``config`` are texts for people. ``values`` are the
    constants of the variant's specialization, then the values and options of its config; a grid that is a function
    reads them.
    """

    kernel: str
    launch: LaunchInfo
    blob: BlobRef
    target: str
    config: str
    values: tuple[tuple[str, Value], ...] = field(identity=identity_of)


# ---- The members of the manifest's objects, from the declarations ----

# In the manifest, a variant's object directly holds the members of its artifact and of its compiled variant. The value
# of most members is an index into a table of the manifest.
INLINED: Final[Mapping[str, type]] = {"artifact": Artifact, "variant": Variant}
_ROWS: Final[Mapping[str, Row | Blob | Blobs]] = {
    "signature": Row("signatures"),
    "specialization": Row("specializations"),
    "config": Row("configs"),
    "target": Row("targets"),
    "launch": Row("launches"),
    "blob": Blob(),
    "sidecars": Blobs(),
    "compiler": Row("compilers"),
}


class EntryMember(NamedTuple):
    """How the manifest stores one field of a value.

    ``name`` and ``form`` are the name and the JSON form of the member in the manifest; ``field`` declares both; ``get``
    returns the field's value from the object to write.
    """

    name: str
    form: Any
    field: Field
    get: Callable[[Any], Any]


_ENTRIES: dict[type, tuple[EntryMember, ...]] = {}


def entry_members(cls: type) -> tuple[EntryMember, ...]:
    """Returns the members of the manifest's object that stores a value of this class, in the order of its fields.

    >>> [one.name for one in entry_members(BundleRules) if one.field.since]
    ['space', 'extents', 'compilers']
    """
    members = _ENTRIES.get(cls)
    if members is None:
        members = _ENTRIES[cls] = tuple(_entry_members(cls, ""))
    return members


def _entry_members(cls: type, path: str) -> list[EntryMember]:
    members: list[EntryMember] = []
    for member in members_of(cls):
        name, form, get = member.name, member.form, attrgetter(path + member.name)
        if name in INLINED:
            members += _entry_members(INLINED[name], f"{path}{name}.")
            continue
        if cls is Variant and name == "kernel":  # the row of the variant's source holds it
            continue
        if cls is Variant and name == "source":
            form, get = Row("sources"), attrgetter(f"{path}kernel", path + name)
        elif path:
            form = _ROWS.get(name, form)
        members.append(EntryMember(name, form, member, get))
    return members


def calls_of(kernel: BundleKernel) -> str:
    """Returns a digest (``calls/1``) of a bundle's data about a kernel's calls that all its variants share.

    The data are the parameters with their defaults, the names that configs set, the derived constexprs and the grid.
    Does not read ``kernel.variants``, so ``kernel`` may have been read without its variants.
    """
    return digest(
        "calls/1",
        {
            "signature": kernel.signature.to_json(),
            "config_names": list(kernel.config_names),
            "derived": [[name, expressions.to_json(node)] for name, node in kernel.derived],
            "grid": None if kernel.grid is None else [expressions.to_json(axis) for axis in kernel.grid],
        },
    )


def host_code(variant: BundleVariant, calls: str) -> HostCode:
    """Returns the value that a user consents to for a variant's native code: the code and everything about its calls.

    ``calls`` is the result of :func:`calls_of` for the kernel.
    """
    return variant.artifact.host_code(variant_calls(variant, calls))


def variant_calls(variant: BundleVariant, calls: str) -> JSON:
    """Returns a bundle's data about the calls of one variant; ``calls`` is the digest of :func:`calls_of`."""
    return [calls, variant.artifact.variant.config.to_json()]


def host_cases(kernel: BundleKernel, codes: Iterable[HostCode]) -> HostCases | None:
    """Returns the value that a user consents to so that ``codes``, all native code of a kernel, run on its cases.

    Returns None if the kernel has no cases or no native code.
    """
    from silo.core.consent import HostCases  # noqa: PLC0415  # launches do not run cases

    digests = tuple(code.digest for code in codes)
    return None if kernel.cases is None or not digests else HostCases(kernel.cases.sha256, digests)


def host_plans(contents: BundleContents) -> list[tuple[HostPlan, str]]:
    """Returns, for each plan that launches code for the CPU, the value that a user consents to, and the plan's name."""
    kernels = {kernel.name: kernel for kernel in contents.kernels}
    plans: list[tuple[HostPlan, str]] = []
    for plan in contents.plans:
        codes = [
            host_code(variant, calls_of(kernels[name])).digest
            for name in plan.kernels
            if name in kernels
            for variant in kernels[name].variants
            if variant.artifact.variant.target.kind == CPU_KIND
        ]
        if codes:
            plans.append((host_plan(plan, codes), plan.name))
    return plans


def host_plan(plan: RecordedPlan, codes: Iterable[str]) -> HostPlan:
    """Returns the value that a user consents to for a plan; ``codes`` are digests of all CPU code of its kernels."""
    from silo.core.consent import HostPlan  # noqa: PLC0415  # few bundles have plans

    return HostPlan(hashlib.sha256(canonical_json(plan.to_json())).hexdigest(), tuple(codes))


def host_text(variant: BundleVariant, code: HostCode) -> HostText | None:
    """Returns the value that a user consents to for the C text of ``code``, a variant's native code.

    Returns None if the variant has no C text.
    """
    from silo.core.consent import HostText  # noqa: PLC0415  # only builds, exports and commands about trust need it

    text = next((ref.sha256 for ref in variant.artifact.sidecars if ref.kind == "c"), None)
    return None if text is None else HostText(text, code.digest)


def encode_documents(documents: Iterable[JSON]) -> bytes:
    r"""Returns documents as canonical JSON, one per line: the form in which cases and trials are stored.

    >>> encode_documents([{"n": 1}, {"n": 2}])
    b'{"n":1}\n{"n":2}\n'
    """
    return b"".join(canonical_json(document) + b"\n" for document in documents)


def parse_document(text: bytes, budget: int = PARSE_BUDGET) -> JSON:
    """Parses JSON from a file.

    Raises ``ValueError`` for floats, repeated keys, strings that UTF-8 cannot hold, and text that would take more than
    ``budget`` bytes of memory.
    """
    document = parse_json(text, budget)
    if b"\\u" in text and re.search(rb"\\u[dD][89a-fA-F]", text):
        try:
            # raises for a lone surrogate, which would fail later, when it is printed or hashed
            canonical_json(document)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None
    return document


def decode_document(line: bytes, budget: int = PARSE_BUDGET) -> JSON:
    r"""Returns the document of one line that :func:`encode_documents` wrote, newline included. Raises ``ValueError``.

    >>> decode_document(b'{"n":1}\n')
    {'n': 1}
    """
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    return parse_document(line[:-1], budget)
