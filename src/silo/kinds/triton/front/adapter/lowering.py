"""Lowers a ``@triton.jit`` function to a module's text, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from silo.core.compound_arguments import TupleShapes, flat_names
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DType, DTypeKind, FunctionValue, RecordValue, Value
from silo.errors import CompileError, SiloError, SourceError
from silo.kinds.triton.front.adapter.cpu_front_end import CpuFrontEnd, cpu_target, run_cpu_passes, run_passes
from silo.kinds.triton.front.adapter.decorators import location_of
from silo.kinds.triton.front.adapter.gluon import descriptor_type_text, layout_object, source_class
from silo.kinds.triton.front.adapter.triton_objects import is_gluon
from silo.kinds.triton.front.adapter.triton_toolchain import (
    backend_for,
    debug_by_default,
    gpu_target,
    lowering_for,
    module,
    require_triton,
    running_front_end,
)
from silo.sources.written_values import recall

__all__ = ["Ttir", "gpu_options", "lower_for_gpu", "lower_to_ttir", "read_off"]

_NO_TUPLES: TupleShapes = {}
_MARK = "nodialect"
_MARKED = re.compile(r" \{nodialect = 1 : i32\}|nodialect = 1 : i32, |, nodialect = 1 : i32")
_PRIVATE = re.compile(r'sym_name = "((?:[^"\\\n]|\\.)*)", sym_visibility = "private"')
_CALLEE = re.compile(r'callee = @(?:"((?:[^"\\\n]|\\.)*)"|([\w.$-]+))')

# Inlining and removing helper functions keeps their names out of the text: the names contain the name of the user's
# module.
_GPU_PASSES = ("common.inliner", "common.symbol_dce")


@dataclass(frozen=True, slots=True)
class Ttir:
    """A lowered kernel. ``text`` is MLIR's generic form, free of locations and so of paths."""

    text: str
    _locate: Callable[[], str] = field(repr=False, compare=False)

    @property
    def located(self) -> str:
        """The same module with locations, for error messages; it is printed anew at every access."""
        return self._locate()


def lower_to_ttir(
    function: object,
    signature: Signature,
    specialization: Specialization,
    config: Config,
    target: Target,
    *,
    tuples: TupleShapes = _NO_TUPLES,
    asserts: bool = False,
    force: bool = False,
) -> Ttir:
    """Lowers for the CPU: helpers are inlined, block pointers and descriptors rewritten to pointers, loops unrolled.

    Args:
        function: the ``JITFunction``.
        signature: with the type of each parameter.
        specialization: facts and constexpr values; values of ``config`` and defaults complete it.
        config: of its compile options only ``debug`` has a meaning on a CPU: like ``@triton.jit(debug=True)`` and
            ``TRITON_DEBUG=1`` it keeps ``tl.device_assert`` and adds Triton's checks for integer overflow.
        target: a ``cpu`` target.
        tuples: the shapes of tuple arguments; ``signature`` has a parameter for each of their values.
        asserts: keep ``tl.device_assert`` in any case, and leave out the checks for integer overflow.
        force: accept a Triton that Silo was not tested with.

    Raises:
        ToolchainError: no usable Triton.
        CompileError: Triton's front end refused the kernel.
    """
    require_triton(force=force)
    if target.kind != "cpu":
        raise SourceError(f"lower_to_ttir is for cpu targets, not {target}; use lower_for_gpu")
    if is_gluon(function):
        raise SourceError(
            f"{getattr(function, '__name__', function)} is a Gluon kernel: its layouts and operations belong to one "
            "GPU, and the CPU takes the Triton language; build it for cuda or hip, or write it with @triton.jit"
        )
    debug = asserts or config.as_dict().get("debug") is True or debug_by_default()
    arguments = _source_arguments(function, signature, specialization, config, tuples)
    triton_target = cpu_target(target)
    front_end = CpuFrontEnd(triton_target)
    # ``enable_fp_fusion`` does not matter here, because the C compiler decides about fusing. It is set nevertheless, so
    # that its value does not depend on Triton's knobs.
    options = front_end.parse_options(
        {
            "enable_fp_fusion": True,
            "debug": debug or bool(getattr(function, "debug", False)),
            "sanitize_overflow": not asserts,
        }
    )
    with running_front_end():
        ttir_module = _make_module(function, arguments, triton_target, front_end, options)
        run_cpu_passes(ttir_module)
        return read_off(ttir_module)


def lower_for_gpu(
    function: object,
    signature: Signature,
    specialization: Specialization,
    config: Config,
    target: Target,
    *,
    tuples: TupleShapes = _NO_TUPLES,
    force: bool = False,
) -> Ttir:
    """Lowers for Triton's own GPU backend, up to the module before the stages that :func:`compile_gpu` runs.

    Raises:
        ToolchainError: no usable Triton.
        TargetError: not a concrete cuda or hip target.
        CompileError: Triton's front end refused the kernel.
    """
    require_triton(force=force)
    arguments = _source_arguments(function, signature, specialization, config, tuples)
    triton_target = gpu_target(target)
    backend = backend_for(triton_target)
    options = gpu_options(backend, {"debug": bool(getattr(function, "debug", False)), **dict(config.options)})
    with running_front_end():
        ttir_module = _make_module(function, arguments, triton_target, backend, options)
        run_passes(ttir_module, _GPU_PASSES)
        return read_off(ttir_module)


def read_off(ir_module: Any) -> Ttir:  # noqa: ANN401
    """Prints a module of Triton's as text, in MLIR's generic form.

    MLIR prints the generic form only of a module that fails verification. So an attribute without a dialect prefix is
    added, which makes the module fail. The module must not be used afterwards.

    Raises:
        SourceError: this Triton prints modules in another form.
    """
    builder = module("triton._C.libtriton").ir.builder(ir_module.context)
    ir_module.set_attr(_MARK, builder.get_int32_attr(1))
    return Ttir(_generic_text(ir_module.str_nodebug()), lambda: _generic_text(str(ir_module)))


def gpu_options(backend: Any, options: dict[str, object]) -> Any:  # noqa: ANN401
    """Triton's options object. In every version, fusing multiply and add is on unless the config turns it off."""
    given_options = {name: value for name, value in options.items() if value is not None}
    arch = backend.target.arch  # explicit, so that TRITON_OVERRIDE_ARCH cannot change the meaning of a target
    triton_options = {"enable_fp_fusion": True, **given_options, "arch": f"sm{arch}" if isinstance(arch, int) else arch}
    try:
        return backend.parse_options(triton_options)
    except (AssertionError, ValueError, TypeError) as error:
        raise CompileError(f"Triton refuses the options {triton_options}: {error}") from error


def _make_module(
    function: Any,  # noqa: ANN401
    arguments: _SourceArguments,
    triton_target: Any,  # noqa: ANN401
    backend: Any,  # noqa: ANN401
    options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    ir = module("triton._C.libtriton").ir
    kind = source_class() if is_gluon(function) else module("triton.compiler").ASTSource
    source = kind(function, arguments.types, arguments.constants, arguments.attributes)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    implementation = backend.get_codegen_implementation(options)
    with lowering_for(triton_target):
        try:
            ttir_module = source.make_ir(triton_target, options, implementation, backend.get_module_map(), context)
        except SiloError:
            raise
        except Exception as error:  # Triton runs the user's code here, which may raise anything
            raise CompileError(_front_end_message(function, error)) from error
    ttir_module.context = context
    return ttir_module


@dataclass(frozen=True, slots=True)
class _SourceArguments:
    """The arguments of Triton's ``ASTSource``.

    ``types`` maps a parameter's name to its type, or to a tuple of types for a tuple. ``constants`` and ``attributes``
    are keyed by path: the parameter's position, followed by positions within tuples.
    """

    types: dict[str, Any]
    constants: dict[tuple[int, ...], object]
    attributes: dict[tuple[int, ...], list[list[object]]]


def _front_end_message(function: Any, error: Exception) -> str:  # noqa: ANN401
    """The text of an error: first the reason with the user's line, then Triton's own message with the source."""
    innermost: BaseException = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    rendered = str(error).strip()
    # a CompilationError's reason, without the source that precedes it in the message
    own = getattr(innermost, "error_message", None)
    reason = str(innermost if own is None else own).strip() or type(innermost).__name__
    location = location_of(function.fn)
    line = getattr(getattr(error, "node", None), "lineno", None)
    if isinstance(line, int):  # the line is counted from the kernel's def
        file, _, start = location.rpartition(":")
        location = f"{file}:{int(start) + line - 1}"
    plain = _REPR.fullmatch(reason)  # for a Python exception, Triton's reason is its repr
    text = f"{function.__name__} ({location}) cannot be lowered: " + (f"{plain[1]}: {plain[3]}" if plain else reason)
    # Triton's message begins with the place, and repeats the reason after the source; both are removed.
    shown = _PLACE.sub("", rendered.removesuffix(reason).rstrip("\n"))
    return text if rendered in reason else f"{text}\n{shown}"


_REPR = re.compile(r"""(\w+)\((["'])(.*)\2,?\)""", re.DOTALL)
_PLACE = re.compile(r"\Aat \d+:\d+:\n")


def _source_arguments(
    function: Any,  # noqa: ANN401
    signature: Signature,
    specialization: Specialization,
    config: Config,
    tuples: TupleShapes,
) -> _SourceArguments:
    constants = {**dict(config.values), **specialization.constant_values}
    gluon = is_gluon(function)
    arguments = _SourceArguments({}, {}, {})
    expected = tuple(getattr(function, "arg_names", ()))
    if (names := flat_names(tuples, expected)) != signature.names:
        raise SourceError(f"the signature names {', '.join(signature.names)}, the kernel takes {', '.join(names)}")

    def typed(name: str, path: tuple[int, ...]) -> str:
        """The type of one parameter; records its constant or its attributes."""
        parameter, facts = signature[name], specialization.facts_of(name)
        if parameter.kind is ParameterKind.CONSTEXPR:
            arguments.constants[path] = _to_triton(_constant(parameter, constants))
            return "constexpr"
        if Fact.EQUAL_1 in facts or Fact.NONE in facts:
            arguments.constants[path] = 1 if Fact.EQUAL_1 in facts else None
            return "constexpr"
        attributes: list[list[object]] = []
        if Fact.ALIGNED_16 in facts or Fact.DIVISIBLE_16 in facts:
            attributes.append(["tt.divisibility", 16])
        if Fact.POINTER_RANGE_32 in facts:
            attributes.append(["tt.pointer_range", 32])
        if attributes:
            arguments.attributes[path] = attributes
        return _type_text(parameter, constants, gluon=gluon)

    for index, name in enumerate(expected):
        shape = tuples.get(name)
        if shape is None:
            arguments.types[name] = typed(name, (index,))
        elif (members := shape.names(name)) and all(
            signature[member].kind is ParameterKind.CONSTEXPR for member in members
        ):
            arguments.types[name] = "constexpr"
            arguments.constants[(index,)] = shape.made(
                name, lambda one, _: _to_triton(_constant(signature[one], constants))
            )
        else:
            arguments.types[name] = shape.made(name, typed, (index,))
    return arguments


def _constant(parameter: Parameter, constants: dict[str, Value]) -> Value:
    if parameter.name in constants:
        return constants[parameter.name]
    if isinstance(parameter.default, NoDefault):
        raise CompileError(
            f"the constexpr parameter {parameter.name} has no value: neither the call nor the config gives one"
        )
    return parameter.default


def _type_text(parameter: Parameter, constants: dict[str, Value], *, gluon: bool) -> str:
    kind, dtype = parameter.kind, parameter.dtype
    if kind is ParameterKind.ANY or dtype is None:
        raise SourceError(f"the parameter {parameter.name} has no type yet: specialize the signature first")
    if kind is ParameterKind.POINTER:
        return f"*{_triton_name(dtype)}"
    if kind is ParameterKind.DESCRIPTOR:
        shape = constants.get(parameter.name)
        if not isinstance(shape, tuple) or not shape:
            raise SourceError(f"the descriptor {parameter.name} has no block shape in the specialization")
        if gluon:
            return descriptor_type_text(_triton_name(dtype), shape, dtype.bits)
        return f"tensordesc<{_triton_name(dtype)}[{', '.join(str(extent) for extent in shape)}]>"
    return _triton_name(dtype)


def _triton_name(dtype: DType) -> str:
    # this format has an exponent bias of 11; Triton's fp8e4b15 is another format
    if dtype.name == "float8_e4m3b11fnuz":
        raise CompileError(
            f"Triton has no type {dtype}: pass the array as uint8 and convert in the kernel, "
            "or use float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or float8_e5m2fnuz"
        )
    return dtype.short


def _to_triton(value: Value) -> object:
    """The object that Triton expects for a constexpr value."""
    if isinstance(value, DType):
        return _triton_dtype(value)
    if isinstance(value, FunctionValue):
        return recall(value)
    if isinstance(value, RecordValue):
        return layout_object(value)
    if isinstance(value, tuple):
        return tuple(_to_triton(item) for item in value)
    return value


@lru_cache(maxsize=64)
def _triton_dtype(dtype: DType) -> object:
    name = _triton_name(dtype)
    if dtype.kind in (DTypeKind.INT, DTypeKind.BOOL):
        name = name.replace("i", "int", 1)
    elif dtype.kind is DTypeKind.UINT:
        name = name.replace("u", "uint", 1)
    return module("triton.language").dtype(name)


def _generic_text(text: str) -> str:
    if '"builtin.module"' not in text:
        raise SourceError("this Triton does not print modules in generic form: " + text[:80])
    end = text.rfind("})")  # the attributes of the module are on its last line
    return _short_names(text[:end]) + _MARKED.sub("", text[end:], count=1)


def _short_names(text: str) -> str:
    """Renames helper functions to their own name and a number.

    Triton's names contain the module, which may be __main__.
    """
    names: dict[str, str] = {}
    for name in _PRIVATE.findall(text):
        own = name.partition("__")[0].rpartition(".")[2]
        names[name] = f"{re.sub('[^A-Za-z0-9_]', '_', own) or 'function'}.{len(names)}"
    if not names:
        return text
    text = _PRIVATE.sub(lambda match: match.group().replace(match.group(1), names[match.group(1)]), text)

    def called(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        return f"callee = @{names.get(name, name)}"

    return _CALLEE.sub(called, text)
