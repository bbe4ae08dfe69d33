"""Makes valid and unique C and C++ identifiers from arbitrary names, the same on every run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from silo.core.values import DType, Value

__all__ = ["Names", "comment_text", "identifier", "joined", "string_literal", "word_of"]

# Keywords of C23 and C++20, their alternative tokens, and macros of compilers and common headers.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if import inline int long module
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual
    void volatile wchar_t while xor xor_eq
    assert complex errno imaginary linux main major minor stderr stdin stdout unix std silo I EOF NULL NAN INFINITY
"""
_RESERVED = frozenset(_WORDS.split())


def identifier(text: str) -> str:
    """Returns an identifier that is valid in C and C++ for ``text``, or the text itself if it is valid.

    Different texts may give the same identifier.

    >>> identifier("add"), identifier("Norm.forward"), identifier("class"), identifier("2d"), identifier("größe")
    ('add', 'Norm_forward', 'class_', 'n2d', 'gr_f6_dfe')
    """
    plain = "".join(
        character if character.isascii() and (character.isalnum() or character == "_") else _spelled(character)
        for character in text
    )
    # C and C++ reserve names with two underscores in a row or with an underscore in front.
    plain = re.sub("_+", "_", plain).lstrip("_")
    if not plain or plain[0].isdigit():
        plain = f"n{plain}"
    return f"{plain}_" if plain in _RESERVED else plain


def _spelled(character: str) -> str:
    return "_" if character.isascii() else f"_{ord(character):x}"


def joined(*names: str) -> str:
    """Joins names to one identifier; different names give different results.

    >>> joined("demo", "class_", "warmup")
    'demo_class_warmup'
    """
    return re.sub("_+", "_", "_".join(names))


class Names:
    """The names that are taken in one scope."""

    def __init__(self, used_names: Iterable[str] = ()) -> None:
        self._used = set(used_names)

    def give(self, text: str) -> str:
        """Returns an identifier that is made from ``text`` and not taken yet; from then on it is taken.

        If necessary, a number from 2 is appended.

        >>> names = Names(["queue"])
        >>> names.give("queue"), names.give("a.b"), names.give("a_b")
        ('queue_2', 'a_b', 'a_b_2')
        """
        name = base_name = identifier(text)
        number = 2
        while name in self._used:
            name = f"{base_name.rstrip('_')}_{number}"
            number += 1
        self._used.add(name)
        return name


def word_of(value: Value) -> str:
    """Returns a word for a constant, from which an enumerator's name is made.

    >>> [word_of(value) for value in ("relu", "", None, True, 64, -1, 0.5)]
    ['relu', 'empty', 'none', 'true', '64', 'minus_1', '0.5']
    """
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case str():
            return value or "empty"
        case int() | float():
            return f"minus_{-value}" if value < 0 else str(value)
        case DType():
            return value.name
        case _:
            return type(value).__name__


def string_literal(text: str) -> str:
    r"""Returns an ASCII string literal of C and C++ with the UTF-8 bytes of ``text``.

    >>> print(string_literal('a"b\n??/é1'))
    "a\"b\012\?\?/\303\2511"
    """
    return '"' + "".join(map(_literal, text.encode("utf-8", "surrogateescape"))) + '"'


def _literal(byte: int) -> str:
    character = chr(byte)
    if character in '"\\?':
        return f"\\{character}"
    return character if " " <= character <= "~" else f"\\{byte:03o}"


def comment_text(text: str) -> str:
    r"""Returns one line of ASCII for a comment, without sequences that would end the comment.

    >>> print(comment_text("ends */ here\\\nand ??/ é"))
    ends * / here\nand ? ?/ \xe9
    """
    line = text.encode("ascii", "backslashreplace").decode().replace("\r", "").replace("\n", "n")
    line = "".join(character if " " <= character <= "~" else f"\\x{ord(character):02x}" for character in line)
    return line.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").rstrip("\\")
