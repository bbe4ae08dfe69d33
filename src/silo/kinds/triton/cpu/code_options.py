"""Options of the generated code that a caller may choose."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from silo.core.config import Config
from silo.core.values import JSON
from silo.errors import CompileError
from silo.kinds.triton.cpu.cpu_declaration import CPU

__all__ = ["CpuOptions"]

# The members of CpuOptions that a config can set, by the name of the config's option.
_MEMBERS = {
    "cpu_chunk": "chunk",
    "cpu_dot_rows": "dot_rows",
    "cpu_dot_units": "dot_units",
    "cpu_dot_vectors": "dot_vectors",
    "cpu_elements_apart": "elements_apart",
    "cpu_launch_atomics": "launch_atomics",
    "cpu_row_parts": "row_parts",
    "cpu_threads": "threads",
    "cpu_work": "work",
}
# Members that were added later: left out of keys while they have their default, so that existing keys stay valid.
_LATER = ("elements_apart", "launch_atomics", "row_parts", "work")


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Options of one compilation.

    ``reference`` mode stores every tensor value and fuses nothing: slow, simple, and the oracle of ``optimized``.
    ``vector_bits`` is the width of the target's vector registers (128, 256 or 512). ``dot_units`` are the instructions
    that dots may use if the CPU has them: 0 the instructions of the CPU level alone, 1 also vector instructions beyond
    the level (AVX512-BF16, VNNI), 2 also matrix tiles (AMX). ``dot_rows`` and ``dot_vectors`` are the size of the block
    of a dot's accumulator that stays in registers: rows (1 to 16) and vectors per row (1 to 4); 0 leaves the choice to
    the compiler. ``launch_atomics``: atomics have to be atomic only among the programs of one launch, because nothing
    else accesses their memory while it runs. ``elements_apart``: a launch reads memory that it also writes (other than
    by atomics) only at the index that writes it, and no two indices write one address, so the order of indices does not
    matter. ``row_parts``: the memory that a matrix product writes does not overlap the memory that it reads, so that
    several threads may compute different rows of one program; ``elements_apart`` implies it. ``chunk``, ``threads``,
    ``work`` and ``cooperative`` (programs wait for each other, so all run at once) are passed on to the launch info.
    """

    mode: Literal["optimized", "reference"] = "optimized"
    vector_bits: int = 256
    fp_contract: bool = True
    dot_units: int = 2
    dot_rows: int = 0
    dot_vectors: int = 0
    launch_atomics: bool = False
    elements_apart: bool = False
    row_parts: bool = False
    chunk: int = 0
    threads: int = 0
    work: int = 0
    cooperative: bool = False

    @classmethod
    def of(cls, config: Config, mode: Literal["optimized", "reference"], vector_bits: int) -> CpuOptions:
        """Returns the options in ``config``; options of GPUs are ignored.

        Raises:
            CompileError: an option of the CPU has a value it cannot have.
        """
        chosen = CPU.read(tuple((name, value) for name, value in config.options if name in _MEMBERS))
        members = config.as_dict()
        return cls(
            mode,
            vector_bits,
            members.get("enable_fp_fusion", True) is not False,
            **{member: cast("Any", chosen[name]) for name, member in _MEMBERS.items()},
            cooperative=members.get("launch_cooperative_grid") is True,
        )

    def to_json(self) -> JSON:
        """Returns the options as JSON, in the canonical form.

        Members in ``_LATER`` are left out while they have their default, so that existing keys stay the same.
        """
        members = asdict(self)
        for name in _LATER:
            if not members[name]:
                del members[name]
        return members

    @classmethod
    def from_json(cls, data: JSON) -> CpuOptions:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for anything else."""
        usual = asdict(cls())
        if not isinstance(data, dict) or {*data, *_LATER} != set(usual):
            raise ValueError(f"not the options of a CPU compilation: {data!r}")
        data = {**{name: usual[name] for name in _LATER}, **data}
        fits = data["mode"] in ("optimized", "reference") and data["vector_bits"] in (128, 256, 512)
        fits = fits and all(type(data[name]) is type(value) for name, value in usual.items())
        if not fits:
            raise ValueError(f"not the options of a CPU compilation: {data!r}")
        try:
            for option in CPU.options:
                if option.name in _MEMBERS:
                    option.read(cast("int", data[_MEMBERS[option.name]]))
        except CompileError as error:
            raise ValueError(f"not the options of a CPU compilation: {error}") from None
        return cls(**data)  # pyright: ignore[reportArgumentType]  # every member was looked at
