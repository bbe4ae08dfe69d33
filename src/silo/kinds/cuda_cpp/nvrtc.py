"""NVRTC, NVIDIA's compiler for CUDA C++ as a library: finding it, its version, its headers, and compiling with it."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from silo.errors import CompileError, CompilerMissingError, ToolchainError
from silo.frozen import frozen
from silo.kinds.cuda_cpp.cuda_unit import CudaText
from silo.settings import settings
from silo.store.privacy import NotPrivateError, check_folder, make_directory

__all__ = [
    "FIXED_FLAGS",
    "INSTALL",
    "PACKAGE",
    "Nvrtc",
    "NvrtcOutput",
    "NvrtcPlace",
    "find_nvrtc",
    "load_nvrtc",
    "places",
]

PACKAGE = "nvidia-cuda-nvrtc"
INSTALL = "install it with: pip install kernel-silo[cuda]"

FIXED_FLAGS = (
    "-frandom-seed=silo",  # without this, names of internal variables contain a random part and the process id
    "--no-cache",  # Silo itself stores the code
)
"""Flags of every compile: equal inputs give equal bytes, and no text is read that was not passed."""

# NVRTC is told that each text is a file in this folder. NVRTC searches this folder for headers in quotes, and in this
# folder no file can exist. With its option --no-source-include instead, the toolkit's own headers would not find each
# other.
_NOWHERE = "/proc/silo/"
_OLDEST = (12, 0)
_SONAME = re.compile(r"libnvrtc\.so\.([0-9]+)(?:\.([0-9]+))?(?:\..*)?")
_TOOLKITS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")
_OUT_OF_MEMORY = 1  # NVRTC_ERROR_OUT_OF_MEMORY
_COMPILATION = 6  # NVRTC_ERROR_COMPILATION
_UNKNOWN_OPTION = 5  # NVRTC_ERROR_INVALID_OPTION


@frozen
class NvrtcPlace:
    """An installed NVRTC: the library's path and its origin (``wheel``, ``toolkit``, ``SILO_NVRTC``)."""

    path: str
    origin: str

    @property
    def major(self) -> int:
        """The major version in the file's name; 0 without one."""
        match = _SONAME.fullmatch(Path(self.path).name)
        return int(match[1]) if match is not None else 0

    @property
    def build(self) -> str:
        """A text that changes when the library changes: the wheel's version, or the size of the file."""
        folder = Path(self.path)
        for parent in folder.parents[:4]:
            for info in sorted(parent.glob("nvidia_cuda_nvrtc*.dist-info")):
                return f"wheel {info.name.removesuffix('.dist-info').rpartition('-')[2]}"
        try:
            return f"size {folder.stat().st_size}"
        except OSError:
            return "missing"


@frozen
class NvrtcOutput:
    """The result of a compile: the mangled name of each expression, the code, and the compiler's messages."""

    names: tuple[str, ...]
    data: bytes
    log: str


def places() -> tuple[NvrtcPlace, ...]:
    """Returns the installed NVRTCs, in order of preference: wheels, then toolkits; only ``SILO_NVRTC`` if it is set."""
    configured = settings().nvrtc
    if configured is not None:
        return (NvrtcPlace(configured, "SILO_NVRTC"),)
    return _installed()


@cache
def _installed() -> tuple[NvrtcPlace, ...]:
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(entry) for entry in (spec.submodule_search_locations or ())] if spec is not None else []
    installed: list[NvrtcPlace] = []
    for folders, origin in (
        ([entry / "lib" for root in roots for entry in sorted(root.glob("cu[0-9]*"), reverse=True)], "wheel"),
        ([root / "cuda_nvrtc" / "lib" for root in roots], "wheel"),
        ([Path(entry) / "lib64" for entry in _TOOLKITS], "toolkit"),
    ):
        for folder in folders:
            libraries = [entry for entry in folder.glob("libnvrtc.so.*") if _SONAME.fullmatch(entry.name)]
            installed += [
                NvrtcPlace(str(library), origin) for library in sorted(libraries, key=lambda one: len(one.name))[:1]
            ]
    return tuple(installed)


def find_nvrtc() -> NvrtcPlace:
    """Returns the NVRTC to use. Raises CompilerMissingError."""
    installed = places()
    if not installed:
        raise CompilerMissingError(
            f"CUDA C++ is compiled by NVRTC, which is not here ({PACKAGE}, or libnvrtc of a CUDA toolkit); {INSTALL}"
        )
    return installed[0]


def headers_beside(library: Path, toolkits: Sequence[str]) -> tuple[str, ...]:
    """Returns the folders of headers beside a library, of a toolkit or of header wheels; () without them.

    A wheel of NVRTC contains none of the toolkit's headers. Wheels with headers may lack CCCL, whose ``nv/target``
    other headers include, or ``crt``, which ``mma.h`` includes. Folders that are missing are taken from a toolkit.
    """
    root = library.parent.parent
    candidates = (root / "include", root.parent / "cuda_runtime" / "include", root.parent / "cuda_cccl" / "include")
    folders = [folder for base in candidates for folder in (base, base / "cccl") if folder.is_dir()]
    others = [Path(toolkit) / "include" for toolkit in toolkits]
    for header in ("nv/target", "cuda_fp16.h", "crt/mma.h"):
        if not any((folder / header).is_file() for folder in folders):
            have = (folder for base in others for folder in (base / "cccl", base) if (folder / header).is_file())
            folders += list(islice(have, 1))
    return tuple(map(str, folders))


def _load_builtins(library: Path) -> ctypes.CDLL | None:
    """Loads the second library of NVRTC from the folder of the first; None if it does not exist.

    NVRTC opens the second library by its name alone. The loader searches that name in the system's folders, never in a
    wheel's, but a library that is already loaded is found by name.
    """
    version = _SONAME.fullmatch(library.name)
    name = f"libnvrtc-builtins.so.{version[1] if version is not None else ''}*"
    candidates = sorted((path for path in library.parent.glob(name)), key=lambda one: len(one.name))
    return ctypes.CDLL(str(candidates[0])) if candidates else None


class Nvrtc:
    """The loaded library. Use it from one thread at a time; it compiles only one text at a time anyway."""

    def __init__(self, place: NvrtcPlace) -> None:
        """Loads the library. Raises ToolchainError if it does not load, or is too old."""
        self.place = place
        try:
            self._builtins = _load_builtins(Path(place.path))
            self._library = ctypes.CDLL(place.path)
        except OSError as error:
            raise ToolchainError(f"NVRTC at {place.path} ({place.origin}) does not load: {error}") from None
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        if self.version < _OLDEST:
            raise ToolchainError(
                f"NVRTC {self.release} at {place.path} is older than {_OLDEST[0]}.{_OLDEST[1]}; {INSTALL}"
            )

    @property
    def release(self) -> str:
        """The version as text: ``13.5``."""
        return ".".join(map(str, self.version))

    def _call(self, name: str, *arguments: object) -> None:
        result: int = getattr(self._library, name)(*arguments)
        if result:
            raise CompileError(f"NVRTC {name}: {self._words(result)}")

    def _words(self, result: int) -> str:
        return bytes(self._library.nvrtcGetErrorString(result)).decode(errors="replace")

    def archs(self) -> tuple[int, ...]:
        """Returns the compute capabilities that the library compiles for: 80, 90, ..."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        values = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", values)
        return tuple(values)

    def headers(self) -> tuple[str, ...]:
        """Returns the folders of the toolkit's headers. Headers that NVRTC contains are written to the store once.

        Raises:
            ToolchainError: the headers cannot be written, or other users may write to them.
        """
        if not hasattr(self._library, "nvrtcInstallBundledHeaders"):
            return self._headers_beside()
        folder = settings().store_folder / "nvrtc-headers" / f"{self.release} {self.place.build}".replace(" ", "-")
        message = ctypes.c_char_p()
        try:
            make_directory(folder)
            check_folder(folder.parent)
            check_folder(folder)
            result: int = self._library.nvrtcInstallBundledHeaders(str(folder).encode(), 0, ctypes.byref(message))
        except (OSError, NotPrivateError) as error:
            raise ToolchainError(f"NVRTC's headers cannot be written to {folder}: {error}") from error
        if result:
            detail = (message.value or b"").decode(errors="replace") or self._words(result)
            raise ToolchainError(f"NVRTC's headers cannot be written to {folder}: {detail}")
        return str(folder), str(folder / "cccl")

    def _headers_beside(self) -> tuple[str, ...]:
        """Returns the header folders beside the library; () without them."""
        return headers_beside(Path(self.place.path), _TOOLKITS)

    def compile(
        self, text: CudaText, options: Sequence[str], expressions: Sequence[str] = (), wanted: str = ""
    ) -> NvrtcOutput:
        """Compiles a text.

        Args:
            text: the text with the user's headers.
            options: NVRTC's options.
            expressions: functions whose mangled names are wanted; templates among them are instantiated.
            wanted: ``CUBIN``, ``PTX``, or "" for no code.

        Raises:
            CompileError: NVRTC refuses the text or an option; the error contains NVRTC's messages.
        """
        program = ctypes.c_void_p()
        count = len(text.headers)
        texts = (ctypes.c_char_p * count)(*[_encoded(item) for _, item in text.headers])
        names = (ctypes.c_char_p * count)(*[_encoded(item) for item, _ in text.headers])
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            _encoded(text.text),
            _encoded(_NOWHERE + text.file),
            count,
            texts,
            names,
        )
        try:
            for expression in expressions:
                self._call("nvrtcAddNameExpression", program, _encoded(expression))
            option_array = (ctypes.c_char_p * len(options))(*[_encoded(option) for option in options])
            result: int = self._library.nvrtcCompileProgram(program, len(options), option_array)
            log = self._bytes(program, "ProgramLog").rstrip(b"\0\n").decode(errors="replace").replace(_NOWHERE, "")
            if result:
                listing = f" with {' '.join(options)}" if result == _UNKNOWN_OPTION else ""
                note = "\nNVRTC ran out of memory (SILO_COMPILE_BYTES)" if result == _OUT_OF_MEMORY else ""
                raise CompileError((log or f"NVRTC: {self._words(result)}{listing}") + note)
            lowered: list[str] = []
            for item in expressions:
                name = ctypes.c_char_p()
                self._call("nvrtcGetLoweredName", program, _encoded(item), ctypes.byref(name))
                lowered.append((name.value or b"").decode())
            return NvrtcOutput(tuple(lowered), self._bytes(program, wanted) if wanted else b"", log)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, label: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{label}Size", program, ctypes.byref(size))
        room = ctypes.create_string_buffer(max(size.value, 1))
        self._call(f"nvrtcGet{label}", program, room)
        return room.raw[: size.value]

    def flags(self) -> tuple[str, ...]:
        """Returns the flags of every compile. Raises ToolchainError if this release lacks a flag that Silo needs."""
        if self.version < (13, 0):
            return _accepted(self)
        return FIXED_FLAGS


@cache
def _accepted(library: Nvrtc) -> tuple[str, ...]:
    """Returns the flags of :data:`FIXED_FLAGS` that an older release accepts.

    Only ``--no-cache`` may be missing, because a release without this flag has no cache. Raises ToolchainError if
    another flag is missing.
    """
    text = CudaText("flags.cu", "")
    flags: list[str] = []
    for flag in FIXED_FLAGS:
        try:
            library.compile(text, ["-arch=compute_80", flag])
        except CompileError:
            if flag != "--no-cache":
                raise ToolchainError(
                    f"NVRTC {library.release} has no {flag}, so its code would differ from run to run; {INSTALL}"
                ) from None
        else:
            flags.append(flag)
    return tuple(flags)


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise CompileError("a text in CUDA C++ has a zero byte")
    return text.encode()


@cache
def load_nvrtc(place: NvrtcPlace) -> Nvrtc:
    """Returns the library at ``place``, loaded once in a process. Raises ToolchainError."""
    return Nvrtc(place)
