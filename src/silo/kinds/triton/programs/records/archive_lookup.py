"""Looks up entries of a recording for a replay: which recorded variant serves a compile, and why others do not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from silo.artifacts.artifact import Artifact, BlobRef
from silo.artifacts.runs_on import runs_on
from silo.bundle.contents import BundleVariant, VariantGroup, calls_of, host_code
from silo.bundle.reader import Bundle, OpenKernel
from silo.core.consent import Consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.signature import Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTypeKind, Value, identity_of
from silo.core.variant import Variant
from silo.errors import BundleError, TrustError
from silo.frozen import replace
from silo.kinds.triton.front.adapter import KeptCode
from silo.kinds.triton.programs.records.archive import ForeignWinner, RecordedNames, cache_place, key_of, read_winners
from silo.machine.process_session import session
from silo.settings import settings
from silo.sources.reached_code import Names

__all__ = ["ArchiveLookup", "best_variant", "constants_of", "describe_wanted", "fits", "may_fit", "nearest"]


def constants_of(variant: Variant) -> dict[str, Value]:
    """All constexprs of a variant, from the call and from the config."""
    return {**dict(variant.config.values), **variant.specialization.constant_values}


def fits(variant: Variant, blob_kind: str, wanted: Variant) -> Decision:
    """Whether a variant of the same source serves calls that need ``wanted``; if not, the decision has all reasons."""
    problems = list(_problems(variant, blob_kind, wanted))
    if problems:
        return Rejected("; ".join(problems))
    assumed = ", ".join(variant.specialization.assumptions)
    return Accepted(f"assumes {assumed}" if assumed else "assumes nothing of the arguments")


def may_fit(group: VariantGroup, wanted: Variant) -> bool:
    """Whether a group of variants may contain one that serves a call; the group must have the call's constants.

    False only if :func:`fits` rejects every variant of the group.
    """
    if group.signature.names != wanted.signature.names or not runs_on(group.target, wanted.target, group.blob_kind):
        return False
    return all(
        _parameter_problem(parameter, group.specialization, wanted) is None for parameter in group.signature.parameters
    )


def _problems(variant: Variant, blob_kind: str, wanted: Variant) -> Iterable[str]:
    runs = runs_on(variant.target, wanted.target, blob_kind)
    if not runs:
        yield runs.reason
    constants, wanted_constants = constants_of(variant), constants_of(wanted)
    for name in sorted(constants.keys() | wanted_constants.keys()):
        if not _same(constants.get(name), wanted_constants.get(name)):
            yield f"it has {name}={constants.get(name)}, and {name}={wanted_constants.get(name)} is asked for"
    options, requested = dict(variant.config.options), dict(wanted.config.options)
    for name in sorted(options.keys() | requested.keys()):
        if not _same(options.get(name), requested.get(name)):
            yield f"it was compiled with {name}={options.get(name)}, and {name}={requested.get(name)} is asked for"
    for parameter in variant.signature.parameters:
        problem = _parameter_problem(parameter, variant.specialization, wanted)
        if problem is not None:
            yield f"{parameter.name} {problem}"


def _parameter_problem(parameter: Parameter, specialization: Specialization, wanted: Variant) -> str | None:
    requested = wanted.signature[parameter.name]
    facts, wanted_facts = specialization.facts_of(parameter.name), wanted.specialization.facts_of(parameter.name)
    if (Fact.NONE in facts) != (Fact.NONE in wanted_facts):
        return "is None" if Fact.NONE in wanted_facts else "is given, and the code is for None"
    if parameter.kind is not requested.kind:
        return f"is {_type(requested)}, and the code takes {_type(parameter)}"
    if parameter.dtype is not requested.dtype and not _wider(parameter, requested):
        return f"is {_type(requested)}, and the code takes {_type(parameter)}"
    missing = sorted(fact.value for fact in facts - wanted_facts if fact.is_assumption)
    return f"is not {', '.join(missing)}, and the code assumes that" if missing else None


def _wider(takes: Parameter, requested: Parameter) -> bool:
    """Whether the code takes a wider signed integer than the call passes."""
    if takes.dtype is None or requested.dtype is None:
        return False
    return takes.dtype.kind is requested.dtype.kind is DTypeKind.INT and takes.dtype.bits > requested.dtype.bits


def _same(left: Value, right: Value) -> bool:
    return identity_of(left) == identity_of(right)


def _type(parameter: Parameter) -> str:
    star = "*" if parameter.kind is ParameterKind.POINTER else ""
    return f"{star}{parameter.dtype}" if parameter.dtype is not None else parameter.kind.value


def best_variant(variants: Iterable[BundleVariant], wanted: Variant) -> BundleVariant | None:
    """The variant that serves a call and assumes the most; exact types come first. None if no variant serves it."""
    fitting = [variant for variant in variants if fits(variant.artifact.variant, variant.artifact.blob.kind, wanted)]
    return max(fitting, key=lambda one: _rank(one.artifact.variant, wanted), default=None)


def _rank(variant: Variant, wanted: Variant) -> tuple[bool, bool, int]:
    types = all(parameter.dtype is wanted.signature[parameter.name].dtype for parameter in variant.signature.parameters)
    assumed = sum(fact.is_assumption for _, fact in variant.specialization.facts)
    return types, variant.target == wanted.target, assumed


def nearest(variants: Sequence[BundleVariant], wanted: Variant, most: int = 4) -> list[tuple[Variant, str]]:
    """At most ``most`` variants: those with the fewest reasons against them, each with all its reasons."""
    artifacts = [
        (len(list(_problems(variant.artifact.variant, variant.artifact.blob.kind, wanted))), variant.artifact)
        for variant in variants
    ]
    artifacts.sort(key=lambda item: (item[0], item[1].job))
    return [
        (artifact.variant, fits(artifact.variant, artifact.blob.kind, wanted).reason)
        for _, artifact in artifacts[:most]
    ]


def describe_wanted(wanted: Variant) -> str:
    """A call in one line: types with the facts about each argument, constexprs, options, target."""
    parts: list[str] = []
    for parameter in wanted.signature.parameters:
        facts = wanted.specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR:
            continue
        words = sorted(fact.value for fact in facts)
        parts.append(f"{parameter.name}: {'None' if Fact.NONE in facts else ' '.join([_type(parameter), *words])}")
    parts += [f"{name}={value}" for name, value in sorted(constants_of(wanted).items())]
    parts += [f"{name}={value}" for name, value in wanted.config.options]
    return f"{wanted.kernel}({', '.join(parts)}) for {wanted.target}"


class ArchiveLookup:
    """Looks up the contents of one bundle. Usable from many threads.

    ``trust``: the bundle's native code is loaded without further consent.
    """

    def __init__(self, bundle: Bundle, *, trust: bool = False) -> None:
        self.bundle = bundle
        self._trust = trust
        self._open: dict[str, OpenKernel] = {}

    @cached_property
    def kernels(self) -> dict[str, list[str]]:
        """The names of all kernels, by the fingerprints of their sources."""
        names: dict[str, list[str]] = {}
        for name in self.bundle.kernel_names:
            for source in self._kernel(name).sources:
                names.setdefault(source, []).append(name)
        return names

    @cached_property
    def files(self) -> dict[str, dict[str, BlobRef]]:
        """The files of Triton's cache by key and name."""
        files: dict[str, dict[str, BlobRef]] = {}
        for name, ref in self.bundle.attachments.items():
            if (cache_entry := cache_place(name)) is not None:
                files.setdefault(cache_entry[0], {})[cache_entry[1]] = ref
        return files

    @cached_property
    def winners(self) -> dict[str, list[ForeignWinner]]:
        """The decisions of tuners, by the fingerprints of their kernels."""
        winners: dict[str, list[ForeignWinner]] = {}
        for winner in read_winners(self.bundle):
            winners.setdefault(winner.source, []).append(winner)
        return winners

    @cached_property
    def names(self) -> Mapping[str, Names]:
        """The names that kernels' texts refer to; with them, computing a fingerprint needs no parsing."""
        return RecordedNames(self.bundle)

    # -- variants ------------------------------------------------------------------------------------------------------

    def variants(self, source: str) -> list[BundleVariant]:
        """Every variant of a source that was recorded from Triton's own compiler."""
        variants: list[BundleVariant] = []
        for name in self.kernels.get(source, ()):
            kernel = self._kernel(name)
            variants += [kernel[number] for number in range(len(kernel))]
        return [
            variant
            for variant in variants
            if variant.artifact.variant.source == source and key_of(variant.artifact) in self.files
        ]

    def best(self, wanted: Variant) -> BundleVariant | None:
        """The variant that serves a call best, or None. Reads only the parts of the file that may serve it."""
        variants = self._named(wanted)
        for name in variants:
            variant = self._kernel(name).exact(wanted)
            if (
                variant is not None
                and key_of(variant.artifact)
                and runs_on(wanted.target, wanted.target, variant.artifact.blob.kind)
            ):
                return variant  # an exact variant: no other can assume more about the call
        candidates: list[BundleVariant] = []
        constants = constants_of(wanted)
        for name in variants:
            kernel = self._kernel(name)
            numbers = [
                number for group in kernel.groups(constants) if may_fit(group, wanted) for number in group.numbers
            ]
            candidates += [kernel[number] for number in numbers]
        return best_variant(
            (
                variant
                for variant in candidates
                if variant.artifact.variant.source == wanted.source and key_of(variant.artifact)
            ),
            wanted,
        )

    def _kernel(self, name: str) -> OpenKernel:
        kernel = self._open.get(name)
        if kernel is None:
            kernel = self._open[name] = self.bundle.open_kernel(name)
        return kernel

    def _named(self, wanted: Variant) -> list[str]:
        """The names of the bundle's kernels that were recorded from a source.

        The names that recordings give, ``NAME`` and ``NAME@HASH``, are tried first.
        """
        manifest = self.bundle.manifest
        for name in (wanted.kernel, f"{wanted.kernel}@{wanted.source[:12]}"):
            if name in manifest and wanted.source in self._kernel(name).sources:
                return [name]
        return self.kernels.get(wanted.source, [])

    # -- code ----------------------------------------------------------------------------------------------------------

    def kept(self, variant: BundleVariant) -> tuple[KeptCode, str]:
        """Triton's own files for a variant, and Triton's hash of them.

        Raises:
            BundleError: files are missing or damaged.
        """
        key = key_of(variant.artifact)
        files = self.files.get(key, {})
        name = next((name.removesuffix(".json") for name in files if name.endswith(".json")), None)
        if name is None or f"{name}.{variant.artifact.blob.kind}" not in files:
            raise BundleError(
                f"{self.bundle.name} lacks files of Triton's of {variant.artifact.variant.kernel}; record again"
            )
        try:
            metadata: Any = json.loads(self.bundle.blob(files[f"{name}.json"].sha256))
            file_hash = str(metadata["hash"])
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{self.bundle.name}: Triton's metadata of {name} is damaged: {error!r}") from None
        binary = variant.artifact.blob.kind
        if files[f"{name}.{binary}"].sha256 != variant.artifact.blob.sha256:
            raise BundleError(f"{self.bundle.name}: two binaries are said to be that of {name}")
        stages = {
            file[len(name) + 1 :]: self.bundle.blob(ref.sha256)
            for file, ref in files.items()
            if file.startswith(f"{name}.") and file != f"{name}.json"
        }
        return KeptCode(key, name, metadata, stages, binary), file_hash

    def consent(self, variant: BundleVariant) -> Consent | None:
        """Consent to load the code of a variant; None if the code needs no consent.

        Raises:
            BundleError: checks are on (``SILO_CHECK=1``), and the recorded native code would run without them.
            TrustError: the code is not trusted.
        """
        artifact = variant.artifact
        if not artifact.runs_on_host:
            return None
        if settings().check:
            raise BundleError("checks are on (SILO_CHECK=1), and code that was recorded does not check itself")
        ledger = session().store.trust
        with contextlib.suppress(TrustError):
            return ledger.vouch(_as_built(artifact).host_code(), origin=self.bundle.name)
        name = next(iter(self._named(artifact.variant)))
        packed = host_code(variant, calls_of(self._kernel(name).head))
        return ledger.vouch(packed, origin=self.bundle.name, trust=self._trust)


def _as_built(artifact: Artifact) -> Artifact:
    """Returns the artifact with all constexprs in its specialization, as it was when it was recorded."""
    variant = artifact.variant
    constants = {**dict(variant.config.values), **variant.specialization.constant_values}
    return replace(artifact, variant=replace(variant, specialization=variant.specialization.with_constants(constants)))
