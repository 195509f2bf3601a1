"""What is known of a model, and which provider a bare name means.

Law: a figure that is not known is ``None``, never a guess; a model that is not in the table works
with careful defaults. The table is generated (``table.txt``); a row is read when it is asked for.
One that the user has fetched (``models/refresh.py``) has the same form, and comes before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

from agentcli.domain.errors import ConfigError
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import LongPromptPrices, ModelInfo, ToolProtocol
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
_O_SERIES = LazyPattern(r"o\d(-|$)")
# What may follow a model's name without making it another model.
_SNAPSHOT = LazyPattern(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))?(?:-v\d+)?(?::[\w.-]+)?$")
# Rows of the registry that lead to another row's models.
_SAME_MODELS = {"openai-responses": "openai", "vertex": "gemini"}
_REGION = r"(?:us|us-gov|eu|apac|jp|au|ca|global)\."
_VENDORS = {"google": "gemini", "mistralai": "mistral", "x-ai": "xai"}
_DOT_VERSION = LazyPattern(r"(?<=\d)\.(?=\d)")


Rows = Mapping[str, Mapping[str, str]]
"""The rows of a table as text, by provider and model."""
EMPTY: Rows = MappingProxyType({})

_MAX_BYTES = 8_000_000
_DATE = "# 2026-11-22"
_PRICE = r"(?:-|\d+(?:\.\d+)?(?:e[-+]?\d{1,2})?)"
_SOUND = (
    rf"\[[a-z0-9-]+\]|[^#\[\s]\S* \d{{1,10}} \d{{1,10}}(?: {_PRICE}){{4}} (?:-|i?t?)"
    rf"(?: \d{{1,10}}:{_PRICE}(?:,{_PRICE}){{3}})*"
)
FILE = Path(__file__).with_name("table.txt")


@cache
def _table() -> Rows:
    return read_rows(FILE.read_text(encoding="utf-8"))


def newer_rows(path: Path) -> Rows:
    """The rows of the table that the user has fetched, unless ours is newer; none without one."""
    try:
        status = path.stat()
    except OSError:
        return EMPTY
    return _newer(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _newer(path: Path, changed_ns: int, size: int) -> Rows:
    del changed_ns
    try:
        text = path.read_text(encoding="utf-8") if size <= _MAX_BYTES else ""
    except (OSError, ValueError):
        return EMPTY
    with FILE.open(encoding="utf-8") as ours:
        if text[: len(_DATE)] < ours.read(len(_DATE)):
            return EMPTY
    sound = re.compile(_SOUND)
    return read_rows("\n".join(line for line in text.splitlines() if sound.fullmatch(line)))


def read_rows(text: str) -> Rows:
    """The rows of a table's text."""
    rows: dict[str, dict[str, str]] = {}
    here: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            here = rows.setdefault(line[1:-1], {})
        elif not line.startswith("#"):
            here[line.partition(" ")[0]] = line
    return rows


@cache
def _row(provider: str, row: str) -> ModelInfo:
    name, window, output, *figures = row.split(" ")
    prices, flags, tiers = map(_figure, figures[:4]), figures[4], figures[5:]
    return ModelInfo(
        provider,
        name,
        int(window),
        int(output),
        "i" in flags,
        "t" in flags,
        *prices,
        long_prompts=tuple(_long_prompt(tier) for tier in tiers),
    )


def _long_prompt(text: str) -> LongPromptPrices:
    above, _, prices = text.partition(":")
    return LongPromptPrices(int(above), *map(_figure, prices.split(",")))


def _figure(text: str) -> float | None:
    return None if text == "-" else float(text)


def known_models(newer: Rows = EMPTY) -> tuple[ModelInfo, ...]:
    """Every model of the tables, by provider."""
    names = dict.fromkeys((*_table(), *newer))
    tables = {name: {**_table().get(name, {}), **newer.get(name, {})} for name in names}
    return tuple(_row(name, row) for name, rows in tables.items() for row in rows.values())


def model_info(provider: str, name: str, newer: Rows = EMPTY) -> ModelInfo:
    """What is known of ``provider/name``; careful defaults for a model that is not in the table."""
    row = _find(provider, name, newer)
    if row is not None:
        return _renamed(row, provider, name, priced=True)
    vendor, bare = _maker(provider, name)
    row = _find(_VENDORS.get(vendor, vendor), bare, newer) if vendor else None
    if row is not None:
        return _renamed(row, provider, name, priced=False)
    spec = BUILT_IN.get(provider)
    if spec is not None and spec.is_local:
        info = ModelInfo(provider, name, LOCAL_CONTEXT_TOKENS, 8_192, True, False, 0, 0, 0, 0)  # noqa: FBT003 - a row, as in the table
    else:
        info = ModelInfo(provider, name)
    return replace(info, tool_protocol=ToolProtocol.AUTO)


def _maker(provider: str, name: str) -> tuple[str, str]:
    """Who made a model that another offers, and its own name; empty where nothing says so."""
    if provider == "bedrock":  # eu.anthropic.claude-...
        vendor, _, bare = re.sub(_REGION, "", name).partition(".")
        return vendor, bare
    if provider == "azure":  # a deployment may be called like its model
        return "openai", name
    vendor, _, bare = name.rpartition("/")
    return vendor.rpartition("/")[2], bare


def is_in_table(provider: str, name: str, newer: Rows = EMPTY) -> bool:
    """Whether the table itself has ``provider/name``, under this name or a snapshot's."""
    return _find(provider, name, newer) is not None


def is_same_model(provider: str, name: str, listed: str) -> bool:
    """Whether a server's ``listed`` is ``name`` or a dated snapshot of it, or ``:latest``."""
    if listed == name:
        return True
    dashed = _DOT_VERSION.sub("-", listed) if provider == "anthropic" else listed
    return dashed.startswith(name) and bool(_SNAPSHOT.match(dashed[len(name) :]))


def _find(provider: str, name: str, newer: Rows) -> ModelInfo | None:
    same = _SAME_MODELS.get(provider, provider)
    models = _table().get(same, {})
    if same in newer:
        models = {**models, **newer[same]}
    if name in models:
        return _row(same, models[name])
    dashed = _DOT_VERSION.sub("-", name) if provider == "anthropic" else name
    matches = [
        key for key in models if dashed.startswith(key) and _SNAPSHOT.match(dashed[len(key) :])
    ]
    return _row(same, models[max(matches, key=len)]) if matches else None


def _renamed(row: ModelInfo, provider: str, name: str, *, priced: bool) -> ModelInfo:
    """``row`` under another name; a reseller's prices are its own."""
    if priced:
        return replace(row, provider=provider, name=name)
    return ModelInfo(
        provider,
        name,
        row.context_tokens,
        row.max_output_tokens,
        row.supports_images,
        row.supports_thinking,
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
