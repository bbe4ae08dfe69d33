"""The forms of an artifact's code, from the front end's text to machine code, each made on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from silo.artifacts.artifact import decoded
from silo.artifacts.disassembly import DISASSEMBLED, disassemble
from silo.compile.toolchain import select_compiler
from silo.core.plugins import drivers
from silo.core.protocols import ShowsCode
from silo.errors import BundleError, SourceError
from silo.sources.kinds import brought_tools

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact, BlobRef
    from silo.core.protocols import Source
    from silo.core.variant import CompileJob, Variant

__all__ = ["CODE_FORMS", "CodeForms", "code_text", "kinds_with"]

# The forms that a user can request, and their names in the mapping if these differ.
CODE_FORMS = ("ttir", "ttgir", "cu", "c", "c++", "llvm", "ptx", "sass", "amdgcn", "asm")
_NAMES = {"llvm": "llir"}


def kinds_with(form: str) -> tuple[str, ...]:
    """The kinds of targets that are limited to a form of code; () if code for every kind may have the form.

    >>> kinds_with("ttgir"), kinds_with("ttir")
    (('cuda', 'hip'), ())
    """
    return tuple(one.kind for one in drivers() if form in one.code_forms)


class CodeForms(Mapping[str, str | bytes]):
    """``forms["ptx"]``: text by its name, and the blob itself as bytes by its kind (``cubin``, ``hsaco``, ``so``).

    Iterating yields the names that need no disassembler; ``sass`` (of a cubin), ``amdgcn`` (of a hsaco whose source is
    not here) and ``asm`` (of a shared object) are made on demand. Raises KeyError for a missing form.
    """

    def __init__(
        self,
        artifact: Artifact,
        read_blob: Callable[[BlobRef], bytes],
        source: Source | None = None,
        asked: Variant | None = None,
    ) -> None:
        self._artifact = artifact
        self._read_blob = read_blob
        self._source = source
        self._asked = asked or artifact.variant
        self._made: dict[str, str | bytes] = {}

    def __getitem__(self, name: str) -> str | bytes:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._forms, *self._sidecars, self._artifact.blob.kind)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _sidecars(self) -> dict[str, BlobRef]:
        return {ref.kind: ref for ref in self._artifact.sidecars}

    @cached_property
    def _compiler(self) -> ShowsCode | None:
        if self._source is None:
            return None
        compiler = select_compiler(self._source.kind, self._asked.target)
        return compiler if isinstance(compiler, ShowsCode) else None

    @property
    def _forms(self) -> tuple[str, ...]:
        return () if self._compiler is None else self._compiler.code_forms(self._asked.target)

    @cached_property
    def _job(self) -> CompileJob:
        assert self._source is not None
        return select_compiler(self._source.kind, self._asked.target).lower(self._source, self._asked).job

    def _make(self, name: str) -> str | bytes:
        blob = self._artifact.blob
        if name == blob.kind:
            return self._read_blob(blob)
        if name in self._sidecars:
            return decoded(ref := self._sidecars[name], self._read_blob(ref))
        if self._compiler is not None and (name in self._forms or name == "llir"):
            return self._compiler.code_form(self._job, name)
        if DISASSEMBLED.get(blob.kind) == name:
            return disassemble(self._read_blob(blob), blob.kind, brought_tools())
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<code of {self._artifact.variant.kernel}: {', '.join(self)}>"


def code_text(forms: CodeForms, form: str, artifact: Artifact, *, bundled: bool) -> str:
    """One form as text.

    Raises:
        SourceError, BundleError: the code does not have the form, or the bundle does not hold it; the text lists the
        available forms.
        ToolchainError: a tool that makes it is missing.
        CompileError: making it failed.
    """
    try:
        found = forms[_NAMES.get(form, form)]
    except KeyError:
        target = artifact.variant.target
        kinds = kinds_with(form)
        if kinds and target.kind not in kinds:
            raise SourceError(
                f"{artifact.variant.kernel}: code for {target} has no {form}; code for {' and '.join(kinds)} has: "
                "name such a target with --target"
            ) from None
        if bundled:
            held = ", ".join(_held(forms, artifact))
            raise BundleError(
                f"{artifact.variant.kernel}: the bundle keeps no {form} of its code for {target}, it has {held}; ask "
                f"the Python file that it was built from: silo inspect FILE.py --code {form} --target {target}"
            ) from None
        raise SourceError(
            f"{artifact.variant.kernel}: there is no {form} of its code for {target}; there is "
            f"{', '.join(_held(forms, artifact))}"
        ) from None
    assert isinstance(found, str)
    return found


def _held(forms: CodeForms, artifact: Artifact) -> list[str]:
    names = [name for name in forms if name != artifact.blob.kind]
    return [*names, *filter(None, [DISASSEMBLED.get(artifact.blob.kind)])]
