"""The jax primitive of a call: its types, its lowering on each platform, its batching."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from silo.errors import ArgumentError, UnsupportedError
from silo.integrations.jax.form import JaxCallForm
from silo.integrations.jax.jax_programs import TARGET, connected, device_of, record_of

__all__ = ["bind"]

_MOST_AXES = 8  # of a batch: native/python/xla_call.h
_MOST_EAGER = 1024  # cached programs of calls outside of jax.jit


def bind(form: JaxCallForm, arrays: Sequence[Any]) -> list[Any]:
    """Returns the results of a call on arrays of jax, traced or not."""
    return _primitive().bind(*arrays, form=form)


@functools.cache
def _primitive() -> Any:  # noqa: ANN401  # jax.extend.core.Primitive
    connected()
    core: Any = import_module("jax.extend.core")
    mlir: Any = import_module("jax.interpreters.mlir")
    batching: Any = import_module("jax.interpreters.batching")
    ad: Any = import_module("jax.interpreters.ad")
    made = core.Primitive(TARGET)
    made.multiple_results = True
    made.def_impl(_run)
    made.def_abstract_eval(_types)
    mlir.register_lowering(made, _refuse_platform)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(made, functools.partial(_lower, platform), platform=platform)
    batching.primitive_batchers[made] = functools.partial(_batch, made)
    ad.primitive_jvps[made] = _refuse_gradient
    return made


@functools.lru_cache(maxsize=_MOST_EAGER)
def _program(form: JaxCallForm) -> Callable[..., Any]:
    def program(*arrays: Any) -> Any:  # noqa: ANN401
        return bind(form, arrays)

    return connected().jit(program)


def _run(*arrays: Any, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Runs a call outside of every transformation as a program of its own."""
    with connected().disable_jit(disable=False):  # else the program would be this call again
        return _program(form)(*arrays)


def _types(*operands: Any, form: JaxCallForm) -> list[Any]:  # noqa: ANN401
    core: Any = import_module("jax.core")
    made = [core.ShapedArray((*form.batch, *one.shape), _jax_dtype(one.dtype)) for one in form.results]
    varying: list[Any] = [getattr(getattr(one, "mat", None), "varying", ()) for one in operands]
    if not any(varying):
        return made
    if len(set(varying)) != 1:
        raise ArgumentError(
            f"{form.kernel.name}: within jax.shard_map its arrays vary over other axes of the mesh "
            f"({', '.join(str(sorted(one)) for one in varying)}): make them alike with jax.lax.pcast(x, axis, "
            "to='varying'), or pass check_vma=False to jax.shard_map"
        )
    sharding: Any = import_module("jax.sharding")
    return [
        one.update(
            sharding=sharding.NamedSharding(
                operands[0].sharding.mesh, sharding.PartitionSpec(*(None for _ in one.shape))
            ),
            manual_axis_type=operands[0].mat,
        )
        for one in made
    ]


def _jax_dtype(name: str) -> Any:  # noqa: ANN401
    return connected().numpy.dtype(name)


def _lower(platform: str, context: Any, *operands: Any, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Lowers to a call of the handler with the digest of the call's record."""
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


def _batch(primitive: Any, arrays: Sequence[Any], places: Sequence[Any], *, form: JaxCallForm) -> Any:  # noqa: ANN401
    """Applies ``vmap``: one call that launches once for each example, or a loop of calls."""
    jax = connected()
    mapped = [place is not None for place in places]
    size = next(one.shape[place] for one, place in zip(arrays, places, strict=True) if place is not None)
    moved = [
        jax.numpy.moveaxis(one, place, 0) if is_mapped else one
        for one, place, is_mapped in zip(arrays, places, mapped, strict=True)
    ]
    if form.vmap_method in ("sequential", "sequential_unrolled") or len(form.batch) == _MOST_AXES:
        made = _looped(jax, primitive, moved, mapped, form)
    else:
        updated = form.aliased  # each example has its own new value
        given = [
            one
            if is_mapped
            else jax.numpy.broadcast_to(
                one, (size if form.vmap_method == "broadcast_all" or number in updated else 1, *one.shape)
            )
            for number, (one, is_mapped) in enumerate(zip(moved, mapped, strict=True))
        ]
        made = primitive.bind(*given, form=form.batched(size))
    return made, [0] * len(made)


def _looped(jax: Any, primitive: Any, arrays: Sequence[Any], mapped: Sequence[bool], form: JaxCallForm) -> Any:  # noqa: ANN401
    """Returns the results of a loop of calls, one call for each example."""

    def one_example(carry: None, examples: Sequence[Any]) -> tuple[None, Any]:
        rest = iter(examples)
        whole = [next(rest) if is_mapped else one for one, is_mapped in zip(arrays, mapped, strict=True)]
        return carry, primitive.bind(*whole, form=form)

    batch = [one for one, is_mapped in zip(arrays, mapped, strict=True) if is_mapped]
    _, made = jax.lax.scan(one_example, None, batch, unroll=form.vmap_method == "sequential_unrolled")
    return made
