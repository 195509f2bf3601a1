"""Setting a key to a value that means something: what the rooms beside ``config`` know of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from agentcli.config.edit import Written, set_value
from agentcli.config.keys import find_key, split_key
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.policy.decision import Policy, parse_rule
from agentcli.providers.models.table import resolve
from agentcli.tools.common.registry import Registry


def set_setting(paths: Paths, name: str, text: str) -> Written:
    """``set_value`` for what has to mean something here: rules, tools, models.

    A model of an unknown provider is a warning: it may be set up afterwards. Raises
    ``UsageError`` and ``ConfigError`` as ``set_value`` does.
    """
    key, warnings = find_key(split_key(name)), []
    try:
        value = None if key is None else key.parse(text)
    except ValueError:  # told by what follows
        value = None
    words = [str(word) for word in (value if isinstance(value, list) else [value]) if word]
    if name.startswith("permissions."):
        for word in words:
            parse_rule(word)
    elif name == "tools.off":
        Registry.builtin(None, words)
    elif name in {"model", "small_model", "fallback_models"}:
        warnings = list(_problems(words, paths))
    written = set_value(paths, name, text)
    return written._replace(warnings=written.warnings or tuple(warnings))


def wrong_rule(settings: Settings) -> UsageError | None:
    """What is set as a permission rule and is none, so that nothing starts."""
    for kind in ("allow", "deny", "ask"):
        source = settings.sources.get(f"permissions.{kind}", "")
        try:
            Policy().add_rules(kind, getattr(settings, kind), source)
        except UsageError as error:
            return error
    return None


def check_settings(paths: Paths) -> None:
    """Raise ``AgentError`` for a user's file with which nothing starts."""
    if (wrong := wrong_rule(load_settings(paths, {}))) is not None:
        raise wrong


def _problems(models: Sequence[str], paths: Paths) -> Iterator[str]:
    """What is wrong with ``models``; raises ``ConfigError`` for what can be none."""
    try:
        providers: Collection[str] = load_settings(paths, {}).providers
    except ConfigError:  # a file that is being repaired
        providers = ()
    for name in models:
        try:
            resolve(name, providers)
        except ConfigError as error:
            if "/" not in name:
                raise
            yield str(error)
