"""A compile job of the emulator: a kernel's text as C++, and what it is called with."""

from __future__ import annotations

from enum import Enum

from silo.core.json_reader import read_bool, read_integers, read_list, read_natural, read_object, read_text
from silo.core.launch_info import LayoutSlot
from silo.core.target import Target
from silo.core.values import JSON, malformed
from silo.core.variant import CompileJob
from silo.errors import CompileError
from silo.frozen import frozen
from silo.kinds.metal.metal_declaration import EMULATOR

__all__ = ["BufferRole", "EmulatorJob", "MetalArgument"]


class BufferRole(Enum):
    """What one argument of the kernel's function is to a launch."""

    POINTER = "pointer"  # an array: `device T*`, `constant T*`
    REFERENCE = "reference"  # what lies in an array: `device T&`, a struct in `constant T&`
    VALUE = "value"  # a number: `constant T&` of a scalar
    THREADGROUP = "threadgroup"  # threadgroup memory of a size that the launch gives
    POSITION = "position"  # of the thread, or a size: an attribute of Metal


@frozen
class MetalArgument:
    """One argument of the kernel's function, in its order.

    ``text`` is the type of a value in the text (``uint``), the attribute of a position
    (``thread_position_in_grid``), "" otherwise. ``number`` is the slot of the layout that an array or a value comes
    from, or the bytes of threadgroup memory.
    """

    role: BufferRole
    name: str
    text: str = ""
    number: int = 0

    def to_json(self) -> JSON:
        """The canonical form: ``[role, name, text, number]``."""
        return [self.role.value, self.name, self.text, self.number]

    @classmethod
    def from_json(cls, data: JSON) -> MetalArgument:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        match read_list(data, "an argument of a kernel's function"):
            case [str() as role, str() as name, str() as text, number]:
                return cls(BufferRole(role), name, text, read_natural(number, "the number of an argument"))
            case _:
                raise malformed("an argument of a kernel's function", data)


@frozen
class EmulatorJob:
    """What a worker needs to make a shared object of a kernel.

    ``source`` is the text as C++, line by line that of ``file``; ``function`` is how the kernel is called in it
    (``add``, ``add<float>``). ``group`` is how the threads of a threadgroup lie. ``waits``: threads may wait for each
    other; where that is not so, and turns out to be, it is compiled again. ``cut``: the grid may end within a
    threadgroup, and the last three slots of the layout are its threads along x, y and z. ``headers`` is the digest of
    headers that the text includes from elsewhere, "" where it includes none. ``chunk`` and ``threads`` go to launch
    info.
    """

    source: str
    file: str
    function: str
    arguments: tuple[MetalArgument, ...]
    layout: tuple[LayoutSlot, ...]
    group: tuple[int, ...]
    waits: bool = True
    cut: bool = False
    headers: str = ""
    chunk: int = 0
    threads: int = 0

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """What travels to a worker."""
        parameters: dict[str, JSON] = {
            "file": self.file,
            "function": self.function,
            "arguments": [one.to_json() for one in self.arguments],
            "layout": [one.to_json() for one in self.layout],
            "group": list(self.group),
            "waits": self.waits,
            "cut": self.cut,
            "headers": self.headers,
            "chunk": self.chunk,
            "threads": self.threads,
        }
        return CompileJob(EMULATOR.name, kernel, target, self.source, parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> EmulatorJob:
        """The inverse of :meth:`to_job`. Raises CompileError: the job is another compiler's, or damaged."""
        names = ("file", "function", "arguments", "layout", "group", "waits", "cut", "headers", "chunk", "threads")
        try:
            data = read_object(job.parameters, names, "the parameters of the job")
            group = read_integers(data["group"], "a threadgroup")
            if len(group) != 3 or min(group) < 1:
                raise malformed("a threadgroup", data["group"])
            return cls(
                source=job.text,
                file=read_text(data["file"], "the file of a job"),
                function=read_text(data["function"], "the function of a job"),
                arguments=tuple(
                    MetalArgument.from_json(one) for one in read_list(data["arguments"], "the arguments of a job")
                ),
                layout=tuple(LayoutSlot.from_json(one) for one in read_list(data["layout"], "the layout of a job")),
                group=group,
                waits=read_bool(data["waits"], "the waits flag of a job"),
                cut=read_bool(data["cut"], "the cut flag of a job"),
                headers=read_text(data["headers"], "the headers of a job"),
                chunk=read_natural(data["chunk"], "the chunk of a job"),
                threads=read_natural(data["threads"], "the threads of a job"),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise CompileError(f"{job.kernel}: the job is no job of the Metal emulator: {error}") from error
