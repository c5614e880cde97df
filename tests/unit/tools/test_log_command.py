"""`ringlog log` as it is typed: output and exit codes."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringlog.tools.cli import main
from ringlog.tools.cli.exits import Exit
from ringlog.tools.cli.log import command
from tests.unit.tools.data_dir_on_disk import contents, flip, registry, stopped


def run(*arguments: object) -> tuple[int, Result]:
    """Exit code and output of `ringlog log` with `arguments`."""
    result = CliRunner().invoke(command, [str(one) for one in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    stopped(tmp_path / "data", partitions=2)
    return tmp_path / "data"


def segments(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "orders-0").glob("*.log"))


def test_dump_shows_batches_of_each_segment(data_dir: Path) -> None:
    code, result = run("dump", data_dir / "orders-0")
    assert code == Exit.DONE
    names = [line for line in result.stdout.splitlines() if line.endswith(".log")]
    assert names == [str(path) for path in segments(data_dir)]
    assert len(names) > 1


def test_dump_shows_records_in_offset_order(data_dir: Path) -> None:
    code, result = run("dump", "--records", data_dir / "orders-0")
    assert code == Exit.DONE
    rows = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
    assert [int(row[0]) for row in rows] == list(range(12))
    assert [row[3][:3] for row in rows] == [f"{i:03d}" for i in range(12)]


@pytest.mark.parametrize(
    ("options", "key", "count"), [((), "base_offset", 4), (("--records",), "offset", 12)]
)
def test_dump_as_json_is_an_object_per_line(
    data_dir: Path, options: tuple[str, ...], key: str, count: int
) -> None:
    code, result = run("dump", "--json", *options, data_dir / "orders-0")
    assert code == Exit.DONE
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == count
    assert all(key in row and row["file"].endswith(".log") for row in rows)


def test_dump_names_damage_and_goes_on_with_the_next_file(data_dir: Path) -> None:
    first, *rest = segments(data_dir)
    flip(first, 100)
    code, result = run("dump", data_dir / "orders-0")
    assert code == Exit.DAMAGED
    assert f"{first} at byte 0: the CRC-32C is" in result.stderr
    assert all(str(path) in result.stdout for path in rest)


def test_verify_of_a_whole_directory(data_dir: Path) -> None:
    before = contents(data_dir)
    code, result = run("verify", data_dir)
    assert code == Exit.DONE
    assert re.fullmatch(
        r"2 partitions, 8 batches, 24 records, \d+ bytes read: no damage\n", result.stdout
    )
    assert contents(data_dir) == before


def test_verify_names_file_byte_and_offsets_of_damage(data_dir: Path) -> None:
    path = segments(data_dir)[1]
    flip(path, 100)
    before = contents(data_dir)
    code, result = run("verify", data_dir)
    assert code == Exit.DAMAGED
    line = result.stdout.splitlines()[0]
    assert re.fullmatch(
        rf"damage: {path} at byte 0: the CRC-32C .*; offsets 3 to 6 \(exclusive\) are lost", line
    )
    assert "damage in 1" in result.stdout
    assert contents(data_dir) == before


def test_verify_as_json(data_dir: Path) -> None:
    path = segments(data_dir)[1]
    flip(path, 100)
    code, result = run("verify", "--json", data_dir)
    assert code == Exit.DAMAGED
    found = json.loads(result.stdout)
    assert found["damaged"] is True
    _root, verdict, other = found["verdicts"]
    assert (verdict["path"], verdict["damaged"]) == (str(data_dir / "orders-0"), True)
    assert (other["damaged"], other["records"], other["end_offset"]) == (False, 12, 12)
    damage = [one for one in verdict["findings"] if one["severity"] == "damage"]
    assert [(one["file"], one["position"]) for one in damage] == [(path.name, 0)]
    assert (damage[0]["first_offset"], damage[0]["end_offset"]) == (3, 6)


def test_a_dry_run_says_what_it_would_drop_and_changes_nothing(data_dir: Path) -> None:
    flip(segments(data_dir)[1], 100)
    before = contents(data_dir)
    code, result = run("verify", "--repair", "--dry-run", data_dir)
    assert code == Exit.DAMAGED
    assert "not repaired:" in result.stdout
    assert "LOSES offsets 3 to 12 (exclusive), 9 records" in result.stdout
    assert contents(data_dir) == before


def test_a_repair_cuts_keeps_a_copy_and_leaves_no_damage(data_dir: Path) -> None:
    path = segments(data_dir)[1]
    flip(path, 100)
    damaged = path.read_bytes()
    code, result = run("verify", "--repair", data_dir)
    assert code == Exit.DONE
    assert "\nrepaired:\n" in result.stdout
    copy = path.with_name(f"{path.name}.damaged-0")
    assert f"to {copy.name}, then cuts them" in result.stdout
    assert copy.read_bytes() == damaged
    code, result = run("verify", data_dir)
    assert code == Exit.DONE
    assert "is what a repair has cut" in result.stdout
    code, result = run("dump", "--records", data_dir / "orders-0")
    assert [line.split("\t")[0] for line in result.stdout.splitlines()[1:]] == ["0", "1", "2"]


def test_a_repair_as_json_says_what_was_done(data_dir: Path) -> None:
    flip(segments(data_dir)[1], 100)
    code, result = run("verify", "--repair", "--json", data_dir)
    assert code == Exit.DONE
    found = json.loads(result.stdout)
    assert found["damaged"] is False
    (repair,) = found["repairs"]
    assert repair["done"] is True
    assert any("LOSES offsets 3 to 12" in line for line in repair["plan"])


def test_lost_marks_are_made_again_by_a_repair(data_dir: Path) -> None:
    (data_dir / "durable-marks").unlink()
    code, result = run("verify", data_dir)
    assert code == Exit.DAMAGED
    assert "durable-marks: is missing" in result.stdout
    assert run("verify", "--repair", data_dir)[0] == Exit.DONE
    assert run("verify", data_dir)[0] == Exit.DONE


def test_what_no_repair_can_bring_back_stays_damage(data_dir: Path) -> None:
    (data_dir / "orders-0" / "start-state").write_bytes(b"gone")
    registry(data_dir, partitions=3)
    code, result = run("verify", "--repair", data_dir)
    assert code == Exit.DAMAGED
    assert "cannot be repaired" in result.stdout
    assert f"{data_dir}/orders-2: is missing" in result.stdout


def test_dry_run_without_repair_is_bad_usage(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "verify", "--dry-run", str(data_dir)]) == Exit.USAGE
    assert "--dry-run belongs to --repair" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dump", "verify"])
def test_no_such_path_is_one_line_and_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["log", name, str(tmp_path / "nowhere")]) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"ringlog: {tmp_path / 'nowhere'}: No such file or directory\n"
