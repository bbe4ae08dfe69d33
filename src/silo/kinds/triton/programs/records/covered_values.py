"""Values of constexprs that are compiled while a program is recorded, besides those that its launches have.

A word names a parameter and its values::

    word    = [KERNEL "."] NAME "=" item { "," item }
    item    = value | FROM ".." TO [":" step]
    step    = "pow2" | a whole number
    value   = a whole number | a number | "true" | "false" | "none" | "'" text "'"

``BLOCK=16,32,64``, ``BLOCK=1..4096:pow2``, ``scale.BLOCK=64..256:64``, ``KIND='a','b'``. NAME is a parameter that is
annotated ``tl.constexpr``, or ``num_warps``, ``num_stages`` or ``num_ctas``. Several words are separated by blanks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from silo.core.values import Value, identity_of
from silo.errors import SettingsError
from silo.frozen import frozen

__all__ = ["OPTIONS", "Cover", "covered_combinations", "read_covers"]

OPTIONS = ("num_warps", "num_stages", "num_ctas")
_MOST_VALUES = 256  # of one word: each is a compile of each kernel that has the parameter, and two of most
_MOST_COMBINATIONS = 1024  # of all words for one call
_WORD = re.compile(r"(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ITEM = re.compile(r"'[^']*'|[^,']+")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(pow2|\d+))?")
_NAMED: Mapping[str, Value] = {"true": True, "false": False, "none": None}


@frozen
class Cover:
    """Values of one parameter, of the kernels of one name or (None) of all that have the parameter."""

    kernel: str | None
    name: str
    values: tuple[Value, ...]

    @property
    def label(self) -> str:
        """The parameter as the word names it."""
        return self.name if self.kernel is None else f"{self.kernel}.{self.name}"


def read_covers(words: str | Sequence[str]) -> tuple[Cover, ...]:
    """Return the values that words of this module's grammar name.

    >>> read_covers("BLOCK=1..8:pow2,48 add.WIDE=true,false")
    (Cover(kernel=None, name='BLOCK', values=(1, 2, 4, 8, 48)), Cover(kernel='add', name='WIDE', values=(True, False)))

    Raises:
        SettingsError: a word is outside of the grammar, names an empty range, or too many values.
    """
    return tuple(_read(word) for word in (_split(words) if isinstance(words, str) else words))


def _split(text: str) -> list[str]:
    """The words of a text; blanks within quotes separate nothing."""
    return re.findall(r"(?:'[^']*'|[^\s'])+|'", text)


def _read(word: str) -> Cover:
    found = _WORD.fullmatch(word.strip())
    if found is None:
        raise SettingsError(
            f"--cover {word}: it is NAME=VALUES or KERNEL.NAME=VALUES, as in BLOCK=16,32,64 or BLOCK=1..4096:pow2"
        )
    kernel, name, text = found.groups()
    items = _ITEM.findall(text)
    if not items or ",".join(items) != text:
        raise SettingsError(f"--cover {word}: values are separated by single commas, and texts stand between ' and '")
    values: dict[tuple[object, ...] | object, Value] = {}
    for item in items:
        for value in _values(word, item.strip()):
            values.setdefault(identity_of(value), value)
            if len(values) > _MOST_VALUES:
                raise SettingsError(f"--cover {word}: more than {_MOST_VALUES} values, each of which is compiled")
    if name in OPTIONS and (wrong := [value for value in values.values() if type(value) is not int or value < 1]):
        raise SettingsError(f"--cover {word}: {name} is a whole number from 1 on, not {wrong[0]!r}")
    return Cover(kernel, name, tuple(values.values()))


def _values(word: str, item: str) -> Iterator[Value]:
    if (found := _RANGE.fullmatch(item)) is not None:
        yield from _range(word, int(found[1]), int(found[2]), found[3])
        return
    if item.startswith("'"):
        yield item[1:-1]
        return
    if item.lower() in _NAMED:
        yield _NAMED[item.lower()]
        return
    for kind in (int, float):
        try:
            value = kind(item)
        except ValueError:
            continue
        if value - value == 0:  # neither infinite nor no number
            yield value
            return
    raise SettingsError(
        f"--cover {word}: {item!r} is no value: a number, true, false, none, 'text' or a range FROM..TO[:pow2|:STEP]"
    )


def _range(word: str, first: int, last: int, step: str | None) -> Iterator[int]:
    if step == "pow2":
        found: Iterator[int] = itertools.takewhile(lambda one: one <= last, _powers(first))
    elif step == "0":
        raise SettingsError(f"--cover {word}: a step is 1 or more")
    else:
        found = iter(range(first, last + 1, int(step or 1)))
    empty = True
    for value in found:
        empty = False
        yield value
    if empty:
        raise SettingsError(f"--cover {word}: nothing lies from {first} to {last}")


def _powers(first: int) -> Iterator[int]:
    return (1 << power for power in itertools.count(max(0, first - 1).bit_length()))


def covered_combinations(covers: Sequence[Cover], kernel: str, met: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Each combination of values that is to be compiled beside a call, by name: those that differ from ``met``.

    ``met``: the constexprs and options of the call, by name. Of two covered names every value goes with every value of
    the other, the call's own among them.

    >>> [*covered_combinations(read_covers("A=1,2 B=true"), "k", {"A": 1, "B": False, "C": 5})]
    [{'A': 1, 'B': True}, {'A': 2, 'B': False}, {'A': 2, 'B': True}]

    Raises:
        SettingsError: more combinations than anybody would compile.
    """
    choices: dict[str, dict[object, Value]] = {}
    for cover in covers:
        if cover.kernel in (None, kernel) and cover.name in met:
            own = met[cover.name]
            found = choices.setdefault(cover.name, {identity_of(own): own})
            for value in cover.values:
                given = _as_met(value, own)
                found.setdefault(identity_of(given), given)
    count = 1
    for found in choices.values():
        count *= len(found)
    if count > _MOST_COMBINATIONS:
        raise SettingsError(
            f"--cover asks for {count} combinations of {', '.join(choices)} of {kernel}, and {_MOST_COMBINATIONS} are "
            "the most: name fewer values, or the kernels that need them (KERNEL.NAME=VALUES)"
        )
    own_values = {name: met[name] for name in choices}
    for values in itertools.product(*(found.values() for found in choices.values())):
        combination = dict(zip(choices, values, strict=True))
        if any(identity_of(combination[name]) != identity_of(own_values[name]) for name in choices):
            yield combination


def _as_met(value: Value, met: Value) -> Value:
    """A value in the type of the call's value: 1 for True, 2 for 2.0, because code is distinguished by types."""
    if type(met) is bool and type(value) is int and value in (0, 1):
        return bool(value)
    if type(met) is float and type(value) is int:
        return float(value)
    return value
