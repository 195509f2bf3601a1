"""What is known of a model, and which provider a bare name means; the table stands at the end.

Law: a figure that is not known is ``None``, never a guess; a model that is not in the table works
with careful defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import ModelInfo, ToolProtocol
from agentcli.providers._registry import BUILT_IN, is_provider, spec_of, unknown_provider

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
        info = ModelInfo(provider, name, LOCAL_CONTEXT_TOKENS, 8_192, True, False, 0, 0, 0, 0)  # noqa: FBT003 - a row, as in the table
    else:
        info = ModelInfo(provider, name)
    return replace(info, tool_protocol=ToolProtocol.AUTO)


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
    models = [info.name for info in known_models()]
    near = get_close_matches(name, [*models, *BUILT_IN, *custom], n=3, cutoff=0.6)
    if not near:  # a part of a name: sonet, of claude-sonnet-5
        parts = dict.fromkeys(part for model in models for part in model.split("-"))
        like = get_close_matches(name.lower(), [part for part in parts if part.isalpha()], n=1)
        near = [model for model in models if like and like[0] in model.split("-")][:2]
    hint = f"did you mean {' or '.join(near)}?" if near else "write PROVIDER/MODEL"
    return ConfigError(f"there is no well-known model {name!r}", f"{hint} (see `agent models`)")


# --- the table -----------------------------------------------------------------------------

# Columns: provider, model, context window, output limit (tokens), then USD per million tokens for
# input, output, cache read, cache write (``None`` = not published or unknown to us), takes images,
# thinks. Prices are the standard tier's for short prompts; some services charge more beyond a
# prompt length. Sources, read on 2026-11-20: the providers' model and pricing pages
# (platform.claude.com/docs, developers.openai.com/api/docs/models, docs.x.ai) and the public
# models.dev catalogue.
Row = tuple[str, str, int, int, float | None, float | None, float | None, float | None, bool, bool]

MODELS: tuple[Row, ...] = (
    ("anthropic", "claude-fable-5-1", 1_000_000, 128_000, 10.0, 50.0, 0.25, 12.5, True, True),
    ("anthropic", "claude-fable-5", 1_000_000, 128_000, 10.0, 50.0, 1.0, 12.5, True, True),
    ("anthropic", "claude-opus-5-5", 1_000_000, 128_000, 4.0, 20.0, 0.2, 5.0, True, True),
    ("anthropic", "claude-opus-5", 1_000_000, 128_000, 5.0, 25.0, 0.5, 6.25, True, True),
    ("anthropic", "claude-opus-4-8", 1_000_000, 128_000, 5.0, 25.0, 0.5, 6.25, True, True),
    ("anthropic", "claude-opus-4-7", 1_000_000, 128_000, 5.0, 25.0, 0.5, 6.25, True, True),
    ("anthropic", "claude-opus-4-6", 1_000_000, 128_000, 5.0, 25.0, 0.5, 6.25, True, True),
    ("anthropic", "claude-opus-4-5", 200_000, 64_000, 5.0, 25.0, 0.5, 6.25, True, True),
    ("anthropic", "claude-opus-4-1", 200_000, 32_000, 15.0, 75.0, 1.5, 18.75, True, True),
    ("anthropic", "claude-opus-4-0", 200_000, 32_000, 15.0, 75.0, 1.5, 18.75, True, True),
    ("anthropic", "claude-opus-4", 200_000, 32_000, 15.0, 75.0, 1.5, 18.75, True, True),
    ("anthropic", "claude-sonnet-5-5", 1_000_000, 128_000, 2.0, 10.0, 0.1, 2.5, True, True),
    ("anthropic", "claude-sonnet-5", 1_000_000, 128_000, 2.0, 10.0, 0.2, 2.5, True, True),
    ("anthropic", "claude-sonnet-4-6", 1_000_000, 64_000, 3.0, 15.0, 0.3, 3.75, True, True),
    ("anthropic", "claude-sonnet-4-5", 200_000, 64_000, 3.0, 15.0, 0.3, 3.75, True, True),
    ("anthropic", "claude-sonnet-4-0", 200_000, 64_000, 3.0, 15.0, 0.3, 3.75, True, True),
    ("anthropic", "claude-sonnet-4", 200_000, 64_000, 3.0, 15.0, 0.3, 3.75, True, True),
    ("anthropic", "claude-haiku-5-5", 1_000_000, 128_000, 0.1, 0.5, 0.01, 0.125, True, True),
    ("anthropic", "claude-haiku-4-5", 200_000, 64_000, 1.0, 5.0, 0.1, 1.25, True, True),
    ("anthropic", "claude-3-7-sonnet", 200_000, 64_000, 3.0, 15.0, 0.3, 3.75, True, True),
    ("anthropic", "claude-3-5-sonnet", 200_000, 8_192, 3.0, 15.0, 0.3, 3.75, True, False),
    ("anthropic", "claude-3-haiku", 200_000, 4_096, 0.25, 1.25, 0.03, 0.3, True, False),
    ("openai", "gpt-6.2-sol", 1_050_000, 128_000, 2.0, 10.0, 0.1, 2.5, True, True),
    ("openai", "gpt-6.1-sol", 1_050_000, 128_000, 2.0, 10.0, 0.1, 2.5, True, True),
    ("openai", "gpt-6-sol", 1_050_000, 128_000, 2.0, 10.0, 0.2, 2.5, True, True),
    ("openai", "gpt-6-astra", 1_050_000, 128_000, 10.0, 50.0, 1.0, 12.5, True, True),
    ("openai", "gpt-5.6-terra", 1_050_000, 128_000, 2.0, 12.0, 0.2, None, True, True),
    ("openai", "gpt-5.6-luna", 400_000, 128_000, 0.2, 1.2, 0.02, None, True, True),
    ("openai", "gpt-5.5", 1_050_000, 128_000, 5.0, 30.0, 0.5, None, True, True),
    ("openai", "gpt-5.4", 1_050_000, 128_000, 2.5, 15.0, 0.25, None, True, True),
    ("openai", "gpt-5.4-mini", 400_000, 128_000, 0.75, 4.5, 0.075, None, True, True),
    ("openai", "gpt-5.4-nano", 400_000, 128_000, 0.2, 1.25, 0.02, None, True, True),
    ("openai", "gpt-5.3-codex", 400_000, 128_000, 1.75, 14.0, 0.175, None, True, True),
    ("openai", "gpt-5.2", 400_000, 128_000, 1.75, 14.0, 0.175, None, True, True),
    ("openai", "gpt-5.1", 400_000, 128_000, 1.25, 10.0, 0.125, None, True, True),
    ("openai", "gpt-5", 400_000, 128_000, 1.25, 10.0, 0.125, None, True, True),
    ("openai", "gpt-5-mini", 400_000, 128_000, 0.25, 2.0, 0.025, None, True, True),
    ("openai", "gpt-5-nano", 400_000, 128_000, 0.05, 0.4, 0.005, None, True, True),
    ("openai", "gpt-4.1", 1_047_576, 32_768, 2.0, 8.0, 0.5, None, True, False),
    ("openai", "gpt-4.1-mini", 1_047_576, 32_768, 0.4, 1.6, 0.1, None, True, False),
    ("openai", "gpt-4.1-nano", 1_047_576, 32_768, 0.1, 0.4, 0.025, None, True, False),
    ("openai", "gpt-4o", 128_000, 16_384, 2.5, 10.0, 1.25, None, True, False),
    ("openai", "gpt-4o-mini", 128_000, 16_384, 0.15, 0.6, 0.075, None, True, False),
    ("openai", "o3", 200_000, 100_000, 2.0, 8.0, 0.5, None, True, True),
    ("openai", "o3-mini", 200_000, 100_000, 1.1, 4.4, 0.55, None, False, True),
    ("openai", "o4-mini", 200_000, 100_000, 1.1, 4.4, 0.275, None, True, True),
    ("gemini", "gemini-3.6-flash", 1_048_576, 65_536, 1.5, 7.5, 0.15, None, True, True),
    ("gemini", "gemini-3.5-flash", 1_048_576, 65_536, 1.5, 9.0, 0.15, None, True, True),
    ("gemini", "gemini-3.5-flash-lite", 1_048_576, 65_536, 0.3, 2.5, 0.03, None, True, True),
    ("gemini", "gemini-3.1-pro-preview", 1_048_576, 65_536, 2.0, 12.0, 0.2, None, True, True),
    ("gemini", "gemini-3.1-flash-lite", 1_048_576, 65_536, 0.25, 1.5, 0.025, None, True, True),
    ("gemini", "gemini-2.5-pro", 1_048_576, 65_536, 1.25, 10.0, 0.125, None, True, True),
    ("gemini", "gemini-2.5-flash", 1_048_576, 65_536, 0.3, 2.5, 0.03, None, True, True),
    ("gemini", "gemini-2.5-flash-lite", 1_048_576, 65_536, 0.1, 0.4, 0.01, None, True, True),
    ("mistral", "mistral-large-latest", 262_144, 262_144, 0.5, 1.5, None, None, True, False),
    ("mistral", "mistral-large-2512", 262_144, 262_144, 0.5, 1.5, None, None, True, False),
    ("mistral", "mistral-medium-latest", 262_144, 262_144, None, None, None, None, True, False),
    ("mistral", "mistral-medium-2604", 262_144, 262_144, 1.5, 7.5, None, None, True, True),
    ("mistral", "mistral-medium-2508", 262_144, 262_144, 0.4, 2.0, None, None, True, False),
    ("mistral", "mistral-small-latest", 256_000, 256_000, 0.15, 0.6, None, None, True, True),
    ("mistral", "magistral-medium-latest", 128_000, 16_384, 2.0, 5.0, None, None, False, True),
    ("mistral", "codestral-latest", 256_000, 4_096, 0.3, 0.9, None, None, False, False),
    ("deepseek", "deepseek-v4-pro", 1_000_000, 384_000, 0.435, 0.87, 0.003625, None, False, True),
    ("deepseek", "deepseek-v4-flash", 1_000_000, 384_000, 0.14, 0.28, 0.0028, None, False, True),
    ("deepseek", "deepseek-reasoner", 1_000_000, 384_000, 0.14, 0.28, 0.0028, None, False, True),
    ("deepseek", "deepseek-chat", 1_000_000, 384_000, 0.14, 0.28, 0.0028, None, False, False),
    ("xai", "grok-4.6", 500_000, 8_192, 2.0, 6.0, 0.5, None, True, True),
    ("xai", "grok-4.5", 500_000, 8_192, 2.0, 6.0, 0.5, None, True, True),
    ("xai", "grok-4.3", 1_000_000, 30_000, 1.25, 2.5, 0.2, None, True, True),
    ("xai", "grok-build-0.1", 256_000, 256_000, 1.0, 2.0, 0.2, None, True, True),
)
