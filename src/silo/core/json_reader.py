"""Reads values from parsed JSON, and gives classes of values a JSON form through their fields' declarations.

Each reader returns the value, or raises ``ValueError`` through :func:`malformed`. The data is not trusted: no reader
raises any other exception. A :class:`Form` reads and writes one kind of value. A class derived from :class:`Persisted`
declares the form of each field, and ``to_json`` and ``from_json`` follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

from silo.core.values import (
    JSON,
    MAX_AXES,
    MAX_NAMES,
    DType,
    Value,
    beginning,
    dtype,
    malformed,
    value_from_json,
    value_to_json,
)
from silo.errors import SiloError
from silo.frozen import Field, fields_of

__all__ = [
    "ANYTHING",
    "BOOL",
    "DTYPE",
    "FLOAT",
    "INTEGER",
    "NAME",
    "NATURAL",
    "NATURALS",
    "TEXT",
    "VALUE",
    "Form",
    "Persisted",
    "PersistedRow",
    "built",
    "enumerated",
    "integer",
    "listed",
    "members_of",
    "named",
    "optional",
    "paired",
    "read_bool",
    "read_dtype",
    "read_integer",
    "read_integers",
    "read_list",
    "read_mapping",
    "read_members",
    "read_natural",
    "read_object",
    "read_pairs",
    "read_text",
    "value_of",
    "write_members",
]

_SHOWN = 100  # the most characters of a name that a message shows

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def read_mapping(data: JSON, label: str) -> Mapping[str, JSON]:
    """Returns a JSON object with any members."""
    if not isinstance(data, dict):
        raise malformed(label, data)
    return data


def read_object(data: JSON, names: Sequence[str], label: str) -> Mapping[str, JSON]:
    """Returns a JSON object that has exactly these members."""
    if not isinstance(data, dict) or set(data) != set(names):
        raise malformed(label, data)
    return data


def read_list(data: JSON, label: str, most: int | None = None) -> Sequence[JSON]:
    """Returns a list of at most ``most`` items."""
    if not isinstance(data, list):
        raise malformed(label, data)
    if most is not None and len(data) > most:
        raise ValueError(f"{label} of {len(data)} items; at most {most}")
    return data


def read_pairs(data: JSON, label: str) -> Sequence[tuple[str, JSON]]:
    """Returns a list of at most ``MAX_NAMES`` pairs ``[name, anything]``."""
    pairs: list[tuple[str, JSON]] = []
    for item in read_list(data, label, MAX_NAMES):
        pair = read_list(item, label)
        if len(pair) != 2:
            raise malformed(label, item)
        pairs.append((read_text(pair[0], label), pair[1]))
    return pairs


def read_text(data: JSON, label: str) -> str:
    """Returns a string."""
    if not isinstance(data, str):
        raise malformed(label, data)
    return data


def read_bool(data: JSON, label: str) -> bool:
    """Returns True or False."""
    if not isinstance(data, bool):
        raise malformed(label, data)
    return data


def read_integer(data: JSON, label: str) -> int:
    """Returns an integer; a bool is refused."""
    if not isinstance(data, int) or isinstance(data, bool):
        raise malformed(label, data)
    return data


def read_natural(data: JSON, label: str) -> int:
    """Returns an integer that is not negative."""
    if not isinstance(data, int) or isinstance(data, bool) or data < 0:
        raise malformed(label, data)
    return data


def read_integers(data: JSON, label: str) -> tuple[int, ...]:
    """Returns a list of at most ``MAX_AXES`` integers, such as a shape, so that the product of its items is bounded."""
    return tuple(read_integer(item, label) for item in read_list(data, label, MAX_AXES))


def read_dtype(data: JSON, label: str) -> DType:
    """Returns the dtype with this name."""
    try:
        return dtype(read_text(data, label))
    except KeyError as error:
        raise ValueError(str(error.args[0])) from None


# ---- Forms: how one kind of value is read and written ----


class Form(Generic[T]):
    """How one kind of value is read from JSON and written as JSON.

    ``read(data, what)`` returns the value, or raises ``ValueError``; ``what`` is the noun for the data in the message
    ("the box of a tensor map"). ``write(value)`` returns the only JSON from which ``read`` makes the value. ``check``
    names the native reader's check of the member, if there is one: a constant of ``enum silo_member_check``.
    """

    __slots__ = ("check", "items", "of", "read", "write")

    def __init__(
        self,
        read: Callable[[JSON, str], T],
        write: Callable[[T], JSON],
        *,
        check: str = "",
        of: type | None = None,
        items: Form[Any] | None = None,
    ) -> None:
        self.read = read
        self.write = write
        self.check = check
        self.of = of  # the class whose values this form reads, if :func:`value_of` made it
        self.items = items  # for the form of a list: the form of each item


def _itself(value: Any) -> Any:  # noqa: ANN401  # a value that is its own JSON
    return value


def _anything(data: JSON, label: str) -> JSON:  # noqa: ARG001  # every reader has both
    return data


def _value(data: JSON, label: str) -> Value:
    try:
        return value_from_json(data)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _float(data: JSON, label: str) -> float:
    value = _value(data, label)
    if not isinstance(value, float):
        raise malformed(label, data)
    return value


def _naturals(data: JSON, label: str) -> tuple[int, ...]:
    items = read_list(data, label)
    if not {int}.issuperset(map(type, items)):  # type, not isinstance: a bool is refused
        raise malformed(label, data)
    numbers = tuple(cast("Sequence[int]", items))
    if min(numbers, default=0) < 0:
        raise malformed(label, data)
    return numbers


ANYTHING: Final[Form[JSON]] = Form(_anything, _itself)
"""The form of a member that may be any JSON; the class that has the member checks it."""
BOOL: Final[Form[bool]] = Form(read_bool, _itself, check="FLAG")
DTYPE: Final[Form[DType]] = Form(read_dtype, lambda value: value.name)
FLOAT: Final[Form[float]] = Form(_float, value_to_json)
NATURALS: Final[Form[tuple[int, ...]]] = Form(_naturals, list)
"""The form of a tuple of natural numbers, without a limit on their count."""
TEXT: Final[Form[str]] = Form(read_text, _itself, check="TEXT")
NAME: Final[Form[str]] = Form(read_text, _itself, check="NAME")
"""Text which the native reader requires to be printable, not empty and of at most 1,024 characters."""
VALUE: Final[Form[Value]] = Form(_value, value_to_json)


def integer(low: int | None = None, high: int | None = None) -> Form[int]:
    """Returns the form of an integer that is at least ``low`` and at most ``high``."""

    def read(data: JSON, label: str) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            raise malformed(label, data)
        if (low is not None and data < low) or (high is not None and data > high):
            raise malformed(label, data)
        return data

    return Form(read, _itself)


INTEGER: Final[Form[int]] = Form(read_integer, _itself)
NATURAL: Final[Form[int]] = Form(read_natural, _itself)


def optional(form: Form[T]) -> Form[T | None]:
    """Returns the form of a value of ``form`` or of None, which is written as ``null``."""
    return Form(
        lambda data, what: None if data is None else form.read(data, what),
        lambda value: None if value is None else form.write(value),
        of=form.of,
    )


def enumerated(cls: type[E]) -> Form[E]:
    """Returns the form of a member of an enumeration of strings, written as its value."""
    members_by_value = {member.value: member for member in cls}

    def read(data: JSON, label: str) -> E:
        member = members_by_value.get(data) if isinstance(data, str) else None
        if member is None:
            raise malformed(label, data)
        return member

    return Form(read, attrgetter("_value_"))  # reads the same as .value with two calls fewer


def listed(form: Form[T], least: int = 0, most: int | None = None) -> Form[tuple[T, ...]]:
    """Returns the form of a tuple of at least ``least`` and at most ``most`` values, written as a list."""

    def read(data: JSON, label: str) -> tuple[T, ...]:
        items = read_list(data, label, most)
        if len(items) < least:
            raise malformed(label, data)
        return tuple([form.read(item, label) for item in items])

    def write(values: tuple[T, ...]) -> JSON:
        return cast("JSON", list(values)) if form.write is _itself else [form.write(value) for value in values]

    return Form(read, write, items=form)


def paired(form: Form[T]) -> Form[tuple[tuple[str, T], ...]]:
    """Returns the form of pairs of a name and a value, at most ``MAX_NAMES``, written as a list of lists of two."""

    def read(data: JSON, label: str) -> tuple[tuple[str, T], ...]:
        pairs: list[tuple[str, T]] = []
        for item in read_list(data, label, MAX_NAMES):
            match item:
                case [str() as name, value]:
                    pairs.append((name, form.read(value, f"{name[:_SHOWN]} of {label}")))
                case _:
                    raise malformed(label, item)
        return tuple(pairs)

    return Form(read, lambda pairs: [[name, form.write(value)] for name, value in pairs])


def named(form: Form[T]) -> Form[tuple[tuple[str, T], ...]]:
    """Returns the form of pairs of a name and a value, sorted by name, written as an object (at most ``MAX_NAMES``)."""

    def read(data: JSON, label: str) -> tuple[tuple[str, T], ...]:
        members = read_mapping(data, label)
        if len(members) > MAX_NAMES:
            raise ValueError(f"{label}: {len(members)} members; at most {MAX_NAMES}")
        pairs = [(name, form.read(item, f"{name[:_SHOWN]} of {label}")) for name, item in members.items()]
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    return Form(read, lambda pairs: {name: form.write(value) for name, value in pairs})


class _Coded(Protocol):
    def to_json(self) -> JSON: ...

    @classmethod
    def from_json(cls, data: JSON, /) -> Self: ...


C = TypeVar("C", bound=_Coded)


def value_of(cls: type[C]) -> Form[C]:
    """Returns the form of a value of a class that has ``to_json`` and ``from_json``."""
    return Form(lambda data, what: cls.from_json(data), methodcaller("to_json"), of=cls)  # noqa: ARG005


# ---- Classes whose fields declare their JSON ----


class Persisted:
    """A value whose JSON is an object with a member for each field. Derived classes are made with ``@frozen``.

    Each field declares its form: ``field(form=TEXT)``. A field with ``left_out=True`` has a default, and its member is
    absent if the field has the default. ``since=3`` is the minor version of bundles that added such a member;
    ``member="tf32"`` names the member if the field has another name. The class's ``title`` names the value in messages;
    ``tags`` are further members whose values never change.

    >>> from silo.frozen import field, frozen
    >>> @frozen
    ... class Tile(Persisted):
    ...     title = "a tile"
    ...     sizes: tuple[int, ...] = field(form=listed(NATURAL))
    ...     padded: bool = field(default=False, form=BOOL, left_out=True)
    >>> Tile((4, 8)).to_json(), Tile.from_json({"sizes": [4], "padded": True})
    ({'sizes': [4, 8]}, Tile(sizes=(4,), padded=True))
    >>> Tile.from_json({"sizes": [4, -1]})
    Traceback (most recent call last):
    ValueError: not the sizes of a tile: -1
    """

    __slots__ = ()

    title: ClassVar[str]
    tags: ClassVar[Mapping[str, JSON]] = MappingProxyType({})

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return write_members(self)

    @classmethod
    def from_json(cls, data: JSON) -> Self:
        """Returns the value with this JSON form; raises ``ValueError`` for any other JSON."""
        values = read_members(cls, data)
        try:
            return cls(*values)
        except (SiloError, ArithmeticError) as error:
            raise ValueError(str(error)) from None


class PersistedRow(Persisted):
    """A value whose JSON is the list of its fields, in order. Derived classes are made with ``@frozen``.

    >>> from silo.frozen import field, frozen
    >>> @frozen
    ... class Pair(PersistedRow):
    ...     title = "a pair"
    ...     name: str = field(form=TEXT)
    ...     count: int = field(form=NATURAL)
    >>> Pair("x", 3).to_json(), Pair.from_json(["y", 4])
    (['x', 3], Pair(name='y', count=4))
    """

    __slots__ = ()

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return [member.form.write(getattr(self, member.name)) for member in members_of(type(self))]

    @classmethod
    def from_json(cls, data: JSON) -> Self:
        """Returns the value with this JSON form; raises ``ValueError`` for any other JSON."""
        members = members_of(cls)
        if not isinstance(data, list) or len(data) != len(members):
            raise malformed(cls.title, data)
        pairs = zip(members, data, strict=True)
        return built(cls, [member.form.read(item, f"the {member.member} of {cls.title}") for member, item in pairs])


P = TypeVar("P", bound=Persisted)


def built(cls: type[P], values: Sequence[Any]) -> P:
    """Returns ``cls(*values)``; raises ``ValueError``, with the class's own error text, if the class refuses them."""
    try:
        return cls(*values)
    except (SiloError, ArithmeticError) as error:
        raise ValueError(str(error)) from None


_MEMBERS: dict[type, tuple[Field, ...]] = {}
_WRITTEN: dict[type, tuple[Field, ...]] = {}  # the fields of _MEMBERS in the order of canonical JSON


def members_of(cls: type) -> tuple[Field, ...]:
    """Returns the fields of a class, each of which declares a member of its JSON.

    Raises:
        TypeError: a field has no form, or is left out without a default.
    """
    fields = _MEMBERS.get(cls)
    if fields is None:
        fields = fields_of(cls)
        for field in fields:
            if field.form is None:
                raise TypeError(f"{cls.__qualname__}.{field.name} declares no form")
            if field.left_out and not field.has_default:
                raise TypeError(f"{cls.__qualname__}.{field.name} is left out and has no default")
        _MEMBERS[cls] = fields
    return fields


def write_members(value: Persisted) -> dict[str, JSON]:
    """Returns the JSON of a value, its members in the order of canonical JSON."""
    cls = type(value)
    members = _WRITTEN.get(cls)
    if members is None:
        members = _WRITTEN[cls] = tuple(sorted(members_of(cls), key=attrgetter("member")))
    data: dict[str, JSON] = {}
    for member in members:
        item = getattr(value, member.name)
        if not (member.left_out and item == member.default):
            write = member.form.write
            data[member.member] = item if write is _itself else write(item)
    return dict(sorted({**data, **cls.tags}.items())) if cls.tags else data


def read_members(cls: type[Persisted], data: JSON) -> list[Any]:
    """Returns the values of a class's fields, in order, from its JSON; raises ``ValueError`` for any other JSON."""
    if not isinstance(data, dict):
        raise malformed(cls.title, data)
    values: list[Any] = []
    present = 0
    for name, tag in cls.tags.items():
        if name not in data:
            raise _wrong_members(cls, data)
        if data[name] != tag:
            raise ValueError(f"not {cls.title}: its {name} is {beginning(data[name])}, not {tag!r}")
        present += 1
    for member in _MEMBERS.get(cls) or members_of(cls):
        if member.member in data:
            present += 1
            value = member.form.read(data[member.member], f"the {member.member} of {cls.title}")
            if member.left_out and value == member.default:
                raise ValueError(f"the {member.member} of {cls.title} is left out where it is {beginning(value)}")
            values.append(value)
        elif member.left_out:
            values.append(member.default)
        else:
            raise _wrong_members(cls, data)
    if present != len(data):
        raise _wrong_members(cls, data)
    return values


def _wrong_members(cls: type[Persisted], data: Mapping[str, JSON]) -> ValueError:
    members = members_of(cls)
    required = [*cls.tags, *(member.member for member in members if not member.left_out)]
    unknown = sorted(set(data) - {*required, *(member.member for member in members)})
    missing = [name for name in required if name not in data]
    parts = [f"unknown members {unknown[:16]}"] if unknown else []
    parts += [f"members {missing} are missing"] if missing else []
    return ValueError(f"not {cls.title}: {', '.join(parts)}"[:500])
