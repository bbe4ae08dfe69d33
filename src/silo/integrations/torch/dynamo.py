"""Hook point in ``torch.compile``: a call of a Silo kernel becomes an operator in the graph.

A method of torch's tracer for Triton kernels is replaced. The replacement forwards calls of other kernels to torch. It
also forwards calls with a grid in a program that is exported, because the package must hold the kernel itself and not
an operator of this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from silo.building.prepared_calls import refuse_zeroing
from silo.core.decisions import Decision
from silo.errors import ArgumentError, SiloError
from silo.integrations.torch.automatic import named_arguments, operator_for
from silo.integrations.torch.call_forms import TorchCallForm, call_parts, traced_grids
from silo.integrations.torch.operator import TorchOp
from silo.integrations.torch.torch_patching import HookPoint
from silo.integrations.torch.torch_traced_calls import refuse_written_twice, sharing_of, stand_in
from silo.kernels.kernel import Kernel, kernel_of

__all__ = ["connect", "state"]

_log = logging.getLogger("silo")
_hook_point = HookPoint(
    "TritonHOPifier.call_triton_kernel",
    ["self", "variable", "args", "kwargs", "tx"],
    unused="torch.compile was not used in this process",
    connected="kernels become operators",
    changed="traces Triton kernels in another way than Silo knows, so under torch.compile they have torch's own "
    "operator, which needs a grid and is wrong for arguments in common memory: define operators with silo.torch_op",
    level=logging.WARNING,
)
_first_config_told: set[str] = set()


def state() -> Decision:
    """Returns whether calls become operators under ``torch.compile``, and why."""
    return _hook_point.state


def connect(module: Any) -> None:  # noqa: ANN401  # torch._higher_order_ops.triton_kernel_wrap
    """Replaces the method with which torch traces calls of Triton kernels.

    The replacement turns calls of Silo's kernels into operators.
    """
    _hook_point.connect(module, _with_silo)


def _with_silo(plain: Callable[..., Any]) -> Callable[..., Any]:
    def call_triton_kernel(self: Any, variable: Any, args: Sequence[Any], kwargs: dict[str, Any], tx: Any) -> Any:  # noqa: ANN401
        kernel = kernel_of(variable.kernel)
        if kernel is None:
            return plain(self, variable, args, kwargs, tx)
        if variable.grid is None and kernel.grid is None:
            self.raise_unsupported(
                f"{kernel.name} ({kernel.location}) is called without a grid and declares none: give silo.kernel a "
                f"grid=, or call {kernel.name}[grid](...)"
            )
        try:
            refuse_zeroing(kernel, "torch.compile")
            if variable.grid is None:
                if tx is None:
                    return _called(kernel, tuple(args), kwargs)
                return _traced(kernel, tuple(args), kwargs, tx)
            if tx is not None and not (tx.export or _has_descriptors(args, kwargs)):
                return _traced_with_grid(self, kernel, variable.grid, args, kwargs, tx)
            if tx is not None:
                _refuse_in_export(kernel, args, kwargs)
        except SiloError as error:
            if tx is None:
                raise
            return self.raise_unsupported(str(error))
        return plain(self, variable, args, _with_first_config(kernel, args, kwargs, tx), tx)

    return call_triton_kernel


def _with_first_config(kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], tx: Any) -> dict[str, Any]:  # noqa: ANN401
    """Returns a call's keywords for torch's own operator.

    Values that the call leaves to the config come from the first config.
    """
    names = kernel.source.signature.names
    given_names = {*names[: len(args)], *kwargs}
    if kernel.rule is not None or given_names.issuperset(kernel.config_names):
        return kwargs
    chosen = {name: value for name, value in kernel.first_config({}).as_dict().items() if name not in given_names}
    if kernel.name not in _first_config_told:
        _first_config_told.add(kernel.name)
        _log.info(
            "torch compiles %s by itself in a program that it exports, with the first config (%s): call it without a "
            "grid, by its declared one, for the config that Silo measured",
            kernel.name,
            ", ".join(f"{name}={value}" for name, value in chosen.items()),
        )
    if tx is None:
        return {**kwargs, **chosen}
    tracker: Any = import_module("torch._dynamo.variables.base").VariableTracker
    return {**kwargs, **{name: tracker.build(tx, value) for name, value in chosen.items()}}


def _has_descriptors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Returns whether an argument is a tensor descriptor made in the traced code, which operators do not take."""
    functions: Any = import_module("torch._dynamo.variables.functions")
    kinds = (functions.TMADescriptorExperimentalVariable, functions.TMADescriptorStableVariable)
    return any(isinstance(argument.realize(), kinds) for argument in (*args, *kwargs.values()))


def _refuse_in_export(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses a call for which torch's own operator computes wrong results (see :func:`refuse_written_twice`)."""
    torch: Any = import_module("torch")
    call, constants, options = _realized(kernel, args, kwargs)
    sharing = _sharing(torch, call)
    if sharing:
        example = {name: stand_in(torch, kernel, name, _behind(kernel, name, value)) for name, value in call.items()}
        fixed = _fixed(torch, kernel, constants)
        refuse_written_twice(kernel, {**example, **fixed}, _fixed(torch, kernel, options), sharing)


def _called(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Runs a call through ``torch.library.wrap_triton``.

    The call is made outside of Dynamo, so the arguments are real objects.
    """
    torch: Any = import_module("torch")
    call = named_arguments(kernel, args, kwargs)
    operator_for(kernel, {name: stand_in(torch, kernel, name, value) for name, value in call.items()})(**call)


def _traced(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], tx: Any) -> Any:  # noqa: ANN401
    """Traces a call without a grid; its arguments are Dynamo's variables."""
    torch: Any = import_module("torch")
    call = {name: value.realize() for name, value in named_arguments(kernel, args, kwargs).items()}
    example = {name: stand_in(torch, kernel, name, _behind(kernel, name, value)) for name, value in call.items()}
    operator = operator_for(kernel, example, None, _sharing(torch, call))
    return _record(operator, call, tx)


def _traced_with_grid(
    tracer: Any,  # noqa: ANN401  # torch's TritonHOPifier
    kernel: Kernel,
    grid: Any,  # noqa: ANN401  # Dynamo's object for a tuple, an integer or a function
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tx: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Traces a call with a grid. Its constexprs and options become part of the operator, and its grid an argument."""
    torch: Any = import_module("torch")
    tracker: Any = import_module("torch._dynamo.variables.base").VariableTracker
    lists: Any = import_module("torch._dynamo.variables.lists")
    call, constants, options = _realized(kernel, args, kwargs)
    example = {name: stand_in(torch, kernel, name, _behind(kernel, name, value)) for name, value in call.items()}
    fixed, chosen = _fixed(torch, kernel, constants), _fixed(torch, kernel, options)
    grid = grid.realize()
    is_plain = isinstance(grid, lists.BaseListVariable) or _is_integer(grid)

    def evaluate(config: Mapping[str, object]) -> list[Any]:
        traced_grid = grid
        if not is_plain:
            built = {name: tracker.build(tx, value) for name, value in config.items()}
            traced_grid = tracer.call_grid(grid, {**call, **constants, **options, **built}, tx).realize()
        axes = traced_grid.unpack_var_sequence(tx) if isinstance(traced_grid, lists.BaseListVariable) else [traced_grid]
        return [_axis(kernel, axis.realize()) for axis in axes]

    given_names = {*call, *fixed, *chosen}
    grid_form, axes = traced_grids(kernel, given_names, evaluate, lambda axis: str(_number(axis)), depends=not is_plain)
    form = TorchCallForm(tuple(fixed.items()), tuple(chosen.items()), grid_form)
    operator = operator_for(kernel, example, form, _sharing(torch, call))
    return _record(operator, {operator.arguments[0].name: lists.ListVariable(axes), **call}, tx)


def _realized(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the arguments, constexprs and options of a call, each a dict of realized Dynamo variables by name."""
    call, constants, options = call_parts(kernel, args, kwargs)
    return (
        {name: value.realize() for name, value in call.items()},
        {name: value.realize() for name, value in constants.items()},
        {name: value.realize() for name, value in options.items()},
    )


def _fixed(torch: Any, kernel: Kernel, constants: Mapping[str, Any]) -> dict[str, object]:  # noqa: ANN401  # the module
    """Returns the values of constexprs or options.

    torch adds a guard for a traced number, so torch traces again for another value.
    """
    return {
        name: stand_in(torch, kernel, name, _behind(kernel, name, value), constant=True)
        for name, value in constants.items()
    }


def _axis(kernel: Kernel, axis: Any) -> Any:  # noqa: ANN401
    if _is_integer(axis):
        return axis
    raise ArgumentError(f"{kernel.name}: an axis of its grid is {axis!r} in this trace, and it is an integer")


def _is_integer(value: Any) -> bool:  # noqa: ANN401
    """Returns whether a variable of Dynamo represents an integer.

    It is not enough that the variable is a constant: for Dynamo, a function without a closure is a constant too.
    """
    return value.is_symnode_like() or (value.is_python_constant() and isinstance(value.as_python_constant(), int))


def _number(axis: Any) -> Any:  # noqa: ANN401
    """Returns the integer of an axis, or torch's expression for it if it is a traced number.

    The expression is returned and not the traced number, because comparing traced numbers would add guards.
    """
    return axis.as_python_constant() if axis.is_python_constant() else axis.sym_num.node.expr


def _record(operator: TorchOp, call: Mapping[str, Any], tx: Any) -> Any:  # noqa: ANN401
    """Adds a call of the operator to the graph."""
    tracker: Any = import_module("torch._dynamo.variables.base").VariableTracker
    return tracker.build(tx, operator.overload).call_function(tx, [], dict(call))


def _sharing(torch: Any, call: Mapping[str, Any]) -> tuple[frozenset[str], ...]:  # noqa: ANN401
    """Returns the groups of a call's tensors that share memory, determined from the fake tensors of torch's trace."""
    tensors = {name: value.as_proxy().node.meta["example_value"] for name, value in call.items() if value.is_tensor()}
    return sharing_of(torch, tensors)


def _behind(kernel: Kernel, name: str, value: Any) -> Any:  # noqa: ANN401
    """Returns the constant, the traced number or the fake tensor that a variable of Dynamo represents.

    Raises:
        ArgumentError: the variable represents another kind of object.
    """
    if value.is_python_constant():
        return value.as_python_constant()
    if value.is_tensor() or value.is_symnode_like():
        return value.as_proxy().node.meta["example_value"]
    raise ArgumentError(
        f"{kernel.name} ({kernel.location}): {name} is {value!r} while torch traces, and operators of torch take "
        "tensors, numbers and texts"
    )
