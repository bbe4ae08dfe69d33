"""Folds a journal into its bundle, so that the recording is a single file again that any program can open."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import (
    Basis,
    BundleContents,
    BundleKernel,
    BundleRules,
    BundleVariant,
    encode_documents,
    rules_key,
)
from silo.bundle.reader import Bundle, open_bundle, stored_blobs
from silo.bundle.signing import Signing
from silo.bundle.update import locked_bundle, with_attachments
from silo.bundle.writer import Written, place_of_bundle, write_bundle
from silo.core.config import Config
from silo.core.dispatch import DispatchRules, bucket_of
from silo.core.signature import ParameterKind, Signature
from silo.core.values import canonical_json, same_values
from silo.core.variant import Variant
from silo.errors import BundleError
from silo.frozen import replace
from silo.kinds.triton.programs.records.archive import (
    NAMES,
    WINNERS,
    CacheFile,
    Entry,
    ForeignWinner,
    RecordedNames,
    RecordedVariant,
    TextNames,
    attachment_name,
    blobs_of,
    entry_from_json,
    file_ref,
    read_winners,
)
from silo.kinds.triton.programs.records.journal import Journal, JournalRecord, journal_of
from silo.temporary import own_folder
from silo.version import __version__

_log = logging.getLogger("silo")

__all__ = ["RECORDED", "fold", "open_folded"]

RECORDED = "recorded: "  # the prefix of the reasons of recorded variants
_SCALARS = (ParameterKind.INTEGER, ParameterKind.BOOL, ParameterKind.FLOAT)


@dataclass
class _Gathered:
    """The contents of the new bundle, except the kernels of the old one."""

    variants: dict[str, list[RecordedVariant]] = field(default_factory=dict[str, list[RecordedVariant]])
    winners: dict[tuple[str, str, str], ForeignWinner] = field(
        default_factory=dict[tuple[str, str, str], ForeignWinner]
    )
    names: dict[str, TextNames] = field(default_factory=dict[str, TextNames])
    attachments: dict[str, BlobRef] = field(default_factory=dict[str, BlobRef])
    texts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    places: dict[str, tuple[JournalRecord, Entry]] = field(default_factory=dict[str, "tuple[JournalRecord, Entry]"])

    def blob(self, sha256: str) -> bytes | None:
        """The bytes of a blob, read from the journal each time, because all blobs may not fit in memory."""
        location = self.places.get(sha256)
        if location is None:
            return self.texts.get(sha256)
        record, entry = location
        return blobs_of(entry, record.read_bytes())[sha256]


def fold(path: Path) -> Written | None:
    """Writes all records into the bundle, and removes the journal. Returns None without records.

    Several processes may call this at once. If it fails, the bundle and the journal are unchanged.

    Raises:
        BundleError: the file cannot be written, the existing file is not a bundle, or other users can access the
            journal.
    """
    target = place_of_bundle(path)
    journal = Journal(journal_of(target))
    with journal.locked():
        gathered = _gather(journal)
        if gathered is None:
            journal.remove()
            return None
        if not target.exists():
            written = _write(target, None, gathered)
        else:
            with locked_bundle(target), open_bundle(target) as bundle:
                written = _write(target, bundle, gathered)
                if notice := Signing(bundle.signed_bytes).settle(target, bundle.signed_bytes, written.header):
                    _log.warning("%s", notice)
        journal.remove()
    return written


def _gather(journal: Journal) -> _Gathered | None:
    """Reads everything from a locked journal; None if it is empty."""
    gathered, count = _Gathered(), 0

    def take(record: JournalRecord) -> None:
        nonlocal count
        count += 1
        try:
            entry = entry_from_json(record.document)
            blobs = blobs_of(entry, record.read_bytes())
        except ValueError:
            return  # the error was logged when the record was first read
        gathered.places |= dict.fromkeys(blobs, (record, entry))
        if isinstance(entry, ForeignWinner):
            gathered.winners.setdefault(entry.slot, entry)
        elif isinstance(entry, TextNames):
            gathered.names.setdefault(entry.text, entry)
        elif isinstance(entry, CacheFile):
            gathered.attachments[attachment_name(entry.key, entry.name)] = entry.ref
        else:
            gathered.variants.setdefault(entry.artifact.variant.source, []).append(entry)
            gathered.attachments |= {attachment_name(entry.key, name): ref for name, ref in entry.files}

    journal.read(take)
    return gathered if count else None


def _write(target: Path, bundle: Bundle | None, gathered: _Gathered) -> Written:
    """Writes the contents of ``bundle``, if there is one, and everything gathered to ``target``."""
    if bundle is None:
        contents = merged(BundleContents((), (("silo", __version__),)), gathered.variants, gathered.winners.values())
        return write_bundle(target, _complete(contents, gathered), gathered.blob)
    winners = {winner.slot: winner for winner in read_winners(bundle)}
    gathered.winners = {**gathered.winners, **winners}
    gathered.names |= {text: TextNames(text, names) for text, names in RecordedNames(bundle).items()}
    contents = merged(bundle.contents(), gathered.variants, gathered.winners.values())
    return write_bundle(target, _complete(contents, gathered), gathered.blob, read_stored=stored_blobs([bundle]))


def _complete(contents: BundleContents, gathered: _Gathered) -> BundleContents:
    """Returns the contents with attachments: decisions of tuners, names in kernels' texts, files of Triton's cache."""
    attachments = {**dict(contents.attachments), **gathered.attachments}
    attachments.pop(WINNERS, None)
    attachments.pop(NAMES, None)
    rows = {
        WINNERS: [winner.to_json() for _, winner in sorted(gathered.winners.items())],
        NAMES: [names.to_json() for _, names in sorted(gathered.names.items())],
    }
    for name, documents in rows.items():
        if documents:
            texts = encode_documents(documents)
            attachments[name] = ref = file_ref(texts)
            gathered.texts[ref.sha256] = texts
    return with_attachments(contents, attachments)


def merged(
    contents: BundleContents, recorded: Mapping[str, Sequence[RecordedVariant]], winners: Iterable[ForeignWinner]
) -> BundleContents:
    """The contents of a bundle, with recorded variants and decisions added to their kernels. A pure function.

    ``recorded`` holds the variants by the fingerprint of their source.
    """
    winners_by_kernel: dict[str, list[ForeignWinner]] = {}
    for winner in winners:
        winners_by_kernel.setdefault(winner.source, []).append(winner)
    kernels = {_source_of(kernel): kernel for kernel in contents.kernels}
    for source, variants in recorded.items():
        kernels[source] = _merged_kernel(kernels.get(source), variants)
    tuned = tuple(_with_winners(kernel, winners_by_kernel.get(source, [])) for source, kernel in kernels.items())
    return replace(contents, kernels=_named(tuned))


def _source_of(kernel: BundleKernel) -> str:
    """The fingerprint of a kernel's source; for a kernel without variants, its name instead."""
    return kernel.variants[0].artifact.variant.source if kernel.variants else kernel.name


def _merged_kernel(kernel: BundleKernel | None, recorded: Sequence[RecordedVariant]) -> BundleKernel:
    first = recorded[0]
    if kernel is None:
        kernel = BundleKernel(first.artifact.variant.kernel, first.signature)
    own_variants = [variant for variant in kernel.variants if not variant.reason.startswith(RECORDED)]
    recorded_variants = {_key(variant): variant for variant in kernel.variants if variant.reason.startswith(RECORDED)}
    for recorded_variant in recorded:
        bundle_variant = BundleVariant(recorded_variant.artifact, RECORDED + recorded_variant.reason)
        recorded_variants.setdefault(_key(bundle_variant), bundle_variant)
    return replace(kernel, variants=(*own_variants, *(recorded_variants[key] for key in sorted(recorded_variants))))


def _key(variant: BundleVariant) -> str:
    """A key that is equal for variants which differ only in whether the call or the config set a constexpr."""
    artifact = variant.artifact
    return _freed(artifact.variant).artifact_key(artifact.compiler)


def _freed(variant: Variant) -> Variant:
    """Returns the variant with all constexprs in its specialization, as it was when it was recorded."""
    constants = {**dict(variant.config.values), **variant.specialization.constant_values}
    return replace(
        variant,
        specialization=variant.specialization.with_constants(constants),
        config=Config((), variant.config.options),
    )


def _with_winners(kernel: BundleKernel, winners: Sequence[ForeignWinner]) -> BundleKernel:
    """The kernel with its decisions: constexprs that tuners decide move to configs, and dispatch rules are added.

    Constexprs that no tuner decides stay in the specialization of the call.
    """
    if not winners or not _is_recorded(kernel):
        return kernel
    tuned = {name for winner in winners for name, _ in winner.config.values}
    variants = tuple(replace(variant, artifact=_tuned(variant.artifact, tuned)) for variant in kernel.variants)
    options = {name for winner in winners for name, _ in winner.config.options}
    names = _key_names(kernel.signature, variants, winners)
    groups: dict[bytes, list[BundleVariant]] = {}
    for bundle_variant in variants:
        variant = bundle_variant.artifact.variant
        group_key = [str(variant.target), variant.signature.without_effects().to_json()]
        groups.setdefault(canonical_json(group_key), []).append(bundle_variant)
    rules = tuple(
        group_rules for group in groups.values() if (group_rules := _rules(group, names, winners)) is not None
    )
    configs = {group_rules.rules.fallback for group_rules in rules}
    marked = tuple(
        replace(variant, basis=Basis.MEASURED) if variant.artifact.variant.config in configs else variant
        for variant in variants
    )
    return replace(
        kernel, variants=marked, rules=rules, key=names if rules else (), config_names=tuple(sorted(tuned | options))
    )


def _tuned(artifact: Artifact, names: set[str]) -> Artifact:
    variant = _freed(artifact.variant)
    constants = variant.specialization.constant_values
    values = tuple((name, value) for name, value in constants.items() if name in names)
    other_constants = {name: value for name, value in constants.items() if name not in names}
    config = Config(values, variant.config.options)
    tuned = replace(variant, specialization=variant.specialization.with_constants(other_constants), config=config)
    return replace(artifact, variant=tuned)


def _key_names(
    signature: Signature, variants: Sequence[BundleVariant], winners: Sequence[ForeignWinner]
) -> tuple[str, ...]:
    """The names of the key's arguments; () unless all decisions have the same names and each is passed as a number.

    With () the first decision serves all calls.
    """
    name_sets = {winner.names for winner in winners}
    if len(name_sets) != 1:
        return ()
    names = next(iter(name_sets))
    plain = all(
        variant.artifact.variant.signature[name].kind in _SCALARS
        for variant in variants
        for name in names
        if name in signature.names
    )
    return names if plain and all(name in signature.names for name in names) else ()


def _rules(
    group: Sequence[BundleVariant], names: tuple[str, ...], winners: Sequence[ForeignWinner]
) -> BundleRules | None:
    """Dispatch rules for one target and signature, from those decisions whose config a variant of ``group`` has.

    None if no variant of ``group`` has a decided config.
    """
    target, signature, extents = rules_key(group[0].artifact.variant)
    configs = {canonical_json(item.artifact.variant.config.to_json()): item.artifact.variant.config for item in group}
    table: dict[bytes, tuple[tuple[object, ...], Config]] = {}
    for winner in winners:
        config = next((item for item in configs.values() if _agrees(item, winner.config)), None)
        if config is None or winner.target != target:
            continue
        bucket = bucket_of(winner.key[: len(names)])
        table.setdefault(canonical_json([str(bucket)]), (bucket, config))
    if not table:
        return None
    entries = list(table.values())
    rules = DispatchRules(names, tuple(entries) if names else (), entries[0][1])  # pyright: ignore[reportArgumentType]
    return BundleRules(target, signature, rules, extents=extents)


def _agrees(config: Config, wanted: Config) -> bool:
    return same_values(wanted.as_dict(), config.as_dict())


def _named(kernels: Sequence[BundleKernel]) -> tuple[BundleKernel, ...]:
    """Gives each kernel a unique name.

    If several have one name, recorded kernels get a part of their fingerprint added.
    """
    own_names = {kernel.name for kernel in kernels if not _is_recorded(kernel)}
    counts: dict[str, int] = {}
    for kernel in kernels:
        if _is_recorded(kernel):
            name = kernel.variants[0].artifact.variant.kernel
            counts[name] = counts.get(name, 0) + 1
    named_kernels: list[BundleKernel] = []
    for kernel in kernels:
        if _is_recorded(kernel):
            name = kernel.variants[0].artifact.variant.kernel
            alone = counts[name] == 1 and name not in own_names
            kernel = replace(kernel, name=name if alone else f"{name}@{_source_of(kernel)[:12]}")  # noqa: PLW2901
        named_kernels.append(kernel)
    return tuple(named_kernels)


def _is_recorded(kernel: BundleKernel) -> bool:
    return bool(kernel.variants) and all(variant.reason.startswith(RECORDED) for variant in kernel.variants)


def open_folded(path: Path) -> Bundle:
    """Opens a bundle together with everything recorded into it, without writing beside it.

    A journal beside it is merged into a private copy of the bundle. If other users can access the journal, it is left
    out, and that is logged.

    Raises:
        BundleError: the bundle cannot be read.
    """
    target = Path(os.path.realpath(path))
    journal = Journal(journal_of(target))
    with contextlib.ExitStack() as stack:
        try:
            has_journal = stack.enter_context(journal.shared())
        except BundleError as error:
            _log.warning("%s serves without what was recorded into it since: %s", path, error)
            has_journal = False
        gathered = _gather(journal) if has_journal else None
        if gathered is None:
            return open_bundle(path)
        copy = Path(stack.enter_context(own_folder("silo-folded-")), target.name)
        if target.exists():
            with open_bundle(target) as bundle:
                _write(copy, bundle, gathered)
        else:
            _write(copy, None, gathered)
        return open_bundle(copy)  # the file stays mapped after its name is removed
