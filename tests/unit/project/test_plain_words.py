"""The project's English: phrases that make a reader guess what is spoken of stay out of code and pages."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import plain_words  # noqa: E402  # a script

# What each would leave to guess, or a plainer word for it.
AVOIDED = {
    r"\bthose of\b": "repeat the noun",
    r"\bwhoever\b": "name who does it",
    r"\bdear to\b|\bis dear\b|\bdear,": "costly, slow",
    r"\bnone the wiser\b|\bin another dress\b|\blest\b|\bthereof\b|\bwhence\b": "an archaism",
    r"(?<!there )\b(is|are) no (array|integer|config|trial|kernel|scalar|file|power|multiple|part)\b": "is not a",
}
WHERE = ("src/silo", "native", "docs", "README.md", "CONTRIBUTING.md", "examples")


@pytest.mark.parametrize("phrase", AVOIDED)
def test_nothing_is_left_to_guess(phrase):
    listed = subprocess.run(["git", "ls-files", *WHERE], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [
        name for name in listed.split() if name.endswith((".py", ".c", ".h", ".md")) and "cpu/runtime/" not in name
    ]
    assert files
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in files
        if (ROOT / name).exists()
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(phrase, line)
    ]
    assert not found, f"{AVOIDED[phrase]}:\n" + "\n".join(found)


def test_habits_are_counted_in_prose_and_not_in_code():
    page = "# Title\n\nIt keeps what is found.\n\n```python\n# what is kept\n```\n"
    (hit,) = plain_words.counted(".md", page).hits
    assert (hit.line, list(hit.habits)) == (3, ['"what" as a noun'])
    source = 'def f():\n    """It says what it does."""\n    return "what is kept"  # noqa: E501\n'
    (hit,) = plain_words.counted(".py", source).hits
    assert hit.habits.total() == 2
    assert plain_words.counted(".c", "int x = 1; /* such a thing */ // plain\n").total == 1


def test_source_that_does_not_parse_has_no_prose():
    assert doctest.testmod(plain_words).failed == 0
    assert plain_words.counted(".py", "def (").words == 0
