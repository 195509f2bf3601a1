"""What is known of a model, and which provider a bare name means.

Law: a figure that is not known is ``None``, never a guess; a model that is not in the table works
with careful defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import ModelInfo
from agentcli.providers._registry import BUILT_IN, is_provider, spec_of, unknown_provider
from agentcli.providers.models.table import MODELS

# Small windows are usual for models on one's own machine.
LOCAL_CONTEXT_TOKENS = 32_768
_FAMILIES = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt", "openai"),
    ("gemini", "gemini"),
    ("mistral", "mistral"),
    ("ministral", "mistral"),
    ("magistral", "mistral"),
    ("codestral", "mistral"),
    ("devstral", "mistral"),
    ("deepseek", "deepseek"),
    ("grok", "xai"),
)
_O_SERIES = re.compile(r"o\d(-|$)")
# What may follow a model's name without making it another model.
_SNAPSHOT = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))?(?:-v\d+)?(?::[\w.-]+)?$")
# Rows of the registry that lead to another row's models.
_SAME_MODELS = {"openai-responses": "openai"}
_VENDORS = {"google": "gemini", "mistralai": "mistral", "x-ai": "xai"}
_DOT_VERSION = re.compile(r"(?<=\d)\.(?=\d)")


@cache
def _table() -> dict[str, dict[str, ModelInfo]]:
    table: dict[str, dict[str, ModelInfo]] = {}
    for provider, name, context, output, *prices, images, thinks in MODELS:
        table.setdefault(provider, {})[name] = ModelInfo(
            provider, name, context, output, bool(images), bool(thinks), *prices
        )
    return table


def known_models() -> tuple[ModelInfo, ...]:
    """Every model of the table, by provider."""
    return tuple(info for models in _table().values() for info in models.values())


def model_info(provider: str, name: str) -> ModelInfo:
    """What is known of ``provider/name``; careful defaults for a model that is not in the table."""
    row = _find(provider, name)
    if row is not None:
        return _renamed(row, provider, name, priced=True)
    if "/" in name:
        vendor, _, bare = name.rpartition("/")
        vendor = vendor.rpartition("/")[2]
        row = _find(_VENDORS.get(vendor, vendor), bare)
        if row is not None:
            return _renamed(row, provider, name, priced=False)
    spec = BUILT_IN.get(provider)
    if spec is not None and spec.is_local:
        return ModelInfo(provider, name, LOCAL_CONTEXT_TOKENS, 8_192, True, False, 0, 0, 0, 0)  # noqa: FBT003 - a row, as in the table
    return ModelInfo(provider, name)


def is_in_table(provider: str, name: str) -> bool:
    """Whether the table itself has ``provider/name``, under this name or a snapshot's."""
    return _find(provider, name) is not None


def is_same_model(provider: str, name: str, listed: str) -> bool:
    """Whether a server's ``listed`` is ``name`` or a dated snapshot of it, or ``:latest``."""
    if listed == name:
        return True
    dashed = _DOT_VERSION.sub("-", listed) if provider == "anthropic" else listed
    return dashed.startswith(name) and bool(_SNAPSHOT.match(dashed[len(name) :]))


def _find(provider: str, name: str) -> ModelInfo | None:
    models = _table().get(_SAME_MODELS.get(provider, provider), {})
    if name in models:
        return models[name]
    dashed = _DOT_VERSION.sub("-", name) if provider == "anthropic" else name
    matches = [
        key for key in models if dashed.startswith(key) and _SNAPSHOT.match(dashed[len(key) :])
    ]
    return models[max(matches, key=len)] if matches else None


def _renamed(row: ModelInfo, provider: str, name: str, *, priced: bool) -> ModelInfo:
    """``row`` under another name; a reseller's prices are its own."""
    prices: tuple[float | None, ...] = ()
    if priced:
        prices = (row.input_price, row.output_price, row.cache_read_price, row.cache_write_price)
    return ModelInfo(
        provider,
        name,
        row.context_tokens,
        row.max_output_tokens,
        row.supports_images,
        row.supports_thinking,
        *prices,
    )


def resolve(name: str, custom: Iterable[str] = ()) -> tuple[str, str]:
    """Provider and model that ``name`` means; the model may hold slashes.

    ``claude-...``, ``gpt-...`` and other well-known names need no provider; the bare name of a
    provider means its default model. Raises ``ConfigError`` for what cannot be placed.
    """
    text = name.strip()
    provider, slash, model = text.partition("/")
    if slash:
        if not is_provider(provider, custom):
            raise unknown_provider(provider, custom)
        if not model.strip():
            return provider, _default_of(provider)
        return provider, model.strip()
    for known, models in _table().items():
        if text in models:
            return known, text
    lowered = text.lower()
    for prefix, known in _FAMILIES:
        if lowered.startswith(prefix) and lowered != known:
            return known, text
    if _O_SERIES.match(lowered):
        return "openai", text
    if is_provider(text, custom):
        return text, _default_of(text)
    raise _unknown_model(text, custom)


def _default_of(provider: str) -> str:
    spec = spec_of(provider)
    if spec is None or not spec.default_model:
        raise ConfigError(f"no model of provider {provider!r} was named", f"write {provider}/MODEL")
    return spec.default_model


def _unknown_model(name: str, custom: Iterable[str]) -> ConfigError:
    from difflib import get_close_matches

    if not name:
        return ConfigError("the model name is empty", "write PROVIDER/MODEL")
    candidates = [info.name for info in known_models()] + list(BUILT_IN) + list(custom)
    near = get_close_matches(name, candidates, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "write PROVIDER/MODEL"
    return ConfigError(f"there is no well-known model {name!r}", f"{hint} (see `agent models`)")
