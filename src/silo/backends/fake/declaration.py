"""The declaration of the fake compiler, read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration

__all__ = ["FAKE"]

FAKE = CompilerDeclaration(
    name="fake",
    compiler="silo.backends.fake.compiler:FakeCompiler",
    sources=(),
    targets=("fake",),
    options=(),
    blobs=(BlobKind("fake"),),
    code=("silo.backends.fake",),
)
