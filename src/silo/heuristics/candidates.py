"""Candidates: configs with the reasons why they are worth trying, and what was left out with the reason why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.plugins import is_option, options_for_targets
from silo.errors import SpaceError
from silo.heuristics.target_facts import TargetFacts

__all__ = ["Candidates", "Draft", "HeuristicCandidate", "changed"]


@dataclass(frozen=True, slots=True)
class HeuristicCandidate:
    """A config and why it is worth trying."""

    config: Config
    reason: str

    def __str__(self) -> str:
        return f"{self.config}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Candidates(Sequence[HeuristicCandidate]):
    """What a heuristic answers: candidates, best guess first, never none and each config once; and what it left out."""

    kind: str
    found: tuple[HeuristicCandidate, ...]
    rejected: tuple[str, ...] = ()

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configs alone."""
        return tuple(candidate.config for candidate in self.found)

    def __getitem__(self, index: int) -> HeuristicCandidate:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[HeuristicCandidate]:
        return iter(self.found)

    def named(self, names: Mapping[str, str]) -> Candidates:
        """The same with a kernel's own constexpr names, by the usual ones: ``{"XBLOCK": "BLOCK_SIZE"}``.

        A name given as "" is dropped: the kernel has that block written in. ``SpaceError`` where two names become one,
        or where configs differ in what is dropped alone; options keep their names.
        """
        made: list[HeuristicCandidate] = []
        for candidate in self.found:
            members = candidate.config.as_dict()
            kept = {name: names.get(name, name) for name in members if names.get(name, name)}
            if len(set(kept.values())) < len(kept):
                raise SpaceError(f"two blocks of {candidate.config} would have one name: {', '.join(kept.values())}")
            made.append(replace(candidate, config=Config.of({kept[name]: members[name] for name in kept})))
        return replace(self, found=_distinct(made))

    def for_target(self, target: TargetFacts) -> Candidates:
        """The same without options that mean nothing on the target: on a CPU the options of a GPU."""
        if target.kind != "cpu":
            return self
        own = options_for_targets(target.kind)
        kept = [
            replace(one, config=Config(one.config.values, tuple(o for o in one.config.options if o[0] in own)))
            for one in self.found
        ]
        return replace(self, found=_distinct(kept))

    def __str__(self) -> str:
        lines = [f"{self.kind}:", *(f"  {candidate}" for candidate in self.found)]
        return "\n".join([*lines, *(f"  left out: {reason}" for reason in self.rejected)])


class Draft:
    """Candidates while they are made: refused ones are kept as reasons."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._found: list[HeuristicCandidate] = []
        self._rejected: list[str] = []

    def add(self, made: Config | Rejected, reason: str) -> HeuristicCandidate | None:
        """Take a config in, or why there is none."""
        if isinstance(made, Rejected):
            self._rejected.append(f"{reason}: {made.reason}")
            return None
        candidate = HeuristicCandidate(made, reason)
        self._found.append(candidate)
        return candidate

    def reject(self, candidate: HeuristicCandidate, reason: str) -> None:
        """Note that a candidate is left out."""
        self._rejected.append(f"{candidate.config}: {reason}")

    @property
    def count(self) -> int:
        """How many were taken in."""
        return len(self._found)

    def done(self) -> Candidates:
        """What was made, each config once. ``SpaceError`` with every reason where nothing was."""
        if not self._found:
            raise SpaceError(
                f"the {self._kind} heuristic finds no config: " + ("; ".join(self._rejected) or "it was asked for none")
            )
        return Candidates(self._kind, _distinct(self._found), tuple(dict.fromkeys(self._rejected)))


def changed(config: Config, **members: int) -> Config:
    """The config with some values or options set.

    >>> changed(Config.of(XBLOCK=64, num_warps=4), num_warps=8).options
    (('num_warps', 8),)
    """
    assert all(is_option(name) or name.isidentifier() for name in members)
    return Config.of({**config.as_dict(), **members})


def _distinct(candidates: Sequence[HeuristicCandidate]) -> tuple[HeuristicCandidate, ...]:
    first: dict[Config, HeuristicCandidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.config, candidate)
    return tuple(first.values())
