"""Values read from parsed JSON, and the classes of values whose fields declare their JSON.

Each reader returns the value, or raises ``ValueError`` through :func:`malformed`. Data may come from anywhere, so no
reader lets another exception out. A :class:`Form` reads and writes one kind of value; a class derived from
:class:`Persisted` names the form of each field, and has its ``to_json`` and ``from_json`` from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

from silo.core.dtypes import DType, dtype
from silo.core.target import Target
from silo.core.values import JSON, MAX_AXES, MAX_NAMES, Value, beginning, malformed, value_from_json, value_to_json
from silo.errors import SiloError, TargetError
from silo.frozen import declared_members

__all__ = [
    "ANYTHING",
    "BOOL",
    "DTYPE",
    "FLOAT",
    "INTEGER",
    "NAME",
    "NATURAL",
    "NATURALS",
    "TARGET",
    "TEXT",
    "VALUE",
    "Form",
    "Member",
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
    "read_target",
    "read_text",
    "value_of",
    "write_members",
]

_SHOWN = 100  # characters of a name that a message shows

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def read_mapping(data: JSON, what: str) -> Mapping[str, JSON]:
    """An object with any members."""
    if not isinstance(data, dict):
        raise malformed(what, data)
    return data


def read_object(data: JSON, names: Sequence[str], what: str) -> Mapping[str, JSON]:
    """An object with exactly these members."""
    if not isinstance(data, dict) or set(data) != set(names):
        raise malformed(what, data)
    return data


def read_list(data: JSON, what: str, most: int | None = None) -> Sequence[JSON]:
    """A list, of at most so many items."""
    if not isinstance(data, list):
        raise malformed(what, data)
    if most is not None and len(data) > most:
        raise ValueError(f"{what} of {len(data)} items; at most {most}")
    return data


def read_pairs(data: JSON, what: str) -> Sequence[tuple[str, JSON]]:
    """A list of at most ``MAX_NAMES`` pairs ``[name, anything]``."""
    pairs: list[tuple[str, JSON]] = []
    for item in read_list(data, what, MAX_NAMES):
        pair = read_list(item, what)
        if len(pair) != 2:
            raise malformed(what, item)
        pairs.append((read_text(pair[0], what), pair[1]))
    return pairs


def read_text(data: JSON, what: str) -> str:
    """A string."""
    if not isinstance(data, str):
        raise malformed(what, data)
    return data


def read_bool(data: JSON, what: str) -> bool:
    """True or false."""
    if not isinstance(data, bool):
        raise malformed(what, data)
    return data


def read_integer(data: JSON, what: str) -> int:
    """An integer, which a bool is not."""
    if not isinstance(data, int) or isinstance(data, bool):
        raise malformed(what, data)
    return data


def read_natural(data: JSON, what: str) -> int:
    """An integer that is not negative."""
    value = read_integer(data, what)
    if value < 0:
        raise malformed(what, data)
    return value


def read_integers(data: JSON, what: str) -> tuple[int, ...]:
    """A list of at most ``MAX_AXES`` integers: of shapes and their like, whose product somebody takes."""
    return tuple(read_integer(item, what) for item in read_list(data, what, MAX_AXES))


def read_dtype(data: JSON, what: str) -> DType:
    """The name of a dtype."""
    try:
        return dtype(read_text(data, what))
    except KeyError as error:
        raise ValueError(str(error.args[0])) from None


def read_target(data: JSON, what: str) -> Target:
    """A target in its own spelling."""
    try:
        return Target.parse(read_text(data, what))
    except TargetError as error:
        raise ValueError(str(error)) from None


# ---- Forms: how one kind of value is read and written ----


class Form(Generic[T]):
    """How a value is read from JSON and written as JSON.

    ``read(data, what)`` returns the value, or raises ``ValueError`` that begins with ``what`` the data should be ("the
    box of a tensor map"). ``write(value)`` returns the one JSON that ``read`` takes for the value. ``check`` names the
    check of the native reader where it checks such a member by itself: a constant of ``enum silo_member_check``.
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
        self.of = of  # the class of the values of :func:`value_of`
        self.items = items  # the form of the items of a list


def _itself(value: Any) -> Any:  # noqa: ANN401  # a value that is its own JSON
    return value


def _anything(data: JSON, what: str) -> JSON:  # noqa: ARG001  # every reader has both
    return data


def _value(data: JSON, what: str) -> Value:
    try:
        return value_from_json(data)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _float(data: JSON, what: str) -> float:
    value = _value(data, what)
    if not isinstance(value, float):
        raise malformed(what, data)
    return value


def _naturals(data: JSON, what: str) -> tuple[int, ...]:
    items = read_list(data, what)
    if not {int}.issuperset(map(type, items)):  # and not bool
        raise malformed(what, data)
    numbers = tuple(cast("Sequence[int]", items))
    if min(numbers, default=0) < 0:
        raise malformed(what, data)
    return numbers


ANYTHING: Final[Form[JSON]] = Form(_anything, _itself)
"""JSON of any form; the class checks it itself."""
BOOL: Final[Form[bool]] = Form(read_bool, _itself, check="FLAG")
DTYPE: Final[Form[DType]] = Form(read_dtype, lambda value: value.name)
FLOAT: Final[Form[float]] = Form(_float, value_to_json)
NATURALS: Final[Form[tuple[int, ...]]] = Form(_naturals, list)
"""Natural numbers, of which there may be very many."""
TARGET: Final[Form[Target]] = Form(read_target, str)
TEXT: Final[Form[str]] = Form(read_text, _itself, check="TEXT")
NAME: Final[Form[str]] = Form(read_text, _itself, check="NAME")
"""Text which the native reader requires to be printable, not empty and of at most 1,024 characters."""
VALUE: Final[Form[Value]] = Form(_value, value_to_json)


def integer(low: int | None = None, high: int | None = None) -> Form[int]:
    """An integer, at least ``low`` and at most ``high``."""

    def read(data: JSON, what: str) -> int:
        value = read_integer(data, what)
        if (low is not None and value < low) or (high is not None and value > high):
            raise malformed(what, data)
        return value

    return Form(read, _itself)


INTEGER: Final = integer()
NATURAL: Final = integer(0)


def optional(form: Form[T]) -> Form[T | None]:
    """A value of ``form``, or None, which is ``null``."""
    return Form(
        lambda data, what: None if data is None else form.read(data, what),
        lambda value: None if value is None else form.write(value),
        of=form.of,
    )


def enumerated(cls: type[E]) -> Form[E]:
    """A member of an enumeration, by its value."""

    def read(data: JSON, what: str) -> E:
        try:
            return cls(data)
        except ValueError:
            raise malformed(what, data) from None

    return Form(read, lambda value: value.value)


def listed(form: Form[T], least: int = 0, most: int | None = None) -> Form[tuple[T, ...]]:
    """A tuple of at least ``least`` and at most ``most`` values, as a list."""

    def read(data: JSON, what: str) -> tuple[T, ...]:
        items = read_list(data, what, most)
        if len(items) < least:
            raise malformed(what, data)
        return tuple([form.read(item, what) for item in items])

    return Form(read, lambda values: [form.write(value) for value in values], items=form)


def paired(form: Form[T]) -> Form[tuple[tuple[str, T], ...]]:
    """Pairs of a name and a value, as a list of lists of two, at most ``MAX_NAMES``."""
    return Form(
        lambda data, what: tuple(
            [(name, form.read(item, f"{name[:_SHOWN]} of {what}")) for name, item in read_pairs(data, what)]
        ),
        lambda pairs: [[name, form.write(value)] for name, value in pairs],
    )


def named(form: Form[T]) -> Form[tuple[tuple[str, T], ...]]:
    """Pairs of a name and a value, sorted by name, as an object of at most ``MAX_NAMES`` members."""

    def read(data: JSON, what: str) -> tuple[tuple[str, T], ...]:
        members = read_mapping(data, what)
        if len(members) > MAX_NAMES:
            raise ValueError(f"{what}: {len(members)} members; at most {MAX_NAMES}")
        pairs = [(name, form.read(item, f"{name[:_SHOWN]} of {what}")) for name, item in members.items()]
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    return Form(read, lambda pairs: {name: form.write(value) for name, value in pairs})


class _Coded(Protocol):
    def to_json(self) -> JSON: ...

    @classmethod
    def from_json(cls, data: JSON, /) -> Self: ...


C = TypeVar("C", bound=_Coded)


def value_of(cls: type[C]) -> Form[C]:
    """A value of a class with ``to_json`` and ``from_json``."""
    return Form(lambda data, what: cls.from_json(data), lambda value: value.to_json(), of=cls)  # noqa: ARG005


# ---- Classes whose fields declare their JSON ----


class Member:
    """One member of the JSON of a :class:`Persisted` class, as ``field``, the name of its field, declares it.

    ``what`` is the member in messages ("the box of a tensor map"). A member that is ``left_out`` is absent if the field
    has its ``default``. ``since`` is the minor version of bundles that added it.
    """

    __slots__ = ("default", "field", "form", "left_out", "name", "since", "what")

    def __init__(
        self,
        field: str,
        name: str,
        form: Any,  # noqa: ANN401  # a Form; of a manifest's objects also Row and the like (silo.bundle.contents)
        default: object,
        since: int,
        what: str,
        *,
        left_out: bool,
    ) -> None:
        self.field = field
        self.name = name
        self.form = form
        self.default = default
        self.since = since
        self.what = what
        self.left_out = left_out

    def is_written(self, value: object) -> bool:
        """Whether the JSON has the member if the field has this value."""
        return not (self.left_out and value == self.default)


class Persisted:
    """A value whose JSON is an object with a member for each field. Derived classes are made with ``@frozen``.

    Each field declares its form: ``field(form=TEXT)``. A field with ``left_out=True`` has a default, and its member is
    absent if the field has the default. ``since=3`` says besides which minor version of bundles added the member;
    ``member="tf32"`` names the member if the field has another name. The class's ``title`` stands for the value in
    messages, ``tags`` are further members that are always the same.

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
        """The canonical form."""
        return write_members(self)

    @classmethod
    def from_json(cls, data: JSON) -> Self:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        return built(cls, read_members(cls, data))


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
        """The canonical form."""
        return [member.form.write(getattr(self, member.field)) for member in members_of(type(self))]

    @classmethod
    def from_json(cls, data: JSON) -> Self:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = members_of(cls)
        if not isinstance(data, list) or len(data) != len(members):
            raise malformed(cls.title, data)
        return built(cls, [one.form.read(item, one.what) for one, item in zip(members, data, strict=True)])


P = TypeVar("P", bound=Persisted)


def built(cls: type[P], values: Sequence[Any]) -> P:
    """A value of these fields; ``ValueError`` if the class refuses them, with its own error's text."""
    try:
        return cls(*values)
    except (SiloError, ArithmeticError) as error:
        raise ValueError(str(error)) from None


_MEMBERS: dict[type, tuple[Member, ...]] = {}
_WRITTEN: dict[type, tuple[Member, ...]] = {}  # the same in the order of canonical JSON


def members_of(cls: type[Persisted]) -> tuple[Member, ...]:
    """The members of the JSON of a class, in the order of its fields."""
    found = _MEMBERS.get(cls)
    if found is None:
        found = _MEMBERS[cls] = tuple(
            Member(name, member, form, default, since, f"the {member} of {cls.title}", left_out=left_out)
            for name, member, form, left_out, default, since in declared_members(cls)
        )
    return found


def write_members(value: Persisted) -> dict[str, JSON]:
    """The JSON of a value, its members in the order of canonical JSON."""
    cls = type(value)
    members = _WRITTEN.get(cls)
    if members is None:
        members = _WRITTEN[cls] = tuple(sorted(members_of(cls), key=lambda member: member.name))
    data: dict[str, JSON] = {}
    for member in members:
        one = getattr(value, member.field)
        if member.is_written(one):
            data[member.name] = member.form.write(one)
    return dict(sorted({**data, **cls.tags}.items())) if cls.tags else data


def read_members(cls: type[Persisted], data: JSON) -> list[Any]:
    """The values of the fields of a class, in order, from its JSON; ``ValueError`` on anything else."""
    if not isinstance(data, dict):
        raise malformed(cls.title, data)
    for name, tag in cls.tags.items():
        if name in data and data[name] != tag:
            raise ValueError(f"not {cls.title}: its {name} is {beginning(data[name])}, not {tag!r}")
    values: list[Any] = []
    found = sum(name in data for name in cls.tags)
    for member in members_of(cls):
        if member.name in data:
            found += 1
            value = member.form.read(data[member.name], member.what)
            if not member.is_written(value):
                raise ValueError(f"{member.what} is left out where it is {beginning(data[member.name])}")
            values.append(value)
        elif member.left_out:
            values.append(member.default)
        else:
            raise _wrong_members(cls, data)
    if found != len(data) or not data.keys() >= cls.tags.keys():
        raise _wrong_members(cls, data)
    return values


def _wrong_members(cls: type[Persisted], data: Mapping[str, JSON]) -> ValueError:
    required = [*cls.tags, *(member.name for member in members_of(cls) if not member.left_out)]
    unknown = sorted(set(data) - {*required, *(member.name for member in members_of(cls))})
    missing = [name for name in required if name not in data]
    parts = [f"unknown members {unknown[:16]}"] if unknown else []
    parts += [f"members {missing} are missing"] if missing else []
    return ValueError(f"not {cls.title}: {', '.join(parts)}"[:500])
