"""Calls of a program of jax with arrays in host memory, and with jax's own wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silo.kinds.pallas.bridge import Arrays
from silo.kinds.pallas.call_plan import CallLayout, ScalarPlace
from silo.kinds.pallas.front.pallas_installation import jax_module

__all__ = ["HostCall", "given_scalar", "returned"]


class HostCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for CPUs and TPUs: results are there when it returns.

    Contiguous tensors of torch and arrays of jax are passed without a copy, where their address is one that jax takes
    (a multiple of 64 bytes); everything else is copied in. Results are copied to the arrays of the call, because jax
    writes to no memory but its own on a CPU.
    """

    def __init__(self, plan: CallLayout, program: Callable[..., Any], device: Any, arrays: Arrays) -> None:  # noqa: ANN401
        jax = jax_module()
        place = jax.sharding.SingleDeviceSharding(device)
        # Where its arguments are on no device yet, they go to this one.
        self._run = jax.jit(program, in_shardings=place, out_shardings=place)
        self._plan = plan
        self._arrays = arrays
        self._elements = {one.parameter: jax.numpy.dtype(one.dtype.name) for one in plan.operands}

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Run it. What is returned are results that the call has no arrays for.

        Raises:
            LaunchError: jax does not compile the program, or it fails.
        """
        del grid, stream  # the program is for one grid; there are no streams
        plan, arrays = self._plan, self._arrays
        given: list[Any] = []
        for one in plan.operands:
            value = arguments[one.parameter]
            if isinstance(one, ScalarPlace):
                given.append(given_scalar(value, self._elements[one.parameter]))
            else:
                arrays.check(one, value)
                given.append(arrays.take(one, value))
        for one in plan.results:
            if (value := arguments[one.parameter]) is not None:
                arrays.check(one, value)
                arrays.check_written(one, value)
        made: list[Any] = []
        try:
            results = self._run(*given)
            for result in results:
                # Its operands may be views of the caller's memory: it is done with them before anything is written.
                result.block_until_ready()
        except Exception as error:
            raise arrays.failed(error) from error
        for one, result in zip(plan.results, results, strict=True):
            value = arguments[one.parameter]
            if value is None:
                made.append(arrays.like(result, _first(plan, arguments)))
            else:
                arrays.put(value, result)
        return returned(made)


def given_scalar(value: Any, element: Any) -> Any:  # noqa: ANN401
    """A scalar as the operand that the program has for it."""
    import numpy as np  # noqa: PLC0415  # jax needs it

    return np.array([value], element)


def returned(made: list[Any]) -> Any:  # noqa: ANN401
    """What a call returns: nothing, one array, or several in the order of the parameters."""
    return tuple(made) if len(made) > 1 else made[0] if made else None


def _first(plan: CallLayout, arguments: tuple[Any, ...]) -> object:
    """The first array of a call: what is made is of its library."""
    for one in plan.operands:
        if not isinstance(one, ScalarPlace):
            return arguments[one.parameter]
    return None
