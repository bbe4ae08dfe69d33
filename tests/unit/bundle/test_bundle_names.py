"""Which characters a name may have, whichever version of Unicode this Python knows."""

import sys
import unicodedata

from silo.bundle.checks import HIDDEN, is_shown


def test_what_is_hidden_is_printable_for_no_python():
    assert not [hex(code) for low, high in HIDDEN for code in range(low, high + 1) if chr(code).isprintable()]


def test_what_is_not_hidden_is_shown_or_not_known_yet():
    hidden = {code for low, high in HIDDEN for code in range(low, high + 1)}
    others = (chr(code) for code in range(sys.maxunicode + 1) if code not in hidden)
    assert {unicodedata.category(one) for one in others if not one.isprintable()} <= {"Cn"}


def test_names():
    assert is_shown("")
    assert is_shown("add ü \U0001f600")
    assert is_shown("\u0378")  # nobody has given it a meaning
    assert not any(is_shown(f"a{one}b") for one in "\0\n\x7f\u00a0\u202e\ue000\U000e0001\U0010ffff")
