"""Cuts bundles by kernel and target, and joins bundles.

A slice is a bundle like any other: it has the variants, rules and trials of some targets, and the cases of its kernels.
It also notes the position of each of these entries in the whole bundle, so that all slices joined give the whole
bundle, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias, cast

from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleRules, BundleVariant, rules_key
from silo.bundle.format import TRIALS_KIND
from silo.bundle.merged_evidence import Evidence
from silo.bundle.mixed_compilers import RulesPart, compilers_by_key, joined_rules, joined_versions
from silo.bundle.reader import Bundle
from silo.bundle.update import document_blob
from silo.core.device import Target
from silo.core.recorded_plans import RecordedPlan
from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import BundleError
from silo.frozen import names_of, replace

__all__ = ["Slice", "cut_contents", "cut_slice", "is_for", "is_for_any", "join_slices", "slice_of", "targets_of"]


def is_for(target: Target, wanted: Target) -> bool:
    """Returns whether ``wanted`` covers ``target``.

    ``cuda`` covers every target of its kind, ``cuda:sm_90`` also its specific form ``cuda:sm_90a``.

    >>> is_for(Target.parse("cuda:sm_90a"), Target.parse("cuda:sm_90"))
    True
    """
    same = wanted.arch in (target.arch, target.device_arch)
    return target.kind == wanted.kind and (not wanted.is_concrete or same)


def is_for_any(target: Target, targets: Sequence[Target] | None) -> bool:
    """Returns whether at least one of ``targets`` covers ``target``; None covers every target.

    >>> is_for_any(Target.parse("cuda:sm_90"), [Target.parse("cpu")]), is_for_any(Target.parse("cuda:sm_90"), None)
    (False, True)
    """
    return targets is None or any(is_for(target, requested) for requested in targets)


def cut_contents(
    contents: BundleContents, kernels: Sequence[str] | None, targets: Sequence[Target] | None
) -> BundleContents:
    """Returns ``contents`` with only these kernels, and only their variants for these targets (None: all).

    Documents (cases, trials), sidecars and attachments are left out. Plans are kept if they launch only these kernels.

    Raises:
        BundleError: a kernel does not exist, or has a variant for none of the targets.
    """
    kernel_names = [kernel.name for kernel in contents.kernels]
    for name in kernels or ():
        if name not in kernel_names:
            raise BundleError(f"there is no kernel {name}; the bundle has {', '.join(kernel_names) or 'none'}")
    chosen = [kernel for kernel in contents.kernels if kernels is None or kernel.name in kernels]
    names = {kernel.name for kernel in chosen}
    return replace(
        contents,
        kernels=tuple(_cut_kernel(kernel, targets) for kernel in chosen),
        attachments=(),
        plans=tuple(plan for plan in contents.plans if names.issuperset(plan.kernels)),
    )


def _cut_kernel(kernel: BundleKernel, targets: Sequence[Target] | None) -> BundleKernel:
    variants = tuple(variant for variant in kernel.variants if is_for_any(variant.artifact.variant.target, targets))
    if not variants:
        has = ", ".join(dict.fromkeys(str(variant.artifact.variant.target) for variant in kernel.variants)) or "nothing"
        target_list = ", ".join(map(str, targets or ()))
        raise BundleError(
            f"kernel {kernel.name} has no code for {target_list or 'any target'}; it has code for {has}: name other "
            "targets, or the kernels that are wanted"
        )
    keys = {rules_key(variant.artifact.variant) for variant in variants}
    return replace(
        kernel,
        variants=tuple(map(_bare, variants)),
        rules=tuple(rules for rules in kernel.rules if rules.key in keys),
        cases=None,
        trials=None,
    )


def _bare(variant: BundleVariant) -> BundleVariant:
    return replace(variant, artifact=replace(variant.artifact, sidecars=()))


_NOTE: Final = "slice"  # the name of the note that holds the positions of a slice's entries in the whole bundle
_MOST_PLACES: Final = 1 << 20
# Added to the index of an entry that a note does not list. It exceeds every position in a note, so that the entry comes
# after all entries that the note lists.
_BEHIND: Final = 1 << 32
_MOST_NOTED: Final = 65536  # the most characters of a note

# Variants, rules or trials of a kernel, each with its position in the whole bundle.
_Part: TypeAlias = "list[tuple[int, object]]"


@dataclass(frozen=True)
class Slice:
    """A bundle that is cut or joined and not written yet: its contents, and its new documents.

    ``documents`` maps the SHA-256 of each new document (the trials of a kernel) to its bytes. ``of`` is the identity of
    the whole bundle if this is a slice of one, else "". ``remarks`` has a line for each bucket whose config was taken
    from a bundle other than the first, because trials show that it is faster.
    """

    contents: BundleContents
    documents: Mapping[str, bytes]
    of: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Kernel:
    """A kernel taken apart: its variants, rules and trials, and ``head``, the kernel without these."""

    head: BundleKernel
    variants: _Part
    rules: _Part
    trials: _Part

    @property
    def parts(self) -> tuple[_Part, _Part, _Part]:
        return self.variants, self.rules, self.trials


def targets_of(contents: BundleContents) -> tuple[Target, ...]:
    """Returns the targets that a bundle has code for, in the order of its variants."""
    return tuple(
        dict.fromkeys(variant.artifact.variant.target for kernel in contents.kernels for variant in kernel.variants)
    )


def slice_of(bundle: Bundle) -> str:
    """Returns the identity of the bundle that this one is a slice of; "" if it is a whole bundle."""
    return _noted(bundle)[0]


def cut_slice(bundle: Bundle, wanted: Sequence[Target]) -> Slice:
    """Returns the slice of a bundle for some targets.

    Rules and trials of targets for which the kernel has no code go into the slice of its first target. A kernel without
    any code goes into the slice of the bundle's first target.

    Raises:
        BundleError: the bundle lacks code for one of the targets.
    """
    contents = bundle.contents()
    available = targets_of(contents)
    for wanted_target in wanted:
        if not any(is_for(target, wanted_target) for target in available):
            has = ", ".join(map(str, available)) or "nothing"
            raise BundleError(f"{bundle.name} has no code for {wanted_target}; it has code for {has}")
    matching = {str(target) for target in available if any(is_for(target, wanted_target) for wanted_target in wanted)}
    first = bool(available) and str(available[0]) in matching
    kernels = [_cut(kernel, matching, first=first) for kernel in _kernels_of(bundle, contents)]
    kernels = [kernel for kernel in kernels if kernel is not None]
    return _together(contents, kernels, slice_of(bundle) or bundle.identity)


def join_slices(bundles: Sequence[Bundle], *, noted: bool = False) -> Slice:
    """Joins bundles; all slices of one bundle give that bundle itself.

    ``noted`` keeps, in the result, the note of the entries' positions in the whole bundle; it is needed if some slices
    are missing. Entries of bundles without such notes keep the order of ``bundles``. Bundles of one source that
    different compilers made are joined with the code of each compiler. If several of these have a rule for a bucket,
    trials of one device decide between the rules; without such trials, the first bundle's rule is kept until the joined
    bundle is tuned.

    Raises:
        BundleError: two bundles contradict each other on a kernel, a rule or their producer.
    """
    wholes = {slice_of(bundle) for bundle in bundles}
    identity = wholes.pop() if len(wholes) == 1 else ""
    kernels_by_name: dict[str, list[_Kernel]] = {}
    for number, bundle in enumerate(bundles):
        first = 0 if identity else number << 40
        for kernel in _kernels_of(bundle, bundle.contents(), first):
            kernels_by_name.setdefault(kernel.head.name, []).append(kernel)
    remarks: list[str] = []
    kernels = [_joined(kernels_by_name[name], remarks, slices=bool(identity)) for name in sorted(kernels_by_name)]
    manifests = [bundle.manifest for bundle in bundles]
    base = BundleContents(
        (),
        _agreed("producer", (manifest.producer for manifest in manifests)),
        _joined_toolchains([pair for manifest in manifests for pair in manifest.toolchain if pair[0] != "zstd"]),
        _agreed("notes", ([pair for pair in manifest.notes if pair[0] != _NOTE] for manifest in manifests)),
        _attached(bundles),
        _planned(bundles),
    )
    return replace(_together(base, kernels, identity if noted else ""), of=identity, remarks=tuple(remarks))


def _attached(bundles: Sequence[Bundle]) -> tuple[tuple[str, BlobRef], ...]:
    """Returns the attachments of all bundles; each slice has every attachment of the whole bundle."""
    attachments: dict[str, BlobRef] = {}
    for bundle in bundles:
        for name, ref in bundle.attachments.items():
            if attachments.setdefault(name, ref) != ref:
                raise BundleError(f"two bundles have different attachments {name}: record into one of them again")
    return tuple(sorted(attachments.items()))


def _planned(bundles: Sequence[Bundle]) -> tuple[RecordedPlan, ...]:
    """Returns the plans of all bundles.

    Each slice has every plan of the whole bundle, although it may lack kernels of a plan.
    """
    plans: dict[str, RecordedPlan] = {}
    for bundle in bundles:
        for name, plan in bundle.manifest.plans.items():
            if plans.setdefault(name, plan) != plan:
                raise BundleError(f"two bundles have different plans {name}: build both from the same source")
    return tuple(plans[name] for name in sorted(plans))


def _kernels_of(bundle: Bundle, contents: BundleContents, first: int = 0) -> list[_Kernel]:
    """Takes the kernels of a bundle apart; ``first`` is added to the position of each entry in the whole bundle.

    Entries that a slice gained after it was cut (by tuning) come after the entries of the whole bundle.
    """
    _, noted = _noted(bundle)

    def placed(kernel: BundleKernel, number: int, items: Sequence[object]) -> _Part:
        places = noted.get(kernel.name, [()] * 3)[number] or range(len(items))
        shared_count = len(places) if len(places) <= len(items) else 0
        return [(first + (places[at] if at < shared_count else _BEHIND + at), item) for at, item in enumerate(items)]

    return [
        _Kernel(
            replace(kernel, variants=(), rules=(), trials=None),
            placed(kernel, 0, kernel.variants),
            placed(kernel, 1, kernel.rules),
            placed(kernel, 2, bundle.trials(kernel.name)),
        )
        for kernel in contents.kernels
    ]


def _cut(kernel: _Kernel, slice_targets: AbstractSet[str], *, first: bool) -> _Kernel | None:
    """Returns the part of a kernel for the slice with the targets ``slice_targets``; None if the part is empty.

    With ``first`` the slice also gets the kernel if it has no code at all.
    """
    own = list(dict.fromkeys(_target_of(item) for _, item in kernel.variants))
    if not (any(target in slice_targets for target in own) or (first and not own)):
        return None
    strays = not own or own[0] in slice_targets

    def kept(part: _Part) -> _Part:
        targets = [_target_of(item) for _, item in part]
        return [
            pair
            for pair, target in zip(part, targets, strict=True)
            if (target in slice_targets if target in own else strays)
        ]

    return _Kernel(kernel.head, *map(kept, kernel.parts))


def _joined_toolchains(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    versions: dict[str, list[str]] = {}
    for name, text in pairs:
        versions.setdefault(name, []).append(text)
    return tuple((name, joined_versions(texts)) for name, texts in sorted(versions.items()))


def _joined(kernels: Sequence[_Kernel], remarks: list[str], *, slices: bool) -> _Kernel:
    """Joins the parts that several bundles have of one kernel. ``slices``: all are slices of one bundle."""
    head = kernels[0].head
    for other in kernels[1:]:
        for name in names_of(BundleKernel):
            if getattr(other.head, name) != getattr(head, name):
                raise BundleError(
                    f"kernel {head.name} has another {name} in each of two bundles, so they are not of one source: "
                    "build both from the same"
                )
    variants = _without_repetitions("variants", [kernel.variants for kernel in kernels], _key_of_variant)
    rules = _without_repetitions(
        "dispatch rules", _rules_of(kernels, remarks, slices=slices), lambda item: repr(cast("BundleRules", item).key)
    )
    trials = _without_repetitions(
        "trials", [kernel.trials for kernel in kernels], lambda item: canonical_json(cast("JSON", item))
    )
    return _Kernel(head, variants, rules, trials)


def _rules_of(kernels: Sequence[_Kernel], remarks: list[str], *, slices: bool) -> list[_Part]:
    """Returns the rules of each bundle. If several compilers made code for the same calls, joins their rules first."""
    parts = [kernel.rules for kernel in kernels]
    if slices:  # slices of one bundle, whose rules already name the compilers
        return parts
    compilers = [compilers_by_key(cast("BundleVariant", item) for _, item in kernel.variants) for kernel in kernels]
    joined: dict[str, BundleRules] = {}
    for key in dict.fromkeys(key for compiler in compilers for key in compiler):
        if len({name for compiler in compilers for name in compiler.get(key, ())}) > 1:
            own = [
                RulesPart(
                    cast("BundleRules", item),
                    compiler.get(key, ()),
                    Evidence.of((cast("JSON", trial) for _, trial in kernel.trials), compiler.get(key, ())),
                )
                for part, compiler, kernel in zip(parts, compilers, kernels, strict=True)
                for _, item in part
                if cast("BundleRules", item).key == key
            ]
            if own:
                joined[repr(key)], lines = joined_rules(own)
                remarks += [f"{kernels[0].head.name} {line}" for line in lines]
    return [
        [(position, joined.get(repr(cast("BundleRules", item).key), item)) for position, item in part] for part in parts
    ]


def _without_repetitions(label: str, parts: Iterable[_Part], key_of: Callable[[object], object]) -> _Part:
    """Returns all items in the order of their positions in the whole bundle, without repetitions.

    Raises BundleError if two different items have one key.
    """
    items: dict[object, tuple[int, object]] = {}
    for part in parts:
        for position, item in part:
            entry = items.setdefault(key_of(item), (position, item))
            if entry[1] != item:
                raise BundleError(
                    f"two bundles have different {label} for the same calls: build or tune one of them again"
                )
    return sorted(items.values(), key=lambda pair: pair[0])


def _together(base: BundleContents, kernels: Sequence[_Kernel], whole: str) -> Slice:
    """Returns a slice that contains ``kernels``, with all other contents of ``base``.

    If ``whole`` is not "", it is the identity of the whole bundle, and the slice notes the entries' positions in it.
    """
    documents: dict[str, bytes] = {}
    kernels_made: list[BundleKernel] = []
    for kernel in kernels:
        trials = tuple(cast("JSON", item) for _, item in kernel.trials)
        ref = None
        if trials:
            ref, data = document_blob(TRIALS_KIND, trials)
            documents[ref.sha256] = data
        variants = tuple(cast("BundleVariant", item) for _, item in kernel.variants)
        rules = tuple(cast("BundleRules", item) for _, item in kernel.rules)
        kernels_made.append(replace(kernel.head, variants=variants, rules=rules, trials=ref))
    notes = {name: text for name, text in base.notes if name != _NOTE}
    if whole:
        places: JSON = {kernel.head.name: [_runs(part) for part in kernel.parts] for kernel in kernels}
        text = canonical_json({"of": whole, "places": places}).decode()
        # Without the note (for example if targets alternate so often that it would be too long), slices are joined in
        # another order, which gives a valid bundle too.
        notes |= {_NOTE: text} if len(text) <= _MOST_NOTED else {}
    return Slice(replace(base, kernels=tuple(kernels_made), notes=tuple(sorted(notes.items()))), documents, whole)


def _runs(part: _Part) -> list[JSON]:
    """Returns the entries' positions as runs of consecutive numbers: first position and length of each run."""
    runs: list[JSON] = []
    for _, run in groupby(enumerate(position for position, _ in part), lambda pair: pair[1] - pair[0]):
        numbers = [position for _, position in run]
        runs += [numbers[0], len(numbers)]
    return runs


def _noted(bundle: Bundle) -> tuple[str, dict[str, tuple[Sequence[int], ...]]]:
    """Returns the note of a slice: the identity of the whole bundle, and the positions of the kernels' entries in it.

    Identity and positions are empty if the bundle has no note, or a note of an unknown form.
    """
    text = dict(bundle.manifest.notes).get(_NOTE, "")
    try:
        note = parse_json(text.encode()) if text else None
    except ValueError:
        note = None
    match note:
        case {"of": str(of), "places": dict(places)}:
            return of, {
                name: tuple(map(_numbers_in, parts))
                for name, parts in places.items()
                if isinstance(parts, list) and len(parts) == 3
            }
        case _:
            return "", {}


def _numbers_in(runs: JSON) -> Sequence[int]:
    numbers = [run for run in runs if type(run) is int] if isinstance(runs, list) else []
    places: list[int] = []
    for start, count in zip(numbers[::2], numbers[1::2], strict=False):
        if start < 0 or not 0 < count <= _MOST_PLACES - len(places):
            return ()
        places += range(start, start + count)
    return places


def _target_of(item: object) -> str:
    if isinstance(item, BundleVariant):
        return str(item.artifact.variant.target)
    if isinstance(item, BundleRules):
        return str(item.target)
    match item:
        case {"study": {"target": str(target)}}:
            return target
        case _:
            return ""


def _key_of_variant(item: object) -> str:
    artifact = cast("BundleVariant", item).artifact
    return artifact.variant.artifact_key(artifact.compiler)


def _agreed(label: str, texts: Iterable[Iterable[tuple[str, str]]]) -> tuple[tuple[str, str], ...]:
    """Returns all bundles' pairs of name and text. Raises BundleError if one name has different texts."""
    values: dict[str, str] = {}
    for pairs in texts:
        for name, text in pairs:
            if values.setdefault(name, text) != text:
                raise BundleError(
                    f"two bundles have {label} of {name} {values[name]} and {text}: one bundle has one; build them "
                    "alike"
                )
    return tuple(sorted(values.items()))
