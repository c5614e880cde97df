"""`ringlog broker`: flags, file and environment become one configuration, or a named error."""

from pathlib import Path

import pytest

from ringlog.broker.config import BrokerConfig
from ringlog.tools.cli import broker, main
from ringlog.tools.cli.exits import Exit


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """Configurations that a broker was started with; its exit code is 7."""
    found: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        found.append(config)
        return 7

    monkeypatch.setattr(broker, "run", run)
    for name in ("RINGLOG_LISTEN", "RINGLOG_BOOTSTRAP_SERVERS", "RINGLOG_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_without_options_it_is_the_default(started: list[BrokerConfig]) -> None:
    assert main(["broker"]) == 7
    assert started == [BrokerConfig()]


def test_flags_win_over_the_environment_which_wins_over_the_file(
    started: list[BrokerConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('listen = "127.0.0.1:1"\ndata_dir = "file"\nrack = "r"\n')
    monkeypatch.setenv("RINGLOG_DATA_DIR", "environment")
    monkeypatch.setenv("RINGLOG_LISTEN", "127.0.0.1:2")
    assert main(["broker", "--config", str(path), "--listen", "127.0.0.1:3"]) == 7
    (config,) = started
    assert (config.listen, config.data_dir, config.rack) == ("127.0.0.1:3", "environment", "r")


def test_a_listener_beyond_this_machine_needs_insecure_and_a_wildcard_advertise(
    started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "--listen", "192.0.2.1:5555"]) == Exit.REFUSED
    assert "can be reached by other machines" in capsys.readouterr().err
    assert main(["broker", "--listen", "0.0.0.0:5555", "--insecure"]) == Exit.REFUSED
    assert "set advertise (--advertise HOST:5555)" in capsys.readouterr().err
    advertised = ("--insecure", "--advertise", "broker.example.org:5555")
    assert main(["broker", "--listen", "0.0.0.0:5555", *advertised]) == 7
    assert len(started) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lisen = 'x'", "did you mean listen?"),
        ("max_topics = true", "max_topics = True is true or false; it must be a whole number"),
        ("broken", "is no TOML"),
        ("rack = '\xff'", "is not UTF-8"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    started: list[BrokerConfig],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    said: str,
) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(text.encode("latin-1"))
    assert main(["broker", "--config", str(path)]) == Exit.REFUSED
    err = capsys.readouterr().err
    assert said in err
    assert str(path) in err or "max_topics" in err
    assert err.count("\n") == 1
    assert started == []


def test_a_file_that_is_not_there_is_bad_usage(
    started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "--config", "/nowhere"]) == Exit.USAGE
    assert "does not exist" in capsys.readouterr().err
    assert started == []
