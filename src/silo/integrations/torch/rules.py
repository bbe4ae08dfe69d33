"""What torch asks of an operator besides running it: a fake form, gradients, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from silo.errors import UnsupportedError
from silo.integrations.torch.batches import BatchedOperator, batch_rule

__all__ = ["RuledOperator", "register_rules"]


class RuledOperator(BatchedOperator, Protocol):
    """What the rules need of an operator; see :class:`silo.integrations.torch.TorchOp`."""

    library: Any
    mutates: tuple[str, ...]
    differentiable: Any

    def within_dispatcher(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The function to register with torch's dispatcher for ``rule``."""
        ...

    def checked_run(self, *values: Any) -> Any:  # noqa: ANN401
        """Launch the kernel for a call of torch's dispatcher."""
        ...

    def fake(self, *values: Any) -> Any:  # noqa: ANN401
        """The outputs without values."""
        ...

    def is_quiet(self, args: tuple[Any, ...]) -> bool:
        """Whether torch has nothing to do with a call but to run it."""
        ...


def register_rules(
    torch: Any,  # noqa: ANN401  # the module
    operator: RuledOperator,
    backward: Callable[..., object] | None,
    setup_context: Callable[..., object] | None,
) -> None:
    """Register every rule of an operator that was defined, in its own library."""
    short = operator.name.partition("::")[2]
    library = operator.library
    library.impl(short, operator.within_dispatcher(operator.checked_run), "CompositeExplicitAutograd")
    torch.library.register_fake(operator.name, operator.fake, lib=library)
    torch.library.register_vmap(operator.name, batch_rule(torch, operator), lib=library)
    if operator.mutates:  # its run looks at gradients and counts writes
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
    """The ``torch.autograd.Function`` of an operator, and what runs under autograd.

    In the form that ``torch.func`` takes too, which ``torch.library.register_autograd`` does not make.
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
        if native._are_functorch_transforms_active():  # noqa: SLF001  # too late for it, within the dispatcher
            raise UnsupportedError(
                f"{operator.name} was called through torch.ops inside a transform of torch.func (grad, vjp, jacrev): "
                "call the object that silo.torch_op gave, which takes transforms"
            )
        return function.apply(*args)

    return function, rule
