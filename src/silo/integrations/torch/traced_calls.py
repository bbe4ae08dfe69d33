"""Calls of kernels with tensors that stand for others: fake, functional, batched. They go to torch as operators."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from silo.api.kernels.kernel import Kernel
from silo.core.signature import ParameterKind
from silo.errors import ArgumentError
from silo.integrations.torch.automatic import named_arguments, operator_for
from silo.integrations.torch.quiet_calls import tracks_gradient
from silo.launch.native import ABSENT

__all__ = ["serve", "stand_in"]


def serve(kernel: Any, arguments: tuple[object, ...], options: Mapping[str, object], grid: object) -> bool:  # noqa: ANN401
    """Whether a call was one that torch traces, and torch took it.

    Without a grid it becomes an operator; with one, what torch makes of any Triton kernel (``wrap_triton``).
    """
    torch: Any = import_module("torch")
    if not isinstance(kernel, Kernel) or not any(_stands_for_another(torch, one) for one in arguments):
        return False
    if kernel.extents is not None or _mixed(torch, arguments):
        return False  # operators know no shapes; the launcher's own error names the tensor that has no memory
    native = torch._C._functorch  # noqa: SLF001  # torch.func has no public question for it
    wrapped = [one for one in arguments if isinstance(one, torch.Tensor) and native.is_functorch_wrapped_tensor(one)]
    if any(tracks_gradient(torch, one) or torch._is_functional_tensor(one) for one in wrapped):  # noqa: SLF001  # as above
        return False  # the launcher's own error says what to do
    names = kernel.source.signature.names
    given = {name: value for name, value in zip(names, arguments, strict=True) if value is not ABSENT}
    if grid is not None:
        function = getattr(kernel.source, "function", None)
        traced = any(type(one).__module__.startswith("torch._subclasses.") for one in arguments)
        if function is None or wrapped or not traced or not hasattr(torch.library, "wrap_triton"):
            return False
        config = {name: value for name, value in kernel.first_config({}).as_dict().items() if name not in given}
        torch.library.wrap_triton(function)[grid](**{**config, **options, **given})
        return True
    if kernel.grid is None:
        return False  # the launcher's own error says so
    if options:
        raise ArgumentError(
            f"{kernel.name} is called with {', '.join(options)} while torch traces, and operators take no options: set "
            "them in the kernel's space"
        )
    plain = {name: value for name, value in given.items() if name in kernel.argument_names}
    call = named_arguments(kernel, (), plain if len(plain) == len(given) else given)
    operator = operator_for(kernel, {name: stand_in(torch, kernel, name, value) for name, value in call.items()})
    operator(**call)
    return True


def stand_in(torch: Any, kernel: Kernel, name: str, value: Any) -> object:  # noqa: ANN401
    """What describes an argument without its values: the dtype of a tensor; a number for one that is traced.

    Raises:
        ArgumentError: a constexpr is a number that torch traces and does not know.
    """
    if isinstance(value, torch.Tensor):
        return value.dtype
    kinds = ((torch.SymInt, 16, int), (torch.SymFloat, 1.0, float), (torch.SymBool, True, bool))
    for kind, number, settle in kinds:
        if isinstance(value, kind):
            if kernel.source.signature[name].kind is not ParameterKind.CONSTEXPR:
                return number
            try:
                return settle(value)
            except Exception as error:
                raise ArgumentError(
                    f"{name} is a constexpr of {kernel.name} ({kernel.location}), part of its code, and in this "
                    f"trace it is a number that only tensors know ({value}): pass a plain number, set {name} in the "
                    "kernel's space, or let the kernel take it when it runs (an ordinary parameter)"
                ) from error
    return value


def _mixed(torch: Any, arguments: tuple[object, ...]) -> bool:  # noqa: ANN401
    """Whether fake tensors stand beside real ones, which torch takes only where their mode says so, or meta tensors."""
    tensors: list[Any] = [one for one in arguments if isinstance(one, torch.Tensor)]
    if len({bool(one.is_meta) for one in tensors if type(one) in (torch.Tensor, torch.nn.Parameter)}) > 1:
        return True  # nothing would run, and the real ones keep what they hold
    modes: list[Any] = [getattr(one, "fake_mode", None) for one in tensors]
    modes = [mode for mode in modes if mode is not None]
    return 0 < len(modes) < len(tensors) and not modes[0].allow_non_fake_inputs


def _stands_for_another(torch: Any, value: object) -> bool:  # noqa: ANN401
    if not isinstance(value, torch.Tensor):
        return False
    tensor: Any = value
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    kind: Any = tensor.__class__
    if kind not in (torch.Tensor, torch.nn.Parameter):
        return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    native = torch._C._functorch  # noqa: SLF001  # torch.func has no public question for it
    return bool(tensor.is_meta or native.is_functorch_wrapped_tensor(tensor))
