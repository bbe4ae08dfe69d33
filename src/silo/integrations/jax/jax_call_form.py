"""The form of a call from a jax program: the kernel to call, and all facts about the call except the arrays' values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from silo.building.loaded_kernels import HeuristicLauncher
from silo.building.prepared_calls import refuse_zeroing
from silo.core.argument_facts import describe
from silo.core.device import HOST_MEMORY
from silo.core.signature import Effect, NoDefault, Parameter, ParameterKind, Signature
from silo.core.values import JSON, DType, dtype, identity_of
from silo.errors import ArgumentError
from silo.frozen import frozen, replace
from silo.integrations.call_effects import effects_of, said_effects
from silo.kernels.bundle_kernels import BundledKernel
from silo.kernels.kernel import Kernel, kernel_of
from silo.launch.arguments import CallArgument, SeenCall, ValueKind
from silo.launch.runtime import VouchedCode

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact
    from silo.core.expressions import Node
    from silo.core.protocols import Device

__all__ = [
    "ArrayForm",
    "CalledCode",
    "Callee",
    "JaxCallForm",
    "KernelHere",
    "PackedKernel",
    "Scalar",
    "callee_of",
    "contiguous_strides",
    "element_of",
]

_CUDA_MEMORY = 2  # DLPack's device type


@frozen
class ArrayForm:
    """An array of a call, without batch axes: the parameter that takes it, its dtype and shape.

    ``alias`` is set for a result: the number of the operand whose memory it shares, or -1 for memory of its own.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    alias: int = -1

    @property
    def bytes(self) -> int:
        """The size in bytes, without batch axes."""
        return prod(self.shape) * dtype(self.dtype).itemsize


@frozen
class Scalar:
    """A plain value that a call passes. Values of different types differ: 1, 1.0 and True are three scalars.

    ``key`` is the value's identity (:func:`silo.core.values.identity_of`).
    """

    kind: str
    key: object
    value: object

    @classmethod
    def of(cls, value: object) -> Scalar:
        """Makes the scalar of a value that the caller passed."""
        return cls(type(value).__qualname__, identity_of(value), value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and (self.kind, self.key) == (other.kind, other.key)

    def __hash__(self) -> int:
        return hash((self.kind, self.key))


@frozen
class JaxCallForm:
    """A call without the values in its arrays.

    ``scalars`` and ``options`` are by name. ``grid`` is the grid that the call passes; None: the declared grid.
    ``batch`` has the extents of the axes that ``vmap`` put in front of each array's own.
    """

    kernel: Callee
    operands: tuple[ArrayForm, ...]
    results: tuple[ArrayForm, ...]
    scalars: tuple[tuple[str, Scalar], ...]
    options: tuple[tuple[str, Scalar], ...]
    grid: object
    vmap_method: str | None
    mutates: tuple[str, ...] | None = None
    batch: tuple[int, ...] = ()

    def batched(self, size: int) -> JaxCallForm:
        """Returns this form with a further batch axis of ``size`` examples in front."""
        return replace(self, batch=(size, *self.batch))

    @property
    def arrays(self) -> dict[str, ArrayForm]:
        """Every array by its parameter; an array that is updated in place appears once."""
        return {array.name: array for array in (*self.operands, *self.results)}

    @property
    def aliased(self) -> dict[int, int]:
        """The number of each operand that is updated in place, with the number of the result that it becomes."""
        return {result.alias: number for number, result in enumerate(self.results) if result.alias >= 0}

    def is_aligned(self, array: ArrayForm) -> bool:
        """Returns whether the address of every example of an array is a multiple of 16 bytes.

        XLA aligns arrays to at least 16 bytes. The examples of a batch are adjacent, so the size of an example must be
        a multiple of 16 bytes, too.
        """
        return not self.batch or array.bytes % 16 == 0

    def call(self, device: Device) -> SeenCall:
        """Returns the call on a device, as a launcher's guard would describe it.

        Raises:
            ArgumentError: an argument is missing.
        """
        device_place = (HOST_MEMORY, 0) if device.memory.is_host else (_CUDA_MEMORY, device.index)
        arrays, scalars = self.arrays, dict(self.scalars)
        arguments = tuple(
            self._array(arrays[parameter.name])
            if parameter.name in arrays
            else self._scalar(parameter, scalars.get(parameter.name))
            for parameter in self.kernel.signature.parameters
        )
        options = {name: scalar.value for name, scalar in self.options}
        return SeenCall(self.kernel.name, arguments, options, device_place, None if callable(self.grid) else self.grid)

    def _array(self, array: ArrayForm) -> CallArgument:
        return CallArgument(
            array.name,
            ValueKind.POINTER,
            array,
            dtype(array.dtype),
            aligned16=self.is_aligned(array),
            ndim=len(array.shape),
            shape=array.shape,
            strides=contiguous_strides(array.shape),
        )

    def _scalar(self, parameter: Parameter, scalar: Scalar | None) -> CallArgument:
        name = parameter.name
        if parameter.kind is ParameterKind.CONSTEXPR:
            return CallArgument(
                name, ValueKind.ABSENT if scalar is None else ValueKind.CONSTANT, scalar and scalar.value
            )
        if scalar is None:
            if isinstance(parameter.default, NoDefault):
                raise ArgumentError(f"{self.kernel.name}: the call leaves out {name}")
            scalar = Scalar.of(parameter.default)
        value = scalar.value
        if value is None:
            return CallArgument(name, ValueKind.NONE, None)
        if parameter.kind is ParameterKind.FLOAT and isinstance(value, int | float):
            return CallArgument(name, ValueKind.FLOAT, float(value), parameter.dtype)
        if isinstance(value, bool):
            return CallArgument(name, ValueKind.BOOL, value, dtype("bool"))
        if isinstance(value, int):
            element = parameter.dtype or dtype(_smallest(value))
            return CallArgument(name, ValueKind.INT, value, element, divisible16=value % 16 == 0, equal1=value == 1)
        if isinstance(value, float):
            return CallArgument(name, ValueKind.FLOAT, value, parameter.dtype or dtype("float32"))
        raise ArgumentError(
            f"{self.kernel.name}: the argument {name} is {describe(value)}, a {type(value).__name__}: a kernel takes "
            f"arrays, numbers, bools and None; annotate {name} as tl.constexpr to pass anything else"
        )


def _smallest(value: int) -> str:
    """Returns the name of the integer dtype that Triton and the launcher choose for a value without an annotation."""
    if -(1 << 31) <= value < 1 << 31:
        return "int32"
    return "int64" if value < 1 << 63 else "uint64"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides, in elements, of a contiguous row-major array.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def element_of(kernel: str, name: str, jax_dtype: Any) -> DType:  # noqa: ANN401  # a dtype of jax
    """Converts a dtype of jax to a dtype of Silo.

    Raises:
        ArgumentError: kernels do not support the dtype.
    """
    try:
        return dtype(str(jax_dtype))
    except KeyError:
        raise ArgumentError(
            f"{kernel}: {name} has elements of {jax_dtype}, which no kernel knows: convert it, for example to float32 "
            "(complex numbers to two arrays, keys of jax.random to their data)"
        ) from None


def named(
    kernel: Callee, args: Sequence[object], kwargs: Mapping[str, object], output_names: Sequence[str]
) -> dict[str, Any]:
    """Returns the arguments of a call by name; ``args`` leave out the kernel's parameters in ``output_names``.

    Raises:
        ArgumentError: too many arguments, an argument given twice, or an unknown name.
    """
    names = [name for name in kernel.argument_names if name not in output_names]
    if len(args) > len(names):
        raise ArgumentError(
            f"{kernel.name} was given {len(args)} arguments, and takes {len(names)} here: {', '.join(names)}"
        )
    arguments: dict[str, Any] = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in arguments or name in output_names:
            problem = "is an output that the call makes" if name in output_names else "was given twice"
            raise ArgumentError(f"{kernel.name}: {name} {problem}")
        arguments[name] = value
    return arguments


@frozen
class CalledCode:
    """The code that serves a call.

    For code of a bundle, ``packed`` is the way in which the bundle's kernel is called: a digest of its signature and
    grid, and the variant's config. ``code`` has the code's bytes. Both are None for code in this user's store.
    """

    artifact: Artifact
    packed: JSON = None
    code: VouchedCode | None = None


@frozen
class KernelHere:
    """A kernel that ``silo.kernel`` made in this process."""

    kernel: Kernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def location(self) -> str:
        """The source location, for messages."""
        return self.kernel.location

    @property
    def signature(self) -> Signature:
        """The parameters as the author declared them."""
        return self.kernel.source.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that a call has to pass."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Adds the arguments that the author's Python heuristics compute. The heuristics run at each call."""
        launcher = self.kernel.resolver.direct
        return launcher.complete((), arguments) if isinstance(launcher, HeuristicLauncher) else arguments

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """Returns the call's effect on each array. Raises as :func:`silo.integrations.call_effects.effects_of`."""
        variant, facts = self.kernel.resolver.lowered_on(call, device)
        return effects_of(self.kernel, variant.signature, facts, self.signature.names, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """Returns the code that serves the call, compiled if needed."""
        return CalledCode(self.kernel.resolver.compiled_on(call, device))


@frozen
class PackedKernel:
    """A kernel of a bundle that :func:`silo.load` opened."""

    kernel: BundledKernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def location(self) -> str:
        """The bundle's name, for messages."""
        return self.kernel.bundle.name

    @property
    def signature(self) -> Signature:
        """The parameters as the author declared them."""
        return self.kernel.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that a call has to pass."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments unchanged: a bundle has expressions instead of Python heuristics."""
        return arguments

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """Returns the call's effect on each array, as the bundle recorded it for the code that serves the call.

        Raises:
            ArgumentError: ``mutates`` contains a name that is not an array's.
            NoVariantError: no code of the bundle serves the call.
            SourceError: that code may write to memory outside of its arguments, and ``mutates`` is None.
        """
        return said_effects(self.name, self.location, self.kernel.choose(call, device).artifact, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """Returns the bundle's code for the call, with consent.

        Raises:
            NoVariantError: no code of the bundle serves the call.
            TrustError: consent to its native code is missing.
        """
        chosen_config = self.kernel.choose(call, device)
        return CalledCode(
            chosen_config.artifact, self.kernel.variant_calls(chosen_config), self.kernel.code(chosen_config)
        )


Callee: TypeAlias = "KernelHere | PackedKernel"


def callee_of(value: object) -> Callee | None:
    """Returns the kernel that the first argument of ``silo.jax_call`` stands for; None if it is not a kernel."""
    if isinstance(value, BundledKernel):
        return PackedKernel(value)
    kernel = kernel_of(value)
    if kernel is None:
        return None
    refuse_zeroing(kernel, "silo.jax_call")
    return KernelHere(kernel)
