"""Fills new CPU memory of torch with a pattern: memory that still holds the pattern was never written.

torch's allocator fills its allocations if a flag of its library is set. ``torch.empty`` and its relatives then hold the
pattern, whether Python, C++ or compiled code calls them. If a storage holds only the pattern, no code has written to
it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import wraps
from pathlib import Path
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected

__all__ = ["fill_new_memory", "fill_new_tensors", "is_unset", "state"]

_FLAG = "FLAGS_caffe2_cpu_allocator_do_junk_fill"  # a C++ bool in libc10
# The repeated eight bytes: a NaN as two floats, a large number as two integers.
_PATTERN = (0x7FEDBEEF).to_bytes(4, "little") * 2
_LEAST_BYTES = len(_PATTERN)  # a smaller memory may hold a part of the pattern by chance
_FIRST_BYTES = 4096  # how many of the first bytes are compared with the pattern before the rest is compared

_state: Decision = Rejected("SILO_CHECK was not 1 when torch was loaded")


def state() -> Decision:
    """Returns whether torch fills new memory with the pattern; a rejection has the reason."""
    return _state


def fill_new_memory(torch: Any) -> Decision:  # noqa: ANN401
    """Makes torch fill the CPU memory that it allocates from now on with the pattern.

    This has no other effect and is not undone.

    Args:
        torch: the module.

    Returns:
        Accepted, or Rejected with the reason: this torch lacks the flag, or ignores it.
    """
    global _state  # noqa: PLW0603  # as the flag, one a process
    endings = {"darwin": "dylib"}
    library = Path(torch.__file__).parent / "lib" / f"libc10.{endings.get(sys.platform, 'so')}"
    try:
        flag = ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), _FLAG)
    except (OSError, ValueError) as error:
        _state = Rejected(f"torch {torch.__version__} does not fill new memory: {error}")
        return _state
    flag.value = True
    if not hasattr(torch, "empty"):  # torch is still being imported, so the flag's effect cannot be tested
        _state = Accepted("new memory is to hold a pattern")
        return _state
    tried = torch.empty(_FIRST_BYTES, dtype=torch.uint8)
    filled = _holds_pattern(tried.data_ptr(), tried.data_ptr() + _FIRST_BYTES)
    _state = (
        Accepted("new memory holds a pattern") if filled else Rejected(f"torch {torch.__version__} ignores {_FLAG}")
    )
    return _state


def fill_new_tensors(torch: Any) -> None:  # noqa: ANN401
    """Fills the memory of tensors that Python code makes on a GPU by ``torch.empty`` and its relatives from now on.

    torch's flag that fills new memory applies to CPU memory only, so these functions are replaced, until the process
    ends.
    """

    def filled(make: Any) -> Any:  # noqa: ANN401  # functions of torch
        @wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            tensor = make(*args, **kwargs)
            if tensor.is_cuda and not torch.cuda.is_current_stream_capturing():
                storage_bytes = torch.Tensor.set_(
                    _empty(0, dtype=torch.uint8, device=tensor.device), tensor.untyped_storage()
                )
                size = storage_bytes.numel() // len(_PATTERN) * len(_PATTERN)
                storage_bytes[:size].view(torch.int64).fill_(int.from_bytes(_PATTERN, "little"))
                storage_bytes[size:].copy_(
                    torch.frombuffer(bytearray(_PATTERN), dtype=torch.uint8)[: storage_bytes.numel() - size]
                )
            return tensor

        return made

    _empty = torch.empty
    for name in ("empty", "empty_like", "empty_strided"):
        setattr(torch, name, filled(getattr(torch, name)))
    torch.Tensor.new_empty = filled(torch.Tensor.new_empty)


def is_unset(low: int, high: int) -> bool:
    """Returns whether memory of this process, from ``low`` up to ``high``, was allocated by torch and never written."""
    return bool(_state) and high - low >= _LEAST_BYTES and _holds_pattern(low, high)


def _holds_pattern(low: int, high: int) -> bool:
    size = high - low
    first = min(size, _FIRST_BYTES)
    repeated = _PATTERN * (first // len(_PATTERN) + 1)
    if ctypes.string_at(low, first) != repeated[:first]:
        return False
    # The first part holds the pattern; the rest does too if each byte equals the one ``first`` bytes before it.
    return size <= first or _equal(low, low + first, size - first)


def _equal(address: int, other: int, size: int) -> bool:
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return compare(address, other, size) == 0
