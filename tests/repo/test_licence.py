"""The licence is the one that the package metadata names."""

import configparser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_licence_text_is_the_one_named_in_the_metadata() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert settings["metadata"]["license"] == "Apache-2.0"
    text = (ROOT / settings["metadata"]["license_files"]).read_text()
    assert "Apache License" in text.splitlines()[0]
    assert "END OF TERMS AND CONDITIONS" in text
