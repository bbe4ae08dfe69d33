"""The declaration of the fake compiler, which is read before the plug-in is imported."""

from __future__ import annotations

from silo.core.declaration import BlobKind, CompilerDeclaration

__all__ = ["FAKE"]

FAKE = CompilerDeclaration(
    name="fake",
    compiler="fake_backend.compiler:FakeCompiler",
    sources=(),
    targets=("fake",),
    options=(),
    blobs=(BlobKind("fake"),),
    code=("fake_backend",),
)
