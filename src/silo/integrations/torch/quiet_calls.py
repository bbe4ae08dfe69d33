"""Calls of an operator for which torch's dispatcher has nothing to do: no trace, no mode, no transform, no gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from silo.integrations.torch.schema import OpArgument, OpKind

__all__ = ["QuietCalls", "tracks_gradient"]


class QuietCalls:
    """What tells calls that may go straight to a launcher.

    The classes of their arguments (``known``) are learnt from calls that torch took. Each question is one C function of
    torch; where this torch lacks one, nothing is learnt, so no call is quiet.
    """

    def __init__(self, torch: Any, arguments: Sequence[OpArgument]) -> None:  # noqa: ANN401  # the module
        self.known: set[tuple[object, ...]] = set()
        self._count = len(arguments)
        self.tensors = tuple(index for index, one in enumerate(arguments) if one.kind is OpKind.TENSOR)
        self.written = tuple(index for index in self.tensors if arguments[index].writes)
        # The places of tensors of which a gradient is torch's business: where some are written, these alone.
        self.watched = self.written or self.tensors
        self._plain = {torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)}
        self._usable = True
        self.count_writes: Callable[[list[Any]], None] = torch.autograd.graph.increment_version
        self.grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self.requires_grad: Callable[..., bool] = _any_requires_grad
        try:
            native = torch._C  # noqa: SLF001  # the dispatcher's state is nowhere else
            self.dispatch_modes: Callable[[], int] = native._len_torch_dispatch_stack  # noqa: SLF001
            self.function_modes: Callable[[], int] = native._len_torch_function_stack  # noqa: SLF001
            self.transform: Callable[[], Any] = native._functorch.peek_interpreter_stack  # noqa: SLF001
            self.jit_trace: Callable[[], object] = native._get_tracing_state  # noqa: SLF001
            self.grad_enabled = native.is_grad_enabled
            self.requires_grad = native._any_requires_grad  # noqa: SLF001
            self.count_writes = native._increment_version  # noqa: SLF001
            self._functionalize: object = native._functorch.TransformType.Functionalize  # noqa: SLF001
        except AttributeError:
            self._usable = False

    def is_transformed(self) -> bool:
        """Whether a transform of ``torch.func`` is at work that looks into autograd functions."""
        found = self.transform() if self._usable else None
        return found is not None and found.key() != self._functionalize

    def learn(self, args: tuple[Any, ...]) -> None:
        """Torch took a call with such arguments: they fit the schema, as they are where each is of a plain class."""
        whole = len(args) == self._count  # a call that leaves out a default is not a launch as it stands
        if self._usable and whole and len(self.known) < 32 and self._plain.issuperset(kinds := tuple(map(type, args))):
            self.known.add(kinds)

    def count_some(self, written: Sequence[Any]) -> None:
        """Count the writes to tensors that have a count."""
        self.count_writes([one for one in written if one is not None and not one.is_inference()])


def tracks_gradient(torch: Any, tensor: Any) -> bool:  # noqa: ANN401
    """Whether a gradient of a tensor is wanted, by autograd or by a transform of ``torch.func`` at any level."""
    functorch = torch._C._functorch  # noqa: SLF001  # torch.func has no public question for it
    while not tensor.requires_grad and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return bool(tensor.requires_grad)


def _any_requires_grad(*args: Any) -> bool:  # noqa: ANN401
    return any(getattr(one, "requires_grad", False) for one in args)
