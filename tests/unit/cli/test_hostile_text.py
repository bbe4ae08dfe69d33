"""What a stranger's bundle says is text: no order to a terminal, no markup, no place to write to."""
# pyright: reportAttributeAccessIssue=false

import ast
import io
import json
import logging
import sys
import traceback
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from hostile_bundle import FORBIDDEN, TEXT, hostile, hostile_bundle
from silo import status_line
from silo.cli import console
from silo.cli import progress_bars as progress
from silo.cli.main import app, main
from silo.errors import SiloError, TuneError
from silo.report.charts import effect_chart
from silo.report.ranking import ParameterEffect, ValueLevel
from silo.sanitized_text import file_name, one_line, printable, printable_json
from silo.settings import override
from silo.tuning.foreign_results import EXPORTS

ROOT = Path(__file__).resolve().parents[3]
FILE = "[red]k[link=x]\x1b]0;t\x07\r:smile:.silo"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return hostile_bundle(tmp_path_factory.mktemp("stranger") / FILE)


@pytest.fixture
def silo(tmp_path, monkeypatch, capfd):
    """Run a command in this process: its exit code, and all that it printed, its own processes included."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["silo", *map(str, words)])
        with override(home=str(tmp_path / "store")), pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        text = out + err
        for character in FORBIDDEN:
            assert character not in text, (words, repr(character))
        assert "Traceback" not in text, text
        assert not any(line.lstrip(" │").startswith("FORGED") for line in text.splitlines()), text
        return ended.value.code, text

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "9999")  # nothing is folded
    console.rich_console.cache_clear()
    yield run
    console.rich_console.cache_clear()


TITLE = "\\x1b]0;t\\x07"  # what becomes of an order to change it
MARKUP = "[red]"

# By command: its arguments, whether it works, and what of the bundle's texts it shows. "{}" is the bundle.
WAYS = {
    "build": [(["{}", "-o", "out.silo"], False, TITLE)],
    "tune": [(["{}"], False, ""), (["{}", "--explain"], False, TITLE), (["{}", "--events", "-"], False, "")],
    "run": [(["{}"], False, ""), (["{}", "--check"], False, ""), (["{}", "-k", "nope"], False, TITLE)],
    "inspect": [
        (["{}"], True, TITLE),
        (["{}", "--verify"], True, TITLE),
        (["{}", "-k", "nope"], False, MARKUP),
        (["{}", "--code", "c"], True, TITLE),
        (["{}", "--code", "ptx"], False, MARKUP),
        (["{}", "--code", "c", "-k", "nope"], False, MARKUP),
    ],
    "report": [(["{}", "-o", "a/b/pages"], True, TITLE), (["{}", "-k", "nope"], False, TITLE)],
    "export": [
        (["{}", "--cpp", "a/b/cpp", "--trust"], True, ""),
        (["{}", "--cpp", "a/b/no", "-k", "nope"], False, MARKUP),
    ],
    "doctor": [([], True, "")],
    "trust": [(["{}"], True, TITLE), (["--list"], True, TITLE)],
    "untrust": [(["{}"], False, ""), (["--key", "{}"], False, TITLE)],
    "slice": [(["{}", "-o", "a/b/parts"], True, TITLE), (["{}", "-o", "a/b.silo", "-t", "tpu:v5e"], False, TITLE)],
    "merge": [(["{}", "-o", "merged.silo"], True, ""), (["{}", "-o", "[red].x"], False, MARKUP)],
    "push": [(["{}", "oci://127.0.0.1:9/r:1"], False, ""), (["{}", "{}"], False, TITLE)],
    "pull": [(["{}"], False, TITLE), (["oci://127.0.0.1:9/r:1"], False, "")],
    "keygen": [(["{}"], False, TITLE)],
    "exec": [(["[red]\x1b]0;t\x07.py"], False, TITLE)],  # of a program that is there this process would become it
    "sign": [(["{}", "--key", "{}"], False, TITLE)],
    "verify": [(["{}"], False, TITLE), (["{}", "--key", "{}"], False, TITLE)],
    "check": [(["{}"], False, ""), (["{}", "-k", "nope"], False, TITLE)],
    "help": [([], True, ""), (["{}"], False, TITLE)],
    "version": [([], True, "")],
    "cache": [([], True, "")],
    "cache prune": [(["--size", "0"], True, "")],
    "cache clear": [(["--yes"], True, "")],
    "cache import": [(["{}"], True, TITLE)],
    "cache export": [(["{}", "-o", "a/b/results", "--format", form], True, TITLE) for form in EXPORTS],
}


def commands():
    """Every command there is, by its words."""
    for name in app.list_commands(click.Context(app)):
        command = app.get_command(click.Context(app), name)
        yield name
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.list_commands(click.Context(command)))


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_shows_a_strangers_words_as_words(silo, bundle, command):
    for words, works, shown in WAYS.get(command, [(["{}"], None, "")]):
        code, text = silo(*command.split(), *(str(bundle) if word == "{}" else word for word in words))
        assert works is None or (code == 0) is works, text
        assert shown in text, text


@pytest.mark.parametrize("command", ["inspect", "report", "cache import", "cache export"])
def test_json_is_the_same_data_without_control_characters(silo, bundle, command):
    more = {"report": ["-o", "a/b/pages"], "cache export": ["-o", "a/b/results"]}.get(command, [])
    code, text = silo(*command.split(), bundle, "--json", *more)
    assert code == 0
    assert any(MARKUP in word for word in texts(json.loads(text)))
    assert any("\x1b" in word for word in texts(json.loads(text)))


def texts(data):
    if isinstance(data, dict):
        yield from data
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from texts(value)
    elif isinstance(data, str):
        yield data


def files_under(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written_outside_of_the_folder_that_was_named(silo, bundle, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for command, folder in (("report", "pages"), *(("cache export", form) for form in EXPORTS)):
        form = ["--format", folder] if command == "cache export" else []
        silo(*command.split(), bundle, "-o", f"a/b/{folder}", *form)
    written = {path.relative_to(tmp_path) for path in files_under(tmp_path) if "store" not in path.parts}
    assert written
    assert {path.parts[:3] for path in written} <= {("a", "b", name) for name in ("pages", *EXPORTS)}
    pages = {unquote(path.stem) for path in written if path.suffix == ".html"}
    assert pages == {hostile("kernel"), "index"}


def test_links_that_lie_in_the_folder_are_not_followed(silo, bundle, tmp_path):
    """A folder unpacked from a stranger's archive may hold them."""
    for command, form in (("report", ()), *(("cache export", ("--format", form)) for form in EXPORTS)):
        folder, precious = tmp_path / "-".join(("out", *form)), tmp_path / "precious"
        silo(*command.split(), bundle, "-o", folder, *form)
        made = max(files_under(folder), key=lambda path: path.name != "index.html")
        precious.write_text("mine")
        made.unlink()
        made.symlink_to(precious)
        assert silo(*command.split(), bundle, "-o", folder, *form)[0] == 0
        assert precious.read_text() == "mine"
        assert not made.is_symlink()
        assert made.read_text()
        if made.parent != folder:
            made.unlink()
            made.parent.rmdir()
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir()
            made.parent.symlink_to(elsewhere)
            assert silo(*command.split(), bundle, "-o", folder, *form)[0] == 3
            assert not files_under(elsewhere)


def test_a_page_shows_a_strangers_words_as_words(silo, bundle, tmp_path):
    silo("report", bundle, "-o", "pages")
    pages = list((tmp_path / "pages").iterdir())
    assert len(pages) == 2
    for page in pages:
        text = page.read_text()
        for character in FORBIDDEN:
            assert character not in text.replace("\r\n", ""), repr(character)
        assert text.count("<script>") == 1
        assert text.count("</title>") == text.count("<title>")
        assert "&lt;script&gt;" in text


def test_a_damaged_bundle_is_described_in_words(silo, bundle, tmp_path):
    data = bytearray(bundle.read_bytes())
    data[70] ^= 1
    (tmp_path / FILE).write_bytes(data)
    code, text = silo("inspect", tmp_path / FILE, "--verify")
    assert code == 1
    assert TITLE in text
    data[40] ^= 1
    (tmp_path / FILE).write_bytes(data)
    assert silo("inspect", tmp_path / FILE)[0] == 3


def test_errors_and_their_tracebacks_have_no_control_characters():
    error = TuneError(f"{TEXT}\nand more")
    assert str(error) == f"{printable(TEXT)}\nand more"
    shown = "".join(traceback.format_exception(error))
    assert not any(character in shown for character in FORBIDDEN)
    assert str(SiloError()) == ""


def test_log_lines_of_commands_have_none(capsys):
    console.log_to_stderr(logging.INFO)
    logging.getLogger("silo.made.up").info("%s", TEXT)
    assert capsys.readouterr().err == f"{printable(TEXT)}\n"


def test_log_lines_of_programs_have_none(capsys, monkeypatch):
    """Where the program says nothing about its log, Silo prints its lines itself."""
    monkeypatch.setattr(status_line, "_is_configured", lambda: False)
    record = logging.LogRecord("silo", logging.WARNING, "x.py", 1, TEXT, (), None)
    status_line._own_handler().emit(record)
    assert capsys.readouterr().err == f"silo: {printable(TEXT)}\n"
    assert status_line.Task(TEXT + "\n").line() == f"silo: {printable(TEXT)}\\n, 0 s"


def test_bars_have_none_and_take_nothing_for_markup(monkeypatch):
    console.rich_console.cache_clear()
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    made = console.rich_console(stderr=True)
    monkeypatch.setattr(made, "_force_terminal", True)
    try:
        with progress.BuildProgress(enabled=True) as bar:
            bar.show(TEXT, 1, 2, TEXT)
    finally:
        console.rich_console.cache_clear()
    shown = out.getvalue()
    assert "[red]a[/nope]" in shown
    assert "\x1b]0;t" not in shown
    assert "\x07" not in shown


def test_lines_cannot_be_forged(capsys):
    console.say("add\nevery byte verified")
    assert capsys.readouterr().out == "add\\nevery byte verified\n"


def test_commands_print_by_these_functions_alone():
    """Whatever else a command printed would go to the terminal as it is."""
    for path in (ROOT / "src" / "silo" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "console.py" and isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called != "print", f"{path}:{node.lineno}"
                prints = called.startswith("sys.std") and not called.endswith((".flush", ".isatty"))
                assert not prints, f"{path}:{node.lineno}"
                assert called != "click.echo" or "_script(" in ast.unparse(node), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\rb"),
        ("\0\x1b\x7f\x85\x9b", "\\x00\\x1b\\x7f\\x85\\x9b"),
        ("\u061c\u200e\u200f\u202a\u202e\u2066\u2069", "\\u061c\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069"),
        ("\u200b\ufeff\u2028\U000e0001\ud800", "\\u200b\\ufeff\\u2028\\U000e0001\\ud800"),
        ("é ß 漢 \u00a0\u2009·", "é ß 漢 \u00a0\u2009·"),
    ],
)
def test_what_is_printable(text, shown):
    assert printable(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n")


def test_no_character_that_controls_is_left():
    everything = map(chr, (*range(0x3100), *range(0xD000, 0x11000), *range(0x1F600, 0x1F680), *range(0xE0000, 0xE0200)))
    shown = set(printable("".join(everything))) - set("\n\t")
    assert {unicodedata.category(one)[0] for one in shown} == set("LMNPSZ")
    assert not {unicodedata.category(one) for one in shown} & {"Zl", "Zp"}


def test_json_keeps_every_character():
    everything = [chr(code) for code in (*range(0x3000), 0xD800, 0xFEFF, 0xE0001, 0x1F604)]
    shown = printable_json(json.dumps(everything, ensure_ascii=False))
    assert json.loads(shown) == everything
    assert not any(character in shown for character in FORBIDDEN[:-1])


NAMES = [
    *("add", "add_rms", "Add", "ADD", "Norm.forward", "norm.forward", "", ".", "..", "...", ".hidden", "dot.", "a/b"),
    *("/etc/passwd", "../../x", "..\\x", "C:x", "a\0b", "%", "%2e", "a%b", "é", "e\u0301", "con", "~", "x" * 5000),
    *("X" * 200, "x" * 201, "x" * 200, "é" * 90, "é" * 91, TEXT, "\udcff"),
]


def test_names_of_files_are_names_and_differ():
    made = [file_name(name) for name in NAMES]
    assert len({name.casefold() for name in made}) == len(NAMES)
    for name, encoded in zip(NAMES, made, strict=True):
        assert 0 < len(encoded.encode()) <= 200
        assert encoded.isascii()
        assert encoded.isprintable()
        assert not set(encoded) & set("/\\: ")
        assert Path(encoded).name == encoded
        assert not encoded.startswith(".")
        assert not encoded.endswith(".")
        if name and "~" not in encoded:
            assert unquote(encoded, errors="surrogatepass") == name


def test_plain_names_stay():
    assert file_name("matmul_kernel") == "matmul_kernel"
    assert file_name("LayerNorm", both_cases=True) == "LayerNorm"


def test_names_in_charts_are_text():
    drawn = effect_chart(ParameterEffect(TEXT, (ValueLevel(TEXT, (5,), 1),), 1.0))
    assert not any(character in drawn for character in FORBIDDEN)
    assert "<script>" not in drawn
