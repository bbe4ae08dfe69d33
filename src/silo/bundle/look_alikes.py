"""Variants of one kernel that share a blob and differ in constexprs that Python calls equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from silo.bundle.contents import BundleKernel
from silo.core.values import Value, identity_of
from silo.core.variant import Variant

__all__ = ["shared_by_look_alikes"]


def shared_by_look_alikes(kernels: Iterable[BundleKernel]) -> tuple[str, ...]:
    """A line for each pair of variants that share a blob although one has V=1 and the other V=True.

    Keys of version 1 are equal for these variants, so the code is one variant's and wrong for the other if the kernel
    reads the type. A kernel that does not may share its code by right, which the file cannot tell.
    """
    return tuple(line for kernel in kernels for line in _pairs(kernel))


def _pairs(kernel: BundleKernel) -> Iterator[str]:
    first: dict[tuple[object, ...], Variant] = {}
    for one in kernel.variants:
        variant = one.artifact.variant
        if not variant.has_look_alike:
            continue
        other = first.setdefault((one.artifact.blob.sha256, *_as_python_compares(variant)), variant)
        ours, theirs = _constexprs(other), _constexprs(variant)
        different = [name for name in ours if identity_of(ours[name]) != identity_of(theirs[name])]
        if different:
            yield (
                f"{kernel.name} for {variant.target}: the code for {_shown(ours, different)} serves "
                f"{_shown(theirs, different)} too (blob {one.artifact.blob.sha256[:16]}). Earlier versions of Silo "
                "took these for one value: build the bundle again, unless the kernel computes the same for both"
            )


def _as_python_compares(variant: Variant) -> tuple[object, ...]:
    """Everything that tells a variant from others, its constexprs as Python compares them."""
    specialization = variant.specialization
    types = tuple((one.name, one.kind, one.dtype) for one in variant.signature.parameters)
    constexprs = tuple(sorted(_constexprs(variant).items(), key=lambda item: item[0]))
    return types, specialization.facts, specialization.extents, specialization.grid, variant.target, constexprs


def _constexprs(variant: Variant) -> dict[str, Value]:
    return {**dict(variant.config.values), **variant.specialization.constant_values}


def _shown(values: dict[str, Value], names: list[str]) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names)
