"""``silo.torch_op``: an operator of torch that launches a kernel of Silo, with a schema read from the kernel."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from silo.artifacts.artifact import Artifact
from silo.building.prepared_calls import refuse_zeroing
from silo.core.signature import ParameterKind
from silo.errors import ArgumentError, LaunchError, SourceError
from silo.frozen import frozen
from silo.integrations.torch import operator_registry as registry
from silo.integrations.torch.call_facts import CallFacts, example_of, facts_of_call
from silo.integrations.torch.call_forms import TorchCallForm, grid_argument
from silo.integrations.torch.fast_calls import QuietCalls, tracks_gradient
from silo.integrations.torch.rules import Outputs, OutputSpec, register_rules, strided_names
from silo.integrations.torch.schema import OpArgument, OperatorKind, argument_of, fill, parse_name, schema_text
from silo.kernels.kernel import Kernel, kernel_of
from silo.launch.torch_versions import judge_version, load_torch

__all__ = ["TorchOp", "make_operator", "torch_op"]

_log = logging.getLogger("silo")
_UNTESTED_TOLD: set[str] = set()


class TorchOp:
    """An operator of torch that launches a kernel. Made by :func:`torch_op`; called like the operator.

    If torch only has to run the operator (no trace, mode, transform or gradient is active), a call goes straight to the
    kernel's launcher, in C. Every other call goes through torch's dispatcher. A call through ``torch.ops`` always goes
    through the dispatcher, which under the same conditions launches in C too. Copying the object returns the object
    itself; a pickle holds its name.

    Attributes:
        name: ``namespace::name``.
        schema: in torch's syntax.
        overload: the operator in torch: ``torch.ops.namespace.name.default``.
        kernel: the :class:`silo.Kernel`.
        mutates: the arguments that it writes to.
        outputs: the kernel's parameters that it allocates and returns.
        strided: the tensors that ``torch.vmap`` passes as views of the batch, with the batch's strides.
    """

    def __init__(
        self,
        torch: Any,  # noqa: ANN401  # the module
        name: str,
        kernel: Kernel,
        arguments: tuple[OpArgument, ...],
        outputs: Outputs,
        *,
        trusted: bool,
        module: str,
        strided: Collection[str] | None = None,
        form: TorchCallForm | None = None,
    ) -> None:
        self.name = name
        self.kernel = kernel
        self.arguments = arguments
        self.mutates = tuple(argument.name for argument in arguments if argument.writes)
        self.outputs = outputs.names
        self.module = module
        self.strided = strided_names(name, kernel, arguments, strided)
        self._form = form  # if it is not None, the operator's first argument holds the integers of the grid
        self._fixed = {} if form is None else form.fixed
        self._torch = torch
        self._outputs = outputs
        self._trusted = trusted
        namespace, short = parse_name(name)
        self.schema = schema_text(short, arguments, len(outputs.names))
        self._launch = self._launcher()
        own_arguments = arguments if form is None else arguments[1:]
        self._order = _Order.of(kernel, (*(own_argument.name for own_argument in own_arguments), *outputs.names))
        # The order of the following statements matters, because registering the operator calls its methods.
        self.differentiable: Any = None  # a torch.autograd.Function, if the operator writes to no argument
        self.library: Any = torch.library.Library(namespace, "FRAGMENT")
        try:
            self.library.define(self.schema)
        except RuntimeError as error:
            raise ArgumentError(f"torch does not take the schema {namespace}::{self.schema}: {error}") from error
        self.overload: Any = getattr(getattr(torch.ops, namespace), short).default
        self._is_tracing: Callable[[], bool] = torch.compiler.is_dynamo_compiling
        self._quiet = QuietCalls(torch, arguments)
        self._call = self._quiet_call(self._dispatched) or self._quiet.call(self.run, self._dispatched)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # the operator's arguments and result
        """Runs the operator.

        Raises:
            ArgumentError: the arguments do not fit the schema, or the kernel.
        """
        if self._is_tracing():  # torch.compile is tracing this code
            return self.overload(*args, **kwargs)
        if kwargs:
            return self._call(*args, **kwargs)
        return self._call(*args)  # without keywords, no dict is made

    def _dispatched(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Runs a call that needs torch's dispatcher, or that has argument classes which no earlier call had."""
        if self.differentiable is not None and self._quiet.is_transformed():
            return self.differentiable.apply(*fill(self.arguments, args, kwargs))
        if self.mutates and self._quiet.is_transformed():
            self._refuse_gradients(fill(self.arguments, args, kwargs))
        if self.mutates and any(isinstance(argument, self._torch.Tensor) and argument.is_neg() for argument in args):
            args = self._with_own_sign(args)
        result = self.overload(*args, **kwargs)
        self._quiet.learn(args)
        return result

    def _with_own_sign(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments with negative views resolved, which torch's dispatcher does not do here.

        Raises ArgumentError for a written argument that is such a view.
        """
        for position in self._quiet.written:
            if position < len(args) and args[position] is not None and args[position].is_neg():
                raise ArgumentError(
                    f"{self.name} writes to {self.arguments[position].name}, a view whose memory holds its values with "
                    "the other sign (of a conjugate's imaginary part): pass tensor.resolve_neg() and copy the result "
                    "back"
                )
        return tuple(
            argument.resolve_neg() if isinstance(argument, self._torch.Tensor) else argument for argument in args
        )

    def _quiet_call(self, otherwise: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Callable[..., Any] | None:
        """Returns a C function that launches quiet calls, which torch only has to run, without a Python frame.

        Returns None for an operator with several outputs, or with outputs that a function makes.
        """
        order, like = self._order, self._outputs.only_like
        if self._form is not None:  # an operator with a grid argument has no outputs
            return self._quiet.call(self._start_with_grid, otherwise)
        if order.places is not None and like is not None:
            return self._quiet.call(self._launch, otherwise, like, order.places)
        if order.is_given and not self.outputs:
            return self._quiet.call(self._launch, otherwise)
        return None

    def _start_with_grid(self, numbers: Sequence[int], *values: Any) -> None:  # noqa: ANN401
        """Launches the kernel with the grid that the integers describe."""
        form = self._form
        assert form is not None
        launch = self._launch[form.grid.grid(self.kernel.name, numbers)]
        launch(**dict(zip(self._order.names, values, strict=True)), **self._fixed)

    def within_dispatcher(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function to register with torch's dispatcher in place of ``rule``.

        Quiet calls skip the rule: calls that torch only has to run, because no trace, mode, transform or gradient is
        active.
        """

        def otherwise(args: tuple[Any, ...], _none: dict[str, Any]) -> Any:  # noqa: ANN401
            result = rule(*args)
            self._quiet.learn(args)
            return result

        return self._quiet_call(otherwise) or rule

    def run(self, *values: Any) -> Any:  # noqa: ANN401
        """Launches the kernel on tensors that have memory, and returns the operator's result."""
        if not self.outputs:
            return self._start(values)
        outputs = self._outputs.make(values)
        self._start(values + outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def checked_run(self, *values: Any) -> Any:  # noqa: ANN401
        """Like :meth:`run`, for calls of torch's dispatcher: also checks outputs, and gradients of written tensors.

        Raises:
            ArgumentError: an output shares memory with an argument, or a written tensor requires a gradient.
        """
        values = self.filled(values)
        if self.mutates:
            self._count_writes(values)
        if not self.outputs:
            return self._start(values)
        outputs = self._outputs.make(values)
        self._outputs.refuse_aliases(outputs, values)
        self._start(values + outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def filled(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Adds default values to a call's values, because torch's dispatcher omits values that equal their default.

        Raises:
            ArgumentError: None was passed for a tensor, which torch does not check.
        """
        complete = values if len(values) == len(self.arguments) else fill(self.arguments, values, {})
        for argument, value in zip(self.arguments, complete, strict=True):
            if value is None and argument.kind is OperatorKind.TENSOR and not argument.optional:
                raise ArgumentError(f"{self.name} takes a tensor as {argument.name}, and the call gives None")
        return complete

    def _start(self, values: tuple[Any, ...]) -> None:
        order = self._order
        if self._form is not None:
            self._start_with_grid(*values)
        elif order.is_given:
            self._launch(*values)
        elif order.places is not None:
            self._launch(*[values[position] for position in order.places])
        else:
            self._launch(**dict(zip(order.names, values, strict=True)))

    def _count_writes(self, values: tuple[Any, ...]) -> None:
        """Increments the version counts of written tensors, so that autograd refuses to use changed saved values.

        Raises ArgumentError if a gradient of a written tensor is required.
        """
        quiet = self._quiet
        written = [values[position] for position in quiet.written if values[position] is not None]
        if quiet.grad_enabled() and quiet.requires_grad(*written):
            self._refuse_gradients(values)
        try:
            quiet.count_writes(written)
        except RuntimeError:  # an inference tensor has no version count
            quiet.count_some(written)

    def _refuse_gradients(self, values: tuple[Any, ...]) -> None:
        for argument, value in zip(self.arguments, values, strict=True):
            if argument.writes and value is not None and tracks_gradient(self._torch, value):
                raise ArgumentError(
                    f"{self.name} writes to {argument.name}, of which a gradient is wanted, and autograd does not see "
                    "what a kernel writes: call it under torch.no_grad(), or on a tensor that needs no gradient; or "
                    "define an operator with silo.torch_op(..., out=..., backward=...)"
                )

    def is_quiet(self, args: tuple[Any, ...]) -> bool:
        """Returns whether torch only has to run the call: no trace, mode, transform or gradient is active."""
        return self._quiet.is_quiet(args)

    def fake(self, *values: Any) -> Any:  # noqa: ANN401
        """Returns the operator's outputs as tensors without values, for arguments without memory.

        Raises:
            ArgumentError: some tensors have memory, and others do not.
            SourceError: a constexpr, or the shape of an output, is unknown while torch traces.
        """
        values = self.filled(values)
        self._refuse_mixed(values)
        for argument, value in zip(self.arguments, values, strict=True):
            if argument.constant and type(value) not in (int, float, bool, str, type(None)):
                _settled(self.name, self.kernel, argument.name, value)
        if self.mutates and self._quiet.grad_enabled():
            self._refuse_gradients(values)
        outputs = self._outputs.make(values)
        if not outputs:
            return None
        return outputs[0] if len(outputs) == 1 else outputs

    def _refuse_mixed(self, values: tuple[Any, ...]) -> None:
        """Refuses meta tensors beside tensors with memory: no kernel would run, and results would be uninitialized."""
        plain = (self._torch.Tensor, self._torch.nn.Parameter)
        tensors = {
            argument.name: value for argument, value in zip(self.arguments, values, strict=True) if type(value) in plain
        }
        without = [name for name, value in tensors.items() if value.is_meta]
        if without and len(without) != len(tensors):
            others = ", ".join(name for name in tensors if name not in without)
            raise ArgumentError(
                f"{self.name}: {', '.join(without)} is a meta tensor, which has a shape and no memory, and {others} "
                "has memory: make all of them on one device"
            )

    def _launcher(self) -> Any:  # noqa: ANN401
        return self.kernel.launcher if self.kernel.checking else self.kernel.resolver.launcher_accepting(self._accept)

    def _accept(self, artifact: Artifact) -> None:
        """Refuses code whose effects exceed the schema. Code of another config or dtype may have such effects."""
        if self._trusted:
            return
        filled = self._outputs.unfilled
        for parameter in artifact.variant.signature.parameters:
            if parameter.kind not in (ParameterKind.POINTER, ParameterKind.DESCRIPTOR):
                continue
            name, effect = parameter.name, parameter.effect
            if effect.writes and name not in self.mutates and name not in self.outputs:
                raise LaunchError(
                    f"{self.name}: its schema says that {self.kernel.name} only reads {name}, and the code for this "
                    f"call ({artifact.variant.config}) writes to it: define the operator with mutates=(..., {name!r})"
                )
            if effect.reads and name in filled:
                raise LaunchError(
                    f"{self.name}: the output {name} is made with nothing in it, and the code for this call "
                    f"({artifact.variant.config}) reads it before it writes: give out= a function that fills it, such "
                    "as torch.zeros_like"
                )

    def __repr__(self) -> str:
        return f"<operator {self.overload._schema}>"  # noqa: SLF001  # torch prints it so

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, tuple[str, str]]:  # noqa: ANN401
        return registry.operator_named, (self.name, self.module)

    def __copy__(self) -> TorchOp:
        return self

    def __deepcopy__(self, _memo: object) -> TorchOp:
        return self


def torch_op(
    kernel: object,
    name: str,
    *,
    out: Mapping[str, OutputSpec] | None = None,
    backward: Callable[..., object] | None = None,
    setup_context: Callable[..., object] | None = None,
    example: object = None,
    mutates: Collection[str] | None = None,
    strided: Collection[str] | None = None,
) -> TorchOp:
    """Defines an operator of torch that launches a kernel: for ``torch.compile``, ``torch.export``, autograd, ``vmap``.

    Its arguments are the arguments of a call, without the outputs. Types come from an example call, effects from the
    kernel's own code: an argument that the kernel writes to is marked as mutated in the schema.

    Args:
        kernel: the result of ``silo.kernel``, with a declared grid.
        name: ``namespace::name``, so that the operator is ``torch.ops.namespace.name``.
        out: parameters that the operator allocates and returns, in the kernel's order: the name of an argument with the
            same shape and dtype, or a function of the operator's arguments (``lambda a: a.x.new_empty(a.n)``), which
            also runs on fake tensors. An operator with all written parameters in ``out`` is functional.
        backward: ``backward(ctx, *gradients)`` returns the gradient of each argument, None for those without a
            gradient, as with ``torch.library.register_autograd``.
        setup_context: ``setup_context(ctx, inputs, output)`` keeps what ``backward`` needs.
        example: the arguments of a call of the kernel (with outputs), in order or by name; a dtype represents a tensor.
            The first of the kernel's cases by default.
        mutates: names of the tensors that the kernel writes to, if its code does not determine them. They are not
            checked.
        strided: names of the tensors whose strides the kernel takes, so that any layout is right. For these ``vmap``
            passes views of the batch, and contiguous examples for all others. By default: every tensor of a kernel that
            has a parameter with "stride" in its name, else none.

    Raises:
        PackageError: torch is not installed, or too old.
        ArgumentError: the name is taken or malformed; ``out`` or ``example`` do not fit the kernel; ``backward`` is
            given for an operator that writes to arguments.
        SourceError: the kernel has no declared grid, or its effects are unknown.
    """
    torch = load_torch()
    owner = kernel_of(kernel)
    if owner is None:
        raise ArgumentError(
            f"silo.torch_op takes a kernel that silo.kernel made, and not a {type(kernel).__name__}: wrap it, "
            "silo.kernel(k, grid=...)"
        )
    refuse_zeroing(owner, "an operator of torch")
    _tell_version(str(torch.__version__))
    parse_name(name)
    if owner.grid is None:
        raise SourceError(
            f"{owner.name} ({owner.location}) has no declared grid, which its operator launches with: give silo.kernel "
            "a grid=, a function of the arguments"
        )
    module = str(sys._getframe(1).f_globals.get("__name__", "__main__"))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # a pickle imports it
    example_arguments = example_of(owner, example)
    written = None if mutates is None else {*mutates, *(out or ())}
    facts = facts_of_call(owner, example_arguments, written)
    return make_operator(
        torch,
        owner,
        name,
        example_arguments,
        facts,
        out or {},
        backward,
        setup_context,
        trusted=mutates is not None,
        module=module,
        strided=strided,
    )


def make_operator(
    torch: Any,  # noqa: ANN401  # the module
    kernel: Kernel,
    name: str,
    example: Mapping[str, object],
    facts: CallFacts,
    out: Mapping[str, OutputSpec],
    backward: Callable[..., object] | None,
    setup_context: Callable[..., object] | None,
    *,
    trusted: bool,
    module: str,
    strided: Collection[str] | None = None,
    form: TorchCallForm | None = None,
) -> TorchOp:
    """Defines and registers an operator with known types and effects. Raises like :func:`torch_op`.

    If ``form`` is not None, the operator launches with a grid, whose integers are its first argument.
    """
    arguments = tuple(
        argument_of(
            kernel.name,
            parameter,
            value,
            is_tensor=parameter in facts.effects and value is not None,
            constant=facts.kinds[parameter] is ParameterKind.CONSTEXPR
            and kernel.source.signature[parameter].kind is ParameterKind.CONSTEXPR,
            writes=parameter in facts.effects and facts.effects[parameter].writes,
            default=kernel.source.signature[parameter].default,
        )
        for parameter, value in example.items()
        if parameter not in out
    )
    if form is not None:
        grid = OpArgument(grid_argument(kernel.source.signature.names), OperatorKind.INTEGERS)
        arguments = (grid, *arguments)
    outputs = Outputs(name, out, facts.effects, [argument.name for argument in arguments], torch)
    mutated = [argument.name for argument in arguments if argument.writes]
    if backward is not None and mutated:
        raise ArgumentError(
            f"{name}: an operator with a backward= makes its outputs and writes to no argument, and this one writes to "
            f"{', '.join(mutated)}: name them in out=, out={{{mutated[0]!r}: ...}}"
        )
    if setup_context is not None and backward is None:
        raise ArgumentError(f"{name}: setup_context= keeps values for backward=, which is not given")
    with registry.defining(torch, name, kernel) as define:
        operator = TorchOp(
            torch, name, kernel, arguments, outputs, trusted=trusted, module=module, strided=strided, form=form
        )
        register_rules(torch, operator, backward, setup_context)
        define(operator)
    return operator


def bind_call(operator: TorchOp, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """Returns the arguments of a call in the operator's order. Raises ArgumentError."""
    try:
        return fill(operator.arguments, args, kwargs)
    except ArgumentError as error:
        raise ArgumentError(f"{operator.name}: {error}") from None


def _tell_version(version: str) -> None:
    decision = judge_version(version)
    if version not in _UNTESTED_TOLD and "is tested" in decision.reason:
        _UNTESTED_TOLD.add(version)
        _log.info("operators of torch: %s", decision.reason)


@frozen
class _Order:
    """Maps an operator's arguments and outputs, ``names``, to the parameters of the kernel.

    If ``names`` are exactly the kernel's first parameters, in any order, ``places`` has for each of these parameters
    its index in ``names``. Otherwise ``places`` is None, and the parameters are passed by name.
    """

    names: tuple[str, ...]
    places: tuple[int, ...] | None

    @classmethod
    def of(cls, kernel: Kernel, names: tuple[str, ...]) -> _Order:
        """Returns the order for a kernel with arguments and outputs of these names."""
        first = kernel.source.signature.names[: len(names)]
        fits = set(first) == set(names)
        return cls(names, tuple(map(names.index, first)) if fits else None)

    @property
    def is_given(self) -> bool:
        """Whether the kernel's parameters are in the operator's order."""
        return self.places == tuple(range(len(self.names)))


def _settled(operator: str, kernel: Kernel, name: str, value: Any) -> None:  # noqa: ANN401
    """Makes torch determine the value of a traced number, because the code depends on it. torch adds a guard."""
    try:
        int(value)
    except Exception as error:
        raise SourceError(
            f"{operator}: {name} is a constexpr of {kernel.name} ({kernel.location}), part of its code, and in this "
            f"trace it is a number that only tensors know ({value}): pass a plain number, set {name} in the kernel's "
            "space, or let the kernel take it when it runs (an ordinary parameter)"
        ) from error
