"""`ringlog bench` as it is typed: what is measured, what is printed."""

import json
from pathlib import Path

import pytest

from ringlog.tools.bench import latency, produce
from ringlog.tools.bench.spread import Spread
from ringlog.tools.cli import main
from ringlog.tools.cli.exits import Exit

RATES = Spread(1000.0, 2000.0, 3000.0)
RATIO = Spread(0.5, 0.625, 0.75)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, dict[str, int]]]:
    """What was asked for; the figures are made up."""
    asked: list[tuple[Path | None, dict[str, int]]] = []

    def produce_figures(folder: Path | None, **values: int) -> produce.ProduceFigures:
        asked.append((folder, values))
        return produce.ProduceFigures(
            values["records"], values["value_bytes"], values["batch_records"], values["runs"],
            RATES, RATES, RATIO,
        )  # fmt: skip

    def latency_figures(folder: Path | None, **values: int) -> latency.LatencyFigures:
        asked.append((folder, values))
        return latency.LatencyFigures(values["blocks"] * 100, RATES, RATES, RATES, RATES, RATIO)

    monkeypatch.setattr(produce, "measure", produce_figures)
    monkeypatch.setattr(latency, "measure", latency_figures)
    return asked


def test_produce_prints_rates_and_the_ratio(
    measured: list[tuple[Path | None, dict[str, int]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "produce"]) == Exit.DONE
    defaults = {"records": 1_000_000, "value_bytes": 100, "batch_records": 1024, "runs": 5}
    assert measured == [(None, defaults)]
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    assert ["ringlog, records/s", "1,000", "2,000", "3,000"] in rows
    assert ["ratio, pair by pair", "0.50", "0.62", "0.75"] in rows


def test_produce_as_json_says_with_what_it_was_measured(
    measured: list[tuple[Path | None, dict[str, int]]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    options = ["--records", "10", "--value-bytes", "0", "--batch-records", "2", "--runs", "1"]
    assert main(["bench", "produce", *options, "--data-dir", str(tmp_path), "--json"]) == Exit.DONE
    values = {"records": 10, "value_bytes": 0, "batch_records": 2, "runs": 1}
    assert measured == [(tmp_path, values)]
    found = json.loads(capsys.readouterr().out)
    assert found.items() >= values.items()
    assert found["ratio"] == list(RATIO)
    assert {"ringlog_version", "python", "libzmq", "kernel"} <= found.keys()


def test_latency_prints_microseconds_and_the_ratio(
    measured: list[tuple[Path | None, dict[str, int]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "latency", "--blocks", "2"]) == Exit.DONE
    assert measured == [(None, {"blocks": 2})]
    out = capsys.readouterr().out
    assert "200 lone records" in out
    assert "ratio of p50 to the sum" in out
    assert main(["bench", "latency", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["p50"] == list(RATES)


@pytest.mark.parametrize(
    "typed",
    ["produce --records 0", "produce --runs 0", "produce --value-bytes -1", "latency --blocks 0",
     "produce --batch-records 65537", "produce --data-dir /nowhere", "sideways"],
)  # fmt: skip
def test_usage(measured: list[tuple[Path | None, dict[str, int]]], typed: str) -> None:
    assert main(["bench", *typed.split()]) == Exit.USAGE
    assert measured == []
