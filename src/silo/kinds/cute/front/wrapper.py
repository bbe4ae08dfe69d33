"""Wrappers: the host function that launches a device function, as the DSL's front end takes it.

Of a ``@cute.kernel`` Silo writes it, as text under a name that has no path. A ``@cute.jit`` function of the author's
is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from silo.core.dtypes import DType
from silo.core.launch_info import AbiType

__all__ = ["Form", "Wrapper", "WrapperParameter"]


class Form(Enum):
    """How an argument reaches the device function."""

    POINTER = "pointer"  # an array whose layout the code was made for: its address
    TENSOR = "tensor"  # an array of a dynamic layout: a struct of its address and the leaves
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class WrapperParameter:
    """One parameter.

    ``name`` is the kernel parameter. ``dtype`` is the element's of an array, the value's of a scalar. ``leaves`` of a
    dynamic tensor are its members in C's order, as :class:`silo.core.launch_info.LayoutSlot` has them:
    ``(AbiType.POINTER, "")``, ``(AbiType.I32, "shape.0")``, ``(AbiType.I64, "stride.1")``.
    """

    name: str
    form: Form
    dtype: DType
    leaves: tuple[tuple[AbiType, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A host function ready to be traced: ``to_precompiled_mlir(function, *arguments)``.

    Attributes:
        function: a ``@cute.jit`` function, or an object whose ``__call__`` is one.
        arguments: what it is traced with, which needs no device. Where ``written``: one for each of ``parameters``,
            then the three dimensions of the grid (Int32), then, if ``stream``, the stream of the environment. Of the
            author's host function: as it declares them, constants and the stream among them.
        parameters: where ``written``, the parameters of the device function in its order, constants left out: it has
            no others. Else the parameters of the author's host function, without constants and the stream; which of
            them reach the device function, the artifact says.
        written: Silo wrote it: one launch of one device function, with a grid that each call gives.
        stream: one argument is a stream.
        block, cluster, smem: as the author decided for this variant; None: what the artifact says.
        text: the wrapper's own text, "" where it is the author's.
    """

    function: Any
    arguments: tuple[Any, ...]
    parameters: tuple[WrapperParameter, ...]
    written: bool
    stream: bool = False
    block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    smem: int | None = None
    text: str = ""
