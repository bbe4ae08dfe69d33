"""Fast calls of an operator: calls without a trace, mode, transform or gradient skip torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from silo.integrations.torch.schema import OpArgument, OperatorKind
from silo.launch import native

__all__ = ["QuietCalls", "tracks_gradient"]


_CLASSES: dict[OperatorKind, tuple[type, ...]] = {
    OperatorKind.INTEGER: (int,),
    OperatorKind.FLOAT: (float,),
    OperatorKind.BOOL: (bool,),
    OperatorKind.TEXT: (str,),
    OperatorKind.INTEGERS: (tuple, list),
}


class QuietCalls:
    """Decides which calls may go straight to a launcher. A call is quiet if torch only has to run it.

    A call is also required to have argument classes that torch accepted in an earlier call (:meth:`learn`). The native
    module checks torch's state with one C function of torch for each condition (no trace, mode, transform or gradient
    is active). If this torch lacks one of these functions, every call goes to the dispatcher.
    """

    def __init__(self, torch: Any, arguments: Sequence[OpArgument]) -> None:  # noqa: ANN401  # the module
        self._count = len(arguments)
        self.tensors = tuple(index for index, argument in enumerate(arguments) if argument.kind is OperatorKind.TENSOR)
        self.written = tuple(index for index in self.tensors if arguments[index].writes)
        # Indices of the tensors whose gradients torch must handle: the written tensors if there are any, else all.
        self._watched = self.written or self.tensors
        # For each argument, the classes that the schema takes without a conversion. torch converts values of other
        # classes (an integer to a float, a bool to an integer), so calls with these go to the dispatcher.
        self._plain = tuple(
            {
                *_CLASSES.get(argument.kind, (torch.Tensor, torch.nn.Parameter)),
                *((type(None),) if argument.optional else ()),
            }
            for argument in arguments
        )
        self._empty_like: Callable[[Any], Any] = torch.empty_like
        self._natives: list[native.OperatorCall] = []
        self._questions: tuple[Callable[[], object], ...] = ()
        self._observed: Callable[[], bool] = bool
        self.count_writes: Callable[[list[Any]], None] = torch.autograd.graph.increment_version
        self.grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self.requires_grad: Callable[..., bool] = _any_requires_grad
        try:
            torch_c = torch._C  # noqa: SLF001  # no public API has the dispatcher's state
            transform = torch_c._functorch.peek_interpreter_stack  # noqa: SLF001
            self._questions = (
                torch_c._len_torch_dispatch_stack,  # noqa: SLF001
                torch_c._len_torch_function_stack,  # noqa: SLF001
                transform,
                torch_c._get_tracing_state,  # noqa: SLF001
            )
            self._observed = torch_c._autograd._profiler_enabled  # noqa: SLF001
            self.grad_enabled = torch_c.is_grad_enabled
            self.requires_grad = torch_c._any_requires_grad  # noqa: SLF001
            self.count_writes = torch_c._increment_version  # noqa: SLF001
            self._functionalize: object = torch_c._functorch.TransformType.Functionalize  # noqa: SLF001
            self._transform: Callable[[], Any] = transform
        except AttributeError:
            self._questions = ()

    def call(
        self,
        launch: Callable[..., Any],
        otherwise: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        like: int = -1,
        output_indices: tuple[int, ...] = (),
    ) -> Callable[..., Any]:
        """Returns a function that launches quiet calls (torch only has to run them) and passes others to ``otherwise``.

        Args:
            launch: takes the arguments, and returns the operator's result.
            otherwise: takes a tuple and a dict.
            like: used with ``output_indices``: the index of an argument. The operator's only output gets that
                argument's shape and dtype, and is passed to ``launch`` too.
            output_indices: for each parameter of ``launch``, the index of the operator's argument that is passed to
                it; the number of arguments stands for the output.
        """
        if not self._questions:
            return lambda *args, **kwargs: otherwise(args, kwargs)
        call = native.OperatorCall(
            self._count,
            launch,
            otherwise,
            self._questions,
            self._observed,
            self.grad_enabled,
            self.count_writes,
            self.count_some,
            self.tensors,
            self._watched,
            self.written,
            self._empty_like if output_indices else None,
            like,
            output_indices,
        )
        self._natives.append(call)
        return call

    def is_quiet(self, args: tuple[Any, ...]) -> bool:
        """Returns whether torch only has to run the call: no trace, mode, transform or gradient is active."""
        return bool(self._natives) and self._natives[0].asks(args)

    def is_transformed(self) -> bool:
        """Returns whether a transform of ``torch.func`` that needs autograd functions is active."""
        transformed = self._transform() if self._questions else None
        return transformed is not None and transformed.key() != self._functionalize

    def learn(self, args: tuple[Any, ...]) -> None:
        """Makes later calls with the argument classes of ``args`` fast, after a call with ``args`` that torch accepted.

        Nothing is learnt if the call omitted an argument, or if torch had to convert one.
        """
        is_complete = len(args) == self._count  # a call that omits arguments cannot be launched directly
        if is_complete and all(type(argument) in plain for argument, plain in zip(args, self._plain, strict=True)):
            for native_call in self._natives:
                native_call.learn(args)

    def count_some(self, written: Sequence[Any]) -> None:
        """Increments the version counts of tensors, except inference tensors, which have none."""
        self.count_writes([array for array in written if array is not None and not array.is_inference()])


def tracks_gradient(torch: Any, tensor: Any) -> bool:  # noqa: ANN401
    """Returns whether a tensor's gradient is required, by autograd or by a transform of ``torch.func`` at any level."""
    functorch = torch._C._functorch  # noqa: SLF001  # torch.func has no public function for it
    while not tensor.requires_grad and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return bool(tensor.requires_grad)


def _any_requires_grad(*args: Any) -> bool:  # noqa: ANN401
    return any(getattr(argument, "requires_grad", False) for argument in args)
