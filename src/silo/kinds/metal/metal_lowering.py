"""From a source and a variant to a job: the text as C++, and what its function is called with."""

from __future__ import annotations

from typing import cast

from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import ParameterKind
from silo.core.variant import Variant
from silo.errors import SourceError
from silo.frozen import replace
from silo.kinds.metal.clang import digest_of_headers, includes_headers
from silo.kinds.metal.front.metal_source import MetalSource
from silo.kinds.metal.front.parser import MslParameter
from silo.kinds.metal.front.variant_text import metal_text
from silo.kinds.metal.metal_declaration import EMULATOR
from silo.kinds.metal.metal_job import BufferRole, EmulatorJob, MetalArgument
from silo.kinds.metal.metal_to_cpp import may_wait, rewritten

__all__ = ["lowered_job"]

POSITIONS = frozenset(
    {
        "dispatch_quadgroups_per_threadgroup",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "grid_origin",
        "grid_size",
        "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "thread_execution_width",
        "thread_index_in_quadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "threads_per_grid",
        "threads_per_simdgroup",
        "threads_per_threadgroup",
    }
)
"""The attributes of parameters that say where a thread is: emulator/arguments.h has a function for each."""


def lowered_job(source: MetalSource, variant: Variant) -> EmulatorJob:
    """The job of one variant.

    Raises:
        SourceError: an attribute of a parameter that the emulator does not know.
        CompileError: a constant without a value, or a threadgroup that no launch can have.
        ToolchainError: the text includes torch's headers, and there are none.
    """
    constants = source.constants(variant)
    memory = source.memory_bytes(constants)
    passed = [one for one in variant.signature.parameters if one.kind is not ParameterKind.CONSTEXPR]
    layout = tuple(
        LayoutSlot(one.name, AbiType.POINTER)
        if one.kind is ParameterKind.POINTER or one.dtype is None
        else LayoutSlot(one.name, AbiType(one.dtype.short))
        for one in passed
    )
    slots = {slot.name: at for at, slot in enumerate(layout)}

    def argument(one: MslParameter) -> MetalArgument:
        if one.attribute == "threadgroup":
            return MetalArgument(BufferRole.THREADGROUP, one.name, "", memory[one.name])
        if not one.is_buffer:
            if one.attribute not in POSITIONS:
                raise SourceError(
                    f"{source}: {one.name} has the attribute {one.attribute}, which the emulator does not know"
                )
            return MetalArgument(BufferRole.POSITION, one.name, one.attribute)
        slot = slots[one.name]
        if layout[slot].type is not AbiType.POINTER:
            return MetalArgument(BufferRole.VALUE, one.name, one.type, slot)
        return MetalArgument(BufferRole.POINTER if one.form == "*" else BufferRole.REFERENCE, one.name, "", slot)

    # Threadgroup memory that a launch gives stays a parameter here, also of a template's instance.
    kernel = source.kernel
    own = replace(kernel, parameters=tuple(one for one in kernel.parameters if one.attribute != "threadgroup"))
    text = metal_text(source.text, own, constants, {})
    options = EMULATOR.read(EMULATOR.own(variant.config.options))
    return EmulatorJob(
        source=rewritten(text),
        file=source.text.file,
        function=kernel.function,
        arguments=tuple(argument(one) for one in kernel.parameters),
        layout=layout,
        group=source.group_size(constants),
        waits=bool(memory) or may_wait(source.text.text[slice(*kernel.body)]),
        cut=source.cut,
        headers=digest_of_headers() if includes_headers(text) else "",
        chunk=cast("int", options["cpu_chunk"]),
        threads=cast("int", options["cpu_threads"]),
    )
