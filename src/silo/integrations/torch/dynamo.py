"""The seam in ``torch.compile``: a kernel of Silo that is called without a grid becomes an operator in the graph.

torch traces calls of Triton kernels with a grid, and refuses others. One method of its tracer is replaced, and hands on
every other call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from silo.api.kernels.kernel import Kernel, kernel_of
from silo.core.decisions import Decision
from silo.errors import SiloError
from silo.integrations.torch.automatic import named_arguments, operator_for
from silo.integrations.torch.seam import Seam
from silo.integrations.torch.traced_calls import stand_in

__all__ = ["connect", "state"]

_log = logging.getLogger("silo")
_seam = Seam(
    "TritonHOPifier.call_triton_kernel",
    ["self", "variable", "args", "kwargs", "tx"],
    unused="torch.compile was not used in this process",
    connected="kernels called without a grid become operators",
    changed="traces Triton kernels in another way than Silo knows: under torch.compile give kernels a grid, or define "
    "operators with silo.torch_op",
    level=logging.WARNING,
)
_first_config_told: set[str] = set()


def state() -> Decision:
    """Whether calls without a grid become operators under ``torch.compile``, and why not."""
    return _seam.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._higher_order_ops.triton_kernel_wrap
    """Replace the method that traces calls of Triton kernels."""
    _seam.connect(module, _with_silo)


def _with_silo(plain: Callable[..., Any]) -> Callable[..., Any]:
    def call_triton_kernel(self: Any, variable: Any, args: Sequence[Any], kwargs: dict[str, Any], tx: Any) -> Any:  # noqa: ANN401
        kernel = kernel_of(variable.kernel)
        if kernel is None:
            return plain(self, variable, args, kwargs, tx)
        if variable.grid is not None:
            return plain(self, variable, args, _with_first_config(kernel, args, kwargs, tx), tx)
        if kernel.grid is None:
            self.raise_unsupported(
                f"{kernel.name} ({kernel.location}) is called without a grid and declares none: give silo.kernel a "
                f"grid=, or call {kernel.name}[grid](...)"
            )
        try:
            if tx is None:
                return _called(kernel, tuple(args), kwargs)
            return _traced(kernel, tuple(args), kwargs, tx)
        except SiloError as error:
            if tx is None:
                raise
            return self.raise_unsupported(str(error))

    return call_triton_kernel


def _with_first_config(kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], tx: Any) -> dict[str, Any]:  # noqa: ANN401
    """The keywords of a call with a grid, and the first config's values for what the call leaves to a config."""
    names = kernel.source.signature.names
    given = {*names[: len(args)], *kwargs}
    if kernel.rule is not None or given.issuperset(kernel.config_names):
        return kwargs
    chosen = {name: value for name, value in kernel.first_config({}).as_dict().items() if name not in given}
    if kernel.name not in _first_config_told:
        _first_config_told.add(kernel.name)
        _log.info(
            "%s is called with a grid under torch.compile, which compiles it by itself with the first config (%s): "
            "call it without a grid, by its declared one, for the config that Silo measured",
            kernel.name,
            ", ".join(f"{name}={value}" for name, value in chosen.items()),
        )
    if tx is None:
        return {**kwargs, **chosen}
    tracker: Any = import_module("torch._dynamo.variables.base").VariableTracker
    return {**kwargs, **{name: tracker.build(tx, value) for name, value in chosen.items()}}


def _called(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call through ``torch.library.wrap_triton`` outside of Dynamo: the arguments are there."""
    torch: Any = import_module("torch")
    call = named_arguments(kernel, args, kwargs)
    operator_for(kernel, {name: stand_in(torch, kernel, name, value) for name, value in call.items()})(**call)


def _traced(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], tx: Any) -> Any:  # noqa: ANN401
    """A call in Dynamo, whose arguments are its own objects for what will be there."""
    torch: Any = import_module("torch")
    call = {name: value.realize() for name, value in named_arguments(kernel, args, kwargs).items()}
    example = {name: stand_in(torch, kernel, name, _behind(value)) for name, value in call.items()}
    operator = operator_for(kernel, example)
    tracker: Any = import_module("torch._dynamo.variables.base").VariableTracker
    return tracker.build(tx, operator.overload).call_function(tx, [], call)


def _behind(value: Any) -> Any:  # noqa: ANN401
    """The constant, the traced number or the fake tensor that one of Dynamo's objects stands for."""
    if value.is_python_constant():
        return value.as_python_constant()
    return value.as_proxy().node.meta["example_value"]
