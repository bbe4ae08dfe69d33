"""The C files: no circles among them, kinds by their names."""
# pyright: reportMissingImports=false

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import c_circles  # noqa: E402

# Numbers that are what they say: widths in bits.
PLAIN = {"generator.c": {8, 16, 32}}


def folder(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


def circles(tree):
    return {(unit, other) for unit, others in tree.arrows.items() for other in others if unit in tree.reached(other)}


def test_no_unit_of_the_native_module_leads_back_to_itself():
    tree = c_circles.Tree(ROOT / "native")
    assert not circles(tree)
    assert not tree.strays
    assert {"errors", "frame", "launcher"} <= tree.reached("launch")  # it sees something


HEAD = "int silo_a(void);\nint silo_b(void);\nextern int silo_x;\n"


@pytest.mark.parametrize(
    "files",
    [
        {"a__h": '#include "b.h"\n', "b__h": '#include "a.h"\n'},
        {
            "a__c": "int silo_a(void) {\n    return silo_b();\n}\n",
            "b__c": "int silo_b(void) {\n    return silo_a();\n}\n",
        },
        {
            "a__c": "int silo_x = 1;\nint silo_a(void) {\n    return silo_b();\n}\n",
            "b__c": "int *silo_b(void) {\n    return &silo_x;\n}\n",
        },
        {
            "a__c": "static int own;\nint silo_x[2] = {1};\nvoid silo_a(void) {\n    silo_b();\n}\n",
            "b__c": '#include "a.h"\nint silo_b(void) {\n    return 0;\n}\n',
            "a__h": HEAD,
        },
        {
            "a__c": "int silo_a(int one,\n           int two) {\n    return one;\n}\nint silo_c(void) {\n"
            "    return silo_b();\n}\n",
            "b__c": "int silo_b(void) {\n    return SILO_SHORT(1);\n}\n",
            "c__h": "#define SILO_SHORT(one) \\\n    silo_a(one, 2)\n",
        },
        {  # an inline function is its header's
            "a__c": '#include "b.h"\nint silo_a(void) {\n    return 1;\n}\n',
            "b__h": "SILO_INLINE int silo_short(int one) {\n    return silo_a();\n}\n",
        },
    ],
)
def test_circles_are_found(tmp_path, files):
    assert {("a", "b"), ("b", "a")} <= circles(c_circles.Tree(folder(tmp_path, **files)))


def test_a_header_of_another_units_function_is_found(tmp_path):
    header = (
        '#include "c.h"\nstruct silo_c;\nextern int silo_x, silo_y[2];\nint silo_b(int one);\nint silo_away(void);\n'
    )
    files = {
        "a__h": header,
        "a__c": "int silo_x;\n",
        "b__c": "int silo_y[2];\nint silo_b(int one) {\n    return one;\n}\n",
        "c__h": "SILO_INLINE int silo_c(void) {\n    return silo_b(1);\n}\n",
    }
    tree = c_circles.Tree(folder(tmp_path, **files))
    assert tree.strays == {f"a.h declares {name}, which b.c defines" for name in ("silo_b", "silo_y")}


def test_words_that_are_no_uses_make_no_arrow(tmp_path):
    text = "/* silo_b() */\nstruct silo_b *one;\nint silo_a(void) {\n    return 0; // silo_b\n}\n"
    tree = c_circles.Tree(folder(tmp_path, a__c=text, b__c="int silo_b(void) {\n    return silo_a();\n}\n"))
    assert not circles(tree)


def test_kinds_and_codes_are_named():
    found = {}
    for path in sorted((ROOT / "native").rglob("*.[ch]")):
        code = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", "", path.read_text(), flags=re.DOTALL)
        numbers = re.findall(r"\bcase (\d+):|\b(?:code|device_type) [=!<>]=? (\d{2,})\b|1U << (\d+)", code)
        left = {int(next(filter(None, groups))) for groups in numbers} - PLAIN.get(path.name, set())
        if left:
            found[path.name] = left
    assert not found


def not_renewed(text):
    """How many mutexes of a C file no function makes anew, as a child made by fork needs it."""
    made = text.count("PTHREAD_MUTEX_INITIALIZER")
    return made - len(set(re.findall(r"pthread_mutex_init\(&([a-z_.]+), NULL\)", text)) if made else [])


def test_every_mutex_is_made_anew_in_a_child_of_fork():
    files = [path for folder in ("core", "python", "frameworks") for path in (ROOT / "native" / folder).glob("*.c")]
    texts = {path.name: path.read_text() for path in files}
    assert sum("PTHREAD_MUTEX_INITIALIZER" in text for text in texts.values()) >= 6
    assert [name for name, text in texts.items() if not_renewed(text) > 0] == []
    assert not_renewed("static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;") == 1
    # Loads wait for fork, which only a lock that both take can do.
    loads = r"\b(dlopen|dl_iterate_phdr|dlclose)\("
    loading = {name for name, text in texts.items() if re.search(loads, text) and "silo_loader_take" not in text}
    assert loading <= {
        "cpu_team.c",  # with the lock that silo_loader_try took
        "loader_lock.c",
        "torch_shim.c",  # libraries that are loaded already, with Python's lock, which who forks holds
        "tvm_ffi.c",  # the same
    }
