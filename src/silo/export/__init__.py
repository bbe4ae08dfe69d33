"""Exports of bundles to other languages: folders that a C and a C++ compiler build, without Python."""
