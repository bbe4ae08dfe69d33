"""Which recorded variant serves a program's compile, and why the others do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from silo.artifacts.runs_on import runs_on
from silo.bundle.contents import BundleVariant, VariantGroup
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dtypes import DTypeKind
from silo.core.signature import Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value, identity_of
from silo.core.variant import Variant

__all__ = ["best_variant", "constants_of", "describe_wanted", "fits", "may_fit", "nearest"]


def constants_of(variant: Variant) -> dict[str, Value]:
    """Every constexpr, of the call and of the config."""
    return {**dict(variant.config.values), **variant.specialization.constant_values}


def fits(variant: Variant, blob_kind: str, wanted: Variant) -> Decision:
    """Whether a variant of the same source serves calls that ask for ``wanted``; if not, all the reasons."""
    problems = list(_problems(variant, blob_kind, wanted))
    if problems:
        return Rejected("; ".join(problems))
    assumed = ", ".join(variant.specialization.assumptions)
    return Accepted(f"assumes {assumed}" if assumed else "assumes nothing of the arguments")


def may_fit(group: VariantGroup, wanted: Variant) -> bool:
    """Whether variants of a group may serve a call; the group has no other constants than the call.

    Each variant that :func:`fits` is in one of these groups.
    """
    if group.signature.names != wanted.signature.names or not runs_on(group.target, wanted.target, group.blob_kind):
        return False
    return all(_parameter_problem(one, group.specialization, wanted) is None for one in group.signature.parameters)


def _problems(variant: Variant, blob_kind: str, wanted: Variant) -> Iterable[str]:
    runs = runs_on(variant.target, wanted.target, blob_kind)
    if not runs:
        yield runs.reason
    here, there = constants_of(variant), constants_of(wanted)
    for name in sorted(here.keys() | there.keys()):
        if not _same(here.get(name), there.get(name)):
            yield f"it has {name}={here.get(name)}, and {name}={there.get(name)} is asked for"
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
    facts, given = specialization.facts_of(parameter.name), wanted.specialization.facts_of(parameter.name)
    if (Fact.NONE in facts) != (Fact.NONE in given):
        return "is None" if Fact.NONE in given else "is given, and the code is for None"
    if parameter.kind is not requested.kind:
        return f"is {_type(requested)}, and the code takes {_type(parameter)}"
    if parameter.dtype is not requested.dtype and not _wider(parameter, requested):
        return f"is {_type(requested)}, and the code takes {_type(parameter)}"
    missing = sorted(fact.value for fact in facts - given if fact.is_assumption)
    return f"is not {', '.join(missing)}, and the code assumes that" if missing else None


def _wider(takes: Parameter, requested: Parameter) -> bool:
    """Whether code for a wider signed integer is given a narrower one."""
    if takes.dtype is None or requested.dtype is None:
        return False
    return takes.dtype.kind is requested.dtype.kind is DTypeKind.INT and takes.dtype.bits > requested.dtype.bits


def _same(left: Value, right: Value) -> bool:
    return identity_of(left) == identity_of(right)


def _type(parameter: Parameter) -> str:
    star = "*" if parameter.kind is ParameterKind.POINTER else ""
    return f"{star}{parameter.dtype}" if parameter.dtype is not None else parameter.kind.value


def best_variant(variants: Iterable[BundleVariant], wanted: Variant) -> BundleVariant | None:
    """The variant that serves a call and assumes the most, exact types first; None without one."""
    fitting = [one for one in variants if fits(one.artifact.variant, one.artifact.blob.kind, wanted)]
    return max(fitting, key=lambda one: _rank(one.artifact.variant, wanted), default=None)


def _rank(variant: Variant, wanted: Variant) -> tuple[bool, bool, int]:
    types = all(one.dtype is wanted.signature[one.name].dtype for one in variant.signature.parameters)
    assumed = sum(fact.is_assumption for _, fact in variant.specialization.facts)
    return types, variant.target == wanted.target, assumed


def nearest(variants: Sequence[BundleVariant], wanted: Variant, most: int = 4) -> list[tuple[Variant, str]]:
    """The variants with the least in the way, each with all that is."""
    found = [
        (len(list(_problems(one.artifact.variant, one.artifact.blob.kind, wanted))), one.artifact) for one in variants
    ]
    found.sort(key=lambda item: (item[0], item[1].job))
    return [
        (artifact.variant, fits(artifact.variant, artifact.blob.kind, wanted).reason) for _, artifact in found[:most]
    ]


def describe_wanted(wanted: Variant) -> str:
    """The request in one line: types with the facts about each, constexprs, options, target."""
    parts: list[str] = []
    for one in wanted.signature.parameters:
        facts = wanted.specialization.facts_of(one.name)
        if one.kind is ParameterKind.CONSTEXPR:
            continue
        words = sorted(fact.value for fact in facts)
        parts.append(f"{one.name}: {'None' if Fact.NONE in facts else ' '.join([_type(one), *words])}")
    parts += [f"{name}={value}" for name, value in sorted(constants_of(wanted).items())]
    parts += [f"{name}={value}" for name, value in wanted.config.options]
    return f"{wanted.kernel}({', '.join(parts)}) for {wanted.target}"
