"""The description of a bundle's contents, for ``silo inspect``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from silo.bundle import verify as verification
from silo.bundle.contents import BundleKernel, BundleVariant
from silo.bundle.documents import case_recipes, measured_trials
from silo.bundle.mixed_compilers import compiler_names
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.verify import shared_by_look_alikes
from silo.core.config import Config
from silo.core.declaration import LoaderDeclaration
from silo.core.dispatch import bucket_of
from silo.core.extents import ArrayExtents, Extents
from silo.core.launch_info import format_block
from silo.core.plugins import load_place, loader_of
from silo.core.recipes import ArrayRecipe, CaseRecipe, ScalarRecipe
from silo.core.recorded_plans import ArgumentKind, RecordedArgument, RecordedPlan
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON
from silo.errors import SourceError
from silo.machine.user_files import PlaceKind, kind_of
from silo.shipping.sign_bundle import SignatureSummary, look_at_signature
from silo.text_tables import format_time
from silo.tuner.trial import Trial
from silo.tuner.winner import standings

__all__ = [
    "BundleDescription",
    "CaseRow",
    "CoverageRow",
    "PlanRow",
    "RuleRow",
    "VariantRow",
    "describe_bundle",
    "facts_text",
    "types_text",
    "verify_bundle",
]


@dataclass(frozen=True, slots=True)
class VariantRow:
    """A row about one variant."""

    kernel: str
    target: str
    types: str
    facts: str
    config: str
    size_bytes: int
    resources: str
    basis: str
    reason: str
    serves: str  # the extents that the code was built for; "" if it takes any extents
    hidden_memory: str  # why the code accesses memory outside of all its arguments; "" if no reason is known
    compiler: str = ""  # the identity of its compiler


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A row about a dispatch rule, with the winner's time if it was measured, and how many cases the rule decides."""

    kernel: str
    target: str
    key: str
    config: str
    time: str
    reason: str
    compiler: str = ""  # the identity of the compiler whose code is chosen; "" if any compiler's code serves
    cases: int = 0


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """A row about a target and dtype signature: the number of packed configs, out of ``space`` configs of the cases."""

    kernel: str
    target: str
    types: str
    packed: int
    space: int


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A row about one case."""

    kernel: str
    label: str
    checks: str


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A row about one form of a plan. The forms of a plan are recorded sequences of launches for different calls.

    ``form`` is the form's number, ``arguments`` describes the arguments of its calls, ``holds`` are the conditions that
    its calls meet, and ``launches`` has the kernels in order.
    """

    plan: str
    form: int
    arguments: str
    launches: tuple[str, ...]
    holds: str


@dataclass(frozen=True, slots=True)
class BundleDescription:
    """The description of a whole bundle."""

    path: str
    identity: str
    size_bytes: int
    producer: Mapping[str, str]
    targets: tuple[str, ...]
    kernels: tuple[str, ...]
    kinds: Mapping[str, str]  # kind of source by kernel, if the bundle names it
    variants: tuple[VariantRow, ...]
    coverage: tuple[CoverageRow, ...]
    winners: tuple[RuleRow, ...]
    cases: tuple[CaseRow, ...]
    signature: SignatureSummary
    plans: tuple[PlanRow, ...] = ()
    doubts: tuple[str, ...] = ()  # messages about variants whose code may belong to another variant
    compilers: Mapping[str, str] = field(default_factory=dict[str, str])  # short name by identity of the compiler

    @property
    def mixed(self) -> bool:
        """Whether the bundle has code of several compilers for one target."""
        return len({(row.target, row.compiler) for row in self.variants}) > len(self.targets)

    def to_json(self) -> JSON:
        """Returns the JSON form that ``silo inspect --json`` prints."""
        return cast("JSON", asdict(self))


def describe_bundle(path: Path, kernels: Sequence[str] | None = None) -> BundleDescription:
    """Reads a bundle's manifest, cases and trials, for all its kernels or only for ``kernels``.

    Executes nothing in it.
    """
    if kind_of(path) is not PlaceKind.BUNDLE:
        raise SourceError(
            f"{path} names {kind_of(path).value}, and it takes a bundle (K.silo) to show more than code: "
            f"add --code c for the code of its kernels, or build a bundle with silo build {path} -o K.silo"
        )
    with open_bundle(path) as bundle:
        contents = bundle.contents()
        chosen = [bundle.kernel(name) for name in kernels] if kernels else contents.kernels
        variants = tuple(_variant(kernel, variant) for kernel in chosen for variant in kernel.variants)
        return BundleDescription(
            path=str(path),
            identity=bundle.identity,
            size_bytes=bundle.size_bytes,
            producer={**dict(contents.producer), **dict(contents.toolchain)},
            targets=tuple(sorted({row.target for row in variants})),
            kernels=tuple(kernel.name for kernel in chosen),
            kinds={kernel.name: kernel.kind for kernel in chosen if kernel.kind},
            variants=variants,
            coverage=tuple(row for kernel in chosen for row in _coverage(kernel)),
            winners=tuple(row for kernel in chosen for row in _rules(bundle, kernel)),
            cases=tuple(row for kernel in chosen for row in _cases(bundle, kernel)),
            signature=look_at_signature(path, bundle),
            plans=tuple(
                row
                for plan in contents.plans
                if not kernels or set(kernels) & set(plan.kernels)
                for row in _forms(plan)
            ),
            doubts=shared_by_look_alikes(chosen),
            compilers=compiler_names((row.compiler for row in variants), contents.toolchain),
        )


def verify_bundle(path: Path) -> list[str]:
    """Returns a message for every problem of a file; empty if the file is undamaged."""
    return [str(problem) for problem in verification.verify_bundle(path)]


def _variant(kernel: BundleKernel, packed: BundleVariant) -> VariantRow:
    artifact, launch = packed.artifact, packed.artifact.launch
    variant = artifact.variant
    resources = [f"{format_block(launch.block)} threads"] if launch.threads > 1 else []
    resources += [f"clusters of {format_block(launch.cluster)} blocks"] if launch.cluster != (1, 1, 1) else []
    resources += [f"{launch.registers} registers"] if launch.registers is not None else []
    resources += [f"{launch.spills} values spilled"] if launch.spills else []
    resources += [f"{launch.shared_bytes} shared bytes"] if launch.shared_bytes else []
    resources += [f"{launch.scratch_bytes} scratch bytes"] if launch.scratch_bytes else []
    loader = loader_of(artifact.blob.kind)
    if isinstance(loader, LoaderDeclaration) and loader.remark and launch.loader:
        remark = cast("Callable[[str], str]", load_place(loader.remark))(launch.loader)
        resources += [remark] if remark else []
    hidden = artifact.hidden_memory
    resources += [f"memory behind none of its arguments: {hidden}"] if hidden else []
    return VariantRow(
        kernel=kernel.name,
        target=str(variant.target),
        types=types_text(variant.signature),
        facts=facts_text(variant.specialization),
        config=str(variant.config),
        size_bytes=artifact.blob.size,
        resources=", ".join(resources),
        basis=packed.basis.value,
        reason=packed.reason,
        serves=variant.specialization.served,
        hidden_memory=hidden,
        compiler=artifact.compiler,
    )


def _forms(plan: RecordedPlan) -> Iterator[PlanRow]:
    for number, form in enumerate(plan.forms, start=1):
        arguments = [
            f"{name}: {_argument(argument)}" for name, argument in zip(plan.parameters, form.arguments, strict=True)
        ]
        launches = tuple(launch.kernel for launch in form.launches)
        yield PlanRow(plan.name, number, ", ".join(arguments), launches, " and ".join(map(str, form.holds)))


def _argument(argument: RecordedArgument) -> str:
    """Describes an argument of a plan in a few words."""
    if argument.kind is ArgumentKind.VALUE:
        return repr(argument.value)
    if argument.dtype is None:
        return argument.kind.value
    return f"{argument.dtype.short} of {argument.rank} axes"


def facts_text(specialization: Specialization) -> str:
    """Lists the constants and facts that a variant assumes."""
    constants = [f"{name}={value}" for name, value in specialization.constants]
    facts = [f"{name} {fact.value}" for name, fact in specialization.facts]
    return ", ".join([*constants, *facts]) or "nothing"


def types_text(signature: Signature) -> str:
    """Lists the dtypes of a signature's parameters, with a star in front of a pointer's."""
    return ", ".join(
        f"{'*' if p.kind is ParameterKind.POINTER else ''}{p.dtype.short}" for p in signature.parameters if p.dtype
    )


def _coverage(kernel: BundleKernel) -> Iterator[CoverageRow]:
    for coverage in kernel.coverage:
        yield CoverageRow(
            kernel.name, str(coverage.target), types_text(coverage.signature), coverage.packed, coverage.space
        )


def _rules(bundle: Bundle, kernel: BundleKernel) -> Iterator[RuleRow]:
    times, recipes = _times(bundle, kernel), tuple(case_recipes(bundle, kernel.name))
    for rules in kernel.rules:
        target = str(rules.target)
        extents = [f"{name} {extent}" for name, extent in rules.extents]
        sharing = _cases_by_bucket(recipes, kernel.key, dict(rules.extents))
        for (bucket, config), compiler in zip(rules.rules.rules, rules.rule_compilers, strict=True):
            key = ", ".join(
                f"{name}<={value}" if isinstance(value, int) and value > 16 else f"{name}={value}"
                for name, value in zip(rules.rules.key, bucket, strict=True)
            )
            estimate = times.get(((rules.target, rules.extents, compiler), tuple(bucket), config.order_key))
            reason = "not measured" if estimate is None else "measured"
            shown = "; ".join([*extents, *([key] if key else [])]) or "any"
            time = "" if estimate is None else format_time(estimate)
            cases = sharing[tuple(bucket)]
            yield RuleRow(kernel.name, target, shown, str(config), time, reason, compiler, cases)
        steps = () if rules.rules.unseen is None else rules.rules.unseen.steps
        for step, compiler in zip(steps, rules.step_compilers, strict=True):
            shown = "; ".join([*extents, f"other sizes, {step}"])
            yield RuleRow(kernel.name, target, shown, str(step.config), "", "fitted", compiler)
        shown = "; ".join([*extents, "otherwise"])
        fallback = str(rules.rules.fallback)
        yield RuleRow(kernel.name, target, shown, fallback, "", "fallback", rules.fallback_compiler)


def _cases_by_bucket(
    recipes: Sequence[CaseRecipe], key: Sequence[str], extents: Mapping[str, ArrayExtents]
) -> Counter[tuple[object, ...]]:
    """Counts, for each bucket, the cases whose arrays have these extents. Cases in one bucket share a decision."""
    counts: Counter[tuple[object, ...]] = Counter()
    for recipe in recipes:
        shapes = {name: argument.shape for name, argument in recipe.arguments if isinstance(argument, ArrayRecipe)}
        if any(isinstance(extent, Extents) and shapes.get(name) != extent.shape for name, extent in extents.items()):
            continue
        values = {name: argument.value for name, argument in recipe.arguments if isinstance(argument, ScalarRecipe)}
        if all(name in values for name in key):
            counts[tuple(bucket_of([values[name] for name in key]))] += 1
    return counts


def _times(bundle: Bundle, kernel: BundleKernel) -> dict[tuple[object, tuple[object, ...], bytes], int]:
    """Returns median times in nanoseconds from the bundle's own trials.

    A time's key is a tuple: first target, extents and compiler ("" if rules name no compiler), then bucket, then
    config.
    """
    groups: dict[tuple[object, tuple[object, ...]], list[Trial]] = {}
    for study, trial in measured_trials(bundle, kernel.name):
        for compiler in ("", study.compiler):
            of = (study.target, study.specialization.extents, compiler)
            groups.setdefault((of, tuple(trial.bucket)), []).append(trial)
    return {
        (*group, _key(standing.config)): standing.time.median_ns
        for group, trials in groups.items()
        for standing in standings(trials)
    }


def _key(config: Config) -> bytes:
    return config.order_key


def _cases(bundle: Bundle, kernel: BundleKernel) -> Iterator[CaseRow]:
    for recipe in case_recipes(bundle, kernel.name):
        checks = ", ".join(
            f"{name} ({'every element' if expected.indices is None else f'{len(expected)} sampled elements'})"
            for name, expected in recipe.expected
        )
        yield CaseRow(kernel.name, recipe.label, checks or "nothing")
