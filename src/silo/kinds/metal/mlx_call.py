"""Launching Metal kernels through MLX: arrays to read go in, fresh ones come out and take the place of those given."""

from __future__ import annotations

import hashlib
from typing import Any

from silo.errors import ArgumentError
from silo.kinds.metal.front.mlx_signature import SMALL
from silo.kinds.metal.front.shader_text import AddressSpace
from silo.kinds.metal.mlx_body import MlxBody, MlxInput
from silo.kinds.metal.shader_plan import ShaderPlan

__all__ = ["MlxCall"]

# What MLX calls the dtypes that it has under other names.
_DTYPES = {"bool": "bool_"}


class MlxCall:
    """Implements :class:`silo.core.protocols.LibraryCall` with arrays of MLX.

    MLX gives kernels no memory of the caller's to write. An array that the kernel writes is made anew, of the shape and
    dtype of the caller's, which then holds it (``out[...] = made``: nothing is copied). So the kernel writes all of it.
    Inputs are row-major, as MLX lays them out for its own kernels. MLX is asked to begin at once and not waited for.
    """

    def __init__(self, mx: Any, plan: ShaderPlan, body: MlxBody, name: str) -> None:  # noqa: ANN401  # the module
        self._mx, self._plan, self._body, self._name = mx, plan, body, name
        word = hashlib.sha256(f"{body.header}{body.source}".encode()).hexdigest()[:16]
        self._kernel: Any = mx.fast.metal_kernel(
            name=f"silo_{word}",
            input_names=[one.name for one in body.inputs],
            output_names=[made for made, _ in body.outputs],
            source=body.source,
            header=body.header,
        )

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> None:
        """Enqueue it. Raises ArgumentError: an array that MLX passes in other memory than the kernel reads."""
        del stream  # MLX's current one
        if 0 in grid:
            return
        outputs = [arguments[buffer.parameter] for _, buffer in self._body.outputs]
        x, y, z = self._plan.group
        made = self._kernel(
            inputs=[self._given(one, arguments[one.buffer.parameter]) for one in self._body.inputs],
            output_shapes=[one.shape for one in outputs],
            output_dtypes=[one.dtype for one in outputs],
            grid=(grid[0] * x, grid[1] * y, grid[2] * z),
            threadgroup=(x, y, z),
        )
        self._mx.async_eval(made)  # or it would run when somebody reads a result, which the next launch may replace
        for one, result in zip(outputs, made, strict=True):
            one[...] = result

    def _given(self, one: MlxInput, value: Any) -> Any:  # noqa: ANN401  # an array of MLX
        mx = self._mx
        if one.buffer.dtype is not None:
            name = one.buffer.dtype.name
            return mx.array(value, getattr(mx, _DTYPES.get(name, name)))
        if one.space is AddressSpace.CONSTANT:
            if value.size >= SMALL:
                raise ArgumentError(
                    f"{self._name}: {one.name.removeprefix('silo_in_')} is in constant memory, where MLX puts arrays "
                    f"of fewer than {SMALL} elements alone, and it has {value.size}: declare it device const"
                )
            return value if value.ndim else value.reshape(1)
        if value.size >= SMALL:
            return value
        # MLX would pass it in constant memory, of which the kernel takes no pointer to device memory.
        return mx.concatenate([value.reshape(-1), mx.zeros((SMALL - value.size,), value.dtype)])
