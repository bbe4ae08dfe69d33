"""Calls of kernels with traced tensors (fake, functional, batched): they are passed to torch as operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from silo.building.prepared_calls import refuse_zeroing
from silo.core.signature import ParameterKind
from silo.errors import ArgumentError
from silo.integrations.torch.automatic import named_arguments, operator_for
from silo.integrations.torch.call_facts import facts_of_call
from silo.integrations.torch.call_forms import TorchCallForm, call_parts, traced_grids
from silo.integrations.torch.fast_calls import tracks_gradient
from silo.kernels.kernel import Kernel
from silo.launch.native import ABSENT

__all__ = ["refuse_written_twice", "serve", "sharing_of", "stand_in"]


def serve(kernel: Any, arguments: tuple[object, ...], options: Mapping[str, object], grid: object) -> bool:  # noqa: ANN401
    """Passes a call to torch if torch traces its tensors; returns whether torch took it.

    The call becomes an operator. In a program that is exported, a call with a grid becomes torch's own operator for
    Triton kernels (``wrap_triton``).
    """
    torch: Any = import_module("torch")
    if not isinstance(kernel, Kernel) or not any(_stands_for_another(torch, argument) for argument in arguments):
        return False
    if kernel.extents is not None or _mixed(torch, arguments):
        # operators take no such arguments; the launcher then raises an error that names the tensor without memory
        return False
    native = torch._C._functorch  # noqa: SLF001  # torch.func has no public function for it
    wrapped = [
        argument
        for argument in arguments
        if isinstance(argument, torch.Tensor) and native.is_functorch_wrapped_tensor(argument)
    ]
    if any(tracks_gradient(torch, tensor) or torch._is_functional_tensor(tensor) for tensor in wrapped):  # noqa: SLF001  # as above
        return False  # the launcher then raises an error that names the remedy
    refuse_zeroing(kernel, "an operator of torch")
    names = kernel.source.signature.names
    passed = {name: value for name, value in zip(names, arguments, strict=True) if value is not ABSENT}
    if grid is not None:
        if torch.compiler.is_exporting():
            return _serve_in_export(torch, kernel, passed, options, grid, batched=bool(wrapped))
        _serve_with_grid(torch, kernel, passed, options, grid)
        return True
    if kernel.grid is None:
        return False  # the launcher then raises an error that names the missing grid
    if options:
        raise ArgumentError(
            f"{kernel.name} is called with {', '.join(options)} while torch traces, and operators take no options: set "
            "them in the kernel's space"
        )
    plain = {name: value for name, value in passed.items() if name in kernel.argument_names}
    call = named_arguments(kernel, (), plain if len(plain) == len(passed) else passed)
    operator = operator_for(kernel, {name: stand_in(torch, kernel, name, value) for name, value in call.items()})
    operator(**call)
    return True


def _serve_in_export(
    torch: Any,  # noqa: ANN401  # the module
    kernel: Kernel,
    arguments: Mapping[str, object],
    options: Mapping[str, object],
    grid: object,
    *,
    batched: bool,
) -> bool:
    """Passes the call to torch's own operator for Triton kernels; returns whether torch took the call.

    An exported package then contains the kernel itself.
    """
    function = getattr(kernel.source, "function", None)
    traced = any(type(argument).__module__.startswith("torch._subclasses.") for argument in arguments.values())
    if function is None or batched or not traced or not hasattr(torch.library, "wrap_triton"):
        return False
    call, constants, chosen = call_parts(kernel, (), {**arguments, **options})
    if sharing := _sharing(torch, call):
        example = {name: stand_in(torch, kernel, name, value) for name, value in call.items()}
        refuse_written_twice(kernel, {**example, **constants}, chosen, sharing)
    config = {name: value for name, value in kernel.first_config({}).as_dict().items() if name not in arguments}
    torch.library.wrap_triton(function)[grid](**{**config, **options, **arguments})
    return True


def _serve_with_grid(
    torch: Any,  # noqa: ANN401  # the module
    kernel: Kernel,
    arguments: Mapping[str, Any],
    options: Mapping[str, object],
    grid: Any,  # noqa: ANN401  # a tuple, an integer or a function
) -> None:
    """Calls the operator for a call with a grid."""
    call, constants, named_options = call_parts(kernel, (), {**arguments, **options})
    example = {name: stand_in(torch, kernel, name, value) for name, value in call.items()}
    fixed = {name: stand_in(torch, kernel, name, value, constant=True) for name, value in constants.items()}

    def evaluate(config: Mapping[str, object]) -> list[Any]:
        raw_grid: Any = grid({**config, **arguments, **options}) if callable(grid) else grid
        return [*raw_grid] if isinstance(raw_grid, tuple | list) else [raw_grid]

    def word(axis: Any) -> str:  # noqa: ANN401
        return str(axis.node.expr) if isinstance(axis, torch.SymInt) else str(axis)

    available_names = {*arguments, *options}
    grid_form, axes = traced_grids(kernel, available_names, evaluate, word, depends=callable(grid))
    form = TorchCallForm(tuple(fixed.items()), tuple(named_options.items()), grid_form)
    operator_for(kernel, example, form, _sharing(torch, call))(axes, *call.values())


def _sharing(torch: Any, call: Mapping[str, Any]) -> tuple[frozenset[str], ...]:  # noqa: ANN401  # the module
    """Returns the groups of tensors that share memory; empty if a transform of ``torch.func`` hides the memory."""
    tensors = {name: value for name, value in call.items() if isinstance(value, torch.Tensor)}
    native = torch._C._functorch  # noqa: SLF001  # torch.func has no public function for it
    if any(native.is_functorch_wrapped_tensor(value) for value in tensors.values()):
        return ()
    return sharing_of(torch, tensors)


def refuse_written_twice(
    kernel: Kernel, example: Mapping[str, object], options: Mapping[str, object], sharing: Sequence[frozenset[str]]
) -> None:
    """Refuses a call for which torch's own operator for Triton kernels computes wrong results.

    That operator copies each written argument, so two arguments that share memory no longer do.

    Raises:
        ArgumentError: the kernel writes to two arguments that share memory.
        SourceError: the kernel's effects are unknown.
    """
    effects = facts_of_call(kernel, example, None, options).effects
    for group in sharing:
        written = sorted(name for name in group if name in effects and effects[name].writes)
        if len(written) > 1:
            raise ArgumentError(
                f"{kernel.name} ({kernel.location}) writes to {' and '.join(written)}, which lie in common memory, in "
                "a program that torch exports, where its own operator for Triton kernels gives the kernel a copy of "
                f"each: define an operator with silo.torch_op, or call {kernel.name} by its declared grid"
            )


def sharing_of(torch: Any, tensors: Mapping[str, Any]) -> tuple[frozenset[str], ...]:  # noqa: ANN401  # the module
    """Returns the groups of two or more tensors, by name, that have the same storage."""
    groups: dict[int, set[str]] = {}
    for name, tensor in tensors.items():
        if tensor.layout is torch.strided:
            groups.setdefault(int(tensor.untyped_storage()._cdata), set()).add(name)  # noqa: SLF001  # its identity
    return tuple(frozenset(names) for names in groups.values() if len(names) > 1)


def stand_in(torch: Any, kernel: Kernel, name: str, value: Any, *, constant: bool = False) -> object:  # noqa: ANN401
    """Returns a value that stands for an argument in an example call: a tensor's dtype, or a number if it is traced.

    With ``constant`` the argument is part of the code or an option, so torch determines the value of a traced number.

    Raises:
        ArgumentError: a constexpr is a traced number whose value torch does not know.
    """
    if isinstance(value, torch.Tensor):
        return value.dtype
    kinds = ((torch.SymInt, 16, int), (torch.SymFloat, 1.0, float), (torch.SymBool, True, bool))
    for kind, number, settle in kinds:
        if isinstance(value, kind):
            if not constant and kernel.source.signature[name].kind is not ParameterKind.CONSTEXPR:
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
    """Returns whether torch cannot take a call, because its arrays are of different kinds.

    They may be fake and real tensors (if the fake tensors' mode forbids real ones), meta and real tensors, or tensors
    and arrays of another library.
    """
    tensors: list[Any] = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    if any(not isinstance(argument, torch.Tensor) and hasattr(argument, "__dlpack__") for argument in arguments):
        return True  # torch's operators take no arrays of other libraries
    if len({bool(tensor.is_meta) for tensor in tensors if type(tensor) in (torch.Tensor, torch.nn.Parameter)}) > 1:
        return True  # torch would launch nothing, and the real tensors would keep their old values
    modes: list[Any] = [getattr(tensor, "fake_mode", None) for tensor in tensors]
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
    native = torch._C._functorch  # noqa: SLF001  # torch.func has no public function for it
    return bool(tensor.is_meta or native.is_functorch_wrapped_tensor(tensor))
