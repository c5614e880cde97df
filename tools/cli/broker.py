"""`ringlog broker`: run one broker in this process.

Owns the flags. Must not know what a setting means: `broker.config` does.
"""

import os
from pathlib import Path

import click

from ringlog.broker.config import ConfigError
from ringlog.broker.config_sources import build_config
from ringlog.broker.server import run


@click.command(name="broker")
@click.option("--listen", metavar="HOST:PORT", help="Address for clients. Default 127.0.0.1:5555.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="Address told to clients. Default: --listen."
)
@click.option("--data-dir", metavar="DIR", help="All data. Default ./ringlog-data, made if absent.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of settings; docs/settings.md lists them. Environment and flags win over it.",
)
@click.option("--insecure", is_flag=True, help="Allow a listener that other machines can reach.")
@click.option("--ready-file", metavar="FILE", help="Gets HOST:PORT once requests are served.")
def command(
    listen: str | None,
    advertise: str | None,
    data_dir: str | None,
    config_file: Path | None,
    *,
    insecure: bool,
    ready_file: str | None,
) -> int:
    """Run a standalone broker until SIGTERM or Ctrl-C.

    Example: ringlog broker --listen 127.0.0.1:5555 --data-dir ./ringlog-data
    """
    config = build_config(
        toml=_text_of(config_file) if config_file else "",
        toml_name=str(config_file),
        environment=os.environ,
        flags={
            "listen": listen,
            "advertise": advertise,
            "data_dir": data_dir,
            "insecure": insecure or None,
            "ready_file": ready_file,
        },
    )
    return run(config)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
