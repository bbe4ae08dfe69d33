"""Finds every operation that the CPU cannot express, before anything is planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from silo.backends.cpu import ops
from silo.backends.cpu.analysis.combining import combining_operation
from silo.backends.cpu.analysis.values import DOTS, FENCE, NO_EFFECT, TERMINATORS, VOLATILE_LOAD
from silo.backends.cpu.ops_atomic import ATOMICS, atomic_refusal
from silo.errors import UnsupportedError
from silo.sources.triton.ssa import Module, Operation

__all__ = ["STRUCTURAL", "check_supported", "unsupported_operations"]

STRUCTURAL = (
    frozenset(
        {
            "tt.func",
            "tt.assert",
            "tt.atomic_cas",
            "tt.atomic_load",
            "tt.atomic_poll",
            "tt.atomic_store",
            "tt.atomic_rmw",
            "tt.call",
            "tt.cat",
            "tt.dot",
            "tt.dot_scaled",
            "tt.gather",
            "tt.histogram",
            "tt.join",
            "tt.load",
            "tt.map_elementwise",
            "tt.print",
            "tt.reduce",
            "tt.scan",
            "tt.split",
            "tt.store",
            "tt.unsplat",
            "tt.make_range",
            "tt.splat",
            "tt.expand_dims",
            "tt.broadcast",
            "tt.trans",
            "tt.reshape",
            "tt.get_program_id",
            "tt.get_num_programs",
            "arith.constant",
            "scf.for",
            "scf.if",
            "scf.while",
        }
    )
    | TERMINATORS
    | NO_EFFECT
)
# Why families of operations, by the start of their names, mean nothing here.
_FOREIGN = (
    ("ttng.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("nvws.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("nvvm.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("amdg.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("amdgpu.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("rocdl.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("ttg.", "it names a GPU's memory or layout; a CPU kernel starts from plain Triton, not from Gluon"),
)
# Element of a dot's factors, and the sums it may have.
_DOT_SUMS = {"f16": {"f32", "f16"}, "bf16": {"f32"}, "f32": {"f32"}, "f64": {"f64"}, "i8": {"i32"}}
_SCALED_FORMATS: Mapping[object, str] = {
    0: "f8E4M3FN",
    1: "f8E5M2",
    4: "i8",
    5: "bf16",
    6: "f16",
}  # Triton's ScaleDotElemType


def unsupported_operations(module: Module) -> dict[tuple[str, str, str], int]:
    """How often each (operation, reason, location) that the CPU cannot express occurs."""
    found: Counter[tuple[str, str, str]] = Counter()
    pending = list(module.functions.values())
    while pending:
        operation = pending.pop()
        reason = _refusal(operation)
        if reason:
            found[operation.name, reason, operation.location] += 1
        elif not _is_plain_reduction(operation):  # its region was looked at with it
            pending.extend(op for region in operation.regions for block in region.blocks for op in block.operations)
    return dict(found)


def check_supported(module: Module) -> None:
    """Raise ``UnsupportedError`` with every operation of ``module`` that the CPU cannot express."""
    found = unsupported_operations(module)
    if not found:
        return
    lines = [
        f"\n  - {name} x{count} at {place or 'unknown place'}: {reason}"
        for (name, reason, place), count in sorted(found.items())
    ]
    total = sum(found.values())
    raise UnsupportedError(
        f"kernel {module.kernel!r} uses {total} operation{'s' if total > 1 else ''} that the CPU target cannot express;"
        f" rewrite {'them' if total > 1 else 'it'} or leave the CPU out of the targets:" + "".join(lines)
    )


def _is_plain_reduction(operation: Operation) -> bool:
    return operation.name == "tt.reduce" and combining_operation(operation) is not None


def _refusal(operation: Operation) -> str:
    name = operation.name
    for value in [*operation.operands, *operation.results]:
        if not ops.has_c_type(value.type):
            return f"values of type {value.type.element}"
    if name in {FENCE, VOLATILE_LOAD}:  # a module that was lowered before, in another mode
        return ""
    if name in STRUCTURAL:
        return _structural_refusal(operation)
    if name not in ops.SUPPORTED:
        return next((reason for prefix, reason in _FOREIGN if name.startswith(prefix)), "not supported")
    return ops.refusal(operation)


def _structural_refusal(operation: Operation) -> str:
    name = operation.name
    if name in ATOMICS:
        return atomic_refusal(operation)
    if name in DOTS:
        return _dot_refusal(operation)
    if name in {"tt.load", "tt.store"} and not operation.operands[0].type.pointer:
        return "only plain pointers"
    if name in {"scf.for", "scf.if", "scf.while"} and any(len(region.blocks) > 1 for region in operation.regions):
        return "a region of several blocks"
    return ""


def _dot_refusal(operation: Operation) -> str:
    left, right, total = (operand.type.element for operand in operation.operands[:3])
    if operation.name == "tt.dot_scaled":
        formats = [operation.attributes[name] for name in ("a_elem_type", "b_elem_type")]
        fits = [_SCALED_FORMATS.get(number) for number in formats] == [left, right] and total in {"f32", "f16", "bf16"}
    elif left.startswith("f8") and right.startswith("f8"):
        fits = total in {"f32", "f16"}
    else:
        fits = left == right and total in _DOT_SUMS.get(left, ())
    return "" if fits else f"{left} x {right} -> {total}"
