"""Wrappers: host functions that launch a device function, in the DSL's form, written by Silo or by the author."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

from silo.core.extents import DynamicLayout, Extents
from silo.core.launch_info import AbiType
from silo.core.signature import Parameter, ParameterKind
from silo.core.specialization import Fact
from silo.core.values import DType, DTypeKind, FunctionValue, Value
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError
from silo.frozen import frozen
from silo.kinds.cute.front.cute_installation import dsl_module
from silo.kinds.cute.front.cute_parameters import Passed
from silo.kinds.cute.front.cute_specialize import ALIGNMENT, dsl_type
from silo.sources.written_values import LaunchOptions, LaunchValues, constants_of, recall

__all__ = ["Form", "Wrapped", "Wrapper", "WrapperParameter", "function_of_text", "make_wrapper"]

# ---- Wrappers and their parameters ----


class Form(Enum):
    """How an argument reaches the device function."""

    POINTER = "pointer"  # an array with a fixed layout: its address
    # an array with a dynamic layout: a struct of its address, and of those extents and strides that each call passes
    TENSOR = "tensor"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class WrapperParameter:
    """One parameter of a wrapper.

    ``name`` is the kernel parameter's name. ``dtype`` is an array's element type or a scalar's type. ``leaves`` are the
    members of a dynamic tensor in C's order, as in :class:`silo.core.launch_info.LayoutSlot`: ``(AbiType.POINTER,
    "")``, ``(AbiType.I32, "shape.0")``, ``(AbiType.I64, "stride.1")``.
    """

    name: str
    form: Form
    dtype: DType
    leaves: tuple[tuple[AbiType, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A host function ready to be traced: ``to_precompiled_mlir(function, *arguments)``.

    Attributes:
        function: a ``@cute.jit`` function, or an object whose ``__call__`` is one.
        arguments: the arguments of the trace, which need no device. If ``written``: one for each of ``parameters``,
            then the three dimensions of the grid (Int32), then, if ``stream``, a placeholder for the launch's stream.
            For the author's host function: in that function's order, with constants and the stream.
        parameters: if ``written``, all parameters of the device function except constants, in its order. Else the
            parameters of the author's host function, without constants and the stream; the artifact determines which
            of them reach the device function.
        written: Silo wrote the function: it makes one launch of one device function, with the grid of each call.
        stream: one argument is a stream.
        block, cluster, smem: the author's values for this variant; None if the artifact decides.
        text: the wrapper's text; "" for an author's host function.
    """

    function: Any
    arguments: tuple[Any, ...]
    parameters: tuple[WrapperParameter, ...]
    written: bool
    stream: bool = False
    block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    smem: int | None = None
    text: str = ""


# ---- Functions of the DSL made from text that Silo writes: host functions of wrappers and of launches ----


def function_of_text(file: str, text: str, name: str, annotations: Mapping[str, Any], namespace: dict[str, Any]) -> Any:  # noqa: ANN401  # a function of the DSL
    """Returns the function ``name`` that a text defines, decorated with ``@cute.jit``. Runs nothing else of the text.

    ``file`` names the text in tracebacks and has no path: the DSL reads the source again, from ``linecache``. Called
    while ``silo.kinds.cute.front.cute_installation.FRONT_END`` is held. Raises ToolchainError.
    """
    # The time None keeps linecache from looking for the file on disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    defined = (co_const for co_const in compile(text, file, "exec").co_consts if isinstance(co_const, CodeType))
    (code,) = (candidate for candidate in defined if candidate.co_name == name)
    function = FunctionType(code, namespace)
    function.__annotations__ = dict(annotations)
    return dsl_module().jit(function)


# ---- Making wrappers: fake arguments for tracing, and Silo's host function for a ``@cute.kernel`` ----

_AXES = "xyz"
_LAUNCH = "silo_launch"


@frozen
class Wrapped:
    """The members of a :class:`silo.kinds.cute.front.cute_source.CuteSource` from which its wrapper is made.

    ``written_by_silo``: Silo writes the host function for the author's kernel. ``in_library``: the DSL's host code
    launches the device function; otherwise Silo's driver does.
    """

    name: str
    location: str
    function: Any
    passed: tuple[Passed, ...]
    options: LaunchOptions
    stream: str | None
    init_names: tuple[str, ...]
    written_by_silo: bool
    in_library: bool


def make_wrapper(source: Wrapped, variant: Variant) -> Wrapper:
    """Returns the host function for one variant. Raises SourceError, CompileError, ToolchainError."""
    constants = {
        **dict(variant.config.options),
        **constants_of(f"{source.name} ({source.location})", variant.signature, variant),
    }
    launch = source.options.values(source.name, constants)
    values = {name: _dsl_value(value) for name, value in constants.items()}
    arguments: dict[str, Any] = {}
    parameters: list[WrapperParameter] = []
    for passed_parameter in source.passed:
        if passed_parameter.name == source.stream:
            arguments[passed_parameter.name] = dsl_module("cutlass.cute.runtime").make_fake_stream(
                use_tvm_ffi_env_stream=True
            )
            continue
        parameter = variant.signature[passed_parameter.name]
        if parameter.kind is ParameterKind.CONSTEXPR:
            arguments[passed_parameter.name] = values[passed_parameter.name]
        elif Fact.NONE in variant.specialization.facts_of(passed_parameter.name):
            arguments[passed_parameter.name] = None
        else:
            arguments[passed_parameter.name], described = _argument(source, variant, parameter, passed_parameter)
            parameters.append(described)
    if source.written_by_silo:
        return _written(source, arguments, tuple(parameters), launch)
    function = source.function
    if source.init_names:
        function = _wrapper(source, {name: values[name] for name in source.init_names})
    elif hasattr(function, "__dict__") and not hasattr(function, "__code__"):
        function = copy.copy(function)  # a copy, because tracing leaves values of the trace in the object's attributes
    return Wrapper(
        function,
        tuple(arguments.values()),
        tuple(parameters),
        written=False,
        stream=source.stream is not None,
        block=launch.block,
        cluster=launch.cluster,
        smem=launch.smem,
    )


def _dsl_value(value: Value) -> Any:  # noqa: ANN401
    """Returns a constant in the form in which the author's code gets it."""
    if isinstance(value, DType):
        return dsl_type(value)
    if isinstance(value, FunctionValue):
        return recall(value)
    if isinstance(value, tuple):
        return tuple(_dsl_value(item) for item in value)
    return value


def _wrapper(source: Wrapped, constants: Mapping[str, Any]) -> Any:  # noqa: ANN401
    try:
        return source.function(**constants)
    except Exception as error:  # the author's own code raised it, and may refuse a config in this way
        description = ", ".join(f"{name}={value}" for name, value in constants.items())
        raise CompileError(f"{source.name}({description}): {type(error).__name__}: {error}") from error


def _argument(source: Wrapped, variant: Variant, parameter: Parameter, passed: Passed) -> tuple[Any, WrapperParameter]:
    element = parameter.dtype
    assert element is not None  # in a typed signature only constants have no dtype
    kind = dsl_type(element)
    if parameter.kind is not ParameterKind.POINTER:
        value = {ParameterKind.BOOL: True, ParameterKind.FLOAT: 1.0}.get(parameter.kind, 1)
        return value if passed.python else kind(value), WrapperParameter(parameter.name, Form.SCALAR, element)
    aligned = Fact.ALIGNED_16 in variant.specialization.facts_of(parameter.name)
    alignment = ALIGNMENT if aligned else element.itemsize
    runtime, cute = dsl_module("cutlass.cute.runtime"), dsl_module()
    if passed.pointer:
        pointer = runtime.make_ptr(kind, 0, cute.AddressSpace.gmem, assumed_align=alignment)
        return pointer, WrapperParameter(parameter.name, Form.POINTER, element)
    extents = dict(variant.specialization.extents).get(parameter.name)
    if extents is None:
        raise SourceError(
            f"{source.name} ({source.location}): {parameter.name} is a tensor, whose shape this call does not say: "
            "pass an array, or take a cute.Pointer"
        )
    shape, strides, leaves = _static(extents) if isinstance(extents, Extents) else _dynamic(extents, cute)
    if not shape:
        raise SourceError(
            f"{source.name} ({source.location}): {parameter.name} is an array without axes (rank 0), which no "
            f"cute.Tensor can index: pass {parameter.name}.reshape(1)"
        )
    pointer = runtime.make_fake_tensor(kind, shape, strides, assumed_align=alignment)
    form = Form.TENSOR if leaves else Form.POINTER
    return pointer, WrapperParameter(parameter.name, form, element, leaves)


_ROUND = 16  # in elements: a stride that is a multiple of this keeps every alignment, and suits tensor maps


def _static(extents: Extents) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[AbiType, str], ...]]:
    """Returns the shape and the strides for which the code is compiled, and (), because a call passes neither.

    The stride of an axis of size 1 is replaced. It is never used, but the DSL infers alignments from it. A call has a
    stride of 1 there, from which the DSL would conclude that the elements of a batch are not aligned. The new stride is
    the number of elements that the array spans, rounded up to a multiple of ``_ROUND``.
    """
    assert extents.strides is not None  # a CuTe source is compiled for layouts, which have strides
    pairs = list(zip(extents.shape, extents.strides, strict=True))
    span = max((size * abs(step) for size, step in pairs if size != 1), default=1)
    free = -(-span // _ROUND) * _ROUND
    return extents.shape, tuple(free if size == 1 and len(pairs) > 1 else step for size, step in pairs), ()


def _dynamic(layout: DynamicLayout, cute: Any) -> tuple[Any, Any, tuple[tuple[AbiType, str], ...]]:  # noqa: ANN401
    """Returns symbols for dynamic sizes and strides, with their known divisors, and the members of the struct.

    The struct is the form in which a call passes the tensor to the device function.
    """
    sizes = (cute.sym_int32, AbiType.I32) if layout.size_bits == 32 else (cute.sym_int64, AbiType.I64)
    steps = (cute.sym_int32, AbiType.I32) if layout.offset_bits == 32 else (cute.sym_int64, AbiType.I64)
    shape = tuple(sizes[0](divisibility=axis.divisor) for axis in layout.axes)
    strides = tuple(
        steps[0](divisibility=axis.stride_divisor) if axis.stride is None else axis.stride for axis in layout.axes
    )
    leaves = [(AbiType.POINTER, "")]
    leaves += [(sizes[1], f"shape.{number}") for number in range(len(layout.axes))]
    leaves += [(steps[1], f"stride.{number}") for number, axis in enumerate(layout.axes) if axis.stride is None]
    return shape, strides, tuple(leaves)


def _written(
    source: Wrapped, arguments: Mapping[str, Any], parameters: tuple[WrapperParameter, ...], launch: LaunchValues
) -> Wrapper:
    """Returns Silo's host function, which launches the author's device function once with the grid of each call."""
    forms = {parameter.name: parameter for parameter in parameters}
    constants = {name: value for name, value in arguments.items() if name not in forms}
    cutlass = dsl_module("cutlass")
    grid = [cutlass.Int32(1) for _ in _AXES]
    # a stream is needed only if the DSL's host function itself runs; for Silo's driver, the function's launch is only
    # read
    stream = source.in_library
    if stream:
        grid.append(dsl_module("cutlass.cute.runtime").make_fake_stream(use_tvm_ffi_env_stream=True))
    # Without the DSL's host code, the author's bytes of shared memory do not affect the code: the artifact has the
    # bytes that the kernel allocates, and launch_info() compares them with the author's.
    smem = launch.smem if source.in_library else None
    values = {"block": launch.block, "cluster": launch.cluster, "smem": smem}
    options = {name: value for name, value in values.items() if value is not None}
    annotations = {
        passed_parameter.name: _annotation(forms[passed_parameter.name], passed_parameter)
        for passed_parameter in source.passed
        if passed_parameter.name in forms
    }
    annotations |= {f"silo_grid_{axis}": cutlass.Int32 for axis in _AXES}
    if stream:
        annotations["silo_stream"] = dsl_module("cuda.bindings.driver").CUstream
    text = _text(source, tuple(annotations), tuple(options))
    namespace = {
        "cute": dsl_module(),
        "silo_kernel": source.function,
        "silo_constants": constants,
        "silo_options": options,
        "__name__": "silo_wrapper",
    }
    return Wrapper(
        function_of_text(f"<silo wrapper of {source.name}>", text, _LAUNCH, annotations, namespace),
        (*(arguments[parameter.name] for parameter in parameters), *grid),
        parameters,
        written=True,
        stream=stream,
        block=launch.block,
        cluster=launch.cluster,
        smem=launch.smem,
        text=text,
    )


def _text(source: Wrapped, parameters: Sequence[str], options: Sequence[str]) -> str:
    handed = [
        f"{parameter.name}=" * parameter.keyword
        + (parameter.name if parameter.name in parameters else f'silo_constants["{parameter.name}"]')
        for parameter in source.passed
    ]
    launch_options = [f"grid=({', '.join(f'silo_grid_{axis}' for axis in _AXES)})"]
    launch_options += [f'{name}=silo_options["{name}"]' for name in options]
    launch_options += ["stream=silo_stream"] * ("silo_stream" in parameters)
    return (
        f"@cute.jit\ndef {_LAUNCH}({', '.join(parameters)}):\n"
        f"    silo_kernel({', '.join(handed)}).launch({', '.join(launch_options)})\n"
    )


def _annotation(described: WrapperParameter, passed: Passed) -> Any:  # noqa: ANN401  # a class of the DSL, or Python's
    if described.form is not Form.SCALAR:
        return dsl_module().Pointer if passed.pointer else dsl_module().Tensor
    if passed.python:
        return {DTypeKind.BOOL: bool, DTypeKind.FLOAT: float}.get(described.dtype.kind, int)
    return dsl_type(described.dtype)
