"""``@frozen``: makes classes of immutable values, and takes little time for each class.

Importing the modules that a first launch needs takes a few milliseconds. ``dataclasses`` would take most of that time:
it compiles half a dozen methods for each class and imports ``inspect``. Here all classes share their methods.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Generic, Self, TypeVar, cast, dataclass_transform, overload

__all__ = ["Field", "field", "fields_of", "frozen", "names_of", "remembered", "replace"]

T = TypeVar("T")
V = TypeVar("V")

_MISSING: Final[Any] = object()
# Slots that cache facts computed from a value's fields: copies do not take them over and comparisons ignore them.
_REMEMBERED = ("__hash_once__", "__facts__")


class Field:
    """A field of a frozen class; :func:`field` describes its attributes."""

    __slots__ = (
        "compare",
        "default",
        "factory",
        "form",
        "identity",
        "init",
        "left_out",
        "member",
        "name",
        "repr",
        "since",
    )

    name: str
    default: Any
    factory: Callable[[], Any] | None
    init: bool
    repr: bool
    compare: bool
    identity: Callable[[Any], object] | None
    form: Any
    left_out: bool
    since: int
    member: str

    @property
    def has_default(self) -> bool:
        """Whether the field has a default value that all objects share, instead of a default factory."""
        return self.default is not _MISSING


def field(
    *,
    default: Any = _MISSING,  # noqa: ANN401
    default_factory: Callable[[], Any] | None = None,
    init: bool = True,
    repr: bool = True,  # noqa: A002  # the name that type checkers know
    compare: bool = True,
    identity: Callable[[Any], object] | None = None,
    form: object = None,
    left_out: bool = False,
    since: int = 0,
    member: str = "",
) -> Any:  # noqa: ANN401  # stands where a value of the field's type is expected
    """Declares a field with options. A parameter that ``dataclasses.field`` also has means the same as there.

    ``identity`` maps the field's value to the object that is compared and hashed in its place. ``form``, ``left_out``,
    ``since`` and ``member`` declare the field's JSON: :class:`silo.core.json_reader.Persisted`.
    """
    declared = Field()
    declared.form, declared.left_out, declared.since, declared.member = form, left_out or since > 0, since, member
    declared.default, declared.factory = default, default_factory
    declared.init, declared.repr, declared.compare, declared.identity = init, repr, compare, identity
    return declared


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a class of immutable values: like ``dataclass(frozen=True, slots=True)``, but fields are not inherited.

    The functions of ``dataclasses`` (``replace``, ``fields``, ``asdict``) accept instances, and ``match`` sees the
    fields.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), replace(Point(1), y=2)
    (Point(x=1, y=0), True, Point(x=1, y=2))
    """
    fields: dict[str, Field] = {}
    for name, annotation in cls.__annotations__.items():
        if not str(annotation).removeprefix("typing.").startswith("ClassVar"):
            given: object = cls.__dict__.get(name, _MISSING)
            one = fields[name] = given if isinstance(given, Field) else field(default=given)
            one.name, one.member = name, one.member or name
    members = {name: value for name, value in cls.__dict__.items() if name not in fields}
    for name in ("__dict__", "__weakref__"):
        # the new class must not take over these descriptors of the class that is being decorated
        members.pop(name, None)
    parameters = {name: one for name, one in fields.items() if one.init}
    members |= {
        "__slots__": (*fields, *_REMEMBERED),
        "__match_args__": tuple(parameters),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__reduce__": _reduce,
        "__dataclass_fields__": _OnDemand(lambda twin: twin.__dataclass_fields__),
        "__signature__": _OnDemand(_signature_of),
        "__qualname__": cls.__qualname__,
    }
    members.setdefault("__repr__", _repr_of(tuple(name for name, one in fields.items() if one.repr)))
    if "__eq__" not in members:
        members["__eq__"], members["__hash__"] = _equality_of(
            tuple((name, one.identity) for name, one in fields.items() if one.compare)
        )
    setters: list[Callable[[object, object], None]] = []
    members["__init__"] = _init_of(cls.__qualname__, parameters, setters, members.get("__post_init__"))
    made: Any = type(cls)(cls.__name__, cls.__bases__, members)
    setters += (getattr(made, name).__set__ for name in parameters)
    made.__frozen_fields__ = fields
    return cast("type[T]", made)


class remembered(Generic[V]):  # noqa: N801  # a decorator, as property is
    """A property of a frozen class that is computed once for each value, when it is first read.

    If two threads read it first at the same time, both may compute it. Do not change the result.

    >>> @frozen
    ... class Square:
    ...     side: int
    ...
    ...     @remembered
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return self.side**2
    >>> square = Square(3)
    >>> square.area + square.area
    computed
    18
    """

    def __init__(self, read: Callable[[Any], V]) -> None:
        self.func = read  # the same attribute name as in functools.cached_property
        self._name = ""
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> V: ...

    def __get__(self, instance: Any, owner: type) -> Self | V:
        if instance is None:
            return self
        try:
            facts: dict[str, Any] = instance.__facts__
        except AttributeError:
            facts = {}
            object.__setattr__(instance, "__facts__", facts)
        if self._name not in facts:
            facts[self._name] = self.func(instance)
        return facts[self._name]


def fields_of(cls: type) -> tuple[Field, ...]:
    """Returns the fields of a frozen class, in order."""
    made: Any = cls
    fields: dict[str, Field] = made.__frozen_fields__
    return tuple([one for one in fields.values() if one.init])


def names_of(cls: type) -> tuple[str, ...]:
    """Returns the names of a frozen class's fields, in order."""
    return cast("Any", cls).__match_args__


def replace(value: T, **changes: object) -> T:
    """Returns a copy with other values in some fields."""
    cls: Any = type(value)
    values: list[object] = []
    for name in cls.__match_args__:
        values.append(changes.pop(name) if name in changes else getattr(value, name))  # noqa: PERF401  # one call less
    return cls(*values, **changes)  # a name still in ``changes`` is not a field, and the constructor raises TypeError


def _init_of(
    name: str,
    parameters: dict[str, Field],
    setters: list[Callable[[object, object], None]],
    post_init: Callable[[object], None] | None,
) -> Callable[..., None]:
    count = len(parameters)
    defaults = tuple(parameter.default for parameter in parameters.values())
    required = max((index for index, default in enumerate(defaults, start=1) if default is _MISSING), default=0)

    def __init__(self: object, *args: object, **kwargs: object) -> None:  # noqa: N807  # becomes one
        if kwargs or not required <= len(args) <= count:
            args = _complete(name, parameters, args, kwargs)
        elif len(args) != count:
            args += defaults[len(args) :]
        for put, value in zip(setters, args, strict=True):
            put(self, value)
        if post_init is not None:
            post_init(self)

    return __init__


def _complete(
    name: str, parameters: dict[str, Field], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, ...]:
    """Returns the values of all parameters in order, with defaults filled in.

    Raises:
        TypeError: an argument is missing, unknown or given twice.
    """
    if len(args) > len(parameters):
        raise TypeError(f"{name}() takes {len(parameters)} arguments, not {len(args)}")
    values = list(args)
    for parameter in tuple(parameters)[len(args) :]:
        if parameter in kwargs:
            values.append(kwargs.pop(parameter))
            continue
        one = parameters[parameter]
        if one.factory is not None:
            values.append(one.factory())
        elif one.default is _MISSING:
            raise TypeError(f"{name}() needs the argument {parameter!r}")
        else:
            values.append(one.default)
    for left in kwargs:
        raise TypeError(f"{name}() got {left!r} twice" if left in parameters else f"{name}() has no argument {left!r}")
    return tuple(values)


def _repr_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def __repr__(self: object) -> str:  # noqa: N807  # becomes one
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _equality_of(
    compared: tuple[tuple[str, Callable[[Any], object] | None], ...],
) -> tuple[Callable[[object, object], bool], Callable[[object], int]]:
    names = tuple(name for name, _ in compared)
    values: Callable[[object], Any] = attrgetter(*names) if len(names) > 1 else lambda one: _few(one, names)
    if any(identity is not None for _, identity in compared):
        values = _identities_of(compared)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807  # becomes one
        if self is other:
            return True
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: ANN401, N807  # becomes one
        try:
            return self.__hash_once__
        except AttributeError:
            found = hash(values(self))
            object.__setattr__(self, "__hash_once__", found)
            return found

    return __eq__, __hash__


def _identities_of(
    compared: tuple[tuple[str, Callable[[Any], object] | None], ...],
) -> Callable[[object], tuple[object, ...]]:
    def values(constant: object) -> tuple[object, ...]:
        identities: list[object] = []
        for name, identity in compared:
            value = getattr(constant, name)
            identities.append(value if identity is None else identity(value))
        return tuple(identities)

    return values


def _few(value: object, names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple([getattr(value, name) for name in names])


def _refuse(self: object, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError  # noqa: PLC0415  # what this module is there to avoid

    raise FrozenInstanceError(f"{type(self).__qualname__}.{name} cannot be changed: it belongs to a value")


def _reduce(self: object) -> tuple[object, ...]:
    return type(self), _few(self, names_of(type(self)))


class _OnDemand:
    """A class attribute that :mod:`dataclasses` or :mod:`inspect` reads.

    Its value is computed at the first read, from an ordinary dataclass with the same fields.
    """

    __slots__ = ("_name", "_read")

    def __init__(self, read: Callable[[Any], object]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> object:
        found = self._read(_twin(owner))
        setattr(owner, self._name, found)
        return found


def _signature_of(twin: Any) -> object:  # noqa: ANN401
    import inspect  # noqa: PLC0415  # a caller that asks for this has it

    return inspect.signature(twin)


def _twin(cls: Any) -> type:  # noqa: ANN401
    import dataclasses  # noqa: PLC0415  # what this module is there to avoid

    fields: list[tuple[str, Any, Any]] = []
    for name, frozen_field in cls.__frozen_fields__.items():
        default = dataclasses.MISSING if frozen_field.default is _MISSING else frozen_field.default
        factory = dataclasses.MISSING if frozen_field.factory is None else frozen_field.factory
        made: Any = dataclasses.field(
            default=default,
            default_factory=factory,
            init=frozen_field.init,
            repr=frozen_field.repr,
            compare=frozen_field.compare,
        )
        fields.append((name, cls.__annotations__[name], made))
    return dataclasses.make_dataclass(cls.__name__, fields)
