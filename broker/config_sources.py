"""Where settings come from: TOML text, then the environment, then flags.

Owns precedence, names and conversions. Must not know what a setting means, and reads no file:
the caller brings the text.

Invariants:
    S1  A later source wins, setting by setting.
    S2  A name that no setting has is refused, with the nearest name that exists.
    S3  TOML values keep their type (`"1"` is no number); environment values are texts and are
        converted by the type of the setting.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping

from ringlog.broker.config import BrokerConfig, ConfigError, setting_names, setting_types

PREFIX = "RINGLOG_"

CLIENT_VARIABLES = frozenset({"RINGLOG_BOOTSTRAP_SERVERS", "RINGLOG_DEBUG", "RINGLOG_TEST_LOGS"})
"""Variables of clients, commands and tests, which a broker's environment may hold too."""

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def build_config(
    *,
    toml: str = "",
    toml_name: str = "the configuration file",
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> BrokerConfig:
    """Merge all sources into one configuration.

    Args:
        toml: text of the file, or "" for none.
        toml_name: path of the file, for messages.
        environment: all variables of the process; only `RINGLOG_*` is looked at.
        flags: settings by name, as typed by the command line; None means not given.

    Raises:
        ConfigError: unknown name, wrong type, value outside its limits, unusable combination.
    """
    values: dict[str, object] = {}
    values.update(_from_toml(toml, toml_name))
    values.update(_from_environment(environment))
    given = {name: value for name, value in flags.items() if value is not None}
    for name in given:
        _check_name(name, f"flag --{name.replace('_', '-')}")
    values.update(given)
    return BrokerConfig(**values)  # type: ignore[arg-type]  # BrokerConfig checks each type itself


def _from_toml(text: str, source: str) -> dict[str, object]:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source} is no TOML: {error}") from error
    for name in table:
        _check_name(name, f"{name} in {source}")
    return table


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    types = setting_types()
    values: dict[str, object] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in CLIENT_VARIABLES:
            continue
        name = variable.removeprefix(PREFIX).lower()
        _check_name(name, f"environment variable {variable}", spelled=lambda n: PREFIX + n.upper())
        values[name] = _converted(variable, environment[variable], types[name])
    return values


def _converted(variable: str, text: str, kind: type) -> object:
    if kind is bool:
        lowered = text.strip().lower()
        if lowered in _TRUE or lowered in _FALSE:
            return lowered in _TRUE
        raise ConfigError(f"{variable} = {text!r} is neither true nor false")
    if kind is int:
        try:
            return int(text, 10)
        except ValueError as error:
            raise ConfigError(f"{variable} = {text[:80]!r} is no whole number") from error
    return text


def _check_name(name: str, where: str, *, spelled: Callable[[str], str] = str) -> None:
    names = setting_names()
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    raise ConfigError(
        f"{where} is no setting",
        hint=f"did you mean {spelled(near[0])}?" if near else "docs/settings.md lists all settings",
    )
