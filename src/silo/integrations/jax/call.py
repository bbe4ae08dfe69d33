"""``silo.jax_call``: calls a kernel within a program of jax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from silo.core.argument_descriptions import describe
from silo.core.plugins import is_option, option_names
from silo.core.signature import Effect, ParameterKind
from silo.errors import ArgumentError, SiloError, SourceError
from silo.integrations.jax.callees import Callee, callee_of
from silo.integrations.jax.form import ArrayForm, JaxCallForm, Scalar, element_of, named
from silo.integrations.jax.jax_programs import connected, device_of

__all__ = ["jax_call"]

OutSpec: TypeAlias = Any  # an argument's name, an object with a shape and a dtype, or a function that returns one

_METHODS = ("expand_dims", "broadcast_all", "sequential", "sequential_unrolled")
_checked: dict[JaxCallForm, None] = {}  # forms whose effects were checked
_MOST_CHECKED = 4096


def jax_call(
    kernel: object,
    *args: Any,  # noqa: ANN401  # arrays of jax, and numbers
    out: Mapping[str, OutSpec] | None = None,
    grid: object = None,
    aliases: Sequence[str] = (),
    mutates: Sequence[str] | None = None,
    vmap_method: str = "expand_dims",
    **kwargs: Any,  # noqa: ANN401  # as args, and options of the config
) -> Any:  # noqa: ANN401  # an array, or a tuple of arrays
    """Call a kernel within a program of jax: under ``jax.jit``, ``vmap``, ``shard_map``, ``jax.export``, or directly.

    Every array that the kernel writes to is a result: a new array (``out``), or the new value of an argument that it
    updates (``aliases``). XLA allocates the memory, so the caller's arrays do not change.

    Args:
        kernel: the result of ``silo.kernel``, or a kernel of a bundle, ``silo.load(file)["add"]``.
        args: the kernel's arguments in order, without those in ``out``. Arrays, also those without axes, are passed
            as pointers; numbers, bools and None are values that jax must know while it traces.
        out: for each parameter that is a new array, its shape and dtype: the name of an argument that has the same,
            a ``jax.ShapeDtypeStruct`` (or an array), or a function of the arguments that returns one of these,
            ``lambda a: jax.ShapeDtypeStruct(a.x.shape[:1], a.x.dtype)``.
        grid: a tuple, an integer, or a function of arguments and config; the declared grid by default.
        aliases: the arguments that the kernel updates in place. XLA first copies such an array if the program still
            needs the old values.
        mutates: the arguments and outputs that the kernel writes to, if its code does not determine them.
        vmap_method: how ``jax.vmap`` transforms the call: ``expand_dims`` (one call that launches the kernel for each
            example), ``broadcast_all`` (the same, after arrays without the batch were repeated), ``sequential`` or
            ``sequential_unrolled`` (a loop of calls).
        kwargs: arguments by name, values that the config would set (``BLOCK=1024``), options (``num_warps=8``).

    Returns:
        The result; several results are a tuple in the order of the kernel's parameters.

    Raises:
        ArgumentError: the arguments, outputs or aliases do not fit the kernel.
        SourceError: the kernel's effects are unknown, or it writes to an array that is not a result.
        PackageError: jax is not installed, or Silo does not support its version.
    """
    jax = connected()
    known = callee_of(kernel)
    if known is None:
        raise ArgumentError(
            f"silo.jax_call takes a kernel that silo.kernel made, or one of a bundle, and not {kernel!r}: wrap it with "
            "silo.kernel"
        )
    if vmap_method not in _METHODS:
        raise ArgumentError(f"{known.name}: vmap_method={vmap_method!r}: it is one of {', '.join(_METHODS)}")
    asked: Any = out
    if not isinstance(asked, Mapping | None):
        raise ArgumentError(
            f"{known.name}: out= says of each parameter that the call makes what it is like, {{'out': 'x'}}, and not "
            f"{asked!r}"
        )
    made = dict(out or {})
    given = known.completed(named(known, args, kwargs, tuple(made)))
    arrays, scalars, options = _sorted_out(jax, known, given)
    aliases = (aliases,) if isinstance(aliases, str) else tuple(aliases)
    operands = tuple(_described(jax, known, name, value) for name, value in arrays.items())
    results = _results(jax, known, made, aliases, given, operands)
    form = JaxCallForm(
        kernel=known,
        operands=operands,
        results=results,
        scalars=tuple((name, _hashable(known, name, value)) for name, value in scalars.items()),
        options=tuple((name, _hashable(known, name, value)) for name, value in options.items()),
        grid=_plain_grid(known, grid),
        vmap_method=vmap_method,
        mutates=None if mutates is None else tuple(mutates),
    )
    _check_effects(jax, form)
    from silo.integrations.jax.primitive import bind  # noqa: PLC0415  # imports jax

    found = bind(form, tuple(arrays.values()))
    return found[0] if len(found) == 1 else tuple(found)


def _sorted_out(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    given: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the arrays (converted to arrays of jax, in the kernel's order), other values, and options."""
    signature = kernel.signature
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    for name in signature.names:
        if name not in given:
            continue
        value = given[name]
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            scalars[name] = value
            continue
        kind = signature[name].kind
        if _is_number(value):
            scalars[name] = value.item()
        elif kind is ParameterKind.CONSTEXPR:
            raise ArgumentError(
                f"{name} is a constexpr of {kernel.name} ({kernel.location}), part of its code, and the call gives "
                f"{_words(jax, value)}: pass a plain number (under jax.jit a closure, static_argnums or "
                f"static_argnames), set {name} in the kernel's space, or let the kernel take it when it runs"
            )
        elif kind not in (ParameterKind.ANY, ParameterKind.POINTER, ParameterKind.DESCRIPTOR):
            raise ArgumentError(
                f"{name} is a number to {kernel.name} ({kernel.location}), and the call gives {_words(jax, value)}: "
                f"pass a plain number (under jax.jit a closure or static_argnums), or let {name} be a pointer "
                f"and read it in the kernel, tl.load({name})"
            )
        else:
            arrays[name] = value if isinstance(value, jax.Array) else jax.numpy.asarray(value)
    options = {name: value for name, value in given.items() if name not in signature.names}
    for name in options:
        if not is_option(name):
            raise ArgumentError(
                f"{kernel.name} takes no {name}; its parameters are {', '.join(signature.names)}, and options of a "
                f"config are {', '.join(option_names())}"
            )
    return arrays, scalars, options


def _is_number(value: Any) -> bool:  # noqa: ANN401
    """Whether ``value`` is a scalar of numpy, not an array."""
    return type(value).__module__ == "numpy" and not hasattr(value, "__array_finalize__") and hasattr(value, "item")


def _words(jax: Any, value: Any) -> str:  # noqa: ANN401
    traced = isinstance(value, jax.core.Tracer)
    return f"an array that jax {'traces' if traced else 'holds'} ({value.dtype}{list(value.shape)})"


def _described(jax: Any, kernel: Callee, name: str, value: Any) -> ArrayForm:  # noqa: ANN401
    aval = jax.typeof(value)
    return ArrayForm(name, element_of(kernel.name, name, aval.dtype).name, _shape(kernel, name, aval.shape))


def _shape(kernel: Callee, name: str, shape: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Returns the extents of an array. Raises SourceError if jax does not know them while it traces."""
    found: list[int] = []
    for extent in shape:
        try:
            found.append(extent.__index__())
        except Exception as error:  # jax's error type depends on the kind of symbolic extent
            raise SourceError(
                f"{kernel.name} ({kernel.location}): the shape of {name} is {tuple(shape)}, of which {extent} is not "
                "known while jax traces, and a launch is made for one shape: give extents as plain integers (export "
                "the program for fixed shapes, or once for each size)"
            ) from error
    if any(extent < 0 for extent in found):
        raise ArgumentError(f"{kernel.name}: the shape of {name} is {tuple(found)}, of which an extent is negative")
    return tuple(found)


def _results(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    made: Mapping[str, OutSpec],
    aliases: Sequence[str],
    given: Mapping[str, Any],
    operands: Sequence[ArrayForm],
) -> tuple[ArrayForm, ...]:
    """Returns the forms of the call's results, in the order of the kernel's parameters."""
    names = kernel.signature.names
    places = {one.name: number for number, one in enumerate(operands)}
    for name in made:
        if name not in names:
            raise ArgumentError(f"{kernel.name}: out= names {name}, and its parameters are {', '.join(names)}")
    for name in aliases:
        if name not in places:
            have = ", ".join(places) or "none"
            raise ArgumentError(
                f"{kernel.name}: aliases= names {name}, and the arrays that the call gives are {have}: "
                "pass the array that is updated, or name it in out="
            )
    if not made and not aliases:
        raise ArgumentError(
            f"{kernel.name}: the call returns nothing, and a program of jax keeps only what it returns: name what "
            "the kernel makes in out=, what it updates in aliases="
        )
    found = {name: _made(jax, kernel, name, spec, given, {one.name: one for one in operands})
             for name, spec in made.items()}  # fmt: skip
    for name in dict.fromkeys(aliases):
        one = operands[places[name]]
        found[name] = ArrayForm(name, one.dtype, one.shape, places[name])
    return tuple(found[name] for name in names if name in found)


def _made(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    name: str,
    spec: Any,  # noqa: ANN401
    given: Mapping[str, Any],
    operands: Mapping[str, ArrayForm],
) -> ArrayForm:
    if type(spec) is str:
        if spec not in operands:
            raise ArgumentError(
                f"{kernel.name}: out= makes {name} like {spec!r}, and the arrays of the call are "
                f"{', '.join(operands) or 'none'}"
            )
        return ArrayForm(name, operands[spec].dtype, operands[spec].shape)
    like = _like(jax, kernel, name, spec, given)
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        raise ArgumentError(
            f"{kernel.name}: out= says of {name} {like!r}: give the name of an argument, a jax.ShapeDtypeStruct, or a "
            "function of the arguments that returns one"
        )
    element = element_of(kernel.name, name, like.dtype)
    usual = jax.dtypes.canonicalize_dtype(like.dtype)
    if str(usual) != str(like.dtype):
        raise ArgumentError(
            f"{kernel.name}: out= says that {name} has elements of {like.dtype}, and jax makes {usual} of it here: "
            f"say {usual}, or set jax_enable_x64"
        )
    return ArrayForm(name, element.name, _shape(kernel, name, like.shape))


def _like(jax: Any, kernel: Callee, name: str, spec: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Returns the value of ``out=`` for an output; calls it with the arguments if it is a function."""
    if hasattr(spec, "shape") or not callable(spec):
        return spec
    try:
        return spec(SimpleNamespace(**given))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise SourceError(
            f"{kernel.name}: the shape of the output {name} depends on values that jax traces, which are not "
            f"known while it does ({type(error).__name__}): compute the size outside of the traced function and "
            "pass it as a plain number"
        ) from error


def _hashable(kernel: Callee, name: str, value: object) -> Scalar:
    scalar = Scalar.of(value)
    try:
        hash(scalar)
    except TypeError:
        raise ArgumentError(
            f"{kernel.name}: the argument {name} is {describe(value)}, a {type(value).__name__}, which jax cannot tell "
            "from others: pass a number, a text, a tuple or a dtype"
        ) from None
    return scalar


def _plain_grid(kernel: Callee, grid: object) -> object:
    """Returns a grid of integers as a tuple of three; a function, or None, unchanged."""
    if grid is None:
        if kernel.grid is None:
            raise ArgumentError(
                f"{kernel.name} ({kernel.location}) declares no grid: give silo.kernel a grid=, or this call one"
            )
        return None
    if callable(grid):
        return grid
    axes: Any = grid if type(grid) in (tuple, list) else (grid,)
    try:
        whole = tuple(axis.__index__() for axis in axes)
    except Exception as error:
        raise ArgumentError(
            f"{kernel.name}: the grid is {grid!r}, and a launch in a program of jax has plain integers: compute them "
            "from shapes or static arguments, not from what jax traces"
        ) from error
    if not 1 <= len(whole) <= 3 or any(axis < 0 for axis in whole):
        raise ArgumentError(f"{kernel.name}: a grid has 1 to 3 axes, none negative, and not {grid!r}")
    return (*whole, 1, 1)[:3]


def _check_effects(jax: Any, form: JaxCallForm) -> None:  # noqa: ANN401
    """Checks that every array the kernel writes to is a result, and that no new array is read before it is written."""
    if form in _checked:
        return
    kernel = form.kernel
    device = device_of(jax.default_backend(), kernel.name)
    try:
        effects = kernel.effects(form.call(device), device, form.mutates)
    except SiloError as error:
        arrays = ", ".join(f"{one.name}={one.dtype}{list(one.shape)}" for one in form.arrays.values())
        error.add_note(f"for silo.jax_call {kernel.name} was read with the arrays {arrays}")
        flat = [one.name for one in form.operands if not one.shape]
        if flat:
            error.add_note(
                f"{', '.join(flat)}: an array without axes, which a kernel gets as a pointer: read it in the kernel, "
                f"tl.load({flat[0]}), or pass a plain number"
            )
        raise
    require_results(form, effects)
    if len(_checked) >= _MOST_CHECKED:
        _checked.clear()
    _checked[form] = None


def require_results(form: JaxCallForm, effects: Mapping[str, Effect]) -> None:
    """Checks that exactly the results are written to.

    Raises:
        SourceError: another array is written to, a result is not written, or a new array is read first.
    """
    kernel, results = form.kernel, {one.name: one for one in form.results}
    where = f"{kernel.name} ({kernel.location})"
    operands = {one.name for one in form.operands}
    for name, effect in effects.items():
        if effect.writes and name not in results:
            cure = f"aliases=({name!r},), which returns its new value" if name in operands else f"out={{{name!r}: ...}}"
            raise SourceError(f"{where} writes to {name}, and arrays of jax do not change: say {cure}")
    for name, one in results.items():
        effect = effects.get(name)
        if effect is None:
            raise SourceError(
                f"{where}: the kernel takes {name} as a value and not as an array, so the call cannot return it"
            )
        if not effect.writes:
            raise SourceError(
                f"{where} does not write to {name}, which the call returns: take it out of out= or aliases="
            )
        if effect.reads and one.alias < 0 and form.mutates is None:
            raise SourceError(
                f"{where} may read {name} before it writes (it adds to it, or reads it back), and out= makes {name} "
                f"with nothing in it: pass what it begins with, jax.numpy.zeros(...), and name it in "
                f"aliases=({name!r},)"
            )
