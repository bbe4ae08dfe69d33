"""Makes sources of Triton kernels: converts a kernel's decorators to Silo's signature, configs and hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, cast

from silo.core.argument_facts import ArgumentFacts
from silo.core.compound_arguments import TupleShape, TupleShapes
from silo.core.config import Config
from silo.core.plugins import is_option, option_names
from silo.core.signature import NO_DEFAULT, Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Fact, Specialization
from silo.core.values import DType, DTypeKind, Value, digest, dtype
from silo.errors import SourceError
from silo.frozen import replace as replace_frozen
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.triton_fingerprint import ReadSource, function_value, read_source, texts_of
from silo.kinds.triton.front.triton_specialize import specialize, to_value
from silo.sources.reached_code import Names, places_hold

__all__ = ["CallDecidesError", "HookEffects", "Hooks", "TritonSource", "effects_of_hook", "signature_of"]


# ---- The effects of configs' pre_hook functions, found by running them with tracers as arguments ----


@dataclass(frozen=True)
class HookEffects:
    """The effects of a hook: the block shapes that it sets, by descriptor, and the arguments that it sets to zero."""

    shapes: Mapping[str, tuple[int, ...]]
    zeroed: tuple[str, ...] = ()


class _NotUnderstoodError(Exception):
    """The hook did something other than setting a block shape, or an argument to zero."""


class CallDecidesError(Exception):
    """The hook reads a constexpr whose value is known only at a call."""


class _Descriptor:
    """A tracer for an argument: records a block shape, or a fill with zero, and refuses every other use."""

    __slots__ = ("shape", "zeroed")

    def __init__(self) -> None:
        object.__setattr__(self, "shape", None)
        object.__setattr__(self, "zeroed", False)

    def zero_(self) -> None:
        """Replaces ``Tensor.zero_``: records that the argument is set to zero."""
        object.__setattr__(self, "zeroed", True)

    def fill_(self, value: object) -> None:
        """Replaces ``Tensor.fill_``: records a fill with zero, and refuses any other value."""
        if isinstance(value, _Constant):
            raise CallDecidesError("fill_")
        if not isinstance(value, int | float) or value != 0:
            raise _NotUnderstoodError("fill_")
        self.zero_()

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name != "block_shape" or not isinstance(value, list | tuple):
            raise _NotUnderstoodError(name)
        extents = tuple(cast("list[Any]", value))
        if any(isinstance(extent, _Constant) for extent in extents):
            raise CallDecidesError(name)
        if not all(isinstance(extent, int) and extent > 0 for extent in extents):
            raise _NotUnderstoodError(name)
        object.__setattr__(self, "shape", extents)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        raise _NotUnderstoodError(name)

    # A hook may not decide by the arguments of a call, which are unknown here. Without these methods Python's defaults
    # would give some answer.
    def __bool__(self) -> bool:
        raise _NotUnderstoodError("bool")

    def __eq__(self, other: object) -> bool:
        raise _NotUnderstoodError("==")

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as for every class with __eq__ alone


def _decided_by_call(*_: object) -> NoReturn:
    raise CallDecidesError


class _Constant:
    """A tracer for a constexpr whose value is unknown."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        _decided_by_call(name)


# Python looks operators up on the class, so __getattr__ does not cover them.
_ASKED = "bool eq ne lt le gt ge hash index int float len iter contains getitem call"
_COMPUTED = "add sub mul truediv floordiv mod pow lshift rshift and or xor"
_UNARY = "neg pos abs invert"
for _name in f"{_ASKED} {_COMPUTED} {' '.join('r' + word for word in _COMPUTED.split())} {_UNARY}".split():
    setattr(_Constant, f"__{_name}__", _decided_by_call)


class _Arguments(Mapping[str, Any]):
    """The mapping that is passed to a hook: known arguments as they are, and a tracer for every other argument."""

    def __init__(self, values: Mapping[str, object], tracers: Mapping[str, Any]) -> None:
        self._values = values
        self.tracers = tracers

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name in self._values:
            return self._values[name]
        return self.tracers[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._values, *self.tracers))

    def __len__(self) -> int:
        return len(self._values) + len(self.tracers)


def effects_of_hook(
    hook: Callable[..., object],
    names: tuple[str, ...],
    values: Mapping[str, object],
    descriptor: type[Any] | None = None,
    constants: frozenset[str] = frozenset(),
) -> HookEffects | None:
    """The effects of ``hook`` under a config; None if it does more than set block shapes and set arguments to zero.

    Args:
        hook: called with one mapping of arguments, as Triton calls it.
        names: the parameters that a call passes.
        values: the config's members, and those constexprs of a call that are known.
        descriptor: the class of real descriptors, so that ``isinstance`` in the hook is true.
        constants: the ``names`` that are constexprs.

    Raises:
        CallDecidesError: the shapes depend on one of ``constants`` that is not among ``values``.
    """
    tracer: type[Any] = _Descriptor
    if descriptor is not None:
        tracer = type("StandIn", (_Descriptor, descriptor), {"__init__": _Descriptor.__init__, "__hash__": None})
    open_names = [name for name in names if name not in values]
    arguments = _Arguments(values, {name: _Constant() if name in constants else tracer() for name in open_names})
    try:
        hook(arguments)
    except CallDecidesError:
        raise
    except Exception:  # noqa: BLE001  # the user's code met a stand-in it cannot use: not understood, which is an answer
        return None
    tracers = {name: tracer for name, tracer in arguments.tracers.items() if not isinstance(tracer, _Constant)}
    return HookEffects(
        {name: traced.shape for name, traced in tracers.items() if traced.shape is not None},
        tuple(name for name, traced in tracers.items() if traced.zeroed),
    )


# ---- Triton kernels as sources ----


@dataclass(frozen=True, slots=True)
class Hooks:
    """The author's own callables, unchanged. They run in Python, with Triton's arguments.

    ``config_pre`` holds the hooks of configs that do more than set a descriptor's block shape.
    """

    pre: Callable[..., object] | None = None
    post: Callable[..., object] | None = None
    early_prune: Callable[..., object] | None = None
    perf_model: Callable[..., object] | None = None
    top_k: float | None = None
    config_pre: tuple[tuple[Config, Callable[..., object]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pre or self.post or self.early_prune or self.perf_model or self.config_pre)


@dataclass(frozen=True, eq=False)
class TritonSource:
    """A Triton kernel, read from its decorators. Implements :class:`silo.core.protocols.Source`.

    ``function`` is Triton's own object for the kernel, without the other decorators. ``shape_hooks`` are the hooks of
    configs that only set block shapes of descriptors; ``block_shapes`` holds these shapes for each config, unless they
    depend on constexprs of a call. ``zeroed`` holds, for each config, the arguments that its hook sets to zero, if the
    hook does nothing else. ``tuner`` is Triton's own tuner if it prunes its configs, and ``originals`` pairs each of
    Silo's configs with Triton's. ``measured_by`` names the arguments of ``triton.autotune`` that change how the tuner
    measures.
    """

    name: str
    signature: Signature
    function: Any
    location: str
    space: Space | None = None
    key: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    heuristics: Mapping[str, Callable[..., object]] = field(default_factory=dict[str, Callable[..., object]])
    hooks: Hooks = Hooks()
    block_shapes: Mapping[Config, Mapping[str, tuple[int, ...]]] = field(
        default_factory=dict[Config, Mapping[str, tuple[int, ...]]]
    )
    zeroed: Mapping[Config, tuple[str, ...]] = field(default_factory=dict[Config, tuple[str, ...]])
    shape_hooks: Mapping[Config, Callable[..., object]] = field(default_factory=dict[Config, Callable[..., object]])
    tuner: Any = None
    originals: tuple[tuple[Config, Any], ...] = ()
    measured_by: tuple[str, ...] = ()
    known_names: Mapping[str, Names] | None = None
    tuples: TupleShapes = field(default_factory=dict[str, TupleShape])

    @classmethod
    def of(cls, decorated: object, known_names: Mapping[str, Names] | None = None) -> TritonSource:
        """Reads any ``@triton.jit``, ``@triton.autotune`` or ``@triton.heuristics`` object, without changing it.

        ``known_names`` are the names in texts, by the texts' keys; the fingerprint does not parse these texts again.

        Raises:
            SourceError: ``decorated`` is not an object of these decorators, or has a form that Silo does not read.
        """
        kernel = adapter.read_kernel(decorated)
        names = tuple(parameter.name for parameter in kernel.parameters)
        configs: list[Config] = []
        block_shapes: dict[Config, Mapping[str, tuple[int, ...]]] = {}
        config_hooks: list[tuple[Config, Callable[..., object]]] = []
        shape_hooks: dict[Config, Callable[..., object]] = {}
        zeroed: dict[Config, tuple[str, ...]] = {}
        constants = frozenset(parameter.name for parameter in kernel.parameters if parameter.constexpr)
        for tuned in kernel.configs:
            config = _config(kernel.function, names, tuned.members)
            configs.append(config)
            if tuned.pre_hook is None:
                continue
            try:
                effects = effects_of_hook(tuned.pre_hook, names, tuned.members, adapter.descriptor_type(), constants)
            except CallDecidesError:
                shape_hooks[config] = tuned.pre_hook
                continue
            if effects is None or (effects.zeroed and effects.shapes):
                config_hooks.append((config, tuned.pre_hook))
            elif effects.zeroed:
                zeroed[config] = effects.zeroed
            else:
                block_shapes[config] = effects.shapes
                shape_hooks[config] = tuned.pre_hook
        return cls(
            # The name of a kernel that is defined in a class includes the class; the name of an enclosing function is
            # left out.
            name=kernel.function.fn.__qualname__.rpartition("<locals>.")[2],
            signature=_signature(kernel.parameters),
            function=kernel.function,
            location=kernel.location,
            space=Space.of(configs) if configs else None,
            key=kernel.key,
            reset_to_zero=kernel.reset_to_zero,
            restore_value=kernel.restore_value,
            heuristics=kernel.heuristics,
            hooks=Hooks(
                pre=kernel.pre_hook,
                post=kernel.post_hook,
                early_prune=kernel.early_config_prune,
                perf_model=kernel.perf_model,
                top_k=kernel.top_k,
                config_pre=tuple(config_hooks),
            ),
            zeroed=zeroed,
            block_shapes=block_shapes,
            shape_hooks=shape_hooks,
            tuner=kernel.tuner,
            originals=tuple((config, tuned.original) for config, tuned in zip(configs, kernel.configs, strict=True)),
            measured_by=kernel.measured_by,
            known_names=known_names,
        )

    @property
    def prunes(self) -> bool:
        """Whether the configs that may be used depend on the call (``prune_configs_by``)."""
        return self.tuner is not None and len(self.originals) > 1

    def prune(self, configs: Sequence[Config], arguments: Mapping[str, object]) -> tuple[Config, ...]:
        """The configs that the author's ``prune_configs_by`` leaves of ``configs`` in a call, best guess first.

        ``arguments`` are the call's arguments and options by name. Raises any error of the author's functions.
        """
        keys = {config.order_key for config in configs}
        originals = [original for config, original in self.originals if config.order_key in keys]
        config_of = {id(original): config for config, original in self.originals}
        pruned = adapter.pruned_configs(self.tuner, originals, arguments)
        return tuple(config_of.get(id(item)) or self._read(item) for item in pruned)

    def _read(self, original: Any) -> Config:  # noqa: ANN401
        """Converts a config that a pruner created."""
        return _config(self.function, self.signature.names, adapter.read_tuned_config(self.function, original).members)

    @property
    def kind(self) -> str:
        """Always ``triton``."""
        return "triton"

    @property
    def exact(self) -> frozenset[str]:
        """The non-constexpr scalars whose exact value code assumes.

        Always empty, because Triton's code assumes only facts.
        """
        return frozenset()

    @property
    def extents(self) -> None:
        """None: Triton's code works for any shape, which it receives as numbers."""
        return

    @property
    def fingerprint(self) -> str:
        """sha256 over the kernel, the functions it calls and the globals it reads; computed once."""
        if not self.tuples:
            return self.reading.fingerprint
        shapes = {name: shape.to_json() for name, shape in self.tuples.items()}
        return digest("triton-tuples/1", {"kernel": self.reading.fingerprint, "tuples": shapes})

    def with_tuples(self, shapes: TupleShapes) -> TritonSource:
        """The kernel for tuple arguments of these shapes.

        Each value of a tuple becomes a parameter of the same kind, without default.
        """
        parameters: list[Parameter] = []
        for parameter in self.signature.parameters:
            if (shape := shapes.get(parameter.name)) is None:
                parameters.append(parameter)
            else:
                parameters += [
                    replace_frozen(parameter, name=name, default=NO_DEFAULT) for name in shape.names(parameter.name)
                ]
        return replace(self, signature=Signature(tuple(parameters)), tuples=dict(shapes))

    @cached_property
    def reading(self) -> ReadSource:
        """The result of reading the kernel's text and everything that it reaches. Raises SourceError."""
        return read_source(self.function, self.known_names)

    @property
    def places(self) -> tuple[object, ...]:
        """The values that the kernel reads and a program may change, as (holder, name, value). Raises SourceError.

        See :class:`silo.sources.kernel_source.ReadsPlaces`.
        """
        return self.reading.places

    def read_again(self) -> None:
        """Reads the kernel again if one of :attr:`places` or a function's text has changed. Raises SourceError."""
        config_of = self.__dict__.get("reading")
        if config_of is not None and (
            config_of.texts != texts_of(config_of.functions) or not places_hold(config_of.places)
        ):
            del self.__dict__["reading"]
        self.reading  # noqa: B018  # raises where it cannot be read

    def when_replaced(self, changed: Callable[[], None]) -> None:
        """Registers ``changed`` to be called when the text of a function that the kernel reaches is replaced."""
        for function in self.reading.functions:
            adapter.when_text_is_replaced(function, changed)

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature and the facts of one call, from :mod:`silo.kinds.triton.front.triton_specialize`.

        If configs set a descriptor's block shape, the specialization leaves the shape out, and only marks the
        descriptor by the fact ``CONFIG_BLOCK``.
        """
        signature, specialization = specialize(self.signature, self._with_layouts(arguments))
        shaped = {name for config in self.shape_hooks for name in self._shapes(config, specialization)}
        by_config = {name for name in shaped if signature[name].kind is ParameterKind.DESCRIPTOR}
        if not by_config:
            return signature, specialization
        facts = (*specialization.facts, *((name, Fact.CONFIG_BLOCK) for name in by_config))
        return signature, Specialization(
            facts, tuple(pair for pair in specialization.constants if pair[0] not in by_config)
        )

    def _with_layouts(self, arguments: Mapping[str, ArgumentFacts]) -> Mapping[str, ArgumentFacts]:
        """Adds the layouts of descriptors, on which the code of a Gluon kernel depends, to the arguments."""
        if not adapter.is_gluon(self.function):
            return arguments
        return {
            name: replace_frozen(
                argument,
                block_layout=adapter.descriptor_layout(argument.block_form, argument.block_shape, argument.dtype.bits),
            )
            if argument.block_shape and argument.dtype is not None
            else argument
            for name, argument in arguments.items()
        }

    def _shapes(self, config: Config, call: Specialization) -> Mapping[str, tuple[int, ...]]:
        """The block shapes that a config's hook sets in one call.

        For a config without a hook in ``shape_hooks``, such as one that refinement added, the first of these hooks is
        used.
        """
        shapes = self.block_shapes.get(config)
        if shapes is not None:
            return shapes
        hook = self.shape_hooks.get(config) or next(iter(self.shape_hooks.values()))
        values_by_name = {**call.constant_values, **config.as_dict()}
        values = {name: value for name, value in values_by_name.items() if _is_plain(value)}
        constants = frozenset(p.name for p in self.signature.parameters if p.kind is ParameterKind.CONSTEXPR)
        # Triton's mapping does not contain arguments that a call leaves to their defaults.
        present = tuple(name for name in self.signature.names if name in values_by_name or name not in constants)
        try:
            effects = effects_of_hook(hook, present, values, adapter.descriptor_type(), constants)
        except CallDecidesError:
            effects = None
        if effects is None or effects.zeroed:
            raise SourceError(
                f"{self.name} ({self.location}): the pre_hook of the config ({config}) does something besides setting "
                f"block shapes of descriptors when it is given {values}; Silo runs no hook"
            )
        return effects.shapes

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """The block shapes that ``config`` sets for the descriptors of one call.

        Raises:
            SourceError: the config's hook does not set one of these block shapes.
        """
        names = [name for name, fact in specialization.facts if fact is Fact.CONFIG_BLOCK]
        if not names:
            return {}
        shapes = self._shapes(config, specialization)
        missing = [name for name in names if name not in shapes]
        if missing:
            raise SourceError(
                f"{self.name} ({self.location}): other configs set the block shape of {', '.join(missing)} in a "
                f"pre_hook, and ({config}) does not; let every config set it, or none"
            )
        return {name: shapes[name] for name in names}

    def constant(self, value: object) -> Value:
        """Converts the argument for a constexpr parameter; raises ``SourceError`` if it lacks a canonical form."""
        try:
            return to_value(value, function_value)
        except TypeError as error:
            raise SourceError(f"{self.name} ({self.location}): {error}") from None


def _is_plain(value: Value) -> bool:
    """Whether Triton's form of a value is the same as Silo's, so that hooks receive the value unchanged."""
    return value is None or isinstance(value, bool | int | float | str)


def _config(function: Any, names: tuple[str, ...], members: Mapping[str, object]) -> Config:  # noqa: ANN401
    unknown = [name for name in members if name not in names and not is_option(name)]
    if unknown:
        raise SourceError(
            f"a config of {function.fn.__name__} sets {', '.join(unknown)}, which is neither a parameter of the kernel "
            f"nor a compile option ({', '.join(option_names())})"
        )
    try:
        return Config.of({name: to_value(value, function_value) for name, value in members.items()})
    except TypeError as error:
        raise SourceError(f"a config of {function.fn.__name__}: {error}") from None


def signature_of(function: object) -> Signature:
    """The parameters of one of Triton's functions, Gluon's too. Raises SourceError."""
    return _signature(adapter.parameters_of(function))


def _signature(parameters: Sequence[adapter.JitParameter]) -> Signature:
    return Signature(tuple(_parameter(parameter) for parameter in parameters))


def _parameter(read: adapter.JitParameter) -> Parameter:
    kind, element = _annotated_kind(read)
    default = NO_DEFAULT
    if read.has_default:
        try:
            default = to_value(read.default, function_value)
        except TypeError as error:
            raise SourceError(f"the default of the parameter {read.name}: {error}") from None
    try:
        return Parameter(read.name, kind, element, default=default, specialize=read.specialize, align=read.align)
    except ValueError as error:
        raise SourceError(f"the default of the parameter {read.name}: {error}") from None


def _annotated_kind(read: adapter.JitParameter) -> tuple[ParameterKind, DType | None]:
    if read.constexpr:
        return ParameterKind.CONSTEXPR, None
    name = read.annotation
    if not name:
        return ParameterKind.ANY, None
    if name.startswith("*"):
        return ParameterKind.POINTER, dtype(name[1:].removeprefix("k"))
    element = dtype(name)
    if element.kind is DTypeKind.BOOL:
        return ParameterKind.BOOL, element
    return ParameterKind.FLOAT if element.kind is DTypeKind.FLOAT else ParameterKind.INTEGER, element
