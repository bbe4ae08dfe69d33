"""Prints native/core/manifest_members.h: the members of a manifest's objects, for the native reader.

They come from the fields that declare them, in `silo.bundle.contents` and in the values of the manifest's tables.
``python scripts/manifest_members.py`` updates the header; ``--check`` only checks whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from silo.bundle.contents import TABLES, BundleContents, BundleKernel, BundleRules, BundleVariant, entry_members
from silo.bundle.format import LAYOUTS_MINOR, MAJOR, MEMBERS_MINOR
from silo.core.config import Config
from silo.core.dispatch import DispatchRules
from silo.core.extents import LAYOUT_MEMBERS, Extents
from silo.core.json_reader import Form, members_of
from silo.core.launch_info import LaunchInfo, TensorMap
from silo.core.recorded_plans import RecordedArgument, RecordedForm, RecordedLaunch, RecordedPlan
from silo.core.signature import Parameter
from silo.core.specialization import Specialization
from silo.frozen import Field


class Member(NamedTuple):
    """One member of a JSON object; ``check`` names the native reader's check of its value, "" without one."""

    name: str
    since: int = 0
    left_out: bool = False
    check: str = ""

    @classmethod
    def of(cls, form: object, field: Field) -> Member:
        """Return the member that a field declares."""
        check = form.check if isinstance(form, Form) else ""
        if check == "FLAG" and field.default is not False:
            raise SystemExit(f"{field.member}: a flag of the manifest is False by default, and left out then")
        return cls(field.member, field.since, field.left_out, check)


HEADER = Path(__file__).resolve().parent.parent / "native" / "core" / "manifest_members.h"


def plain_members(*names: str) -> list[Member]:
    """Return members that are always present."""
    return [Member(name) for name in names]


ADDED = plain_members("blobs", "format", "tables")  # members that the writer adds to the contents of a bundle

BEGIN = """/* The members of a manifest's objects: names, and the minor version of the format that added each.
 *
 * Printed by python scripts/manifest_members.py from the fields that declare them
 * (silo.bundle.contents, silo.core); scripts/check compares. */
#ifndef SILO_MANIFEST_MEMBERS_H
#define SILO_MANIFEST_MEMBERS_H

#include "base.h"

/* clang-format off */

/* How silo_check_members checks a member. The reader's own code checks the values that it uses. */
enum silo_member_check {
    SILO_CHECK_NONE,
    SILO_CHECK_TEXT, /* a text of at most 65,536 characters */
    SILO_CHECK_NAME, /* a text that is printable, not empty, at most 1,024 characters */
    SILO_CHECK_FLAG, /* true; a member that is false must be left out */
};

struct silo_member {
    const char *name;
    uint8_t since; /* the minor version that added it; 0: every version has it */
    uint8_t check; /* enum silo_member_check */
};

/* The members of a JSON object: the first `required` of the `count` members are always present, the
 * others may be left out. */
struct silo_member_list {
    uint8_t required, count;
    const struct silo_member *members;
};
"""
END = "/* clang-format on */\n\n#endif\n"


def own_members(cls: type, *without: str) -> list[Member]:
    """Return the JSON members of a value in the order of its fields, which is also the order of error messages."""
    return [Member(one.member, one.since, one.left_out) for one in members_of(cls) if one.member not in without]


def object_members(cls: type) -> list[Member]:
    """Return the members of an object of the manifest, sorted by name as in a file."""
    members = [Member.of(one.form, one.field) for one in entry_members(cls)]
    return sorted(members + (ADDED if cls is BundleContents else []), key=lambda member: member.name)


def printed_list(name: str, about: str, members: Iterable[Member], *, strict: bool) -> str:
    """Return the C text of a list of members and the enumeration of their numbers, required members first.

    ``strict``: a file of an older version must not have newer members. Otherwise the reader of the value compares
    versions itself, with the constants ``..._SINCE``.
    """
    required = [member for member in members if not member.left_out]
    optional = sorted((member for member in members if member.left_out), key=lambda member: member.since)
    ordered = required + optional
    numbers = "".join(f"    SILO_{name}_{member.name.upper()},\n" for member in ordered)
    rows = "".join(
        f'    {{"{one.name}", {one.since if strict else 0}, SILO_CHECK_{one.check or "NONE"}}},\n' for one in ordered
    )
    since = "".join(
        f"    SILO_{name}_{member.name.upper()}_SINCE = {member.since},\n" for member in optional if member.since
    )
    return (
        f"\n/* The JSON members of {about}; required members first. */\n"
        f"enum silo_{name.lower()}_member {{\n{numbers}    SILO_{name}_MEMBERS\n}};\n"
        + (f"enum {{\n{since}}};\n" if since else "")
        + f"static const struct silo_member SILO_{name}_NAMES[SILO_{name}_MEMBERS] = {{\n{rows}}};\n"
        + f"static const struct silo_member_list SILO_{name}_LIST = "
        + f"{{{len(required)}, SILO_{name}_MEMBERS, SILO_{name}_NAMES}};\n"
    )


def header() -> str:
    """Return the text of the whole header."""
    strict = (
        ("TOP", "the manifest", object_members(BundleContents)),
        ("KERNEL", "a kernel", object_members(BundleKernel)),
        ("VARIANT", "a variant", object_members(BundleVariant)),
        ("RULES", "an entry of a kernel's list `rules`", object_members(BundleRules)),
    )
    values = (
        ("PARAM", "a parameter of a signature", own_members(Parameter)),
        ("SPECIALIZATION", "a specialization", own_members(Specialization)),
        ("ARRAY", "the extents of an array", own_members(Extents)),
        ("PASSED", "a dynamic layout of an array", plain_members(*LAYOUT_MEMBERS)),
        ("CONFIG", "a config", own_members(Config)),
        ("LAUNCH", "launch info (besides compilers' launch options)", own_members(LaunchInfo, "options")),
        ("MAP", "a tensor map", own_members(TensorMap)),
        ("DISPATCH", "dispatch rules", own_members(DispatchRules)),
        ("STEP", "a plan", own_members(RecordedPlan)),
        ("STEP_FORM", "a form (certain argument types) of a plan", own_members(RecordedForm)),
        ("STEP_ARGUMENT", "an argument of a plan", own_members(RecordedArgument)),
        ("STEP_LAUNCH", "a launch of a plan", own_members(RecordedLaunch)),
    )
    newest = max(LAYOUTS_MINOR, MEMBERS_MINOR, *(one.since for _, _, members in (*strict, *values) for one in members))
    tables = "".join(f"    SILO_TABLE_{name.upper()},\n" for name in TABLES)
    rows = "".join(f'    {{"{name}", 0, SILO_CHECK_NONE}},\n' for name in TABLES)
    return "".join(
        [
            BEGIN,
            "\n/* The newest version of the format; the minor version that added structs and dynamic layouts. */\n",
            f"enum {{ SILO_MAJOR = {MAJOR}, SILO_MINOR = {newest}, SILO_LAYOUTS_MINOR = {LAYOUTS_MINOR} }};\n",
            f"enum {{ SILO_MEMBERS_MINOR = {MEMBERS_MINOR} }}; /* the minor version that added structs by value */\n",
            "\n/* The manifest's tables, whose rows kernels and variants refer to by number. */\n",
            f"enum silo_table_kind {{\n{tables}    SILO_TABLES\n}};\n",
            f"static const struct silo_member SILO_TABLE_NAMES[SILO_TABLES] = {{\n{rows}}};\n",
            "static const struct silo_member_list SILO_TABLE_LIST = {SILO_TABLES, SILO_TABLES, SILO_TABLE_NAMES};\n",
            *(printed_list(*one, strict=True) for one in strict),
            *(printed_list(*one, strict=False) for one in values),
            "\n",
            END,
        ]
    )


def main() -> int:
    """Write the header; with ``--check`` only compare, and return 1 if it differs."""
    text = header()
    if "--check" in sys.argv[1:]:
        return int(not HEADER.exists() or HEADER.read_text(encoding="utf-8") != text)
    HEADER.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
