"""The layout of a call: which argument is each operand of an exported program, and which argument gets each result.

Launch info stores a layout as text, the layout's canonical JSON, for the loader (``LaunchInfo.loader``).
"""

from __future__ import annotations

from silo.core.json_reader import read_dtype, read_integers, read_list, read_natural, read_object, read_text
from silo.core.signature import Signature
from silo.core.values import JSON, MAX_PARAMETERS, DType, canonical_json, malformed, parse_json
from silo.frozen import frozen, names_of
from silo.kinds.pallas.front.launch_spec import ArgumentRole
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch

__all__ = ["ArrayPlace", "CallLayout", "ScalarPlace", "call_plan", "proof_of"]

_CONVENTION = 1


@frozen
class ArrayPlace:
    """An array: ``parameter`` is its index among the kernel's parameters, constants included.

    The program takes and returns arrays of ``shape`` and ``dtype``, which are the caller's. The program itself adds and
    removes the padding that the kernel's body needs.
    """

    parameter: int
    shape: tuple[int, ...]
    dtype: DType

    def to_json(self) -> JSON:
        """Returns the canonical form: ``[parameter, shape, dtype]``."""
        return [self.parameter, list(self.shape), self.dtype.name]


@frozen
class ScalarPlace:
    """A scalar, passed as an operand of shape (1,) and of ``dtype``, which may be wider than the kernel's scalar."""

    parameter: int
    dtype: DType

    def to_json(self) -> JSON:
        """Returns the canonical form: ``[parameter, dtype]``."""
        return [self.parameter, self.dtype.name]


@frozen
class CallLayout:
    """The operands and results of an exported program, both in the program's order.

    ``donated`` has pairs of an operand's index and a result's index, for arrays that are read and written: the result
    may use the operand's memory. An array that is only written is only among the results, and a call may leave it out.
    ``proof`` is the check that accepted the program: ``accepted by libtpu 0.0.42``, ``estimated``, or empty on a CPU.
    ``calling_convention`` is the version of the exported program's calling convention, which a jax that is too old
    refuses.
    """

    operands: tuple[ArrayPlace | ScalarPlace, ...]
    results: tuple[ArrayPlace, ...]
    donated: tuple[tuple[int, int], ...] = ()
    calling_convention: int = 0
    proof: str = ""

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        return {
            "version": _CONVENTION,
            "operands": [operand.to_json() for operand in self.operands],
            "results": [result.to_json() for result in self.results],
            "donated": [list(pair) for pair in self.donated],
            "calling_convention": self.calling_convention,
            "proof": self.proof,
        }

    @property
    def text(self) -> str:
        """The canonical form as text, for launch info."""
        return canonical_json(self.to_json()).decode()

    @classmethod
    def from_json(cls, data: JSON) -> CallLayout:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        members = read_object(data, ("version", *names_of(cls)), "the plan of a call")
        if members["version"] != _CONVENTION:
            raise malformed("a plan of a call that this Silo knows", data)
        operands = tuple(_operand(item) for item in read_list(members["operands"], "operands", MAX_PARAMETERS))
        results = tuple(_operand(item) for item in read_list(members["results"], "results", MAX_PARAMETERS))
        donated: list[tuple[int, int]] = []
        for pair in read_list(members["donated"], "donated operands", MAX_PARAMETERS):
            match read_integers(pair, "a donated operand"):
                case (operand, result) if 0 <= operand < len(operands) and 0 <= result < len(results):
                    donated.append((operand, result))
                case _:
                    raise malformed("a donated operand", data)
        arrays = tuple(result for result in results if isinstance(result, ArrayPlace))
        if len(arrays) != len(results):
            raise malformed("the results of a call", data)
        convention = read_natural(members["calling_convention"], "a calling convention")
        proof = read_text(members["proof"], "how a program was proved")
        return cls(operands, arrays, tuple(donated), convention, proof)

    @classmethod
    def from_text(cls, text: str) -> CallLayout:
        """The inverse of :attr:`text`; raises ``ValueError`` for any other text."""
        return cls.from_json(parse_json(text.encode()))


def proof_of(text: str) -> str:
    """Returns the check that accepted a program, from the loader's text in launch info; "" if the text is damaged."""
    try:
        return CallLayout.from_text(text).proof
    except ValueError:
        return ""


def _operand(data: JSON) -> ArrayPlace | ScalarPlace:
    match read_list(data, "an operand", 3):
        case [parameter, shape, element]:
            return ArrayPlace(
                _parameter_index(parameter), read_integers(shape, "a shape"), read_dtype(element, "an operand")
            )
        case [parameter, element]:
            return ScalarPlace(_parameter_index(parameter), read_dtype(element, "an operand"))
        case _:
            raise malformed("an operand", data)


def _parameter_index(data: JSON) -> int:
    index = read_natural(data, "the place of a parameter")
    if index >= MAX_PARAMETERS:
        raise malformed("the place of a parameter", data)
    return index


def call_plan(launch: BlockedLaunch, signature: Signature, calling_convention: int) -> CallLayout:
    """Returns the layout of calls for a launch of a kernel with these parameters."""
    places = {name: position for position, name in enumerate(signature.names)}
    operands = launch.operands
    planned = tuple(
        ArrayPlace(places[operand.name], operand.shape, operand.dtype)
        if isinstance(operand, BlockedArray)
        else ScalarPlace(places[operand.name], operand.operand)
        for operand in operands
    )
    outputs = launch.outputs
    donated = tuple(
        (operands.index(output), position)
        for position, output in enumerate(outputs)
        if output.role is ArgumentRole.INOUT
    )
    results = tuple(ArrayPlace(places[output.name], output.shape, output.dtype) for output in outputs)
    return CallLayout(planned, results, donated, calling_convention)
