"""``silo slice`` and ``silo merge``: cut bundles by target, and join bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from silo.bundle.bundle_slices import Slice, cut_slice, join_slices, targets_of
from silo.bundle.contents import BundleContents, calls_of, host_cases, host_code, host_plans
from silo.bundle.reader import Bundle, open_bundle, stored_blobs
from silo.bundle.signing import header_of, settle_signature
from silo.bundle.writer import Written, write_bundle
from silo.core.consent import HostCases, HostPlan
from silo.core.device import Target
from silo.errors import BundleError
from silo.machine.process_session import session
from silo.sanitized_text import file_name
from silo.store.signatures import SecretKey

__all__ = ["MergeSummary", "SliceSummary", "merge_bundles", "slice_bundle", "slice_by_target"]


@dataclass(frozen=True, slots=True)
class SliceSummary:
    """A slice that was written: its file, targets, identity and size in bytes, and the state of its signature."""

    path: str
    targets: tuple[str, ...]
    identity: str
    size_bytes: int
    signature: str = ""


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """The bundle that a merge wrote.

    ``of`` is the identity of the bundle that the parts were cut from, "" if they are not slices of one bundle.
    ``whole`` is True if the written bundle equals that bundle byte for byte. ``remarks`` has a line for each bucket
    whose config was taken from a part other than the first, because trials show that it is faster.
    """

    path: str
    targets: tuple[str, ...]
    identity: str
    size_bytes: int
    whole: bool
    of: str
    signature: str = ""
    remarks: tuple[str, ...] = ()


def slice_bundle(path: Path, targets: Sequence[str], output: Path, *, key: SecretKey | None = None) -> SliceSummary:
    """Writes a bundle's code for some targets as a separate bundle, and signs it with ``key``, if given.

    Raises:
        BundleError: the bundle cannot be read, lacks code for one of the targets, or the slice cannot be written.
        TargetError: a target that does not parse.
    """
    with open_bundle(path) as bundle:
        return _cut(bundle, [Target.parse(target) for target in targets], output, key)


def slice_by_target(path: Path, folder: Path, *, key: SecretKey | None = None) -> list[SliceSummary]:
    """Writes a slice for each target of a bundle into a folder, which is created if it is missing.

    Raises:
        BundleError: the bundle cannot be read, or a slice cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"cannot make the folder {folder}: {error.strerror}") from None
    with open_bundle(path) as bundle:
        return [
            _cut(bundle, [target], folder / f"{path.stem}-{_word(target)}.silo", key)
            for target in targets_of(bundle.contents())
        ]


def merge_bundles(paths: Sequence[Path], output: Path, *, key: SecretKey | None = None) -> MergeSummary:
    """Joins slices of one bundle, or builds of one source for several targets, into one bundle, signed with ``key``.

    Code of several compilers is kept side by side. If this user consented to run each part's native code on the part's
    cases and by its plans, the consent also holds for the cases and plans of the joined bundle.

    Raises:
        BundleError: a bundle cannot be read, two bundles contradict each other on a kernel, or writing fails.
    """
    _require_name(output)
    with ExitStack() as stack:
        bundles = [stack.enter_context(open_bundle(path)) for path in paths]
        before = header_of(output)
        joined = join_slices(bundles)
        written = _write(output, joined, bundles)
        if joined.of not in ("", written.identity):
            # The slices are only a part of the original bundle, so the order of all its members is written into the
            # joined bundle. A later merge with the other slices needs it.
            joined = join_slices(bundles, noted=True)
            written = _write(output, joined, bundles)
        _keep_consent([bundle.contents() for bundle in bundles], joined.contents)
        return MergeSummary(
            str(output),
            tuple(map(str, targets_of(joined.contents))),
            written.identity,
            written.size_bytes,
            written.identity == joined.of,
            joined.of,
            settle_signature(output, before, written.header, key),
            joined.remarks,
        )


def _keep_consent(parts: Sequence[BundleContents], joined: BundleContents) -> None:
    """Records consent to cases or plans of a joined bundle if the user consented to them in every part.

    Consent to cases covers all native code of a kernel together, and each part has only some of that code. Consent to
    the code itself does not change.
    """
    trust = session().store.trust
    subjects: dict[tuple[str, str], list[HostCases | HostPlan]] = {}
    for contents in parts:
        for key, subject in _subjects(contents):
            subjects.setdefault(key, []).append(subject)
    for key, subject in _subjects(joined):
        if len(subjects[key]) > 1 and all(map(trust.decide, subjects[key])) and not trust.decide(subject):
            trust.note_built(subject)


def _subjects(contents: BundleContents) -> Iterator[tuple[tuple[str, str], HostCases | HostPlan]]:
    """Yields the cases and plans of a bundle whose native code needs consent, each in a pair after its (kind, name)."""
    for kernel in contents.kernels:
        calls = calls_of(kernel)
        codes = [host_code(variant, calls) for variant in kernel.variants if variant.artifact.runs_on_host]
        cases = host_cases(kernel, codes)
        if cases is not None:
            yield ("cases", kernel.name), cases
    for plan, name in host_plans(contents):
        yield ("plan", name), plan


def _word(target: Target) -> str:
    return file_name(str(target).replace(":", "-"))


def _cut(bundle: Bundle, targets: Sequence[Target], output: Path, key: SecretKey | None) -> SliceSummary:
    _require_name(output)
    cut = cut_slice(bundle, targets)
    before = header_of(output)
    written = _write(output, cut, [bundle])
    return SliceSummary(
        str(output),
        tuple(map(str, targets_of(cut.contents))),
        written.identity,
        written.size_bytes,
        settle_signature(output, before, written.header, key),
    )


def _write(output: Path, contents: Slice, bundles: Sequence[Bundle]) -> Written:
    """Writes a bundle, and copies its blobs from other bundles as they are stored there, compressed or not."""
    return write_bundle(output, contents.contents, contents.documents.get, read_stored=stored_blobs(bundles))


def _require_name(output: Path) -> None:
    if output.suffix != ".silo":
        raise BundleError(f"{output}: a bundle's name ends in .silo; write for example -o {output.stem or 'part'}.silo")
