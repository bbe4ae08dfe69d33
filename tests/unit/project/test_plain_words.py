"""The project's English: phrases that make a reader guess what is spoken of stay out of code and pages."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

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
