"""Setting a key to a value that means something: what the rooms beside ``config`` know of it."""

from __future__ import annotations

from contextlib import suppress

from agentcli.config.edit import Written, set_value
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, find_key, load_settings
from agentcli.config.toml_file import split_key
from agentcli.domain.errors import ConfigError
from agentcli.policy.decision import parse_rule
from agentcli.providers.models.table import resolve


def set_setting(paths: Paths, name: str, text: str) -> Written:
    """``set_value`` for what has to mean something here: a rule must read as one.

    A model that means nothing is a warning: its provider may be set up afterwards. Raises
    ``UsageError`` and ``ConfigError`` as ``set_value`` does.
    """
    key = find_key(split_key(name))
    if name.startswith("permissions.") and key is not None:
        with suppress(ValueError):  # told by what follows
            rules = key.parse(text)
            for rule in rules if isinstance(rules, list) else ():
                parse_rule(rule)
    written = set_value(paths, name, text)
    if name in {"model", "fallback_models"} and not written.warnings:
        warnings = _unknown_models(written.value, load_settings(paths, {}))
        written = written._replace(warnings=warnings)
    return written


def _unknown_models(value: object, settings: Settings) -> tuple[str, ...]:
    warnings = []
    for name in value if isinstance(value, list) else [value]:
        try:
            resolve(str(name), settings.providers)
        except ConfigError as error:
            warnings.append(str(error))
    return tuple(warnings)
