"""Size, documentation and naming rules, over every source file and over planted violations."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.repo import tidy_rules
from tests.repo.source_tree import Source, assert_none, files, parse, product_sources, sources

Rule = Callable[[Source], list[str]]


@pytest.mark.parametrize("rule", tidy_rules.RULES, ids=lambda rule: rule.__name__)
def test_no_source_breaks_the_rule(rule: Rule) -> None:
    assert_none([line for source in sources() for line in rule(source)])


def missing_mirrors(modules: list[Source], present: set[str]) -> list[str]:
    """Unit test files that should be there and are not."""
    wanted = (tidy_rules.mirror_path(source) for source in modules)
    return [path for path in wanted if path is not None and path not in present]


def test_each_product_module_has_its_unit_test_file() -> None:
    assert_none(missing_mirrors(list(product_sources()), set(files())))


def test_a_module_without_its_unit_test_file_is_found() -> None:
    module = parse("storage/ghost.py", "def f(): ...")
    assert missing_mirrors([module], set(files())) == ["tests/unit/storage/test_ghost.py"]


def test_what_is_listed_as_unmirrored_exists_and_has_no_mirror() -> None:
    present = set(files())
    for path, reason in tidy_rules.UNMIRRORED.items():
        folder, _, name = path.partition("/")
        assert path in present
        assert f"tests/unit/{folder}/test_{name}" not in present
        assert len(reason) > 5


def shared_prefixes(modules: list[Source]) -> list[str]:
    """Invariant letters that two modules of a layer use: `F1` must name one sentence there."""
    owners = defaultdict(set)
    for source in modules:
        for letters, _ in tidy_rules.invariants(source):
            owners[source.folder, letters].add(source.path)
    return [f"{key[1]}: {sorted(paths)}" for key, paths in owners.items() if len(paths) > 1]


def test_invariant_letters_belong_to_one_module_each() -> None:
    assert_none(shared_prefixes(list(product_sources())))


def test_a_shared_invariant_letter_is_found() -> None:
    text = '"""X.\n\nInvariants:\n    F1  It holds.\n"""'
    twins = [parse("storage/one.py", text), parse("storage/two.py", text)]
    assert shared_prefixes(twins) == ["F: ['storage/one.py', 'storage/two.py']"]


LONG_FUNCTION = '"""X."""\ndef f():\n' + "    x = 1\n" * 60
PLANTED = [
    (tidy_rules.size_violations, "storage/log.py", '"""X."""\n' + "x = 1\n" * 500),
    (tidy_rules.size_violations, "tests/unit/test_x.py", LONG_FUNCTION),
    (tidy_rules.size_violations, "storage/log.py", LONG_FUNCTION.replace("def", "async def")),
    (tidy_rules.name_violations, "storage/utils.py", ""),
    (tidy_rules.name_violations, "client/common/names.py", ""),
    (tidy_rules.docstring_violations, "storage/log.py", "x = 1"),
    (tidy_rules.docstring_violations, "tests/unit/test_x.py", "x = 1"),
    (tidy_rules.docstring_violations, "storage/log.py", '"""X."""\ndef f(): ...'),
    (tidy_rules.docstring_violations, "broker/x.py", '"""X."""\nclass A:\n    def f(self): ...'),
    (tidy_rules.docstring_violations, "broker/x.py", '"""Invariants: none"""\ndef f(): ...'),
    (tidy_rules.silenced_check_violations, "broker/x.py", "x = 1  # " + "noqa"),
    (tidy_rules.silenced_check_violations, "broker/x.py", "x = 1  # " + "noqa: E501"),
    (tidy_rules.silenced_check_violations, "broker/x.py", "x = 1  # " + "type: ignore"),
    (tidy_rules.silenced_check_violations, "broker/x.py", "x = 1  # " + "type: ignore[arg-type]"),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_a_planted_violation_is_found(rule: Rule, path: str, text: str) -> None:
    assert rule(parse(path, text)) != []


STATED = '"""X.\n\nInvariants:\n    L1  It holds.\n"""\ndef f(): ...'
PROTOCOL = '"""X."""\nfrom typing import Protocol\nclass A(Protocol):\n    def f(self): ...'
ALLOWED = [
    ("storage/log.py", STATED),
    ("storage/errors.py", '"""X."""\nclass A(Exception):\n    def __init__(self): ...'),
    ("broker/replicator.py", PROTOCOL),
    ("broker/x.py", '"""X."""\nx = 1  # ' + "noqa: S101 the caller checked it"),
    ("broker/x.py", '"""X."""\n# The caller checked it.\nx = 1  # ' + "noqa: S101"),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert [line for rule in tidy_rules.RULES for line in rule(parse(path, text))] == []
