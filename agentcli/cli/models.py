"""``agent models``: what is known of each model, who offers it, what can be used now (CTX-3)."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError
from agentcli.headless.streams import write_error_line

if TYPE_CHECKING:
    from agentcli.domain.ports import ModelInfo

_THOUSAND, _MILLION = 1000, 1_000_000
_LONG_NAME = 36  # few are longer; a name that is cut cannot be given to -m


class ModelsOptions(FormatOption):
    """Which models."""

    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Only models whose name holds TEXT.")
    ] = None
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server; show only what is known without.")
    ] = False
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="First fetch windows and prices from a public catalogue."),
    ] = False


class _ModelRow(NamedTuple):
    """A model, and whether its server lists it; ``None`` when nobody was asked or answered."""

    info: ModelInfo
    is_listed: bool | None


def models(options: ModelsOptions) -> int:
    """The table of models; the default is marked."""
    as_json = options.as_json
    settings = load_settings(Paths.from_env(os.environ), os.environ)
    for warning in settings.warnings:
        write_error_line(f"warning: {warning}")
    if options.refresh:
        _refresh(settings)
    default = _default(settings)
    wanted = (options.text or "").lower()
    offered = {} if options.offline else _offered(settings, default)
    rows = [row for row in _rows(settings, default, offered) if wanted in row.info.id.lower()]
    if as_json:
        print_json([_as_json(row, settings, default) for row in rows])
        return 0
    lines = [
        (
            "*" if row.info.id == default else "",
            row.info.id,
            _tokens(row.info.context_tokens),
            _tokens(row.info.max_output_tokens),
            _price(row.info.input_price),
            _price(row.info.output_price),
            _readiness(row, settings),
        )
        for row in rows
    ]
    if wanted and not rows:
        write_error_line(f"no known model has {options.text!r} in its name; all: agent models")
        return 0
    head = ("", "MODEL", "WINDOW", "OUTPUT", "$/M IN", "$/M OUT", "READY")
    print_table(head, lines, ("OUTPUT", "WINDOW", "$/M IN", "$/M OUT", "READY"), _LONG_NAME)
    write_error_line("* the default; any PROVIDER/MODEL that a provider offers can be used")
    return 0


def _refresh(settings: Settings) -> None:
    """Fetch the catalogue and keep it; says what happened. Raises ``AgentError``."""
    from agentcli.config.paths import read_text, write
    from agentcli.providers.models.ask import fetch_catalogue
    from agentcli.providers.models.table import newer_rows

    path = settings.paths.models_file
    kept = (read_text(path) or "") if newer_rows(path) else ""
    found = re.search(r"(?m)^# etag (.+)$", kept)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    text = fetch_catalogue(settings.models_url, found[1] if found else "", today)
    if text is None:
        write_error_line("the catalogue has not changed since it was fetched")
        return
    write(path, text)
    count = sum(map(len, newer_rows(path).values()))
    write_error_line(f"windows and prices of {count:,} models are kept in {path}")


def _as_json(row: _ModelRow, settings: Settings, default: str) -> dict[str, Any]:
    from agentcli.app.models import is_ready

    info = row.info
    return {
        "id": info.id,
        "context_tokens": info.context_tokens,
        "max_output_tokens": info.max_output_tokens,
        "input_price": info.input_price,
        "output_price": info.output_price,
        "cache_read_price": info.cache_read_price,
        "cache_write_price": info.cache_write_price,
        "long_prompts": [
            {name: getattr(tier, name) for name in tier.__dataclass_fields__}
            for tier in info.long_prompts
        ],
        "supports_images": info.supports_images,
        "supports_thinking": info.supports_thinking,
        "ready": is_ready(settings, info.provider),
        "listed": row.is_listed,
        "default": info.id == default,
    }


def _readiness(row: _ModelRow, settings: Settings) -> str:
    from agentcli.app.models import is_ready

    if not is_ready(settings, row.info.provider):
        return "no: no key"
    return "no: not listed" if row.is_listed is False else "yes"


def _default(settings: Settings) -> str:
    from agentcli.app.models import default_model
    from agentcli.providers.models.table import resolve

    name = default_model(settings)
    try:
        return "/".join(resolve(name, settings.providers))
    except ConfigError as error:
        write_error_line(f"warning: the configured model {name} cannot be used: {error}")
        return ""


def _offered(settings: Settings, default: str) -> dict[str, tuple[dict[str, Any], ...]]:
    """What each provider's server lists; one line on stderr for each that failed."""
    from agentcli.headless.errors import one_line
    from agentcli.providers.models.listing import list_models

    lists = list_models(settings.env, settings.providers, named=[default.partition("/")[0]])
    for warning in lists.warnings:
        write_error_line(one_line(warning))
    return lists.models


def _rows(
    settings: Settings, default: str, offered: dict[str, tuple[dict[str, Any], ...]]
) -> list[_ModelRow]:
    """The table's models, then those of the settings, then what else the servers list."""
    from agentcli.app.models import listed_models, model_info
    from agentcli.providers.models.table import is_same_model

    extra = [name for name in (*settings.models, *settings.fallback_models, default) if "/" in name]
    figures = {
        f"{provider}/{entry['name']}": entry
        for provider, entries in offered.items()
        for entry in entries
    }
    ids = dict.fromkeys((*(info.id for info in listed_models(settings)), *extra, *figures))
    rows = []
    for each in ids:
        provider, name = each.split("/", 1)
        info = model_info(settings, provider, name)
        listed = figures.get(each)
        if listed is not None:
            info = _with_figures(settings, info, listed)
        is_listed = None
        if provider in offered:
            is_listed = listed is not None or any(
                is_same_model(provider, name, entry["name"]) for entry in offered[provider]
            )
        rows.append(_ModelRow(info, is_listed))
    return rows


def _with_figures(settings: Settings, info: ModelInfo, listed: dict[str, Any]) -> ModelInfo:
    """``info`` with what its server says, where neither the user nor the table knows it."""
    from agentcli.providers.models.table import is_in_table, newer_rows

    if is_in_table(info.provider, info.name, newer_rows(settings.paths.models_file)):
        return info
    own = settings.models.get(info.id, {})
    return replace(info, **{key: value for key, value in listed.items() if key not in own})


def _tokens(count: int) -> str:
    if count >= _MILLION:
        return f"{count / _MILLION:.3g}M"
    return f"{count / _THOUSAND:.0f}k" if count >= _THOUSAND else str(count)


def _price(price: float | None) -> str:
    return "unknown" if price is None else f"{price:g}"


APP = new_app("")
add_command(
    APP,
    CommandSpec(
        "models",
        "List the models: window, output limit, prices, and whether a key is there.\n\nThe servers"
        " of all providers with a key, and those of this machine, are asked for their lists.",
    ),
    ModelsOptions,
    models,
)
