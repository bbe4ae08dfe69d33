"""``silo.jax_call``: calls a kernel within a program of jax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, TypeAlias

from silo.core.argument_facts import describe
from silo.core.plugins import is_option, option_names
from silo.core.signature import Effect, ParameterKind
from silo.errors import ArgumentError, SiloError, SourceError, UnsupportedError
from silo.integrations.jax.jax_call_form import ArrayForm, Callee, JaxCallForm, Scalar, callee_of, element_of, named
from silo.integrations.jax.jax_programs import TARGET, connected, device_of, record_of

__all__ = ["bind", "jax_call"]


# ---- silo.jax_call ----


# the name of an argument, an object with a shape and a dtype, or a function that returns a name or such an object
OutSpec: TypeAlias = Any

_METHODS = ("expand_dims", "broadcast_all", "sequential", "sequential_unrolled")
_checked: dict[JaxCallForm, None] = {}  # forms of calls whose effects were checked already
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
    """Calls a kernel within a program of jax: under ``jax.jit``, ``vmap``, ``shard_map``, ``jax.export``, or directly.

    Every array that the kernel writes to is a result: a new array (``out``), or the new value of an argument that it
    updates (``aliases``). XLA allocates the memory, so the caller's arrays do not change.

    Args:
        kernel: the result of ``silo.kernel``, or a kernel of a bundle, ``silo.load(file)["add"]``.
        args: the kernel's arguments in order, without those in ``out``. Arrays, also those without axes, are passed as
            pointers; numbers, bools and None are values that jax must know while it traces.
        out: for each parameter that is a new array, its shape and dtype: the name of an argument with the same shape
            and dtype, a ``jax.ShapeDtypeStruct`` (or an array), or a function of the arguments that returns one of
            these, ``lambda a: jax.ShapeDtypeStruct(a.x.shape[:1], a.x.dtype)``.
        grid: a tuple, an integer, or a function of arguments and config; the declared grid by default.
        aliases: the arguments that the kernel updates in place. XLA first copies such an array if the program still
            needs the old values.
        mutates: the arguments and outputs that the kernel writes to, if its code does not determine them.
        vmap_method: how ``jax.vmap`` transforms the call: ``expand_dims`` (one call that launches the kernel for each
            example), ``broadcast_all`` (likewise, but arrays without the batch axis are repeated first), ``sequential``
            or ``sequential_unrolled`` (a loop of calls).
        kwargs: arguments by name, values that the config would set (``BLOCK=1024``), options (``num_warps=8``).

    Returns:
        The result; several results are a tuple in the order of the kernel's parameters.

    Raises:
        ArgumentError: the arguments, outputs or aliases do not fit the kernel.
        SourceError: the kernel's effects are unknown, or it writes to an array that is not a result.
        PackageError: jax is not installed, or Silo does not support its version.
    """
    jax = connected()
    callee = callee_of(kernel)
    if callee is None:
        raise ArgumentError(
            f"silo.jax_call takes a kernel that silo.kernel made, or one of a bundle, and not {kernel!r}: wrap it with "
            "silo.kernel"
        )
    if vmap_method not in _METHODS:
        raise ArgumentError(f"{callee.name}: vmap_method={vmap_method!r}: it is one of {', '.join(_METHODS)}")
    requested: Any = out
    if not isinstance(requested, Mapping | None):
        raise ArgumentError(
            f"{callee.name}: out= says of each parameter that the call makes what it is like, {{'out': 'x'}}, and not "
            f"{requested!r}"
        )
    outputs = dict(out or {})
    arguments = callee.completed(named(callee, args, kwargs, tuple(outputs)))
    arrays, scalars, options = _sorted_out(jax, callee, arguments)
    aliases = (aliases,) if isinstance(aliases, str) else tuple(aliases)
    operands = tuple(_described(jax, callee, name, value) for name, value in arrays.items())
    results = _results(jax, callee, outputs, aliases, arguments, operands)
    form = JaxCallForm(
        kernel=callee,
        operands=operands,
        results=results,
        scalars=tuple((name, _hashable(callee, name, value)) for name, value in scalars.items()),
        options=tuple((name, _hashable(callee, name, value)) for name, value in options.items()),
        grid=_plain_grid(callee, grid),
        vmap_method=vmap_method,
        mutates=None if mutates is None else tuple(mutates),
    )
    _check_effects(jax, form)

    bound_results = bind(form, tuple(arrays.values()))
    return bound_results[0] if len(bound_results) == 1 else tuple(bound_results)


def _sorted_out(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    keywords: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Sorts a call's arguments into three dicts: jax arrays in the kernel's order, other values, and options."""
    signature = kernel.signature
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    for name in signature.names:
        if name not in keywords:
            continue
        value = keywords[name]
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
    options = {name: value for name, value in keywords.items() if name not in signature.names}
    for name in options:
        if not is_option(name):
            raise ArgumentError(
                f"{kernel.name} takes no {name}; its parameters are {', '.join(signature.names)}, and options of a "
                f"config are {', '.join(option_names())}"
            )
    return arrays, scalars, options


def _is_number(value: Any) -> bool:  # noqa: ANN401
    """Returns whether ``value`` is a numpy scalar and not an array."""
    return type(value).__module__ == "numpy" and not hasattr(value, "__array_finalize__") and hasattr(value, "item")


def _words(jax: Any, value: Any) -> str:  # noqa: ANN401
    traced = isinstance(value, jax.core.Tracer)
    return f"an array that jax {'traces' if traced else 'holds'} ({value.dtype}{list(value.shape)})"


def _described(jax: Any, kernel: Callee, name: str, value: Any) -> ArrayForm:  # noqa: ANN401
    aval = jax.typeof(value)
    return ArrayForm(name, element_of(kernel.name, name, aval.dtype).name, _shape(kernel, name, aval.shape))


def _shape(kernel: Callee, name: str, shape: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Returns the extents of an array. Raises SourceError if jax does not know them while it traces."""
    extents: list[int] = []
    for extent in shape:
        try:
            extents.append(extent.__index__())
        except Exception as error:  # jax raises different error types for different kinds of symbolic extents
            raise SourceError(
                f"{kernel.name} ({kernel.location}): the shape of {name} is {tuple(shape)}, of which {extent} is not "
                "known while jax traces, and a launch is made for one shape: give extents as plain integers (export "
                "the program for fixed shapes, or once for each size)"
            ) from error
    if any(extent < 0 for extent in extents):
        raise ArgumentError(f"{kernel.name}: the shape of {name} is {tuple(extents)}, of which an extent is negative")
    return tuple(extents)


def _results(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    outputs: Mapping[str, OutSpec],
    aliases: Sequence[str],
    values: Mapping[str, Any],
    operands: Sequence[ArrayForm],
) -> tuple[ArrayForm, ...]:
    """Returns name, dtype, shape and alias of each result of the call, in the order of the kernel's parameters."""
    names = kernel.signature.names
    places = {operand.name: number for number, operand in enumerate(operands)}
    for name in outputs:
        if name not in names:
            raise ArgumentError(f"{kernel.name}: out= names {name}, and its parameters are {', '.join(names)}")
    for name in aliases:
        if name not in places:
            have = ", ".join(places) or "none"
            raise ArgumentError(
                f"{kernel.name}: aliases= names {name}, and the arrays that the call gives are {have}: "
                "pass the array that is updated, or name it in out="
            )
    if not outputs and not aliases:
        raise ArgumentError(
            f"{kernel.name}: the call returns nothing, and a program of jax keeps only what it returns: name what "
            "the kernel makes in out=, what it updates in aliases="
        )
    forms = {name: _output_form(jax, kernel, name, spec, values, {operand.name: operand for operand in operands})
             for name, spec in outputs.items()}  # fmt: skip
    for name in dict.fromkeys(aliases):
        array = operands[places[name]]
        forms[name] = ArrayForm(name, array.dtype, array.shape, places[name])
    return tuple(forms[name] for name in names if name in forms)


def _output_form(
    jax: Any,  # noqa: ANN401
    kernel: Callee,
    name: str,
    spec: Any,  # noqa: ANN401
    values: Mapping[str, Any],
    operands: Mapping[str, ArrayForm],
) -> ArrayForm:
    if type(spec) is str:
        if spec not in operands:
            raise ArgumentError(
                f"{kernel.name}: out= makes {name} like {spec!r}, and the arrays of the call are "
                f"{', '.join(operands) or 'none'}"
            )
        return ArrayForm(name, operands[spec].dtype, operands[spec].shape)
    like = _like(jax, kernel, name, spec, values)
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


def _like(jax: Any, kernel: Callee, name: str, spec: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Returns the ``out=`` entry of an output; if that is a function, its result for the call's arguments."""
    if hasattr(spec, "shape") or not callable(spec):
        return spec
    try:
        return spec(SimpleNamespace(**values))
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
    """Converts a grid of integers to a tuple of three. A function, or None, is returned unchanged."""
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
        whole_axes = tuple(axis.__index__() for axis in axes)
    except Exception as error:
        raise ArgumentError(
            f"{kernel.name}: the grid is {grid!r}, and a launch in a program of jax has plain integers: compute them "
            "from shapes or static arguments, not from what jax traces"
        ) from error
    if not 1 <= len(whole_axes) <= 3 or any(axis < 0 for axis in whole_axes):
        raise ArgumentError(f"{kernel.name}: a grid has 1 to 3 axes, none negative, and not {grid!r}")
    return (*whole_axes, 1, 1)[:3]


def _check_effects(jax: Any, form: JaxCallForm) -> None:  # noqa: ANN401
    """Checks that each written array is a result of the call, and that no new array is read before it is written."""
    if form in _checked:
        return
    kernel = form.kernel
    device = device_of(jax.default_backend(), kernel.name)
    try:
        effects = kernel.effects(form.call(device), device, form.mutates)
    except SiloError as error:
        arrays = ", ".join(f"{array.name}={array.dtype}{list(array.shape)}" for array in form.arrays.values())
        error.add_note(f"for silo.jax_call {kernel.name} was read with the arrays {arrays}")
        flat = [operand.name for operand in form.operands if not operand.shape]
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
    """Checks that the kernel writes to exactly the results.

    Raises:
        SourceError: another array is written to, a result is not written, or a new array is read first.
    """
    kernel, results = form.kernel, {result.name: result for result in form.results}
    kernel_place = f"{kernel.name} ({kernel.location})"
    operands = {operand.name for operand in form.operands}
    for name, effect in effects.items():
        if effect.writes and name not in results:
            cure = f"aliases=({name!r},), which returns its new value" if name in operands else f"out={{{name!r}: ...}}"
            raise SourceError(f"{kernel_place} writes to {name}, and arrays of jax do not change: say {cure}")
    for name, result in results.items():
        effect = effects.get(name)
        if effect is None:
            raise SourceError(
                f"{kernel_place}: the kernel takes {name} as a value and not as an array, so the call cannot return it"
            )
        if not effect.writes:
            raise SourceError(
                f"{kernel_place} does not write to {name}, which the call returns: take it out of out= or aliases="
            )
        if effect.reads and result.alias < 0 and form.mutates is None:
            raise SourceError(
                f"{kernel_place} may read {name} before it writes (it adds to it, or reads it back), and out= makes "
                f"{name} with nothing in it: pass what it begins with, jax.numpy.zeros(...), and name it in "
                f"aliases=({name!r},)"
            )


# ---- The jax primitive of a call ----


_MOST_AXES = 8  # the largest number of batch axes: native/python/xla_call.h
_MOST_EAGER = 1024  # the largest number of cached programs for calls outside of jax.jit


def bind(form: JaxCallForm, arrays: Sequence[Any]) -> list[Any]:
    """Calls the primitive with jax arrays, traced or not, and returns the results."""
    return _primitive().bind(*arrays, form=form)


@functools.cache
def _primitive() -> Any:  # noqa: ANN401  # jax.extend.core.Primitive
    connected()
    core: Any = import_module("jax.extend.core")
    mlir: Any = import_module("jax.interpreters.mlir")
    batching: Any = import_module("jax.interpreters.batching")
    ad: Any = import_module("jax.interpreters.ad")
    primitive = core.Primitive(TARGET)
    primitive.multiple_results = True
    primitive.def_impl(_run)
    primitive.def_abstract_eval(_types)
    mlir.register_lowering(primitive, _refuse_platform)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, functools.partial(_lower, platform), platform=platform)
    batching.primitive_batchers[primitive] = functools.partial(_batch, primitive)
    ad.primitive_jvps[primitive] = _refuse_gradient
    return primitive


@functools.lru_cache(maxsize=_MOST_EAGER)
def _program(form: JaxCallForm) -> Callable[..., Any]:
    def program(*arrays: Any) -> Any:  # noqa: ANN401
        return bind(form, arrays)

    return connected().jit(program)


def _run(*arrays: Any, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Runs a call that is outside of every transformation, as a jitted program of its own."""
    with connected().disable_jit(disable=False):  # if jit were disabled, the program would call this function again
        return _program(form)(*arrays)


def _types(*operands: Any, form: JaxCallForm) -> list[Any]:  # noqa: ANN401
    core: Any = import_module("jax.core")
    types = [core.ShapedArray((*form.batch, *result.shape), _jax_dtype(result.dtype)) for result in form.results]
    varying: list[Any] = [getattr(getattr(operand, "mat", None), "varying", ()) for operand in operands]
    if not any(varying):
        return types
    if len(set(varying)) != 1:
        raise ArgumentError(
            f"{form.kernel.name}: within jax.shard_map its arrays vary over other axes of the mesh "
            f"({', '.join(str(sorted(names)) for names in varying)}): make them alike with jax.lax.pcast(x, axis, "
            "to='varying'), or pass check_vma=False to jax.shard_map"
        )
    sharding: Any = import_module("jax.sharding")
    return [
        type_.update(
            sharding=sharding.NamedSharding(
                operands[0].sharding.mesh, sharding.PartitionSpec(*(None for _ in type_.shape))
            ),
            manual_axis_type=operands[0].mat,
        )
        for type_ in types
    ]


def _jax_dtype(name: str) -> Any:  # noqa: ANN401
    return connected().numpy.dtype(name)


def _lower(platform: str, context: Any, *operands: Any, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Lowers the primitive to a call of Silo's XLA handler, which gets the digest of the call's record."""
    ffi: Any = import_module("jax.ffi")
    digest = record_of(form, device_of(platform, form.kernel.name))
    return ffi.ffi_lowering(TARGET, operand_output_aliases=form.aliased)(context, *operands, digest=digest)


def _refuse_platform(context: Any, *operands: Any, form: JaxCallForm) -> Any:  # noqa: ANN401
    del operands
    platforms = ", ".join(getattr(context.module_context, "platforms", ())) or "this platform"
    raise UnsupportedError(
        f"{form.kernel.name}: programs of jax call kernels on the CPU and on CUDA, and this one is for {platforms}: "
        "put it on such a device, or write the kernel with silo.pallas"
    )


def _refuse_gradient(primals: Any, tangents: Any, *, form: JaxCallForm) -> Any:  # noqa: ANN401
    del primals, tangents
    raise UnsupportedError(
        f"{form.kernel.name} ({form.kernel.location}) has no gradient: put the call of silo.jax_call into a function "
        "of jax.custom_vjp and say its backward there (docs/jax.md has an example)"
    )


def _batch(primitive: Any, arrays: Sequence[Any], batch_axes: Sequence[Any], *, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Applies ``vmap``: one call that launches once for each example, or a loop of calls."""
    jax = connected()
    mapped = [batch_axis is not None for batch_axis in batch_axes]
    size = next(
        array.shape[batch_axis] for array, batch_axis in zip(arrays, batch_axes, strict=True) if batch_axis is not None
    )
    moved = [
        jax.numpy.moveaxis(array, batch_axis, 0) if is_mapped else array
        for array, batch_axis, is_mapped in zip(arrays, batch_axes, mapped, strict=True)
    ]
    if form.vmap_method in ("sequential", "sequential_unrolled") or len(form.batch) == _MOST_AXES:
        outputs = _looped(jax, primitive, moved, mapped, form)
    else:
        updated = form.aliased  # arguments that the kernel updates in place, so each example needs its own copy
        batched_arguments = [
            item
            if is_mapped
            else jax.numpy.broadcast_to(
                item, (size if form.vmap_method == "broadcast_all" or number in updated else 1, *item.shape)
            )
            for number, (item, is_mapped) in enumerate(zip(moved, mapped, strict=True))
        ]
        outputs = primitive.bind(*batched_arguments, form=form.batched(size))
    return outputs, [0] * len(outputs)


def _looped(jax: Any, primitive: Any, arrays: Sequence[Any], mapped: Sequence[bool], form: JaxCallForm) -> Any:  # noqa: ANN401
    """Returns the results of a loop of calls, one call for each example."""

    def one_example(carry: None, examples: Sequence[Any]) -> tuple[None, Any]:
        example_iterator = iter(examples)
        operands = [
            next(example_iterator) if is_mapped else array for array, is_mapped in zip(arrays, mapped, strict=True)
        ]
        return carry, primitive.bind(*operands, form=form)

    batch = [array for array, is_mapped in zip(arrays, mapped, strict=True) if is_mapped]
    _, stacked = jax.lax.scan(one_example, None, batch, unroll=form.vmap_method == "sequential_unrolled")
    return stacked
