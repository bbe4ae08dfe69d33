"""Dispatch rules of bundles whose code several compilers made: the compiler whose code a call gets."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from silo.bundle.contents import BundleRules, BundleVariant, RulesKey, rules_key
from silo.core.config import Config
from silo.core.dispatch import Bucket, DecisionList, DispatchRules, bucket_to_json
from silo.core.values import canonical_json
from silo.frozen import frozen, replace

__all__ = [
    "CompiledConfig",
    "compiler_names",
    "compilers_by_key",
    "joined_rules",
    "joined_versions",
    "mixed_rules",
    "table_of",
]

_BETWEEN = "; "  # between the versions of one tool in a toolchain's text


@frozen
class CompiledConfig:
    """A config, and the identity of the compiler whose code is launched with it; "" if any serves."""

    config: Config
    compiler: str


def compilers_by_key(variants: Iterable[BundleVariant]) -> dict[RulesKey, tuple[str, ...]]:
    """The compilers of the variants that the same rules choose from, in the order of the variants."""
    found: dict[RulesKey, dict[str, None]] = {}
    for one in variants:
        found.setdefault(rules_key(one.artifact.variant), {})[one.artifact.compiler] = None
    return {key: tuple(names) for key, names in found.items()}


def table_of(rules: BundleRules, compilers: Sequence[str]) -> tuple[dict[Bucket, CompiledConfig], CompiledConfig]:
    """The config and compiler of each bucket, and of the fallback.

    ``compilers`` are the compilers of the variants; rules that name none mean the first.
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
    """The ``compilers`` of rules whose buckets and fallback have these compilers.

    A step of the decision list, which no bucket's measurement names a compiler for, gets the compiler that most buckets
    with the step's config have; of a config without a bucket, that most buckets have.
    """
    by_bucket = {canonical_json(bucket_to_json(bucket)): one.compiler for bucket, one in table.items()}
    every = Counter([one.compiler for one in table.values()] or [fallback.compiler])
    by_config: dict[bytes, Counter[str]] = {}
    for one in table.values():
        by_config.setdefault(one.config.order_key, Counter())[one.compiler] += 1
    steps = () if rules.unseen is None else rules.unseen.steps
    return (
        *(by_bucket[canonical_json(bucket_to_json(bucket))] for bucket, _ in rules.rules),
        fallback.compiler,
        *(_most_common(by_config.get(step.config.order_key, every), fallback.compiler) for step in steps),
    )


def _most_common(counts: Counter[str], preferred: str) -> str:
    most = max(counts.values())
    names = [name for name, count in counts.items() if count == most]
    return preferred if preferred in names else min(names)


def joined_rules(parts: Sequence[tuple[BundleRules, Sequence[str]]]) -> BundleRules:
    """The rules of several bundles for the same calls, each with the compilers of its bundle's variants.

    A bucket keeps the decision of the first bundle that has one, and so do the fallback and the decision list: times
    of different bundles were not taken side by side, so they do not decide here.
    """
    table: dict[Bucket, CompiledConfig] = {}
    for rules, compilers in parts:
        for bucket, one in table_of(rules, compilers)[0].items():
            table.setdefault(bucket, one)
    first, compilers = parts[0]
    unseen: DecisionList | None = first.rules.unseen
    made = DispatchRules.of(
        first.rules.key, {bucket: one.config for bucket, one in table.items()}, first.rules.fallback, unseen
    )
    names = mixed_rules(made, table, table_of(first, compilers)[1])
    if first.compilers and first.step_compilers:
        names = (*names[: len(made.rules) + 1], *first.step_compilers)
    return replace(first, rules=made, space=max(one.space for one, _ in parts), compilers=names)


def compiler_names(compilers: Iterable[str], toolchain: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Short names of compilers for people, by identity: the version of the tool that the bundle's toolchain names.

    Compilers that this does not tell apart get their identity's digest too.

    >>> compiler_names(["triton 3.6.0 files 68b6 cuda code eb99"], [("triton", "3.6.0; 3.9.0")])
    {'triton 3.6.0 files 68b6 cuda code eb99': 'triton 3.6.0'}
    """
    tools = [name for name, _ in toolchain if " " not in name and name != "zstd"]
    found = {compiler: _short(compiler, tools) for compiler in dict.fromkeys(compilers)}
    counts = Counter(found.values())
    return {
        compiler: name if counts[name] == 1 else f"{name} ({hashlib.sha256(compiler.encode()).hexdigest()[:8]})"
        for compiler, name in found.items()
    }


def _short(compiler: str, tools: Sequence[str]) -> str:
    words = compiler.split()
    named = [f"{word} {after}" for word, after in pairwise(words) if word in tools]
    return ", ".join(named) or " ".join(words[:3])


def joined_versions(texts: Iterable[str]) -> str:
    """The different versions of one tool in one text, in order.

    >>> joined_versions(["3.6.0", "3.9.0; 3.6.0"])
    '3.6.0; 3.9.0'
    """
    return _BETWEEN.join(dict.fromkeys(part for text in texts for part in text.split(_BETWEEN)))
