"""The rules of an operator in torch: its fake form, gradients, batches, and the tensors that it allocates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol, TypeAlias, cast

from silo.core.signature import Effect
from silo.errors import ArgumentError, SourceError, UnsupportedError
from silo.integrations.torch.schema import OpArgument, OperatorKind
from silo.kernels.kernel import Kernel

__all__ = ["BatchedOperator", "OutputSpec", "Outputs", "RuledOperator", "batch_rule", "register_rules", "strided_names"]

# ---- ``torch.vmap`` over an operator: the kernel runs once for each example of the batch ----


class BatchedOperator(Protocol):
    """The members of an operator that the batch rule uses; see :class:`silo.integrations.torch.TorchOp`."""

    name: str
    arguments: tuple[OpArgument, ...]
    outputs: tuple[str, ...]
    strided: frozenset[str]
    overload: Any

    def filled(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the values that torch's dispatcher passes, with the default values that the dispatcher omits."""
        ...


def strided_names(
    operator: str, kernel: Kernel, arguments: Sequence[OpArgument], strided: Collection[str] | None
) -> frozenset[str]:
    """Returns the names of the tensors whose strides are passed to the kernel, so that it accepts any layout of them.

    ``strided`` is the author's declaration. None: every tensor of a kernel that has a parameter with "stride" in its
    name, and no tensor of any other kernel.

    Raises:
        ArgumentError: ``strided`` contains a name that is not a tensor's, or a tensor that the kernel declares
            contiguous.
    """
    tensors = [argument.name for argument in arguments if argument.kind is OperatorKind.TENSOR]
    if strided is None:
        takes_strides = any("stride" in name.lower() for name in kernel.source.signature.names)
        return frozenset(tensors) if takes_strides else frozenset()
    unknown = [name for name in strided if name not in tensors]
    if isinstance(strided, str) or unknown:
        raise ArgumentError(
            f"{operator}: strided= names tensors among the arguments, which are {', '.join(tensors) or 'none'}, and is "
            f"{strided!r}"
        )
    return frozenset(strided)


def batch_rule(torch: Any, operator: BatchedOperator) -> Callable[..., tuple[Any, Any]]:  # noqa: ANN401  # the module
    """Returns the rule for ``torch.library.register_vmap``.

    Each example is passed as a contiguous tensor, because a kernel that takes no strides assumes this layout; a view of
    the batch with another layout is copied, and copied back if the kernel writes to it. Tensors that the operator
    declares strided are passed as views of the batch, with the batch's strides.
    """
    dense = [
        argument.kind is OperatorKind.TENSOR and argument.name not in operator.strided
        for argument in operator.arguments
    ]

    def rule(info: Any, given_dims: Sequence[int | None], *given: Any) -> tuple[Any, Any]:  # noqa: ANN401
        args = list(operator.filled(given))
        in_dims = [
            # The grid, a list of integers, has no batch axis; torch passes a list in place of its batch axis.
            in_dim if operand.kind is OperatorKind.TENSOR else None
            for operand, in_dim in zip_longest(operator.arguments, given_dims)
        ]
        for operand, in_dim in zip(operator.arguments, in_dims, strict=True):
            if operand.writes and in_dim is None:
                raise ArgumentError(
                    f"{operator.name} writes to {operand.name}, which is one tensor for the whole batch of torch.vmap, "
                    "so that examples would overwrite each other: make it inside vmap, from something that has the "
                    "batch"
                )
        for index, (value, in_dim) in enumerate(zip(args, in_dims, strict=True)):
            if dense[index] and in_dim is None and value is not None:
                args[index] = value.contiguous()  # copies at most once, for the whole batch
        results = [_run_one(operator, dense, args, in_dims, number) for number in range(info.batch_size)]
        if not operator.outputs:
            return None, None
        if len(operator.outputs) == 1:
            return torch.stack(results), 0
        return tuple(torch.stack(column) for column in zip(*results, strict=True)), (0,) * len(operator.outputs)

    return rule


def _run_one(
    operator: BatchedOperator, dense: Sequence[bool], args: Sequence[Any], in_dims: Sequence[int | None], number: int
) -> Any:  # noqa: ANN401  # the operator's result
    """Runs the operator on example ``number`` of the batch."""
    values: list[Any] = []
    copied: list[tuple[Any, Any]] = []
    for declared, is_dense, value, in_dim in zip(operator.arguments, dense, args, in_dims, strict=True):
        if in_dim is None:
            values.append(value)
            continue
        view = value.select(in_dim, number)
        example = view.contiguous() if is_dense else view
        if declared.writes and example is not view:
            copied.append((view, example))
        values.append(example)
    result = operator.overload(*values)
    for view, example in copied:
        view.copy_(example)
    return result


# ---- The tensors that an operator allocates for its kernel to write to ----

OutputSpec: TypeAlias = "str | Callable[[Any], object]"

# Errors that torch raises if a function reads the values of a fake tensor.
_DATA_DEPENDENT = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")


class _Arguments:
    """The arguments of one call as attributes, which the functions in ``out=`` take."""

    def __init__(self, names: Sequence[str], values: Sequence[object]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"the operator has no argument {name}; it has {', '.join(vars(self))}")


class Outputs:
    """Makes each output of an operator: an empty tensor like an argument, or the result of a function of the arguments.

    Raises:
        ArgumentError: an output is not a tensor that the kernel writes to, or names an unknown argument.
    """

    def __init__(
        self,
        operator: str,
        specs: Mapping[str, OutputSpec],
        effects: Mapping[str, Effect],
        arguments: Sequence[str],
        torch: Any,  # noqa: ANN401  # the module
    ) -> None:
        self.names = tuple(name for name in effects if name in specs)
        self._operator = operator
        self._torch = torch
        self._arguments = tuple(arguments)
        for name, spec in specs.items():
            self._check(name, spec, effects)
        like = [self._arguments.index(spec) for spec in map(specs.get, self.names) if isinstance(spec, str)]
        # Outputs that are allocated without values, so the kernel must not read them first.
        self.unfilled = frozenset(name for name in self.names if isinstance(specs[name], str))
        self._specs = tuple((name, specs[name]) for name in self.names)
        # If the only output is an empty tensor like an argument, the index of that argument; else None.
        self.only_like = like[0] if len(like) == len(self.names) == 1 else None

    def _check(self, name: str, spec: OutputSpec, effects: Mapping[str, Effect]) -> None:
        where = f"{self._operator}: out= "
        if name not in effects:
            raise ArgumentError(f"{where}names {name}, and the kernel's tensors are {', '.join(effects) or 'none'}")
        effect = effects[name]
        if not effect.writes:
            raise ArgumentError(f"{where}names {name}, which the kernel does not write to: leave it an argument")
        if isinstance(spec, str):
            if spec not in self._arguments:
                raise ArgumentError(
                    f"{where}makes {name} like {spec!r}, which is not an argument; there are "
                    f"{', '.join(self._arguments)}"
                )
            if effect.reads:
                raise ArgumentError(
                    f"{where}makes {name} like {spec}, with nothing in it, and the kernel may read {name} before it "
                    f"writes (it adds to it, or reads it back): give a function that fills it, "
                    f"out={{{name!r}: lambda a: torch.zeros_like(a.{spec})}}"
                )
        elif not callable(spec):
            raise ArgumentError(f"{where}{name} is an argument's name or a function of the arguments, and not {spec!r}")

    def make(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Makes the outputs of a call with these arguments, which may be tensors of any kind (real, fake, meta)."""
        if self.only_like is not None:
            return (self._torch.empty_like(values[self.only_like]),)
        return tuple(self._new_output(name, spec, values) for name, spec in self._specs)

    def _new_output(self, name: str, spec: OutputSpec, values: tuple[Any, ...]) -> Any:  # noqa: ANN401
        if isinstance(spec, str):
            return self._torch.empty_like(values[self._arguments.index(spec)])
        try:
            output = spec(_Arguments(self._arguments, values))
        except Exception as error:
            if type(error).__name__ in _DATA_DEPENDENT:
                raise SourceError(
                    f"{self._operator}: the shape of the output {name} depends on the values in a tensor, which are "
                    f"not known while torch traces ({error}): compute the size before the call and pass it as an "
                    "argument, or pass a tensor that is large enough"
                ) from error
            raise
        if not isinstance(output, self._torch.Tensor):
            raise ArgumentError(
                f"{self._operator}: out= makes {name} by a function that returned a {type(output).__name__}; it "
                "returns a tensor"
            )
        return cast("Any", output)

    def refuse_aliases(self, tensors: Sequence[Any], values: Sequence[Any]) -> None:
        """Raises ArgumentError, which names both, if an output shares memory with an argument or another output."""
        seen = {
            _storage(value): name
            for name, value in zip(self._arguments, values, strict=True)
            if isinstance(value, self._torch.Tensor)
        }
        for name, tensor in zip(self.names, tensors, strict=True):
            key = _storage(tensor)
            if key in seen and key and tensor.numel():  # the address 0 means no memory, for which the launcher raises
                raise ArgumentError(
                    f"{self._operator}: the output {name} lies in the memory of {seen[key]}, and an operator's outputs "
                    f"are new tensors: make a copy in out= (torch.empty_like, clone), or leave {name} an argument, "
                    "which the operator then writes to"
                )
            seen[key] = name


def _storage(tensor: Any) -> int:  # noqa: ANN401
    return int(tensor.untyped_storage().data_ptr())


# ---- Registration of an operator's rules: kernel, fake form, gradients, batches ----


class RuledOperator(BatchedOperator, Protocol):
    """The members of an operator that the rules use; see :class:`silo.integrations.torch.TorchOp`."""

    library: Any
    mutates: tuple[str, ...]
    differentiable: Any

    def within_dispatcher(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function to register with torch's dispatcher in place of ``rule``."""
        ...

    def checked_run(self, *values: Any) -> Any:  # noqa: ANN401
        """Launches the kernel for a call of torch's dispatcher."""
        ...

    def fake(self, *values: Any) -> Any:  # noqa: ANN401
        """Returns the outputs without values."""
        ...

    def is_quiet(self, args: tuple[Any, ...]) -> bool:
        """Returns whether torch only has to run the call: no trace, mode, transform or gradient is active."""
        ...


def register_rules(
    torch: Any,  # noqa: ANN401  # the module
    operator: RuledOperator,
    backward: Callable[..., object] | None,
    setup_context: Callable[..., object] | None,
) -> None:
    """Registers every rule of an operator in its own ``torch.library.Library``."""
    short = operator.name.partition("::")[2]
    library = operator.library
    library.impl(short, operator.within_dispatcher(operator.checked_run), "CompositeExplicitAutograd")
    torch.library.register_fake(operator.name, operator.fake, lib=library)
    torch.library.register_vmap(operator.name, batch_rule(torch, operator), lib=library)
    if operator.mutates:  # torch's rules are skipped, because checked_run checks gradients and counts writes
        library.impl(short, torch.library.fallthrough_kernel, "Autograd")
        library.impl(short, torch.library.fallthrough_kernel, "ADInplaceOrView")
    else:
        operator.differentiable, rule = _gradient_rule(torch, operator, backward, setup_context)
        library.impl(short, operator.within_dispatcher(rule), "Autograd")


def _gradient_rule(
    torch: Any,  # noqa: ANN401  # the module
    operator: RuledOperator,
    backward: Callable[..., object] | None,
    setup_context: Callable[..., object] | None,
) -> tuple[Any, Callable[..., Any]]:
    """Makes the ``torch.autograd.Function`` of an operator, and the rule to register for autograd.

    This function also works under ``torch.func``, for which ``torch.library.register_autograd`` is not sufficient.
    """
    native = torch._C  # noqa: SLF001  # as torch.library's own rule does
    overload = operator.overload

    def forward(*args: Any) -> Any:  # noqa: ANN401
        with native._AutoDispatchBelowAutograd():  # noqa: SLF001
            return overload(*args)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ANN401
        if setup_context is not None:
            setup_context(ctx, inputs, output)

    def gradients(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
        if backward is None:
            raise UnsupportedError(
                f"{operator.name} has no backward: give silo.torch_op one (backward=, setup_context=), or call it "
                "under torch.no_grad() or on tensors that need no gradient"
            )
        return backward(ctx, *grads)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(keep),
        "backward": staticmethod(gradients),
        "generate_vmap_rule": True,
    }
    function: Any = type(f"Gradient of {operator.name}", (torch.autograd.Function,), members)

    def rule(*given: Any) -> Any:  # noqa: ANN401
        args = operator.filled(given)
        if not (native.is_grad_enabled() and native._any_requires_grad(*args)):  # noqa: SLF001
            return operator.checked_run(*args) if operator.is_quiet(args) else forward(*args)
        if native._are_functorch_transforms_active():  # noqa: SLF001  # too late in the dispatcher
            raise UnsupportedError(
                f"{operator.name} was called through torch.ops inside a transform of torch.func (grad, vjp, jacrev): "
                "call the object that silo.torch_op gave, which takes transforms"
            )
        return function.apply(*args)

    return function, rule
