"""Reading a manifest: what is needed to open a bundle at once, each kernel when it is asked for.

Values that many variants share (signatures, specializations, configs, launch info, ...) stand once in tables and are
referred to by index.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.checks import Checker, read_launch
from silo.bundle.codec import believed
from silo.bundle.contents import (
    Basis,
    BundleContents,
    BundleKernel,
    BundleRules,
    BundleVariant,
    VariantGroup,
    parse_document,
)
from silo.bundle.format import (
    ATTACHMENTS_MINOR,
    CASES_KIND,
    CODECS,
    DOCUMENT_KINDS,
    EXPANDED_SHARE,
    FILE_KIND,
    HEADER_BYTES,
    KERNEL_ADDED,
    MAJOR,
    MANIFEST_SHARE,
    MAX_ATTACHMENTS,
    MAX_BLOB_BYTES,
    MAX_BLOBS,
    MAX_KERNELS,
    MAX_RATIO,
    MAX_RULES,
    MAX_SIDECARS,
    MAX_VARIANTS,
    RULES_ADDED,
    TOP_ADDED,
    TRIALS_KIND,
    VARIANT_ADDED,
    Header,
    aligned,
    require_minor,
    version_of_extents,
    version_of_specialization,
)
from silo.bundle.tables import Table
from silo.core import nodes
from silo.core.config import Config
from silo.core.dispatch import DispatchRules
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_blob_kind
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON, canonical_json
from silo.core.variant import Variant
from silo.errors import BundleFormatError
from silo.frozen import frozen, replace
from silo.settings import how_to_raise

if TYPE_CHECKING:
    from silo.core.extents import ArrayExtents

__all__ = ["TABLES", "BlobEntry", "Manifest"]

T = TypeVar("T")

_BlobRow: TypeAlias = tuple[str, str, int, str, int, int]  # the fields of a BlobEntry

TABLES = ("compilers", "configs", "launches", "reasons", "signatures", "sources", "specializations", "targets")

_TOP = frozenset({"blobs", "format", "kernels", "notes", "producer", "tables", "toolchain"})
_KERNEL = frozenset(
    {"cases", "config_names", "derived", "grid", "key", "name", "rules", "signature", "trials", "variants"}
)
_VARIANT = frozenset(
    {
        "basis",
        "blob",
        "compiler",
        "config",
        "job",
        "launch",
        "reason",
        "sidecars",
        "signature",
        "source",
        "specialization",
        "target",
    }
)
_RULES = frozenset({"rules", "signature", "target"})
_BASES = {basis.value: basis for basis in Basis}
_HEX = "0123456789abcdef"
_IDENTITY = operator.itemgetter("source", "signature", "specialization", "config", "target", "compiler")


@frozen
class BlobEntry:
    """One blob of the file: sha256 and size of the raw bytes, and where and how they are stored."""

    sha256: str
    kind: str
    raw_bytes: int
    codec: str
    offset: int
    stored_bytes: int

    @property
    def ref(self) -> BlobRef:
        """The blob by content."""
        return BlobRef(self.sha256, self.kind, self.raw_bytes)

    def to_json(self) -> JSON:
        """Its row in the manifest."""
        return [self.sha256, self.kind, self.raw_bytes, self.codec, self.offset, self.stored_bytes]


class Manifest:
    """A parsed manifest. The constructor checks what every reader relies on; the rest is checked when it is used.

    :meth:`kernel` reads a kernel with all its variants; ``Bundle.open_kernel`` each variant when it is asked for.
    ``allowed`` is how many bytes of memory reading the file may take.
    """

    def __init__(self, text: bytes, header: Header, *, file: str, allowed: int) -> None:
        self._check = check = Checker(file, header.manifest_offset)
        self._allowed = allowed
        self._minor = header.minor if header.major == MAJOR else 0
        # Also keeps json from taking the bytes for UTF-16 or UTF-32.
        if not text.startswith(b'{"'):
            raise check.error("manifest", "the manifest is no JSON object")
        try:
            data = parse_document(text, allowed // MANIFEST_SHARE)
        except ValueError as error:
            raise check.error("manifest", f"the manifest is not canonical JSON: {error}") from None
        top = check.members(data, "manifest", _TOP, TOP_ADDED[self._minor])
        if canonical_json(top["format"]) != canonical_json([header.major, header.minor]):
            raise check.error(
                "format", f"the manifest says {top['format']!r}, the header {header.major}.{header.minor}"
            )
        self.producer = check.texts(top["producer"], "producer")
        self.toolchain = check.texts(top["toolchain"], "toolchain")
        self.notes = check.texts(top["notes"], "notes")
        self._blobs = self._check_blobs(check.items(top["blobs"], "blobs", MAX_BLOBS), header)
        self.attachments = self._check_attachments(top["attachments"]) if "attachments" in top else {}
        tables = check.members(top["tables"], "tables", frozenset(TABLES))
        self._compilers = self._table(tables, "compilers", self._text, str)
        self._configs = self._table(tables, "configs", Config.from_json, Config.to_json)
        self._launches = self._table(tables, "launches", self._launch_from_json, LaunchInfo.to_json)
        self._reasons = self._table(tables, "reasons", self._text, str)
        self._signatures = self._table(tables, "signatures", Signature.from_json, Signature.to_json)
        self._sources = self._table(tables, "sources", self._source, list[JSON])
        self._specializations = self._table(
            tables, "specializations", self._specialization_from_json, Specialization.to_json
        )
        self._targets = self._table(tables, "targets", _target_from_json, str)
        self._of_variant: dict[str, Table[Any]] = {
            "compiler": self._compilers,
            "config": self._configs,
            "launch": self._launches,
            "reason": self._reasons,
            "signature": self._signatures,
            "source": self._sources,
            "specialization": self._specializations,
            "target": self._targets,
        }
        self._rows: dict[str, tuple[int, Mapping[str, JSON]]] = {}
        for number, row in enumerate(check.items(top["kernels"], "kernels", MAX_KERNELS)):
            members = check.members(row, f"kernels[{number}]", _KERNEL, KERNEL_ADDED[self._minor])
            name = check.name(members["name"], f"kernels[{number}].name")
            if self._rows and name <= next(reversed(self._rows)):
                raise check.error(f"kernels[{number}].name", f"kernels are not sorted, or two are called {name!r}")
            self._rows[name] = (number, members)
        self._kernels: dict[str, BundleKernel] = {}

    @cached_property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels' names, in the file's order."""
        return tuple(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def kernel(self, name: str) -> BundleKernel:
        """One kernel with all its variants; ``KeyError`` when there is none of this name."""
        if name not in self._kernels:
            number, row = self._rows[name]
            self._kernels[name] = self._parse_kernel(name, row, f"kernels[{number}]")
        return self._kernels[name]

    def rows_of(self, name: str) -> tuple[Mapping[str, JSON], list[JSON], str]:
        """A kernel's row, the rows of its variants, and its place; ``KeyError`` when there is none of this name."""
        number, row = self._rows[name]
        field = f"kernels[{number}]"
        rows = self._check.items(row["variants"], f"{field}.variants", MAX_VARIANTS)
        return row, rows, field

    def head_of(self, name: str, row: Mapping[str, JSON], field: str) -> BundleKernel:
        """A kernel without its variants."""
        return self._kernels.get(name) or self._parse_kernel_but_variants(name, row, field)

    def signature_row(self, index: JSON) -> JSON:
        """A row of the table of signatures as it stands there; None where there is none."""
        return self._signatures.raw(index)

    def exact(self, rows: list[JSON], wanted: Variant) -> int | None:
        """The first of these variants that was compiled for just this; none of them is checked for it."""
        from silo.bundle.exact import WrittenVariant  # noqa: PLC0415  # what a recording serves

        sources = self._sources.find((wanted.kernel, wanted.source))
        targets = self._targets.find(wanted.target)
        written = WrittenVariant(wanted)
        for number, row in enumerate(rows):
            if (
                isinstance(row, dict)
                and row.get("source") in sources
                and row.get("target") in targets
                and written.has_types(self._signatures.raw(row.get("signature")))
                and written.is_in(
                    self._specializations.raw(row.get("specialization")), self._configs.raw(row.get("config"))
                )
            ):
                return number
        return None

    @cached_property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """Every blob of the file, in order."""
        return tuple(BlobEntry(*row) for row in self._blobs)

    def blob_entry(self, sha256: str) -> BlobEntry | None:
        """The first blob with these bytes, or None."""
        row = self._blobs_by_sha256.get(sha256)
        return None if row is None else BlobEntry(*row)

    @cached_property
    def _blobs_by_sha256(self) -> dict[str, _BlobRow]:
        return {row[0]: row for row in reversed(self._blobs)}

    def contents(self) -> BundleContents:
        """Everything, every table row included, checked."""
        for table in (self._compilers, self._configs, self._launches, self._reasons, self._signatures, self._sources):
            for _ in table.all():
                pass
        for table in (self._specializations, self._targets):
            for _ in table.all():
                pass
        return BundleContents(
            tuple(self.kernel(name) for name in self._rows),
            self.producer,
            self.toolchain,
            self.notes,
            tuple(self.attachments.items()),
        )

    def _table(
        self, tables: Mapping[str, JSON], name: str, decode: Callable[[JSON], T], encode: Callable[[T], JSON]
    ) -> Table[T]:
        return Table(self._check, name, tables[name], decode, encode)

    def _check_blobs(self, rows: list[JSON], header: Header) -> list[_BlobRow]:
        """The blob table: in order, back to back but for alignment, up to the manifest."""
        check = self._check
        checked: list[_BlobRow] = []
        expected, last = HEADER_BYTES, ("", "")
        for number, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != 6:
                raise check.error(f"blobs[{number}]", "a blob is a list of six")
            sha256, kind, raw, codec, offset, stored = row
            if not (isinstance(sha256, str) and len(sha256) == 64 and not sha256.strip(_HEX)):
                raise check.error(f"blobs[{number}].sha256", "not a sha256 in lower-case hex")
            is_document = kind in DOCUMENT_KINDS and (kind != FILE_KIND or self._minor >= ATTACHMENTS_MINOR)
            if not isinstance(kind, str) or not (is_document or is_blob_kind(kind)):
                raise check.error(
                    f"blobs[{number}].kind", f"unknown kind {kind!r}: no compiler that is installed here makes it"
                )
            if not isinstance(codec, str) or codec not in CODECS:
                raise check.error(f"blobs[{number}].codec", f"unknown codec {codec!r}")
            if type(raw) is not int or not 0 <= raw <= MAX_BLOB_BYTES:
                raise check.error(f"blobs[{number}].raw_bytes", f"not a size of 0 to {MAX_BLOB_BYTES} bytes: {raw!r}")
            if type(stored) is not int or not (stored == raw if codec == "raw" else 0 < stored < raw):
                raise check.error(f"blobs[{number}].stored_bytes", f"{stored!r} stored bytes for {raw} as {codec}")
            if codec == "zstd" and not believed(raw, stored):
                message = f"{raw} bytes of {stored} stored; what shrinks more than {MAX_RATIO} times is stored raw"
                raise check.error(f"blobs[{number}].raw_bytes", message)
            if type(offset) is not int or offset != expected:
                raise check.error(f"blobs[{number}].offset", f"the blob begins at {offset!r} where {expected} is next")
            if (kind, sha256) <= last:
                raise check.error(f"blobs[{number}]", "blobs are not sorted by kind and sha256, or one occurs twice")
            expected, last = aligned(offset + stored), (kind, sha256)
            checked.append((sha256, kind, raw, codec, offset, stored))
        if expected != header.manifest_offset:
            raise check.error("blobs", f"the blobs end at {expected}, the manifest begins at {header.manifest_offset}")
        return checked

    def _check_attachments(self, data: JSON) -> dict[str, BlobRef]:
        """What travels with the kernels, by name; a file without any has no such member."""
        check = self._check
        found: dict[str, BlobRef] = {}
        for number, item in enumerate(check.items(data, "attachments", MAX_ATTACHMENTS)):
            field = f"attachments[{number}]"
            if not isinstance(item, list) or len(item) != 2:
                raise check.error(field, "an attachment is a name and a blob")
            name = check.name(item[0], f"{field}[0]")
            if found and name <= next(reversed(found)):
                raise check.error(f"{field}[0]", f"attachments are not sorted, or two are called {name!r}")
            found[name] = self._blob(item[1], f"{field}[1]")
        if not found:
            raise check.error("attachments", "a list of no attachments is left out")
        return found

    def _parse_kernel(self, name: str, row: Mapping[str, JSON], field: str) -> BundleKernel:
        check = self._check
        kernel = self._parse_kernel_but_variants(name, row, field)
        variants: list[BundleVariant] = []
        seen: set[object] = set()
        length = 0
        for number, item in enumerate(check.items(row["variants"], f"{field}.variants", MAX_VARIANTS)):
            where = f"{field}.variants[{number}]"
            variants.append(self.parse_variant(item, where, kernel.signature))
            members = check.members(item, where, _VARIANT, VARIANT_ADDED[self._minor])
            length = self.expanded(length, members, where)
            # Indices are checked integers by now; equal rows of a table would slip through, `verify` finds those.
            if (identity := _IDENTITY(members)) in seen:
                raise check.error(where, "a variant occurs twice")
            seen.add(identity)
        return replace(kernel, variants=tuple(variants))

    def _parse_kernel_but_variants(self, name: str, row: Mapping[str, JSON], field: str) -> BundleKernel:
        check = self._check
        grid: tuple[nodes.Node, ...] | None = None
        if row["grid"] is not None:
            axes = check.items(row["grid"], f"{field}.grid", 3)
            if not axes:
                raise check.error(f"{field}.grid", "a grid has one to three axes")
            grid = tuple(self._expression(axis, f"{field}.grid[{i}]") for i, axis in enumerate(axes))
        key = check.names(row["key"], f"{field}.key")
        made = BundleKernel(
            name=name,
            signature=self._signatures.get(row["signature"], f"{field}.signature"),
            key=key,
            config_names=check.names(row["config_names"], f"{field}.config_names"),
            derived=self._parse_derived(row["derived"], f"{field}.derived"),
            grid=grid,
            rules=self._parse_rules(row["rules"], f"{field}.rules", key),
            cases=self._document(row["cases"], f"{field}.cases", CASES_KIND),
            trials=self._document(row["trials"], f"{field}.trials", TRIALS_KIND),
            kind=check.name(row["kind"], f"{field}.kind") if "kind" in row else "",
        )
        if "contiguous" not in row:
            return made
        contiguous = check.names(row["contiguous"], where := f"{field}.contiguous")
        if not contiguous:
            raise check.error(where, "a list of no arrays is left out")
        if strange := [name for name in contiguous if name not in made.signature.names]:
            raise check.error(where, f"it names {strange[0]}, and no such parameter")
        return replace(made, contiguous=contiguous)

    def group_variants(self, rows: list[JSON], field: str) -> tuple[VariantGroup, ...]:
        """Variants by what decides whether a call may use them, besides their configs; in order of first occurrence."""
        kinds = [row[1] for row in self._blobs]
        groups: dict[tuple[JSON, ...], list[int]] = {}
        added = VARIANT_ADDED[self._minor]
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or (row.keys() != _VARIANT and frozenset(row) - added != _VARIANT):
                raise self._variant_error(row, f"{field}[{number}]")
            blob = row["blob"]
            target, signature, facts = row["target"], row["signature"], row["specialization"]
            indices = type(target) is type(signature) is type(facts) is int
            if not indices or type(blob) is not int or not 0 <= blob < len(kinds):
                raise self._variant_error(row, f"{field}[{number}]")
            groups.setdefault((target, signature, facts, kinds[blob]), []).append(number)
        return tuple(
            VariantGroup(
                target=self._targets.get(target, f"{field}[{numbers[0]}].target"),
                blob_kind=str(kind),
                signature=self._signatures.get(signature, f"{field}[{numbers[0]}].signature"),
                specialization=self._specialization(facts, signature, f"{field}[{numbers[0]}].specialization"),
                numbers=tuple(numbers),
            )
            for (target, signature, facts, kind), numbers in groups.items()
        )

    def _specialization(self, index: JSON, signature: JSON, field: str) -> Specialization:
        """A row of the table. Its extents are parameters' extents: a launcher is made to hold them."""
        found = self._specializations.get(index, field)
        if found.extents:
            names = self._signatures.get(signature, field).names
            if strange := [name for name, _ in found.extents if name not in names]:
                raise self._check.error(field, f"it has extents of {', '.join(strange)}, and no such parameter")
        return found

    def _specialization_from_json(self, data: JSON) -> Specialization:
        specialization = Specialization.from_json(data)
        if not all(isinstance(name, str) for name, _ in (*specialization.facts, *specialization.constants)):  # pyright: ignore[reportUnnecessaryIsInstance]  # the JSON may hold anything
            raise ValueError("a parameter's name is a string")
        require_minor(self._minor, version_of_specialization(specialization), "such extents")
        return specialization

    def _launch_from_json(self, data: JSON) -> LaunchInfo:
        return read_launch(data, self._minor)

    def _variant_error(self, row: JSON, field: str) -> BundleFormatError:
        """What is wrong with a variant that cannot be right."""
        try:
            self.parse_variant(row, field)
        except BundleFormatError as error:
            return error
        return self._check.error(field, "not a variant")

    @cached_property
    def option_names(self) -> frozenset[str]:
        """The names of the options in the table of configs, which is not checked for it."""
        return self._configs.names("options")

    def fingerprints(self, rows: list[JSON]) -> frozenset[str]:
        """The fingerprints of the sources of these variants, which are not checked for it."""
        found = (row.get("source") for row in rows if isinstance(row, dict))
        numbers = {number for number in found if isinstance(number, int)}
        return frozenset(self._sources.get(number, "tables.sources")[1] for number in numbers)

    def config_numbers(self, config: Config) -> frozenset[int]:
        """The rows of the table of configs that hold this one."""
        return self._configs.find(config)

    def expanded(self, length: int, row: JSON, field: str) -> int:
        """``length`` and that of a checked variant's table rows: texts and keys of a kernel write them all out."""
        members = self._check.members(row, field, _VARIANT, VARIANT_ADDED[self._minor])
        for name, table in self._of_variant.items():
            length += table.length(members[name], f"{field}.{name}")
        if length > self._allowed // EXPANDED_SHARE:
            raise self._check.error(
                field,
                f"the table rows of the variants up to here are {length} characters long when written out for each "
                f"({how_to_raise(self._allowed // EXPANDED_SHARE)})",
            )
        return length

    def parse_variant(self, data: JSON, field: str, parameters: Signature | None = None) -> BundleVariant:
        """One variant, checked, also against the parameters of its kernel: calls pass them by position."""
        row = self._check.members(data, field, _VARIANT, VARIANT_ADDED[self._minor])
        check = self._check
        kernel, source = self._sources.get(row["source"], f"{field}.source")
        sidecars = check.items(row["sidecars"], f"{field}.sidecars", MAX_SIDECARS)
        basis = row["basis"]
        if not isinstance(basis, str) or basis not in _BASES:
            raise check.error(f"{field}.basis", f"unknown basis {basis!r}")
        artifact = Artifact(
            variant=Variant(
                kernel=kernel,
                source=source,
                signature=self._signatures.get(row["signature"], f"{field}.signature"),
                specialization=self._specialization(row["specialization"], row["signature"], f"{field}.specialization"),
                config=self._configs.get(row["config"], f"{field}.config"),
                target=self._targets.get(row["target"], f"{field}.target"),
            ),
            launch=self._launches.get(row["launch"], f"{field}.launch"),
            blob=self._blob(row["blob"], f"{field}.blob"),
            sidecars=tuple(self._blob(item, f"{field}.sidecars") for item in sidecars),
            compiler=self._compilers.get(row["compiler"], f"{field}.compiler"),
            job=self._text(row["job"]) if isinstance(row["job"], str) else check.text(row["job"], f"{field}.job"),
            hidden_memory=check.name(row["hidden_memory"], f"{field}.hidden_memory") if "hidden_memory" in row else "",
        )
        if parameters is not None and artifact.variant.signature.names != parameters.names:
            raise check.error(f"{field}.signature", "it has other parameters than the kernel")
        return BundleVariant(artifact, self._reasons.get(row["reason"], f"{field}.reason"), _BASES[basis])

    def _parse_rules(self, data: JSON, field: str, key: tuple[str, ...]) -> tuple[BundleRules, ...]:
        check = self._check
        found: dict[tuple[str, str, bytes], BundleRules] = {}
        length = 0
        for number, item in enumerate(check.items(data, field, MAX_RULES)):
            where = f"{field}[{number}]"
            row = check.members(item, where, _RULES, RULES_ADDED[self._minor])
            rules = BundleRules(
                target=self._targets.get(row["target"], f"{where}.target"),
                signature=self._signatures.get(row["signature"], f"{where}.signature"),
                rules=check.decoded(row["rules"], f"{where}.rules", DispatchRules.from_json, DispatchRules.to_json),
                space=check.integer(row["space"], f"{where}.space", 1, MAX_VARIANTS) if "space" in row else 0,
                extents=self._parse_extents(row["extents"], f"{where}.extents") if "extents" in row else (),
            )
            if rules.rules.key != key:
                raise check.error(f"{where}.rules.key", f"{rules.rules.key!r} where the kernel's key is {key!r}")
            length += self._signatures.length(row["signature"], f"{where}.signature")
            if length > self._allowed // EXPANDED_SHARE:
                raise check.error(where, f"the signatures of the rules up to here are {length} characters long")
            # By canonical text: defaults of 1 and True are equal for Python, and different calls.
            extents = canonical_json(row["extents"]) if "extents" in row else b""
            signature = self._signatures.digest(row["signature"], f"{where}.signature")
            if found.setdefault((str(rules.target), signature, extents), rules) is not rules:
                raise check.error(where, "two dispatch rules for one target, signature and extents")
        return tuple(found.values())

    def _parse_extents(self, data: JSON, field: str) -> tuple[tuple[str, ArrayExtents], ...]:
        from silo.core.extents import extents_from_json, extents_to_json  # noqa: PLC0415  # few kernels have any

        def decode(data: JSON) -> tuple[tuple[str, ArrayExtents], ...]:
            found = extents_from_json(data)
            require_minor(self._minor, version_of_extents(found), "such extents")
            return found

        return self._check.decoded(data, field, decode, extents_to_json)

    def _parse_derived(self, data: JSON, field: str) -> tuple[tuple[str, nodes.Node], ...]:
        found: list[tuple[str, nodes.Node]] = []
        for number, item in enumerate(self._check.items(data, field, 1 << 12)):
            pair = self._check.items(item, f"{field}[{number}]", 2)
            if len(pair) != 2:
                raise self._check.error(f"{field}[{number}]", "a derived constexpr is a name and an expression")
            name = self._check.name(pair[0], f"{field}[{number}][0]")
            found.append((name, self._expression(pair[1], f"{field}[{number}][1]")))
        if len({name for name, _ in found}) != len(found):
            raise self._check.error(field, "a name occurs twice")
        return tuple(found)

    def _expression(self, data: JSON, field: str) -> nodes.Node:
        return self._check.decoded(data, field, nodes.from_json, nodes.to_json)

    def _blob(self, index: JSON, field: str) -> BlobRef:
        sha256, kind, raw_bytes, *_ = self._blobs[self._check.integer(index, field, 0, len(self._blobs) - 1)]
        return BlobRef(sha256, kind, raw_bytes)

    def _document(self, index: JSON, field: str, kind: str) -> BlobRef | None:
        if index is None:
            return None
        ref = self._blob(index, field)
        if ref.kind != kind:
            raise self._check.error(field, f"a blob of kind {ref.kind} where {kind} is needed")
        return ref

    def _text(self, data: JSON) -> str:
        return self._check.text(data, "tables")

    def _source(self, data: JSON) -> tuple[str, str]:
        kernel, fingerprint = self._check.items(data, "tables.sources", 2)
        return self._check.name(kernel, "tables.sources"), self._check.text(fingerprint, "tables.sources")


def _target_from_json(data: JSON) -> Target:
    if not isinstance(data, str):
        raise TypeError(f"not a target: {data!r}")
    target = Target.parse(data)
    if not target.is_concrete:
        raise ValueError(f"the target {data!r} names no arch")
    return target
