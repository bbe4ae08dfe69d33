"""Opens a bundle: maps the file, verifies its manifest at once, and each blob at its first use. Executes nothing.

The native module reads the file, as it does for programs in C. It checks each kernel, variant and table row at the
first reading, and returns parsed JSON, from which :class:`Manifest` makes values of :mod:`silo.core`. Variants share
the rows of tables that they refer to.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import (
    INLINED,
    TABLES,
    Blob,
    BlobEntry,
    Blobs,
    BundleContents,
    BundleKernel,
    BundleVariant,
    CallHead,
    Entries,
    PackedCode,
    Row,
    Rows,
    VariantCode,
    VariantGroup,
    decode_document,
    entry_members,
)
from silo.bundle.format import (
    CASES_KIND,
    DOCUMENTS_SHARE,
    ITEM_BYTES,
    TEXT_SHARE,
    TRIALS_KIND,
    Header,
    pack_header,
)
from silo.core.values import JSON, Value, canonical_json, identity_of, value_from_json, value_to_json
from silo.core.variant import Variant
from silo.errors import BundleError, BundleFormatError, native_missing
from silo.frozen import names_of
from silo.settings import allowance, how_to_raise, settings

try:
    from silo._native import OpenBundle, bind_variant, decide_variants, held, rank_variants, set_codec
except ImportError as error:
    raise native_missing(error) from error

if TYPE_CHECKING:
    from silo._native import Binding, LoadedKernel, RawChoiceCall, RawPlace
    from silo.bundle.checks import Checker
    from silo.core.protocols import Device
    from silo.core.recorded_plans import RecordedPlan

__all__ = [
    "Bundle",
    "Manifest",
    "OpenKernel",
    "ServedVariant",
    "open_bundle",
    "stored_blobs",
]


# ---- The manifest's parts as objects of silo.core ----


class Manifest:
    """The manifest of an open bundle. Kernels and variants are named by their indices.

    Each part is checked when it is read: each method raises ``BundleFormatError``, which names the field.
    """

    def __init__(self, opened: OpenBundle) -> None:
        self._open = opened
        self._rows: dict[tuple[str, int], Any] = {}
        self._kernels: dict[str, BundleKernel] = {}

    # -- The file ------------------------------------------------------------------------------------------------------

    @cached_property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels' names, in the file's order."""
        return self._open.kernels()

    def number_of(self, name: str) -> int:
        """Returns the index of a kernel; -1 if no kernel has this name."""
        return self._open.find_kernel(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.number_of(name) >= 0

    @cached_property
    def producer(self) -> tuple[tuple[str, str], ...]:
        """Names and versions of the programs that wrote the file, sorted."""
        return self._texts("producer")

    @cached_property
    def toolchain(self) -> tuple[tuple[str, str], ...]:
        """Names and versions of the compilers, sorted."""
        return self._texts("toolchain")

    @cached_property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """Free text by name, sorted."""
        return self._texts("notes")

    @cached_property
    def attachments(self) -> Mapping[str, BlobRef]:
        """The files that are stored beside the kernels, by name."""
        rows = cast("list[tuple[str, int]]", self._open.member("attachments") or [])
        return _NamedBlobs(dict(rows), self._blob)

    @cached_property
    def plans(self) -> Mapping[str, RecordedPlan]:
        """The plans by name."""
        rows = cast("list[JSON]", self._open.member("plans") or [])
        if not rows:
            return {}
        from silo.core.recorded_plans import RecordedPlan  # noqa: PLC0415  # most bundles have no plans

        return {plan.name: plan for plan in map(RecordedPlan.from_json, rows)}

    @cached_property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """Every blob of the file, in order."""
        return tuple(BlobEntry(*row) for row in self._open.blobs())

    def contents(self) -> BundleContents:
        """Returns the whole contents. Checks every part, including every table row."""
        self._open.check()
        return BundleContents(
            tuple(self.kernel(name) for name in self.kernel_names),
            self.producer,
            self.toolchain,
            self.notes,
            tuple(self.attachments.items()),
            tuple(self.plans.values()),
        )

    # -- Kernels -------------------------------------------------------------------------------------------------------

    def kernel(self, name: str) -> BundleKernel:
        """Returns one kernel with all its variants. Raises ``KeyError`` if no kernel has this name."""
        kernel = self._kernels.get(name)
        if kernel is None:
            if (number := self.number_of(name)) < 0:
                raise KeyError(name)
            self._open.check(number)
            variants = tuple(self.variant(number, variant_number) for variant_number in range(self._open.count(number)))
            values: dict[str, Any] = self._values(BundleKernel, {**self._open.kernel(number), "variants": ()})
            values["variants"] = variants
            kernel = self._kernels[name] = BundleKernel(**values)
        return kernel

    def head(self, kernel: int) -> BundleKernel:
        """Returns a kernel without its variants and its dispatch rules."""
        row: dict[str, Any] = {**self._open.kernel(kernel), "variants": (), "rules": ()}
        return BundleKernel(**self._values(BundleKernel, row))

    def call_head(self, kernel: int) -> CallHead:
        """Returns the part of a kernel that is needed to decode the arguments of its calls."""
        row: dict[str, Any] = self._open.kernel(kernel)
        return CallHead(
            row["name"],
            self.row("signatures", row["signature"]),
            tuple(row["key"]),
            tuple(row["config_names"]),
            tuple(name for name, _ in row["derived"]),
            tuple(row.get("contiguous", ())),
        )

    def packed(self, kernel: int, number: int) -> PackedCode:
        """Returns the values that are needed to load and call a variant."""
        row: dict[str, Any] = self._open.variant(kernel, number)
        config: Any = self._open.row("configs", row["config"])
        constants: Any = self._open.row("specializations", row["specialization"])
        values = (*constants.get("constants", ()), *config["values"].items(), *config["options"].items())
        source: Any = self._open.row("sources", row["source"])
        return PackedCode(
            source[0],
            self.row("launches", row["launch"]),
            self._blob(row["blob"]),
            str(self._open.row("targets", row["target"])),
            self._open.config_text(kernel, number),
            tuple((name, value_from_json(value)) for name, value in values),
        )

    def variant(self, kernel: int, number: int) -> BundleVariant:
        """Returns one variant of a kernel."""
        values = self._values(BundleVariant, self._open.variant(kernel, number))
        values["kernel"], values["source"] = values["source"]
        return _built(BundleVariant, values)

    def code(self, kernel: int) -> tuple[VariantCode, ...]:
        """Returns a kernel's variants, grouped by target and kind of blob, in order of first occurrence."""
        numbers_by_code: dict[tuple[int, str], list[int]] = {}
        for target, kind, _, _, numbers in self._open.groups(kernel):
            numbers_by_code.setdefault((target, kind), []).extend(numbers)
        return tuple(
            VariantCode(self.row("targets", target), kind, tuple(numbers))
            for (target, kind), numbers in numbers_by_code.items()
        )

    def groups(self, kernel: int, constants: Mapping[str, Value] | None = None) -> Iterator[VariantGroup]:
        """Groups variants by the facts that decide whether a call may use them, in order of first occurrence.

        Configs are not among the facts. ``constants`` are the constants of a call: groups that were compiled for other
        constants are left out without reading the rest of them. If ``constants`` is None, no group is left out.
        """
        identities = (
            None
            if constants is None
            else {name: identity_of(value_to_json(value)) for name, value in constants.items()}
        )
        for target, kind, signature, specialization, numbers in self._open.groups(kernel):
            if identities is None or all(
                name in identities and identities[name] == constant
                for name, constant in self._constants(specialization)
            ):
                yield VariantGroup(
                    target=self.row("targets", target),
                    blob_kind=kind,
                    signature=self.row("signatures", signature),
                    specialization=self.row("specializations", specialization),
                    numbers=numbers,
                )

    def _constants(self, specialization: int) -> tuple[tuple[str, object], ...]:
        """Returns the constants of a specialization, as names and hashable identities of their JSON values.

        The identities of 1 and True differ.
        """
        constants = self._rows.get(("constants", specialization))
        if constants is None:
            row: Any = self._open.row("specializations", specialization)
            try:
                constants = tuple([(name, identity_of(value)) for name, value in row.get("constants", ())])
            except (AttributeError, TypeError, ValueError):
                constants = ()  # the row is malformed; reading all of it later raises the error
            self._rows["constants", specialization] = constants
        return constants

    def exact(self, kernel: int, wanted: Variant) -> int | None:
        """Returns the index of the first variant that was compiled for exactly ``wanted``; None if no variant was.

        Compares the variants as they are stored, without checking them.
        """
        specialization = wanted.specialization
        if specialization.made_for_some:
            return None
        constants = {**dict(wanted.config.values), **specialization.constant_values}
        text = canonical_json(
            {
                "source": [wanted.kernel, wanted.source],
                "target": str(wanted.target),
                "types": [
                    [parameter.name, parameter.kind.value, None if parameter.dtype is None else parameter.dtype.name]
                    for parameter in wanted.signature.parameters
                ],
                "facts": [[name, fact.value] for name, fact in specialization.facts],
                "constants": {name: value_to_json(value) for name, value in constants.items()},
                "options": {name: value_to_json(value) for name, value in wanted.config.options},
            }
        )
        number = self._open.exact(kernel, text)
        return None if number < 0 else number

    # -- Rows ----------------------------------------------------------------------------------------------------------

    def row(self, table: str, number: int) -> Any:  # noqa: ANN401  # the table decides the type of its rows
        """Returns a row of a table as a value. The value is made at the first call and kept."""
        cached_row = self._rows.get((table, number))
        if cached_row is None:
            cached_row = self._rows[table, number] = TABLES[table].read(self._open.row(table, number), table)  # pyright: ignore[reportArgumentType]  # JSON
        return cached_row

    def _values(self, cls: type, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of an object's members by name, including defaults."""
        return {
            name: self._value(form, row[name], name) if name in row else field.default
            for name, form, field, _ in entry_members(cls)
        }

    def _value(self, form: Any, data: Any, name: str) -> Any:  # noqa: ANN401  # the form decides the type
        match form:
            case Row(table):
                return self.row(table, data)
            case Rows(table):
                return tuple(self.row(table, item) for item in data)
            case Blob():
                return None if data is None else self._blob(data)
            case Blobs():
                return tuple(self._blob(item) for item in data)
            case Entries(cls):
                return tuple(cls(**self._values(cls, item)) for item in data)
            case _:
                return form.read(data, name)

    def _blob(self, number: int) -> BlobRef:
        sha256, kind, raw_bytes, *_ = self._open.blob(number)
        return BlobRef(sha256, kind, raw_bytes)

    def _texts(self, member: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(cast("dict[str, str]", self._open.member(member)).items()))


class _NamedBlobs(Mapping[str, BlobRef]):
    """Blobs by name, each read when it is first used, because the bundle of a recording has thousands of them."""

    def __init__(self, numbers: dict[str, int], read: Callable[[int], BlobRef]) -> None:
        self._numbers = numbers
        self._read = read

    def __getitem__(self, name: str) -> BlobRef:
        return self._read(self._numbers[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def _built(cls: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # an object of the class ``cls``
    """Makes an object of class ``cls`` with these values.

    The manifest stores the members of some fields' objects among the members of their owner, so these objects are made
    from the same ``values``.
    """
    return cls(*[_built(INLINED[name], values) if name in INLINED else values[name] for name in names_of(cls)])


# ---- Open kernels and bundles ----


class OpenKernel:
    """A kernel of an open bundle, as launches use it.

    A variant is checked when a call may use it, the head (everything but variants and dispatch rules) when it is read.
    """

    def __init__(self, opened: OpenBundle, manifest: Manifest, number: int) -> None:
        self._open = opened
        self._manifest = manifest
        self._number = number
        self._count = opened.count(number)
        self._read: dict[int, BundleVariant] = {}

    @cached_property
    def call_head(self) -> CallHead:
        """The part of the kernel that is needed to decode the arguments of its calls."""
        return self._manifest.call_head(self._number)

    @cached_property
    def head(self) -> BundleKernel:
        """The kernel without its variants and dispatch rules.

        The native module itself reads the variants and rules that a call needs.
        """
        return self._manifest.head(self._number)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> BundleVariant:
        cached_variant = self._read.get(number)
        if cached_variant is None:
            cached_variant = self._read[number] = self._manifest.variant(self._number, number)
        return cached_variant

    def packed(self, number: int) -> PackedCode:
        """Returns the values that are needed to load and call a variant."""
        return self._manifest.packed(self._number, number)

    def blob(self, sha256: str) -> bytes:
        """Returns the verified bytes of a blob of the bundle."""
        return self._open.read(self._open.find_blob(sha256))

    def host_digest(self, number: int) -> str:
        """Returns the digest of the :class:`silo.core.consent.HostCode` of a variant."""
        return self._open.host_digest(self._number, number)

    def bind(self, number: int, loaded: LoadedKernel, code: PackedCode, device: Device) -> Binding:
        """Makes the binding that serves calls by a variant; its ``tag`` is a :class:`ServedVariant`.

        Args:
            number: the index of the variant.
            loaded: the variant's code, as the device loaded it.
            code: the result of :meth:`packed`.
            device: the device that the variant runs on; the grid may read its facts.

        Raises:
            BundleFormatError: the variant has other parameters than the kernel.
            DeviceError: the code has a parameter that cannot be passed.
            ExpressionError: the grid reads a name that is no argument, config value or fact of the device.
        """
        facts = dict(device.facts())
        served = ServedVariant(self, number)
        target = str(device.target)
        return bind_variant(self._open, self._number, number, loaded, dict(code.values), target, facts, served)

    def exact(self, wanted: Variant) -> BundleVariant | None:
        """Returns the first variant that was compiled for exactly ``wanted``, or None. Reads no other variant."""
        number = self._manifest.exact(self._number, wanted)
        return None if number is None else self[number]

    def groups(self, constants: Mapping[str, Value] | None = None) -> Iterator[VariantGroup]:
        """Groups the kernel's variants, without groups that were compiled for other constants than ``constants``."""
        return self._manifest.groups(self._number, constants)

    @property
    def sources(self) -> frozenset[str]:
        """The fingerprints of the sources of the kernel's variants, found without reading the variants."""
        return self._open.sources(self._number)

    @property
    def option_names(self) -> frozenset[str]:
        """The names of the options in the configs of all kernels of the bundle."""
        return self._open.names("configs", "options")

    @cached_property
    def code(self) -> tuple[VariantCode, ...]:
        """The kernel's variants, grouped by target and kind of blob. Their specializations are not read."""
        return self._manifest.code(self._number)

    def held(self) -> tuple[bytes, bytes, bool]:
        """Returns the parts of the guard: flags and extents of each parameter, and whether the grid is compared.

        :mod:`silo.launch.arguments` describes the encoding of the flags and of the extents.
        """
        return held(self._open, self._number)

    def rank(self, call: RawChoiceCall, place: RawPlace, most: int) -> tuple[int, ...]:
        """Returns the indices of the variants that serve a call, best first, at most ``most``.

        ``call`` and ``place`` (the device) are encodings that ``silo.launch.arguments`` makes.
        """
        return rank_variants(self._open, self._number, call, place, most)

    def decide(self, call: RawChoiceCall, place: RawPlace) -> tuple[tuple[bool, str, str], ...]:
        """Returns for each variant whether it serves a call, the variant in one line, and the reason."""
        return decide_variants(self._open, self._number, call, place)


class ServedVariant:
    """The variant of a binding, which is read when its artifact is first used."""

    __slots__ = ("_kernel", "_number")

    def __init__(self, kernel: OpenKernel, number: int) -> None:
        self._kernel = kernel
        self._number = number

    @property
    def artifact(self) -> Artifact:
        """The compiled variant."""
        return self._kernel[self._number].artifact

    def blob(self, sha256: str) -> bytes:
        """Returns the verified bytes of a blob of the bundle."""
        return self._kernel.blob(sha256)


class Bundle:
    """An open bundle. Made by :func:`open_bundle` or :meth:`from_bytes`; any thread may use it.

    ``header`` and ``manifest`` are verified; kernels are parsed and blobs verified at their first use.
    """

    def __init__(self, opened: OpenBundle, name: str) -> None:
        self.name = name
        self._open = opened
        self._view = memoryview(opened)
        self._allowed = allowance(opened.size)
        self.header = Header(*opened.header)
        self.manifest = Manifest(opened)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "bundle") -> Bundle:
        """Opens a bundle in memory; ``name`` is used in messages."""
        return cls(OpenBundle(data, os.fsencode(name), _file_memory(), _words), name)

    @cached_property
    def manifest_text(self) -> bytes:
        """The text of the manifest, decompressed and verified."""
        return self._open.text()

    @property
    def identity(self) -> str:
        """The SHA-256 of the stored manifest, which names every blob."""
        return self.header.manifest_sha256.hex()

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that a signature covers: the 64 bytes of the header as it was read, even if the file changes later.

        The header contains the hash of the manifest, which names every blob, so a signature covers everything that this
        object returns.
        """
        return pack_header(self.header)

    @property
    def size_bytes(self) -> int:
        """The size of the whole file."""
        return self._open.size

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels' names, sorted."""
        return self.manifest.kernel_names

    @property
    def blobs(self) -> tuple[BlobEntry, ...]:
        """Every blob of the file, in order."""
        return self.manifest.blobs

    @property
    def attachments(self) -> Mapping[str, BlobRef]:
        """The attachments, by name."""
        return self.manifest.attachments

    @property
    def refs(self) -> tuple[BlobRef, ...]:
        """References to all blobs of the bundle."""
        return tuple(entry.ref for entry in self.manifest.blobs)

    def kernel(self, name: str) -> BundleKernel:
        """Returns one kernel. Raises ``BundleError``, which lists the names of all kernels, if it does not exist."""
        return self.manifest.kernel(self._existing_name(name))

    def open_kernel(self, name: str) -> OpenKernel:
        """Returns one kernel, each variant of which is read at its first use.

        Raises ``BundleError``, which lists the names of all kernels, if it does not exist.
        """
        return OpenKernel(self._open, self.manifest, self.manifest.number_of(self._existing_name(name)))

    def contents(self) -> BundleContents:
        """Returns the contents, except the bytes of the blobs. Checks every part."""
        return self.manifest.contents()

    def blob(self, sha256: str) -> bytes:
        """Returns the bytes of a blob, decompressed within their stated size and verified."""
        return self._open.read(self._blob_number(sha256))

    def read(self, entry: BlobEntry) -> bytes:
        """Returns the verified bytes of one row of :attr:`blobs`."""
        return self._open.read(self._open.find_blob(entry.sha256, entry.kind))

    def verify(self, entry: BlobEntry) -> None:
        """Checks the bytes of one row of :attr:`blobs`, a piece at a time.

        Raises ``BundleFormatError`` like :meth:`read`.
        """
        from silo.bundle.codec import CodecError, digest_of  # noqa: PLC0415  # launches do not need it

        try:
            digest = digest_of(entry.codec, self.stored(entry), entry.raw_bytes)
        except CodecError as error:
            raise self._damaged(entry, str(error)) from None
        if digest != entry.sha256:
            raise self._damaged(entry, "damaged: its sha256 differs")

    def _damaged(self, entry: BlobEntry, message: str) -> BundleFormatError:
        field = f"blob {entry.kind} {entry.sha256[:16]}"
        return BundleFormatError(f"{self.name}: {message}", field=field, offset=entry.offset)

    def stored(self, entry: BlobEntry) -> memoryview:
        """Returns the stored form of a blob, without verifying it."""
        return self._view[entry.offset : entry.offset + entry.stored_bytes]

    def between(self, start: int, end: int) -> memoryview:
        """Returns the file's bytes from ``start`` up to ``end``, without verifying them."""
        return self._view[start:end]

    def cases(self, name: str) -> tuple[JSON, ...]:
        """Returns the case recipes of a kernel, in their order."""
        return tuple(document for _, document in self.documents(name, CASES_KIND))

    def trials(self, name: str) -> tuple[JSON, ...]:
        """Returns the stored trials of a kernel, in their order."""
        return tuple(document for _, document in self.documents(name, TRIALS_KIND))

    def documents(self, name: str, kind: str) -> Iterator[tuple[str, JSON]]:
        """Yields the cases or trials of a kernel, each with its field name.

        Documents are parsed one by one, because parsed documents take far more memory than their text. Raises
        ``BundleFormatError`` once the documents together exceed the memory that a reader may spend.
        """
        ref = self._document_ref(name, kind)
        if ref is None:
            return
        entry, check, items = self._entry(ref.sha256), self.checker(name, kind), 0
        if entry.raw_bytes > self._allowed // TEXT_SHARE:
            raise check.error(kind, f"{entry.raw_bytes} bytes of {kind}; {how_to_raise(self._allowed // TEXT_SHARE)}")
        for number, line in enumerate(io.BytesIO(self.read(entry))):
            field = f"{kind}[{number}]"
            items += 1 + line.count(b",")
            if items * ITEM_BYTES > self._allowed // DOCUMENTS_SHARE:
                raise check.error(field, f"{items} items of {kind} up to here; {how_to_raise(self._allowed)}")
            try:
                document = decode_document(line, self._allowed // TEXT_SHARE)
            except ValueError as error:
                raise check.error(field, f"line {number + 1}: {error}") from None
            yield field, document

    def checker(self, name: str, kind: str) -> Checker:
        """Returns a checker for the cases or trials of a kernel."""
        from silo.bundle.checks import Checker  # noqa: PLC0415  # launches do not need it

        ref = self._document_ref(name, kind)
        return Checker(f"{self.name}: {name}", self._entry(ref.sha256).offset if ref else 0)

    def _document_ref(self, name: str, kind: str) -> BlobRef | None:
        head = self.open_kernel(name).head
        return head.cases if kind == CASES_KIND else head.trials

    def close(self) -> None:
        """Unmaps the file. It stays mapped while a view from :meth:`stored` exists."""
        with contextlib.suppress(BufferError):  # raised while a caller still holds a view of the file
            self._view.release()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Bundle({self.name!r}, {len(self.kernel_names)} kernels, {self.identity[:12]})"

    def _existing_name(self, name: str) -> str:
        if name not in self.manifest:
            names = ", ".join(self.kernel_names) or "none"
            raise BundleError(f"{self.name} holds no kernel {name!r}; it holds: {names}")
        return name

    def _blob_number(self, sha256: str) -> int:
        number = self._open.find_blob(sha256)
        if number < 0:
            raise BundleError(f"{self.name} holds no blob {sha256!r}")
        return number

    def _entry(self, sha256: str) -> BlobEntry:
        return BlobEntry(*self._open.blob(self._blob_number(sha256)))


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Maps a .silo file and verifies its header and manifest.

    Raises ``BundleFormatError`` (with field and offset) for a foreign, truncated or damaged file,
    ``BundleVersionError`` for a file that a newer Silo wrote, and ``BundleError`` if the file cannot be opened.
    """
    name = os.fspath(path).rpartition("/")[2]
    try:
        opened = OpenBundle.map(path, os.fsencode(name), _file_memory(), _words)
    except BundleError as error:
        if os.path.lexists(path) or isinstance(error, BundleFormatError):
            raise
        raise type(error)(f"{error}; name a bundle that is there, or build one: silo build FILE.py -o {name}") from None
    return Bundle(opened, name)


def stored_blobs(bundles: Iterable[Bundle]) -> Callable[[BlobRef], tuple[str, bytes] | None]:
    """Makes a function for :func:`silo.bundle.writer.write_bundle` that copies blobs in their stored form.

    The function verifies a blob and returns its codec and its stored bytes, or None if none of the bundles has the
    blob.
    """
    places = {(entry.sha256, entry.kind): (bundle, entry) for bundle in bundles for entry in bundle.blobs}

    def read_stored(ref: BlobRef) -> tuple[str, bytes] | None:
        location = places.get((ref.sha256, ref.kind))
        if location is None:
            return None
        bundle, entry = location
        bundle.read(entry)
        return entry.codec, bytes(bundle.stored(entry))

    return read_stored


def _file_memory() -> int:
    """Returns the bytes of memory that reading a file may take beyond its own size.

    The result is never 0, because the native module would take 0 as a request for its default.
    """
    return max(1, settings().file_bytes)


def _words() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns names that plug-ins allow in bundles: of blob kinds, launch options, checked texts and devices.

    The native module reads these names if a file has a name that is not Silo's own.
    """
    from silo.core.plugins import installed_words  # noqa: PLC0415  # most files have no names of plug-ins

    return installed_words()


def _decompress(frame: bytes, raw_bytes: int) -> bytes:
    """Returns the bytes in a zstd frame of a bundle, for machines without libzstd."""
    from silo.bundle.codec import decompress  # noqa: PLC0415  # most machines have libzstd

    return decompress(frame, raw_bytes)


set_codec(_decompress)
