"""Completion for shells, and words that are almost right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from silo.cli.main import app
from silo.cli.options import kernels_in
from silo.core.device import CPU_LEVELS

FILE = """
import silo
import triton


@silo.kernel(space=[{"BLOCK": 1}],
             key=["n"])
@triton.jit
def scale(x, n, BLOCK):
    pass


@triton.jit
def shift(x, n): pass


def host(n): pass


tiles = silo.binary("tiles.cubin")
raise SystemExit("a file is not imported to complete a word")
"""

COMPLETE = """
import json, os, sys
from silo.cli.main import main
try:
    main()
finally:
    sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


def completed(folder, *words):
    """The words that a shell is offered after ``words``, and the modules that were imported for it."""
    environment = {
        **os.environ,
        "_SILO_COMPLETE": "zsh_complete",
        "COMP_WORDS": " ".join(["silo", *words]),
        "COMP_CWORD": str(len(words)),
    }
    environment.pop("SILO_HOME", None)
    # -S: a .pth file of an environment may import anything.
    command = [sys.executable, "-S", "-c", f"import sys\nsys.path += {sys.path!r}\n{COMPLETE}"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    lines = done.stdout.split("\n")
    return [lines[at + 1] for at in range(0, len(lines) - 2, 3)], set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("completion")
    (made / "kernels.py").write_text(FILE)
    (made / "pkg").mkdir()
    (made / "pkg" / "__init__.py").write_text(FILE)
    return made


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["bui"], {"build"}),
        (["cache", "pr"], {"prune"}),
        (["build", "--tune", "c"], {"cached"}),
        (["build", "-t", "cu"], {"cuda"}),
        (["build", "-t", "cpu:x"], set(CPU_LEVELS["x86-64"])),
        (["run", "--device", "cp"], {"cpu"}),
        (["run", "--arrays", "t"], {"torch"}),
        (["inspect", "--code", "p"], {"ptx"}),
        (["run", "kernels.py", "-k", "s"], {"scale", "shift"}),
        (["run", "pkg", "--kernel", "ti"], {"tiles"}),
        (["run", "kernels.py", "--ch"], {"--check"}),
    ],
    ids=lambda words: " ".join(sorted(words)) if isinstance(words, set) else " ".join(words),
)
def test_values_are_offered_and_little_is_imported(folder, words, offered):
    found, modules = completed(folder, *words)
    named = {one.removeprefix("cpu:") for one in found} if words[-1].startswith("cpu:") else set(found)
    assert offered <= named
    assert len(found) <= 8
    slow = {"numpy", "triton", "torch", "jax", "rich", "asyncio", "logging", "silo.tuner.trial"}
    assert not slow & modules
    assert len([name for name in modules if name.startswith("silo")]) < 40


def test_the_kernels_of_a_bundle(tmp_path):
    from bundle_samples import sample
    from silo.bundle.writer import write_bundle

    made = sample()
    write_bundle(tmp_path / "k.silo", made.contents, made.blobs.__getitem__)
    assert kernels_in(str(tmp_path / "k.silo")) == sorted(kernel.name for kernel in made.contents.kernels)
    (tmp_path / "cut.silo").write_bytes(b"SILO")
    assert kernels_in(str(tmp_path / "cut.silo")) == []
    assert kernels_in("no.such.module") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed_and_installed(shell, tmp_path, monkeypatch, capsys):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert app.main(["--show-completion", shell], standalone_mode=False) == 0
    assert "_SILO_COMPLETE" in capsys.readouterr().out
    for _ in range(2):
        assert app.main(["--install-completion", shell], standalone_mode=False) == 0
    path = Path(capsys.readouterr().out.splitlines()[0].partition(": ")[0])
    assert path.read_text().count("_SILO_COMPLETE=") == 1


def options():
    """Every command with its options, by its words."""
    stack = [((), app)]
    while stack:
        words, command = stack.pop()
        context = click.Context(command)
        if isinstance(command, click.Group):
            stack += [((*words, name), command.get_command(context, name)) for name in command.list_commands(context)]
        yield words, [name for one in command.get_params(context) for name in one.opts if name.startswith("--")]


@pytest.mark.parametrize(("words", "names"), list(options()), ids=lambda value: " ".join(value)[:40])
def test_a_typo_of_an_option_names_the_nearest(words, names):
    for name in names:
        typo = name[:-2] + name[-1] + name[-2]
        if typo in names or typo == name:
            continue
        with pytest.raises(click.UsageError) as failed:
            app.main([*words, typo, "x"], standalone_mode=False)
        from silo.cli.parser import usage_error

        assert f"did you mean {name[:5]}" in usage_error(failed.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tuen"], "there is no command 'tuen'; did you mean tune?"),
        (["cache", "prone"], "there is no command 'prone'; did you mean prune?"),
        (["tune", "k.py", "--searcher", "atuo"], "did you mean auto?"),
    ],
)
def test_a_typo_of_a_word_names_the_nearest(words, message):
    with pytest.raises(click.UsageError) as failed:
        app.main(words, standalone_mode=False)
    assert message in failed.value.format_message()
