"""``agent models``: what is known of each model, and which can be used now (CTX-3)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import Spec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.cli.streams import write_error_line
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.errors import ConfigError

if TYPE_CHECKING:
    from agentcli.domain.ports import ModelInfo

_THOUSAND, _MILLION = 1000, 1_000_000


class ModelsOptions(FormatOption):
    """Which models."""

    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Only models whose name holds TEXT.")
    ] = None


def models(options: ModelsOptions) -> int:
    """The table of models; the default is marked."""
    as_json = options.as_json
    settings = load_settings(Paths.from_env(os.environ), os.environ)
    for warning in settings.warnings:
        write_error_line(f"warning: {warning}")
    default = _default(settings)
    wanted = (options.text or "").lower()
    infos = [info for info in _infos(settings, default) if wanted in info.id.lower()]
    if as_json:
        print_json(
            [
                {
                    "id": info.id,
                    "context_tokens": info.context_tokens,
                    "max_output_tokens": info.max_output_tokens,
                    "input_price": info.input_price,
                    "output_price": info.output_price,
                    "cache_read_price": info.cache_read_price,
                    "cache_write_price": info.cache_write_price,
                    "supports_images": info.supports_images,
                    "supports_thinking": info.supports_thinking,
                    "ready": is_ready(settings, info.provider),
                    "default": info.id == default,
                }
                for info in infos
            ]
        )
        return 0
    rows = [
        (
            "*" if info.id == default else "",
            info.id,
            _tokens(info.context_tokens),
            _tokens(info.max_output_tokens),
            _price(info.input_price),
            _price(info.output_price),
            "yes" if is_ready(settings, info.provider) else "no key",
        )
        for info in infos
    ]
    print_table(("", "MODEL", "WINDOW", "OUTPUT", "$/M IN", "$/M OUT", "READY"), rows)
    write_error_line("* the default; any PROVIDER/MODEL that a provider offers can be used")
    return 0


def _default(settings: Settings) -> str:
    from agentcli.app.compose import default_model
    from agentcli.providers._models import resolve

    name = default_model(settings)
    try:
        return "/".join(resolve(name, settings.providers))
    except ConfigError as error:
        write_error_line(f"warning: the configured model {name} cannot be used: {error}")
        return ""


def _infos(settings: Settings, default: str) -> list[ModelInfo]:
    from agentcli.app.compose import model_info
    from agentcli.providers._models import known_models

    names = [info.id for info in known_models()]
    extra = [name for name in (*settings.models, *settings.fallback_models, default) if "/" in name]
    ids = dict.fromkeys((*names, *extra))
    return [model_info(settings, *name.split("/", 1)) for name in ids]


def is_ready(settings: Settings, provider: str) -> bool:
    """Whether the provider can be used now: its key is there, or it needs none."""
    from agentcli.providers._registry import has_key, provider_config

    try:
        config = provider_config(provider, settings.env, settings.providers)
    except ConfigError:
        return False
    return not config.needs_key or has_key(provider, settings.env, settings.providers)


def _tokens(count: int) -> str:
    if count >= _MILLION:
        return f"{count / _MILLION:.3g}M"
    return f"{count / _THOUSAND:.0f}k" if count >= _THOUSAND else str(count)


def _price(price: float | None) -> str:
    return "unknown" if price is None else f"{price:g}"


APP = new_app("")
add_command(
    APP,
    Spec("models", "List the models: window, output limit, prices, and whether a key is there."),
    ModelsOptions,
    models,
)
