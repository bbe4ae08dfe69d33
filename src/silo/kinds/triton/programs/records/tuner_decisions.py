"""Converts decisions of Triton's tuners to values, and finds the config of a tuner for a decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from silo.core.config import Config
from silo.core.device import Target
from silo.core.dispatch import bucket_of, distance
from silo.core.values import Value, identity_of
from silo.errors import SourceError
from silo.kinds.triton.front.adapter import TunerKey, active_target, config_members
from silo.kinds.triton.front.compiled_for import target_from
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.programs.records.archive import ForeignWinner
from silo.settings import launched_ranks

__all__ = [
    "FoundDecision",
    "config_for",
    "current_target",
    "described_key",
    "find_decision",
    "nearest_winner",
    "refused",
    "winner_of",
    "words_of_nearest",
]

_log = logging.getLogger("silo")

T = TypeVar("T", bound=Exception)


def refused(error: T) -> T:
    """Returns ``error``, to be raised; logs it at once if other ranks may wait for this one.

    A rank that raises may hang while it ends, in a collective operation that it never joined, before anybody sees its
    error.
    """
    ranks = launched_ranks()
    if ranks is not None:
        _log.error("rank %s of %s goes no further: %s", *ranks, error)
    return error


def current_target() -> Target:
    """The current target of Triton, as a Silo target."""
    return target_from(active_target())


def winner_of(source: TritonSource, tuner: Any, key: TunerKey, config: Any) -> ForeignWinner:  # noqa: ANN401
    """A tuner's decision as a value; if ``config`` is None, a value without a config, to look decisions up by.

    Raises:
        SourceError: the key or the config holds a value without a canonical form.
    """
    names = tuple(str(name) for name in tuner.keys)
    members = {} if config is None else config_members(config)
    return ForeignWinner(
        kernel=source.name,
        source=source.fingerprint,
        target=current_target(),
        names=names if len(names) <= len(key) else (),
        key=tuple(_plain(source, value) for value in key),
        config=Config.of({name: source.constant(value) for name, value in members.items()}),
    )


def _plain(source: TritonSource, value: object) -> Value:
    constant = source.constant(value)
    if constant is None or isinstance(constant, bool | int | float | str):
        return constant
    raise SourceError(f"{source.name}: its key has the value {value!r}, which is neither a number nor a text")


def config_for(configs: Iterable[Any], wanted: Config) -> Any:  # noqa: ANN401
    """The config of a tuner that sets exactly the values of ``wanted``; None if the tuner lacks such a config."""
    requested = wanted.as_dict()
    return next((config for config in configs if _same(config_members(config), requested)), None)


def _same(members: dict[str, object], requested: dict[str, Value]) -> bool:
    return members.keys() == requested.keys() and all(
        type(members[name]) is type(value) and identity_of(members[name]) == identity_of(value)
        for name, value in requested.items()
    )


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """The config found among earlier decisions for a tuner's request; ``config`` is None if none fits.

    ``near`` is the decision that was used if it is for another key. ``allowed`` are the configs that remain after the
    author's pruning; () if the pruning was not called.
    """

    config: Any
    near: ForeignWinner | None = None
    allowed: Sequence[Any] = ()


def find_decision(
    tuner: Any,  # noqa: ANN401  # an object of Triton's
    winners: Iterable[ForeignWinner],
    wanted: ForeignWinner,
    configs: Callable[[], Sequence[Any]],
) -> FoundDecision:
    """The config that was decided for this key, or else for the nearest key.

    A config for the nearest key is returned only if it remains after the author's pruning.
    """
    same_target = [winner for winner in winners if winner.target == wanted.target]
    exact = next((winner for winner in same_target if winner.slot == wanted.slot), None)
    if exact is not None and (config := config_for(tuner.configs, exact.config)) is not None:
        return FoundDecision(config)
    allowed = configs()
    usable = [winner for winner in same_target if config_for(allowed, winner.config) is not None]
    near = nearest_winner(usable, wanted)
    return FoundDecision(None if near is None else config_for(allowed, near.config), near, allowed)


def described_key(winner: ForeignWinner) -> str:
    """A key as text: ``n=512, float32``."""
    pairs = [f"{name}={value}" for name, value in zip(winner.names, winner.key, strict=False)]
    return ", ".join([*pairs, *(str(value) for value in winner.key[len(winner.names) :])]) or "its only key"


def words_of_nearest(near: ForeignWinner, wanted: ForeignWinner) -> str:
    """The message that explains why a decision for another key is used."""
    return f"{near.config}, which was decided for {described_key(near)}, as nothing was for {described_key(wanted)}"


def nearest_winner(winners: Sequence[ForeignWinner], wanted: ForeignWinner) -> ForeignWinner | None:
    """The decision for the nearest key among the keys that differ from the wanted key only in integers.

    Of decisions that are equally near, the one with the smallest ``slot`` is returned. None if every key differs in
    another value than an integer, or in the sign of an integer.
    """
    bucket = bucket_of(wanted.key)
    nearest: tuple[int, tuple[str, str, str], ForeignWinner] | None = None
    for winner in winners:
        gap = distance(bucket, bucket_of(winner.key))
        if gap is not None and (nearest is None or (gap, winner.slot) < nearest[:2]):
            nearest = (gap, winner.slot, winner)
    return None if nearest is None else nearest[2]
