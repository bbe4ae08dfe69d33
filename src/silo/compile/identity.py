"""Computes the digest of Silo's own code, which is part of a compiler's identity, and stores it for later processes.

Stored digests are in two files. The first is part of a wheel; the second is in the folder in which Python keeps the
byte code of this package. Everybody who may write to that folder decides which code Python runs, so the second file is
as trustworthy as the byte code. An entry is found by a hash of the files' bytes, so it cannot be out of date.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from silo.core.json_reader import read_bool, read_list, read_mapping, read_object, read_text
from silo.core.values import canonical_json, parse_json

if TYPE_CHECKING:
    from silo.compile.canonical_code import ModuleCode

__all__ = [
    "SHIPPED",
    "CodeFile",
    "KnownDigest",
    "code_digest",
    "covered_files",
    "decode_table",
    "digest_of",
    "digest_table",
    "encode_table",
    "known_digest",
    "remember",
]

SHIPPED = "code_digests.json"  # the name of the file with a wheel's digests, which is beside this module
_TABLE_SCHEMA = "code-digests/1"
_MOST = 64  # the most stored entries: one for each compiler and each state of the code that ran lately
_DIGEST = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """A digest of code.

    The digest also depends on which texts of the code are names of modules: ``names`` maps each dotted name that was
    looked up to whether a module with this name existed.
    """

    digest: str
    names: Mapping[str, bool]


def known_digest(content: str, exists: Callable[[str], bool]) -> KnownDigest | None:
    """Returns the stored digest of the files whose bytes have the hash ``content``; None without a valid one.

    ``exists`` returns whether a module with a dotted name exists now. A digest is valid only if ``exists`` returns the
    same for each name in ``KnownDigest.names`` as when the digest was stored.
    """
    for path in (_shipped_file(), _cache_file()):
        digest = _read(path).get(content)
        if digest is not None and all(exists(name) == existed for name, existed in digest.names.items()):
            return digest
    return None


def remember(content: str, known: KnownDigest) -> None:
    """Stores a digest beside the byte code, unless Python does not write byte code or cannot write there."""
    if sys.dont_write_bytecode:
        return
    path = _cache_file()
    others = {other: entry for other, entry in _read(path).items() if other != content}
    newest = dict(islice(others.items(), max(len(others) - _MOST + 1, 0), None))
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(encode_table({**newest, content: known}))
        beside.replace(path)
    except OSError:  # no digest is stored, just as Python stores no byte code if it cannot write here
        with contextlib.suppress(OSError):
            beside.unlink()


def encode_table(entries: Mapping[str, KnownDigest]) -> bytes:
    """Returns the contents of a file that stores these digests, in the order of ``entries``.

    A key of ``entries`` is the hash of all files that the digest covers. :func:`decode_table` reads the contents back.
    """
    lines = (
        canonical_json([content, {"digest": entry.digest, "names": dict(entry.names)}])
        for content, entry in entries.items()
    )
    return b"".join(line + b"\n" for line in (canonical_json(_TABLE_SCHEMA), *lines))


def decode_table(data: bytes) -> dict[str, KnownDigest]:
    """Returns the digests that :func:`encode_table` wrote; raises ``ValueError`` for any other bytes."""
    label = "a table of code digests"
    head, *lines = data.splitlines()
    if parse_json(head) != _TABLE_SCHEMA:
        raise ValueError(f"not {label} of schema {_TABLE_SCHEMA}")
    entries: dict[str, KnownDigest] = {}
    for line in lines:
        content, entry = read_list(parse_json(line), label, 2)
        members = read_object(entry, ("digest", "names"), label)
        digest = read_text(members["digest"], label)
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{label} with no digest: {digest!r}")
        names = read_mapping(members["names"], label)
        entries[read_text(content, label)] = KnownDigest(
            digest, {name: read_bool(existed, label) for name, existed in names.items()}
        )
    return entries


def _shipped_file() -> Path:
    return Path(__file__).with_name(SHIPPED)


def _cache_file() -> Path:
    return Path(cache_from_source(__file__)).with_name(SHIPPED)


def _read(path: Path) -> dict[str, KnownDigest]:
    """Returns the entries of a file; empty if it is missing or damaged, so that the digest is computed."""
    try:
        return decode_table(path.read_bytes())
    except (OSError, ValueError):
        return {}


_COMPILED = (".pyc", ".so")
_SCHEMA = "code/2"
_OWN_FILES = ("identity.py", "canonical_code.py")  # these modules compute the digest


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file that is part of a digest: its package's dotted name, its path in the package with slashes, its bytes."""

    package: str
    path: str
    data: bytes

    @property
    def is_module(self) -> bool:
        """Whether the file is a Python module."""
        return self.path.endswith(".py")

    @property
    def module(self) -> str:
        """The dotted name of a Python module."""
        parts = [self.package, *self.path.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def code_digest(*packages: str) -> str:
    """Returns a digest, 32 hexadecimal digits, of the code of these packages and their subpackages.

    It covers modules and the C text that they emit. Modules count by their syntax trees, so that comments,
    documentation and layout do not matter; C text counts without its comments, other files by their bytes. Names and
    folders of modules do not count: an import counts by the code of the module that it imports (:func:`digest_of`).

    A digest replaces a version number, which a developer could forget to raise: old artifacts would then count as
    current. The files are read once a process, in some milliseconds, and only by a process that compiles or reads
    artifacts from the store. A process that only launches from a bundle computes no digest, because the bundle names
    the compiler of its kernels. The digest is stored beside Python's byte code, under a hash of the files' bytes; if
    none is stored, the files are parsed, which takes most of a second.
    """
    files, exists = covered_files(packages), _finder(packages)
    content = _content(files)
    digest = known_digest(content, exists)
    if digest is None:
        digest = digest_of(files, exists)
        remember(content, digest)
    return digest.digest


def digest_table(codes: Iterable[Sequence[str]]) -> bytes:
    """Returns the contents of :data:`SHIPPED`, the file in a wheel: the digests of lists of packages."""
    table: dict[str, KnownDigest] = {}
    for packages in codes:
        files = covered_files(packages)
        table[_content(files)] = digest_of(files, _finder(packages))
    return encode_table(table)


def covered_files(packages: Iterable[str]) -> tuple[CodeFile, ...]:
    """Returns the files of these packages, each once. ``-`` before a name excludes a package inside another one."""
    packages = tuple(packages)
    files: dict[str, CodeFile] = {}
    left_out = [package[1:] for package in packages if package.startswith("-")]
    for package in (package for package in packages if not package.startswith("-")):
        root = str(_folder(package))
        inside = [name.removeprefix(f"{package}.") for name in left_out if name.startswith(f"{package}.")]
        apart = {os.path.join(root, *name.split(".")) for name in inside}  # noqa: PTH118  # see below
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(
                name
                for name in folders
                if name != "__pycache__" and os.path.join(folder, name) not in apart  # noqa: PTH118  # see below
            )
            for name in sorted(names):
                path = os.path.join(folder, name)  # noqa: PTH118  # of hundreds of files; paths as objects take longer
                if path in files or name.endswith(_COMPILED):
                    continue
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:  # noqa: PTH123  # editors' links
                    files[path] = CodeFile(package, path[len(root) + 1 :].replace(os.sep, "/"), file.read())
    return tuple(files.values())


def digest_of(files: Sequence[CodeFile], exists: Callable[[str], bool]) -> KnownDigest:
    """Returns the digest of files, and the answers of ``exists`` that it depends on. Reads no files itself.

    Args:
        files: modules and other files; the names of the modules are used only to find the module that an import names.
        exists: returns whether a dotted name found in a text is a module of the project, in these packages or outside.
    """
    from silo.compile.canonical_code import Project, module_code  # noqa: PLC0415  # with ast: see above

    exists_memo: dict[str, bool] = {}

    def ask(name: str) -> bool:
        return exists_memo.setdefault(name, exists(name))

    modules = {file.module: file for file in files if file.is_module}
    roots = frozenset({"silo", *(file.package.partition(".")[0] for file in files)})
    project = Project(roots, modules, ask)
    codes: dict[str, ModuleCode] = {}
    for name, file in modules.items():
        codes[name] = module_code(file.data, name, project, package=file.path.endswith("__init__.py"))
    digests = _linked(codes)
    parts = [f"module {digests[name]}" for name, code in codes.items() if not code.empty or code.links]
    parts += _others([file for file in files if not file.is_module])
    text = "\n".join((_SCHEMA, *sorted(parts)))
    return KnownDigest(hashlib.sha256(text.encode()).hexdigest()[:32], exists_memo)


def _linked(codes: Mapping[str, ModuleCode]) -> dict[str, str]:
    """Returns the digest of each module and of all that it imports, directly or through other modules.

    Modules with equal code that import different code get different digests: each round follows imports one step
    further, until a round tells no further modules apart.
    """
    digests = {name: code.digest for name, code in codes.items()}
    while True:
        links = {
            name: sorted((label, digests.get(target, "outside")) for label, target in code.links)
            for name, code in codes.items()
        }
        further = {name: _sha256(f"{digests[name]} {links[name]}".encode()) for name in codes}
        if len(set(further.values())) == len(set(digests.values())):
            return further
        digests = further


def _others(files: Sequence[CodeFile]) -> list[str]:
    """Returns a line for each file that is not a module: its name (with folders if names repeat) and its sha256."""
    from silo.compile.canonical_code import canonical_c, is_c_text  # noqa: PLC0415  # see code_digest

    def text(file: CodeFile) -> bytes:
        if not is_c_text(file.path.rpartition("/")[2], file.data):
            return file.data
        return canonical_c(file.data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    endings = Counter(ending for file in files for ending in _endings(file))
    return [
        f"{next((ending for ending in _endings(file) if endings[ending] == 1), file.path)} {_sha256(text(file))}"
        for file in files
    ]


def _endings(file: CodeFile) -> list[str]:
    """Returns the endings of a file's path at slashes, the shortest first: ``c``, ``b/c``, ``a/b/c``."""
    parts = file.path.split("/")
    return ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def _folder(package: str) -> Path:
    file = import_module(package).__file__
    assert file is not None, f"{package} is a package with an __init__.py"
    return Path(file).parent


def _finder(packages: Iterable[str]) -> Callable[[str], bool]:
    """Returns a function that decides whether a dotted name is a module of Silo or of another package.

    The other packages are the top-level packages that contain ``packages``.

    The function looks for files and imports no module.
    """
    roots = {
        name: _folder(name) for name in {"silo", *(package.removeprefix("-").partition(".")[0] for package in packages)}
    }

    def exists(name: str) -> bool:
        root, *parts = name.split(".")
        if root not in roots or not all(part.isidentifier() for part in parts):
            return False
        path = roots[root].joinpath(*parts)
        return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()

    return exists


def _content(files: Sequence[CodeFile]) -> str:
    """Returns a hash of all bytes that a digest depends on: its files, and the modules that compute digests."""
    state = hashlib.sha256()
    for name in _OWN_FILES:
        state.update(Path(__file__).with_name(name).read_bytes() + b"\0")
    for file in files:
        state.update(f"{file.package}/{file.path}\0{len(file.data)}\0".encode() + file.data)
    return state.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
