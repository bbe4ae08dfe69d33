"""Which characters a name may have, whichever version of Unicode this Python knows."""

import sys
import unicodedata

from hidden_characters import HIDDEN


def test_what_is_hidden_is_printable_for_no_python():
    assert not [hex(code) for low, high in HIDDEN for code in range(low, high + 1) if chr(code).isprintable()]


def test_what_is_not_hidden_is_shown_or_not_known_yet():
    hidden = {code for low, high in HIDDEN for code in range(low, high + 1)}
    others = (chr(code) for code in range(sys.maxunicode + 1) if code not in hidden)
    assert {unicodedata.category(one) for one in others if not one.isprintable()} <= {"Cn"}
