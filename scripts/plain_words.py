"""Counts turns of phrase that hide their subject, in docstrings, comments and pages, and prints them as warnings.

``python scripts/plain_words.py [PATH]...`` reads the given files or folders; without any, the files of the change. It
prints a line for each file that has such turns of phrase, with the texts that have most. It never fails: a hit is a
text to read again, and some are good English. ``--lines N`` prints up to N texts of each file (default 3).
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from changed_tests import changed_files

ROOT = Path(__file__).resolve().parents[1]

# The pattern of each habit. Readers who knew Triton and C had to read sentences with these habits twice.
HABITS = {
    '"what" as a noun': r"(?<![?])\b[Ww]hat (?:is|was|are|were|has|had|it|they|a|an|the|this|that|each|no|one|nobody|"
    r"somebody|Triton|torch|jax|Silo|comes|goes|makes|needs|runs|takes|gives|says|depends|belongs|follows|[a-z]+ed|[a-z]+s)\b"
    r"(?![^.;\n]*\?)",
    '"who" as a noun': r"(?:^|[ (])[Ww]ho (?:is|was|has|had|wants|asks|reads|writes|runs|knows|looks|waits|needs|takes|"
    r"[a-z]+s)\b(?<!those who)",
    '"that of" for a noun': r"\b(?:that|those|the one|the ones) of\b|\bone that\b|\bof (?:its|their) own making\b",
    '", for" as because': r"[a-z], for (?:it|they|the|a|an|this|that|no|there|each|what|some|other)\b",
    '"where" as if': r"(?:^|[.;] )Where [a-z]|, where (?:it|they|there|that|nothing|none|one|no)\b",
    '"is no", "is none"': r"\b(?:is|are|was|has|have) (?:no|none|nothing|nobody)\b(?! longer)|\bnobody\b|\bno more\b",
    '"such a"': r"\bsuch (?:a|an|[a-z]+s)\b(?! as)",
    "speaking code": r"\b(?:says|tells|asks|knows|told|asked|said) "
    r"(?:so|of|what|which|whether|how|it|them|for|by|nothing|the same)\b",
    '"comes to", "makes of"': r"\bcomes? to\b|\bmake[s]? of\b|\bgoes by\b|\bgo by\b|\bstands? (?:for|in|beside)\b|"
    r"\bto (?:be had|do with)\b",
}
_PATTERNS = {name: re.compile(pattern, re.MULTILINE) for name, pattern in HABITS.items()}
_DIRECTIVE = re.compile(r"#\s*(noqa|pyright|type|pragma|ruff|!)")


@dataclass(frozen=True)
class Hit:
    """A text with habits: the line at which it begins, the number of hits of each habit, and the text."""

    line: int
    habits: Counter[str]
    text: str


@dataclass(frozen=True)
class Count:
    """The number of words of a file, and its hits."""

    words: int
    hits: tuple[Hit, ...]

    @property
    def total(self) -> int:
        """The number of habits in all hits."""
        return sum(hit.habits.total() for hit in self.hits)

    @property
    def per_thousand(self) -> float:
        """The number of habits for each 1,000 words."""
        return 1000 * self.total / max(1, self.words)


def python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of Python source, each with its line; nothing if the source does not parse."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                written = ast.get_docstring(node, clean=True)
                if written:
                    yield getattr(node, "lineno", 1), written
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
                yield token.start[0], token.string.lstrip("# ")
    except (SyntaxError, tokenize.TokenError):
        return


def markdown_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside fenced blocks, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def c_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of C, C++ or Rust source, each with its line."""
    for match in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL):
        yield text.count("\n", 0, match.start()) + 1, match[0].strip("/* ")


READERS = {".py": python_texts, ".pyi": python_texts, ".md": markdown_texts} | dict.fromkeys(
    (".c", ".h", ".hpp", ".cc", ".rs"), c_texts
)


def counted(suffix: str, text: str) -> Count:
    r"""Counts the habits of a file's text. Pure.

    >>> counted(".md", "It says what is kept.\n").per_thousand
    400.0
    """
    words, hits = 0, []
    for line, part in READERS[suffix](text):
        words += len(re.findall(r"[A-Za-z]{2,}", part))
        habits = Counter({name: len(pattern.findall(part)) for name, pattern in _PATTERNS.items()})
        if habits.total():
            hits.append(Hit(line, +habits, " ".join(part.split())))
    return Count(words, tuple(hits))


def main() -> None:
    """Print the warnings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--lines", type=int, default=3)
    options = parser.parse_args()
    paths = [
        path
        for given in options.paths or (ROOT / name for name in changed_files(ROOT))
        for path in (sorted(given.rglob("*")) if given.is_dir() else [given])
        if path.suffix in READERS and path.is_file()
    ]
    words = total = 0
    for path in paths:
        count = counted(path.suffix, path.read_text(encoding="utf-8"))
        words, total = words + count.words, total + count.total
        if not count.hits:
            continue
        shown = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        print(f"warning: {shown}: {count.total} obscure turns, {count.per_thousand:.1f} for 1,000 words")
        for hit in sorted(count.hits, key=lambda hit: -hit.habits.total())[: options.lines]:
            print(f"  {hit.line}: {', '.join(hit.habits)}: {hit.text[:160]}")
    print(f"{len(paths)} files, {words} words, {1000 * total / max(1, words):.1f} obscure turns for 1,000 words")


if __name__ == "__main__":
    main()
