"""The C compiler: its choice, its command line and its errors. The same input gives the same bytes on any machine."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from silo.compile import c_compiler
from silo.compile.c_compiler import choose_compiler, find_compiler
from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level
from silo.errors import CompileError, CompilerMissingError
from silo.kinds.triton.cpu import object_build as build_module
from silo.kinds.triton.cpu.object_build import build, compile_flags

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize(
    ("requested", "found", "command"),
    [
        (None, {"cc": "/a/cc", "gcc": "/a/gcc"}, ("/a/cc",)),
        (None, {"cc": None, "gcc": None, "clang": "/b/clang"}, ("/b/clang",)),
        ("clang-18", {"clang-18": "/c/clang-18", "cc": "/a/cc"}, ("/c/clang-18",)),
        ("ccache gcc -m64", {"ccache": "/d/ccache"}, ("/d/ccache", "gcc", "-m64")),
    ],
)
def test_choice(requested, found, command):
    assert choose_compiler(requested, found) == command


@pytest.mark.parametrize(
    ("requested", "found", "words"),
    [
        (None, {"cc": None}, "apt-get install gcc"),
        ("tcc", {"tcc": None, "cc": "/a/cc"}, "SILO_CC"),  # a requested compiler is never replaced
        ("'", {"cc": "/a/cc"}, "cannot be read"),
        ("", {}, "not found"),
    ],
)
def test_no_compiler_says_what_to_do(requested, found, words):
    with pytest.raises(CompilerMissingError, match=words):
        choose_compiler(requested, found)


def test_another_family_has_compilers_of_its_own(tmp_path, monkeypatch):
    cross = "aarch64-linux-gnu-gcc"
    assert choose_compiler(None, {"cc": "/a/cc", cross: "/a/cross"}, family="aarch64") == ("/a/cross",)
    assert choose_compiler("gcc", {"gcc": "/a/gcc", cross: "/a/cross"}, family="aarch64") == ("/a/gcc",)
    with pytest.raises(CompilerMissingError, match=r"for aarch64.*aarch64-linux-gnu-gcc is not on PATH.*SILO_CC"):
        choose_compiler(None, {"cc": "/a/cc", cross: None}, family="aarch64")
    place = tmp_path / cross
    place.write_text("#!/bin/sh\necho cross 1.0\n")
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("silo.compile.c_compiler._own_family", lambda: "x86-64")
    assert find_compiler(None, family="aarch64").command == (str(place),)
    assert find_compiler(None, family="x86-64").command != (str(place),)
    monkeypatch.setattr("silo.compile.c_compiler._own_family", lambda: "aarch64")
    assert find_compiler(None, family="aarch64").command != (str(place),)


def test_a_compiler_that_does_not_run(tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(CompilerMissingError, match="does not run"):
        find_compiler(str(broken))


def level():
    return LEVELS[highest_level(gather_facts()) or pytest.skip("this CPU reaches no level")]


SOURCE = "int silo_answer(void) { return 42; }\n"


@needs_compiler
def test_the_compiler_is_looked_for_once_for_each_path(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cc").write_text(f"#!/bin/sh\necho compiler {name}\n")
        (tmp_path / name / "cc").chmod(0o755)
    looked = []
    which = c_compiler.shutil.which
    monkeypatch.setattr(c_compiler.shutil, "which", lambda name, path: looked.append(name) or which(name, path=path))
    for folder in ("a", "b", "a"):
        monkeypatch.setenv("PATH", str(tmp_path / folder))
        assert find_compiler(None).version == f"compiler {folder}"
    assert looked == [*c_compiler.COMPILERS] * 2
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError):
        find_compiler(None)
    (tmp_path / "cc").symlink_to(tmp_path / "b" / "cc")  # installed meanwhile: a failure is not remembered
    assert find_compiler(None).version == "compiler b"


def test_the_version_names_no_path():
    version = find_compiler(None).version
    assert version
    assert "/" not in version


@needs_compiler
def test_same_bytes_from_any_folder(tmp_path, monkeypatch):
    flags, toolchain = compile_flags(level()), find_compiler(None)
    objects = []
    for name in ("one", "two/three"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        objects.append(build(SOURCE, flags, toolchain).data)
        assert list(folder.glob("silo*")) == []  # no temporary files remain
    assert objects[0] == objects[1]
    assert str(tmp_path).encode() not in objects[0]
    assert len(objects[0]) < 8192


@needs_compiler
def test_a_refused_source_is_kept_and_the_message_shown():
    with pytest.raises(CompileError, match="silo_nothing_like_it") as caught:
        build("int f(void) { return silo_nothing_like_it; }\n", compile_flags(level()), find_compiler(None))
    message = str(caught.value)
    kept = Path(message.split("kept in ")[1].splitlines()[0])
    try:
        assert "silo_nothing_like_it" in kept.read_text()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert "-O2" in message
    finally:
        kept.unlink()


@needs_compiler
def test_an_undefined_function_is_found_at_build_time():
    with pytest.raises(CompileError, match="silo_elsewhere") as caught:
        build(
            "int silo_elsewhere(int); int f(void) { return silo_elsewhere(1); }\n",
            compile_flags(level()),
            find_compiler(None),
        )
    Path(str(caught.value).split("kept in ")[1].splitlines()[0]).unlink()


@needs_compiler
def test_libm_is_linked_where_asked():
    text = "float powf(float, float); float f(float x) { return powf(x, x); }\n"
    assert b"libm.so" in build(text, compile_flags(level(), libm=True), find_compiler(None)).data


def test_a_compiler_that_is_killed(tmp_path):
    killed = tmp_path / "cc"
    killed.write_text('#!/bin/sh\n[ "$1" = --version ] && echo killer 1 && exit 0\nkill -9 $$\n')
    killed.chmod(0o755)
    with pytest.raises(CompileError, match="signal 9") as caught:
        build(SOURCE, ("-O2",), find_compiler(str(killed)))
    Path(str(caught.value).split("kept in ")[1].splitlines()[0]).unlink()


def test_flags_say_how_multiply_and_add_are_rounded():
    assert "-ffp-contract=off" in compile_flags(LEVELS["x86-64-v3"], contract=False)
    assert "-ffp-contract=fast" in compile_flags(LEVELS["x86-64-v3"])
    assert not [flag for flag in build_module._CODE_FLAGS if "fast-math" in flag or "native" in flag]
