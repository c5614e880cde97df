"""The documents: decisions in order, no path of one machine, nothing but the project itself."""

import re
from pathlib import Path

import pytest

from tests.repo.source_tree import ROOT, assert_none, files, sources

DECISION_NAME = re.compile(r"^(\d{4})-[a-z0-9]+(-[a-z0-9]+)*\.md$")
DECISION_PARTS = ("## Context", "## Decision", "## Rejected", "## Consequence")
MAX_DECISION_LINES = 70

# Spelled in pieces, so that this file does not break its own rule.
MACHINE_PATHS = re.compile(
    "|".join([r"/work" + r"/[a-z.]", r"/ro" + r"ot/", r"/ho" + r"me/[a-z]", r"/tmp/" + r"team"])
)
TEXT_ENDINGS = {".py", ".md", ".cfg", ".toml", ".bash", ".pyi", ".txt", ""}


def decision_violations(names: list[str], texts: dict[str, str]) -> list[str]:
    """What is wrong with the numbering and the parts of the decision records."""
    found = []
    for expected, name in enumerate(sorted(names), 1):
        match = DECISION_NAME.match(name)
        if match is None or int(match[1]) != expected:
            found.append(f"{name}: expected {expected:04d}-some-words.md")
            continue
        lines = texts[name].splitlines()
        if not lines or not re.match(rf"# {match[1]}: \S", lines[0]):
            found.append(f"{name}: the first line is not '# {match[1]}: title'")
        if [line for line in lines if line.startswith("## ")] != list(DECISION_PARTS):
            found.append(f"{name}: its parts are not {', '.join(DECISION_PARTS)}")
        if len(lines) > MAX_DECISION_LINES:
            found.append(f"{name}: {len(lines)} lines; a record is one page")
    return found


def test_decisions_are_numbered_without_a_gap_and_have_their_parts() -> None:
    folder = ROOT / "docs/decisions"
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(texts) >= 5
    assert_none(decision_violations(list(texts), texts))


GOOD_DECISION = "# 0001: A title\n\n## Context\n\n## Decision\n\n## Rejected\n\n## Consequence\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("0002-a-gap.md", GOOD_DECISION.replace("0001", "0002")),
        ("1-short-number.md", GOOD_DECISION),
        ("0001-Capital.md", GOOD_DECISION),
        ("0001-no-title.md", GOOD_DECISION.removeprefix("# 0001: A title")),
        ("0001-other-number.md", GOOD_DECISION.replace("0001", "0003")),
        ("0001-no-rejected.md", GOOD_DECISION.replace("## Rejected\n\n", "")),
        ("0001-too-long.md", GOOD_DECISION + "x\n" * 80),
    ],
)
def test_a_decision_out_of_order_is_found(name: str, text: str) -> None:
    assert decision_violations([name], {name: text}) != []


def test_a_good_decision_passes() -> None:
    assert decision_violations(["0001-a-title.md"], {"0001-a-title.md": GOOD_DECISION}) == []


def machine_paths(name: str, text: str) -> list[str]:
    """Lines that name a folder of one machine."""
    return [
        f"{name}:{number}: {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]


def test_no_file_names_a_path_of_one_machine() -> None:
    found = []
    for name in files():
        if Path(name).suffix in TEXT_ENDINGS and name != "LICENSE":
            found += machine_paths(name, (ROOT / name).read_text(encoding="utf-8"))
    assert_none(found)


@pytest.mark.parametrize(
    "folder", ["wo" + "rk/x", "ro" + "ot/x", "ho" + "me/someone", "tmp/" + "team"]
)
def test_a_path_of_one_machine_is_found(folder: str) -> None:
    assert machine_paths("x.py", f"open('/{folder}')") != []


LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def broken_links(name: str, text: str) -> list[str]:
    """Relative links of a document that lead nowhere."""
    return [
        f"{name}: {target[0]}"
        for target in LINK.findall(text)
        if not ((ROOT / name).parent / target[0]).exists()
    ]


def test_each_link_of_each_document_leads_somewhere() -> None:
    documents = [name for name in files() if name.endswith(".md")]
    assert {"README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/proof.md"} <= set(documents)
    assert_none(
        [line for name in documents for line in broken_links(name, (ROOT / name).read_text())]
    )


def test_a_link_to_nowhere_is_found() -> None:
    assert broken_links("README.md", "[x](docs/nowhere.md)") == ["README.md: docs/nowhere.md"]


NAMED_PATH = re.compile(
    r"`((?:storage|client|broker|registry|replication|tools|tests|docs)/[\w./-]+)`"
)


def missing_paths(name: str, text: str) -> list[str]:
    """Files and folders of this repository that a document names and that do not exist."""
    return [f"{name}: {path}" for path in NAMED_PATH.findall(text) if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", ["README.md", "docs/ARCHITECTURE.md"])
def test_each_path_named_in_the_guides_exists(name: str) -> None:
    assert_none(missing_paths(name, (ROOT / name).read_text()))


def test_a_missing_path_is_found() -> None:
    assert missing_paths("README.md", "see `storage/ghost.py`") == ["README.md: storage/ghost.py"]


NAMED_DOCUMENT = re.compile(r"(?<![\w/.-])(?:docs/)?([A-Za-z][\w-]*\.md)\b")


def missing_documents(name: str, text: str) -> list[str]:
    """Documents that a source names and that are neither under docs/ nor at the root."""
    return [
        f"{name}: {document}"
        for document in NAMED_DOCUMENT.findall(text)
        if not ((ROOT / "docs" / document).exists() or (ROOT / document).exists())
    ]


def test_each_document_that_a_source_names_exists() -> None:
    own = "tests/repo/"
    found = [
        line
        for source in sources()
        if not source.path.startswith(own)
        for line in missing_documents(source.path, source.text)
    ]
    assert_none(found)


def test_a_missing_document_is_found() -> None:
    text = "see ghost.md, docs/ghost.md, docs/modules.md and README.md"
    assert missing_documents("storage/log.py", text) == ["storage/log.py: ghost.md"] * 2


def missing_tests(text: str, present: set[str], functions: set[str]) -> list[str]:
    """Test files and functions that a text names and that do not exist."""
    paths = set(re.findall(r"\btests/[\w/]+\.py\b", text)) - present
    # `test_a_cut_...` stands for every test that begins so.
    named = set(re.findall(r"::(test_\w+)", text))
    names = {name for name in named - functions if not (name.endswith("_") and
             any(function.startswith(name) for function in functions))}  # fmt: skip
    return sorted(paths | names)


def test_each_test_that_the_proof_names_exists() -> None:
    text = (ROOT / "docs/proof.md").read_text()
    functions = {
        name for source in sources() for name in re.findall(r"\bdef (test_\w+)", source.text)
    }
    assert_none(missing_tests(text, set(files()), functions))


def test_a_proof_that_names_a_missing_test_is_found() -> None:
    text = "tests/unit/test_ghost.py::test_gone, tests/unit/test_a.py::test_there"
    found = missing_tests(text, {"tests/unit/test_a.py"}, {"test_there"})
    assert found == ["test_gone", "tests/unit/test_ghost.py"]
