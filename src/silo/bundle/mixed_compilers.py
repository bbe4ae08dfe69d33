"""Dispatch rules of bundles with code of several compilers: they also choose the compiler whose code serves a call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from silo.bundle.contents import BundleRules, BundleVariant, RulesKey, rules_key
from silo.bundle.merged_evidence import Evidence, faster_by_trials
from silo.core.config import Config
from silo.core.dispatch import Bucket, DecisionList, DispatchRules, bucket_to_json
from silo.core.values import canonical_json
from silo.frozen import frozen, replace

__all__ = [
    "CompiledConfig",
    "RulesPart",
    "compiler_names",
    "compilers_by_key",
    "joined_rules",
    "joined_versions",
    "mixed_rules",
    "table_of",
]

_BETWEEN = "; "  # separates the versions of one tool in a toolchain's text


@frozen
class CompiledConfig:
    """A config, and the identity of the compiler whose code is launched with it; "" if any compiler's code serves."""

    config: Config
    compiler: str


def compilers_by_key(variants: Iterable[BundleVariant]) -> dict[RulesKey, tuple[str, ...]]:
    """Returns, for each key of rules, the compilers of the variants that these rules choose from."""
    compilers: dict[RulesKey, dict[str, None]] = {}
    for variant in variants:
        compilers.setdefault(rules_key(variant.artifact.variant), {})[variant.artifact.compiler] = None
    return {key: tuple(names) for key, names in compilers.items()}


def table_of(rules: BundleRules, compilers: Sequence[str]) -> tuple[dict[Bucket, CompiledConfig], CompiledConfig]:
    """Returns the config and compiler of each bucket, and of the fallback.

    ``compilers`` are the compilers of the variants. A rule without a compiler gets the first of these.
    """
    first = compilers[0] if compilers else ""
    table = {
        bucket: CompiledConfig(config, compiler or first)
        for (bucket, config), compiler in zip(rules.rules.rules, rules.rule_compilers, strict=True)
    }
    return table, CompiledConfig(rules.rules.fallback, rules.fallback_compiler or first)


def mixed_rules(
    rules: DispatchRules, table: Mapping[Bucket, CompiledConfig], fallback: CompiledConfig
) -> tuple[str, ...]:
    """Returns the ``compilers`` of rules: the compilers of the buckets, the fallback, and the decision list's steps.

    ``table`` has the config and the compiler of each bucket, from measurements. The configs of the decision list's
    steps were learnt, so no measurement gives their compilers. A step gets the compiler that most buckets with the
    step's config have or, if no bucket has this config, the compiler that most buckets have.
    """
    by_bucket = {
        canonical_json(bucket_to_json(bucket)): compiled_config.compiler for bucket, compiled_config in table.items()
    }
    every = Counter([compiled_config.compiler for compiled_config in table.values()] or [fallback.compiler])
    by_config: dict[bytes, Counter[str]] = {}
    for compiled_config in table.values():
        by_config.setdefault(compiled_config.config.order_key, Counter())[compiled_config.compiler] += 1
    steps = () if rules.unseen is None else rules.unseen.steps
    return (
        *(by_bucket[canonical_json(bucket_to_json(bucket))] for bucket, _ in rules.rules),
        fallback.compiler,
        *(_most_common(by_config.get(step.config.order_key, every), fallback.compiler) for step in steps),
    )


def _most_common(counts: Counter[str], preferred: str) -> str:
    maximum = max(counts.values())
    names = [name for name, count in counts.items() if count == maximum]
    return preferred if preferred in names else min(names)


@frozen
class RulesPart:
    """The rules of one of several bundles that are joined, the compilers of its variants, and its trials."""

    rules: BundleRules
    compilers: tuple[str, ...]
    evidence: Evidence = Evidence()


def joined_rules(parts: Sequence[RulesPart]) -> tuple[BundleRules, list[str]]:
    """Joins the rules that several bundles have for the same calls.

    A bucket keeps the decision of the first bundle that has one, unless trials of one device model, driver and policy
    in both bundles show that a later bundle's config is faster. The fallback and the decision list are the first
    bundle's. Also returns a line for each bucket that a later bundle decides.
    """
    table: dict[Bucket, CompiledConfig] = {}
    decided: dict[Bucket, RulesPart] = {}
    remarks: list[str] = []
    first = parts[0]
    for part in parts:
        for bucket, compiled_config in table_of(part.rules, part.compilers)[0].items():
            earlier = table.get(bucket)
            if earlier is not None:
                key = part.rules.key
                own = decided[bucket].evidence.times(key, bucket, earlier.config)
                decision = faster_by_trials(own, part.evidence.times(key, bucket, compiled_config.config))
                if not decision:
                    continue
                remarks.append(
                    f"{_shown(first.rules.rules.key, bucket)}: {compiled_config.compiler}: {decision.reason}"
                )
            table[bucket], decided[bucket] = compiled_config, part
    unseen: DecisionList | None = first.rules.rules.unseen
    joined = DispatchRules.of(
        first.rules.rules.key,
        {bucket: compiled_config.config for bucket, compiled_config in table.items()},
        first.rules.rules.fallback,
        unseen,
    )
    names = mixed_rules(joined, table, table_of(first.rules, first.compilers)[1])
    if first.rules.compilers and first.rules.step_compilers:
        names = (*names[: len(joined.rules) + 1], *first.rules.step_compilers)
    return replace(first.rules, rules=joined, space=max(part.rules.space for part in parts), compilers=names), remarks


def _shown(names: Sequence[str], bucket: Bucket) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, bucket, strict=True)) or "all calls"


def compiler_names(compilers: Iterable[str], toolchain: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns short names of compilers for people, by identity: tools of the bundle's toolchain, with their versions.

    If two compilers would have one name, a digest of the identity is added.

    >>> compiler_names(["triton 3.6.0 files 68b6 cuda code eb99"], [("triton", "3.6.0; 3.9.0")])
    {'triton 3.6.0 files 68b6 cuda code eb99': 'triton 3.6.0'}
    """
    tools = [name for name, _ in toolchain if " " not in name and name != "zstd"]
    names = {compiler: _short(compiler, tools) for compiler in dict.fromkeys(compilers)}
    counts = Counter(names.values())
    return {
        compiler: name if counts[name] == 1 else f"{name} ({hashlib.sha256(compiler.encode()).hexdigest()[:8]})"
        for compiler, name in names.items()
    }


def _short(compiler: str, tools: Sequence[str]) -> str:
    words = compiler.split()
    tool_versions = [f"{word} {after}" for word, after in pairwise(words) if word in tools]
    return ", ".join(tool_versions) or " ".join(words[:3])


def joined_versions(texts: Iterable[str]) -> str:
    """Returns the different versions of one tool in one text, in order.

    >>> joined_versions(["3.6.0", "3.9.0; 3.6.0"])
    '3.6.0; 3.9.0'
    """
    return _BETWEEN.join(dict.fromkeys(part for text in texts for part in text.split(_BETWEEN)))
