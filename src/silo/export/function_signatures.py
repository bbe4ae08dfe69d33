"""Decides the signatures of an export's functions: one function for each kernel and dtype signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from silo.bundle.contents import BundleKernel
from silo.core.device import Target
from silo.core.expressions import Extent, Stride, leaves
from silo.core.recipes import AliasRecipe, ArgumentRecipe, ArrayRecipe, CaseRecipe, DescriptorRecipe, ScalarRecipe
from silo.core.signature import NO_DEFAULT, NoDefault, Parameter, ParameterKind
from silo.core.specialization import Fact
from silo.core.values import DType, FunctionValue, RecordValue, Value, identity_of, value_sort_key
from silo.core.variant import Variant
from silo.errors import BundleError
from silo.export.c_names import Names, word_of

__all__ = ["ExportedFunction", "FunctionChoice", "ParameterRole", "Taken", "functions_of"]

# Kinds of blobs that libsilo passes to a driver without another library.
_LAUNCHED = frozenset({"so", "cubin", "ptx", "hsaco"})


class ParameterRole(Enum):
    """How an exported function takes a parameter of the kernel."""

    LEFT = "left"  # omitted: the config or a derived constant sets it, or its default applies
    NULL = "null"  # omitted: all code was compiled for None
    POINTER = "pointer"
    ARRAY = "array"  # a pointer with shape and strides, which the grid or the code needs
    DESCRIPTOR = "descriptor"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    CHOICE = "choice"  # one of the constants that code was compiled for


_SCALARS = {
    ParameterKind.INTEGER: ParameterRole.INTEGER,
    ParameterKind.FLOAT: ParameterRole.FLOAT,
    ParameterKind.BOOL: ParameterRole.BOOL,
}
# If all values of a constant have the same type and the type is a key here, the parameter is a plain value; else an
# enum.
_NUMBERS: Mapping[type, ParameterRole] = {
    int: ParameterRole.INTEGER,
    float: ParameterRole.FLOAT,
    bool: ParameterRole.BOOL,
}
_POINTING = (ParameterRole.POINTER, ParameterRole.ARRAY, ParameterRole.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class FunctionChoice:
    """A constant that a caller may pass, and the name of its enumerator."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Taken:
    """A kernel parameter as an exported function takes it.

    ``called`` is the kernel's name for it, and ``name`` is an identifier of C and C++. ``nullable``: some code was
    compiled for None in its place. ``block`` is the block shape of a descriptor, if all code has the same. ``choices``
    are the constants that code exists for.
    """

    called: str
    name: str
    role: ParameterRole
    dtype: DType | None = None
    reads: bool = True
    writes: bool = True
    nullable: bool = False
    rank: int = 0
    block: tuple[int, ...] = ()
    choices: tuple[FunctionChoice, ...] = ()
    default: Value | NoDefault = NO_DEFAULT

    @property
    def is_given(self) -> bool:
        """Whether the function has this parameter, so that callers pass it."""
        return self.role not in (ParameterRole.LEFT, ParameterRole.NULL)


@dataclass(frozen=True, slots=True)
class ExportedFunction:
    """A kernel for one dtype signature.

    ``name`` is the name of the C++ overload. ``c_name`` is the same with a suffix that distinguishes it from the other
    signatures. ``has_grid``: the bundle declares the grid; otherwise the caller passes it. ``variants`` serve its
    calls.
    """

    kernel: str
    name: str
    c_name: str
    parameters: tuple[Taken, ...]
    has_grid: bool
    variants: tuple[Variant, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that the function has code for."""
        return tuple(dict.fromkeys(variant.target for variant in self.variants))

    def takes(self, case: CaseRecipe) -> bool:
        """Returns whether a case's arguments have the types of this function."""
        arguments = dict(case.arguments)
        return all(
            _fits(parameter, _behind(arguments, parameter.called))
            for parameter in self.parameters
            if parameter.is_given
        )


def _behind(recipes: Mapping[str, ArgumentRecipe], name: str) -> ArgumentRecipe | None:
    recipe = recipes.get(name)
    return recipes.get(recipe.name) if isinstance(recipe, AliasRecipe) else recipe


def _fits(taken: Taken, recipe: ArgumentRecipe | None) -> bool:
    if recipe is None:
        return not isinstance(taken.default, NoDefault)
    if isinstance(recipe, ArrayRecipe):
        return taken.role in (ParameterRole.POINTER, ParameterRole.ARRAY) and taken.dtype == recipe.dtype
    if isinstance(recipe, DescriptorRecipe):
        same = taken.dtype == recipe.array.dtype and taken.rank == len(recipe.block_shape)
        return taken.role is ParameterRole.DESCRIPTOR and same
    value = recipe.value if isinstance(recipe, ScalarRecipe) else None
    if taken.role is ParameterRole.CHOICE:
        return any(type(choice.value) is type(value) and choice.value == value for choice in taken.choices)
    if taken.role in _POINTING:
        return value is None and taken.nullable
    return _NUMBERS.get(type(value)) is taken.role and not _is_big(value)


def functions_of(
    kernels: Sequence[BundleKernel], cases: Mapping[str, Sequence[CaseRecipe]]
) -> tuple[ExportedFunction, ...]:
    """Returns the functions of a bundle's kernels, in order; ``cases`` are the recipes by kernel.

    Raises:
        BundleError: a C program cannot call a kernel; the text has the reason.
    """
    names = Names(["open", "close", "warmup"])
    functions: list[ExportedFunction] = []
    for kernel in kernels:
        name = names.give(kernel.name)
        functions += _functions(kernel, name, cases.get(kernel.name, ()))
    return _with_c_names(functions)


def _refused(kernel: BundleKernel, reason: str) -> BundleError:
    return BundleError(f"kernel {kernel.name} cannot be exported: {reason}")


def _functions(kernel: BundleKernel, name: str, cases: Sequence[CaseRecipe]) -> list[ExportedFunction]:
    for packed in kernel.variants:
        blob = packed.artifact.blob.kind
        if blob not in _LAUNCHED:
            raise _refused(
                kernel,
                f"its code for {packed.artifact.variant.target} is of kind {blob}, which a library runs and no driver; "
                "leave the kernel out by naming the others (-k NAME), or name other targets with --target",
            )
    variants = [packed.artifact.variant for packed in kernel.variants]
    shaped = _shaped(kernel, variants)
    constants = _constants(kernel, variants, cases)
    groups: dict[tuple[_Kind, ...], list[Variant]] = {}
    for variant in variants:
        kinds = tuple(
            _kind(parameter, variant, shaped, frozenset(constants)) for parameter in variant.signature.parameters
        )
        groups.setdefault(kinds, []).append(variant)
    own_names = Names(["queue", "grid", "error"])
    names = {parameter.name: own_names.give(parameter.name) for parameter in kernel.signature.parameters}
    functions: list[ExportedFunction] = []
    for kinds, (served_variants, nullable) in _merged(groups).items():
        parameters = tuple(
            _derived_from(parameter, names[parameter.name], kind, served_variants, constants, null=at in nullable)
            for at, (parameter, kind) in enumerate(zip(kernel.signature.parameters, kinds, strict=True))
        )
        functions.append(
            ExportedFunction(kernel.name, name, "", parameters, kernel.grid is not None, tuple(served_variants))
        )
    return functions


_Kind = tuple[ParameterRole, DType | None, int]


def _shaped(kernel: BundleKernel, variants: Iterable[Variant]) -> frozenset[str]:
    """Returns the arguments whose shapes or strides the grid, a derived constant or the choice of code depends on."""
    nodes = (*(kernel.grid or ()), *(node for _, node in kernel.derived))
    read = {leaf.argument for node in nodes for leaf in leaves(node) if isinstance(leaf, Extent | Stride)}
    shaped_names = {name for variant in variants for name, _ in variant.specialization.extents}
    return frozenset(read | shaped_names | {*kernel.contiguous})


def _constants(
    kernel: BundleKernel, variants: Sequence[Variant], cases: Sequence[CaseRecipe]
) -> dict[str, tuple[Value, ...]]:
    """Returns the constants that callers pass, each with the values that code exists for."""
    derived = {name for name, _ in kernel.derived}
    set_by_config = {*kernel.config_names, *(name for variant in variants for name, _ in variant.config.values)}
    constants: dict[str, tuple[Value, ...]] = {}
    for parameter in kernel.signature.parameters:
        name = parameter.name
        if name in derived or name in set_by_config:
            continue
        values_of_code = [
            variant.specialization.constant_values[name]
            for variant in variants
            if name in variant.specialization.constant_values
            and variant.signature[name].kind not in (ParameterKind.DESCRIPTOR, *_SCALARS)
        ]
        if not values_of_code:
            continue
        values = sorted({identity_of(value): value for value in values_of_code}.values(), key=value_sort_key)
        if cases and all(name not in dict(case.arguments) for case in cases) and _has_none(parameter):
            raise _refused(
                kernel,
                f"its constant {name} is computed by a heuristic that is not an expression, so only Python can "
                f"call it; write the heuristic so that it can be traced (docs/heuristics.md), or give {name} in the "
                "cases, which makes it an argument",
            )
        composed = (tuple, FunctionValue, RecordValue)
        strange = [value for value in values if isinstance(value, composed) or _is_big(value)]
        if strange or any(isinstance(value, str) and "\0" in value for value in values):
            is_tuple = bool(strange) and isinstance(strange[0], tuple)
            reason = "a tuple" if is_tuple else "a function, a layout, or a number beyond 64 bits"
            raise _refused(kernel, f"its constant {name} is {reason}, which no C program can give")
        constants[name] = tuple(values)
    return constants


def _has_none(parameter: Parameter) -> bool:
    return isinstance(parameter.default, NoDefault)


def _is_big(value: Value) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 63


def _kind(parameter: Parameter, variant: Variant, shaped: frozenset[str], constants: frozenset[str]) -> _Kind:
    name = parameter.name
    if name in constants:
        return ParameterRole.CHOICE, None, 0
    match parameter.kind:
        case ParameterKind.POINTER:
            if Fact.NONE in variant.specialization.facts_of(name):
                return ParameterRole.NULL, None, 0
            return ParameterRole.ARRAY if name in shaped else ParameterRole.POINTER, parameter.dtype, 0
        case ParameterKind.DESCRIPTOR:
            block = variant.specialization.constant_values.get(name)
            return ParameterRole.DESCRIPTOR, parameter.dtype, _rank(block)
        case ParameterKind.INTEGER | ParameterKind.FLOAT | ParameterKind.BOOL:
            return _SCALARS[parameter.kind], None, 0
        case _:
            return ParameterRole.LEFT, None, 0


def _rank(block: Value) -> int:
    """Returns the number of extents in a descriptor's block. The tuple may end in a layout, which does not count."""
    return sum(isinstance(extent, int) for extent in block) if isinstance(block, tuple) else 0


def _merged(
    groups: Mapping[tuple[_Kind, ...], list[Variant]],
) -> dict[tuple[_Kind, ...], tuple[list[Variant], frozenset[int]]]:
    """Merges variants that were compiled for None in place of some arrays into the groups that have these arrays.

    Returns, for each remaining group, its variants and the positions of the arrays that may be None.
    """
    merged: dict[tuple[_Kind, ...], tuple[list[Variant], frozenset[int]]] = {}
    for kinds, variants in groups.items():
        wider = [other for other in groups if other != kinds and all(map(_covers, other, kinds))]
        # ``wider`` are the groups into which these variants can be merged. The variants are merged into each group of
        # ``wider`` that cannot itself be merged into another group of ``wider``.
        tops = [
            candidate
            for candidate in wider
            if not any(other != candidate and all(map(_covers, other, candidate)) for other in wider)
        ]
        for top in tops or [kinds]:
            served, nullable = merged.get(top, ([], frozenset[int]()))
            nulls = frozenset(at for at, (mine, its) in enumerate(zip(kinds, top, strict=True)) if mine != its)
            merged[top] = ([*served, *variants], nullable | nulls)
    return merged


def _covers(wide: _Kind, narrow: _Kind) -> bool:
    return wide == narrow or (narrow[0] is ParameterRole.NULL and wide[0] in _POINTING)


def _derived_from(
    parameter: Parameter,
    name: str,
    kind: _Kind,
    variants: Sequence[Variant],
    constants: Mapping[str, tuple[Value, ...]],
    *,
    null: bool,
) -> Taken:
    role, dtype, rank = kind
    typed = [variant.signature[parameter.name] for variant in variants]
    if role in _POINTING:
        typed = [entry for entry in typed if entry.dtype == dtype]
    values = constants.get(parameter.name, ())
    if role is ParameterRole.CHOICE:
        role = _NUMBERS.get(type(values[0]), role) if len({type(value) for value in values}) == 1 else role
    enumerators = Names()
    choices = tuple(FunctionChoice(enumerators.give(word_of(value)), value) for value in values)
    return Taken(
        called=parameter.name,
        name=name,
        role=role,
        dtype=dtype,
        reads=any(entry.effect.reads for entry in typed),
        writes=any(entry.effect.writes for entry in typed),
        nullable=null,
        rank=rank,
        block=_one_block(parameter.name, variants) if role is ParameterRole.DESCRIPTOR else (),
        choices=choices,
        default=_default(parameter, role, choices, null=null),
    )


def _one_block(name: str, variants: Sequence[Variant]) -> tuple[int, ...]:
    """Returns the block shape of a descriptor if a caller may omit it, else ().

    A caller may omit the block shape if all code has the same, or if the config sets it whatever the caller passes.
    """
    blocks = {
        block for variant in variants if isinstance(block := variant.specialization.constant_values.get(name), tuple)
    }
    if all(Fact.CONFIG_BLOCK in variant.specialization.facts_of(name) for variant in variants):
        blocks = {min(blocks, key=value_sort_key)}
    (block, *others) = blocks or {()}
    return () if others else tuple(size for size in block if isinstance(size, int))


def _default(
    parameter: Parameter, role: ParameterRole, choices: Sequence[FunctionChoice], *, null: bool
) -> Value | NoDefault:
    default = parameter.default
    if isinstance(default, NoDefault):
        return default
    if role in _POINTING:
        return default if null and default is None else NO_DEFAULT
    if role is ParameterRole.CHOICE:
        is_listed = any(type(choice.value) is type(default) and choice.value == default for choice in choices)
        return default if is_listed else NO_DEFAULT
    fits = {
        ParameterRole.INTEGER: type(default) is int and not _is_big(default),
        ParameterRole.FLOAT: type(default) in (int, float),
        ParameterRole.BOOL: type(default) is bool,
    }
    return default if fits.get(role, False) else NO_DEFAULT


def _with_c_names(functions: Sequence[ExportedFunction]) -> tuple[ExportedFunction, ...]:
    """Sets the C names. C lacks overloads, so if a kernel has several signatures, the names contain the types."""
    by_name: dict[str, list[ExportedFunction]] = {}
    for function in functions:
        by_name.setdefault(function.name, []).append(function)
    names = Names(["open", "close", "bundle", "kernel"])
    renamed: list[ExportedFunction] = []
    for function in functions:
        types = _types(function, by_name[function.name])
        renamed.append(replace(function, c_name=names.give(f"{function.name}_{types}" if types else function.name)))
        names.give(f"{renamed[-1].c_name}_warmup")
    return tuple(renamed)


def _types(exported_function: ExportedFunction, all_of_name: Sequence[ExportedFunction]) -> str:
    """Returns the types of the parameters in which a kernel's signatures differ. Equal types are written once."""
    if len(all_of_name) == 1:
        return ""
    columns = zip(*(map(_type_word, other.parameters) for other in all_of_name), strict=True)
    differ = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    words = [_type_word(exported_function.parameters[at]) for at in differ]
    return "_".join(dict.fromkeys(words) if len(set(words)) == 1 else words)


def _type_word(taken: Taken) -> str:
    word = taken.dtype.short if taken.dtype is not None else taken.role.value
    return f"{word}_{taken.rank}d" if taken.role is ParameterRole.DESCRIPTOR else word
