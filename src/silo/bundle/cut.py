"""A part of a bundle: some of its kernels and targets, and everything that their launches need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant, rules_key
from silo.core.target import Target
from silo.errors import BundleError

__all__ = ["cut_contents", "is_for", "is_for_any"]


def is_for(target: Target, wanted: Target) -> bool:
    """``cuda`` means every target of its kind, ``cuda:sm_90`` its specific form as well.

    >>> is_for(Target.parse("cuda:sm_90a"), Target.parse("cuda:sm_90"))
    True
    """
    same = wanted.arch in (target.arch, target.device_arch)
    return target.kind == wanted.kind and (not wanted.is_concrete or same)


def is_for_any(target: Target, targets: Sequence[Target] | None) -> bool:
    """Whether code for ``target`` is for one of ``targets`` at least; None means all.

    >>> is_for_any(Target.parse("cuda:sm_90"), [Target.parse("cpu")]), is_for_any(Target.parse("cuda:sm_90"), None)
    (False, True)
    """
    return targets is None or any(is_for(target, wanted) for wanted in targets)


def cut_contents(
    contents: BundleContents, kernels: Sequence[str] | None, targets: Sequence[Target] | None
) -> BundleContents:
    """The kernels' variants for these targets (None: all), without documents and attachments, unread by launches.

    Plans stay that launch none but these kernels.

    Raises:
        BundleError: a kernel does not exist, or lacks variants for all of the targets.
    """
    known = [kernel.name for kernel in contents.kernels]
    for name in kernels or ():
        if name not in known:
            raise BundleError(f"there is no kernel {name}; the bundle has {', '.join(known) or 'none'}")
    chosen = [kernel for kernel in contents.kernels if kernels is None or kernel.name in kernels]
    names = {kernel.name for kernel in chosen}
    return replace(
        contents,
        kernels=tuple(_cut_kernel(kernel, targets) for kernel in chosen),
        attachments=(),
        plans=tuple(plan for plan in contents.plans if names.issuperset(plan.kernels)),
    )


def _cut_kernel(kernel: BundleKernel, targets: Sequence[Target] | None) -> BundleKernel:
    variants = tuple(one for one in kernel.variants if is_for_any(one.artifact.variant.target, targets))
    if not variants:
        has = ", ".join(dict.fromkeys(str(one.artifact.variant.target) for one in kernel.variants)) or "nothing"
        wanted = ", ".join(map(str, targets or ()))
        raise BundleError(
            f"kernel {kernel.name} has no code for {wanted or 'any target'}; it has code for {has}: name other "
            "targets, or the kernels that are wanted"
        )
    keys = {rules_key(one.artifact.variant) for one in variants}
    return replace(
        kernel,
        variants=tuple(map(_bare, variants)),
        rules=tuple(rules for rules in kernel.rules if rules.key in keys),
        cases=None,
        trials=None,
    )


def _bare(one: BundleVariant) -> BundleVariant:
    return replace(one, artifact=replace(one.artifact, sidecars=()))
