"""``silo slice`` and ``silo merge``: bundles cut by target, and joined again."""

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
    """A slice that was written: its file, targets, identity, size, and the state of its signature."""

    path: str
    targets: tuple[str, ...]
    identity: str
    size_bytes: int
    signature: str = ""


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """A bundle that was joined.

    ``whole`` is True if it equals, byte for byte, the bundle that the slices were cut from. ``of`` is the identity of
    that bundle, "" if they are not slices of one bundle. ``remarks`` name the buckets that trials of a later bundle
    decided.
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
    """Writes a bundle's code for some targets as a separate bundle, signed with ``key``.

    Raises:
        BundleError: the bundle cannot be read, lacks code for one of the targets, or the slice cannot be written.
        TargetError: a target that does not parse.
    """
    with open_bundle(path) as bundle:
        return _cut(bundle, [Target.parse(one) for one in targets], output, key)


def slice_by_target(path: Path, folder: Path, *, key: SecretKey | None = None) -> list[SliceSummary]:
    """Writes a slice for each target of a bundle into a folder, which is created.

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
    """Joins bundles into one, signed with ``key``: slices of one bundle, or builds of one source for several targets.

    Code of several compilers is kept side by side. Native code that may be run here on the cases and by the plans of
    each of the bundles may also be run by the cases and plans of the joined one.

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
            # Only a part of the bundle: a later merge with the rest needs the original order of everything.
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
    """Notes consent to the cases and plans of a joined bundle if each part's are consented to, with the part's code.

    Consent to cases covers all native code of a kernel together, and each part has some of that code. Consent to the
    code itself does not change.
    """
    trust = session().store.trust
    known: dict[tuple[str, str], list[HostCases | HostPlan]] = {}
    for contents in parts:
        for key, subject in _subjects(contents):
            known.setdefault(key, []).append(subject)
    for key, subject in _subjects(joined):
        if len(known[key]) > 1 and all(map(trust.decide, known[key])) and not trust.decide(subject):
            trust.note_built(subject)


def _subjects(contents: BundleContents) -> Iterator[tuple[tuple[str, str], HostCases | HostPlan]]:
    """The cases and plans of a bundle whose native code needs consent, by their kind and name."""
    for kernel in contents.kernels:
        calls = calls_of(kernel)
        codes = [host_code(one, calls) for one in kernel.variants if one.artifact.runs_on_host]
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


def _write(output: Path, made: Slice, bundles: Sequence[Bundle]) -> Written:
    """Writes a bundle of blobs that other bundles hold, in their stored form."""
    return write_bundle(output, made.contents, made.documents.get, read_stored=stored_blobs(bundles))


def _require_name(output: Path) -> None:
    if output.suffix != ".silo":
        raise BundleError(f"{output}: a bundle's name ends in .silo; write for example -o {output.stem or 'part'}.silo")
