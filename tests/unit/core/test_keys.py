"""Keys: each schema has one name, one meaning and one function."""
# pyright: reportOperatorIssue=false

import ast
from collections import Counter
from pathlib import Path

import silo
from fake_backend.measure import fake_study
from silo.core.device import DeviceModel
from silo.core.values import digest
from silo.core.variant import SCHEMAS, ceilings_key, effort_key, seeds_key, spills_key, studies_key

SOURCE = Path(silo.__file__).parent


def test_equal_data_under_two_schemas_has_two_keys():
    keys = [studies_key("a"), spills_key("a"), seeds_key("a"), effort_key("a"), studies_key("b")]
    keys += [ceilings_key(DeviceModel("cpu", "stub", "x86-64-v3", units, 0)) for units in (4, 8)]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)


def test_trials_are_kept_under_all_that_their_study_says():
    study = fake_study()
    assert study.key == digest("trial-key/1", study.to_json())
    assert study.key != fake_study(driver="another").key


def test_every_schema_of_a_key_has_one_meaning():
    """One call makes the keys of a schema: with two, entries of one kind could be taken for the other."""
    made, named = Counter(), Counter()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SCHEMAS:
                named[node.value] += 1
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "digest"):
                continue
            schema = node.args[0]
            assert isinstance(schema, ast.Constant), f"{path}:{node.lineno}: the schema is said where it is used"
            if "-key/" in schema.value:
                made[schema.value] += 1
    assert made == dict.fromkeys(SCHEMAS, 1)
    assert named == dict.fromkeys(SCHEMAS, 2)  # where the key is made, and in the list
