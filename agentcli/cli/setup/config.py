"""``agent config show|get|set|edit|path`` (CLI-9)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from typing import Annotated

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import EmptyOptions, FormatOption, print_json, print_table
from agentcli.cli.options import choice
from agentcli.cli.redacting import know_secrets, shown, without_keys
from agentcli.config.edit import TEMPLATE, unknown_key
from agentcli.config.keys import dotted, find_key, split_key
from agentcli.config.paths import Paths, read_text, write
from agentcli.config.settings import Settings, load_settings, validate
from agentcli.domain.errors import AgentError, ConfigError, UsageError
from agentcli.headless.streams import is_terminal, write_error_line, write_out
from agentcli.ui.sanitize import clean


class KeyArgument(FormatOption):
    """The key to show."""

    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, e.g. model or tools.off.")]


class SettingArguments(FormatOption):
    """The key to set, and its new value."""

    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, e.g. model or tools.off.")]
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="Its value; lists with commas, e.g. a,b.")
    ]


def _paths() -> Paths:
    return Paths.from_env(os.environ)


def _in_force() -> Settings:
    """The settings here and now: those of a trusted project too."""
    from agentcli.cli.session_request import settings_here

    try:
        return settings_here()[0]
    except UsageError:  # the directory is gone
        return load_settings(_paths(), os.environ)


def _settings() -> Settings:
    settings = _in_force()
    for warning in settings.warnings:
        write_error_line(f"warning: {warning}")
    return settings


def _provider_rows(settings: Settings) -> list[tuple[str, str, str]]:
    """Address and key variable of each provider that is set up in any way."""
    from agentcli.providers._registry import has_key, provider_config, provider_names, spec_of

    rows = []
    for name in provider_names(settings.providers):
        spec = spec_of(name)
        moved_by = spec.base_env if spec and settings.env.get(spec.base_env) else ""
        with_key = has_key(name, settings.env, settings.providers)
        if not (with_key or moved_by or name in settings.providers):
            continue
        try:
            config = provider_config(name, settings.env, settings.providers)
        except ConfigError as error:
            write_error_line(f"warning: {error}")
            continue
        key = f"providers.{name}."
        source = settings.sources.get(key + "base_url") or (
            f"{moved_by} (environment)" if moved_by else "default"
        )
        rows.append((key + "base_url", config.base_url, source))
        if config.key_env:
            source = settings.sources.get(key + "api_key_env", "default")
            state = "set" if with_key else "not set"
            if config.stored is not None:
                state = f"not set; the key is from: {config.stored.place}"
            rows.append((key + "api_key_env", f"{config.key_env} ({state})", source))
    return rows


def _all_rows(settings: Settings) -> list[tuple[str, object, str]]:
    know_secrets(settings)
    return [(key, shown(value), source) for key, value, source in _rows(settings)]


def _rows(settings: Settings) -> list[tuple[str, object, str]]:
    providers = _provider_rows(settings)
    names = {row[0] for row in providers}
    own = [(k, v, settings.sources[k]) for k, v in settings.values.items() if k not in names]
    return [*own, *providers]


def setting_rows() -> list[tuple[str, str, str]]:
    """Every key, its value as text, and where it comes from, as they are now."""
    settings = _in_force()
    return [(key, _shown(value), source) for key, value, source in _all_rows(settings)]


def show(options: FormatOption) -> int:
    """Every key, its value and its source."""
    as_json = options.as_json
    settings = _settings()
    if as_json:
        print_json(
            [
                {"key": key, "value": value, "source": source}
                for key, value, source in _all_rows(settings)
            ]
        )
    else:
        rows = [(key, _shown(value), source) for key, value, source in _all_rows(settings)]
        print_table(("KEY", "VALUE", "SOURCE"), rows)
    return 0


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def get(options: KeyArgument) -> int:
    """The value of one key; an empty line when it is not set."""
    as_json = options.as_json
    path = split_key(options.key)
    settings = _settings()
    if find_key(path) is None and dotted(path) not in settings.values:
        raise unknown_key(options.key)
    know_secrets(settings)
    value = shown(settings.values.get(dotted(path)))
    if as_json:
        source = settings.sources.get(dotted(path), "default")
        print_json({"key": dotted(path), "value": value, "source": source})
    elif isinstance(value, list):
        write_out("".join(f"{clean(item)}\n" for item in value))
    else:
        write_out(f"{'' if value is None else clean(_shown(value))}\n")
    return 0


def set_(options: SettingArguments) -> int:
    """Write one key into the user's file."""
    from agentcli.app.setting import set_setting
    from agentcli.repl.keys import check_key_setting

    paths = _paths()
    path = split_key(options.key)
    if path[:1] == ("providers",) and path[-1] == "kind":
        from agentcli.providers._registry import module_names

        choice(options.key, options.value, tuple(sorted(module_names())))
    check_key_setting(options.key, options.value)
    written = set_setting(paths, options.key, options.value)
    name = dotted(path)
    write_error_line(f"{name} = {_shown(shown(written.value))} ({paths.config_file})")
    for warning in written.warnings:
        write_error_line(f"warning: {warning}")
    source = ""
    with suppress(ConfigError):  # what is still to be repaired was said
        source = load_settings(paths, os.environ).sources.get(name, "")
    if "environment" in source:
        write_error_line(f"warning: {source} is set and wins over the file")
    return 0


def edit(_options: EmptyOptions) -> int:
    """Open the user's file in an editor, then check it."""
    from agentcli.app.setting import check_settings

    paths = _paths()
    file = paths.config_file
    if not is_terminal(sys.stdin) and not (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise UsageError("there is no terminal to edit in", f"edit {file}, or set EDITOR")
    command = _editor()
    if read_text(file) is None:
        write(file, TEMPLATE)
    try:
        code = subprocess.run(  # noqa: S603 - the user's own editor
            [*command, str(file)], check=False, env=without_keys(), cwd=file.parent
        ).returncode
    except OSError as error:
        raise UsageError(
            f"cannot start the editor {command[0]}: {error.strerror}", "set EDITOR"
        ) from error
    if code:
        raise AgentError(f"the editor ended with exit code {code}", f"the file is {file}")
    for warning in validate(read_text(file) or "", paths):
        write_error_line(f"warning: {warning}")
    check_settings(paths)
    return 0


def _editor() -> list[str]:
    """The user's editor with its arguments; raises ``UsageError`` when it reads as none."""
    text = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = shlex.split(text)
    except ValueError:
        command = []
    if not command:
        raise UsageError(f"cannot read the editor's command {text!r}", "set EDITOR")
    return command


def path_(_options: EmptyOptions) -> int:
    """Where the user's file is, or would be."""
    path = str(_paths().config_file)
    write_out(f"{clean(path) if is_terminal(sys.stdout) else path}\n")
    return 0


APP = new_app("Show and change settings.", "show")
add_command(
    APP, CommandSpec("show", "Every key, its value and where it comes from."), FormatOption, show
)
add_command(APP, CommandSpec("get", "Print the value of a key."), KeyArgument, get)
add_command(
    APP,
    CommandSpec("set", "Set a key in your file; its comments and order stay as they are."),
    SettingArguments,
    set_,
)
add_command(
    APP,
    CommandSpec("edit", "Open your file in $VISUAL or $EDITOR, then check it."),
    EmptyOptions,
    edit,
)
add_command(APP, CommandSpec("path", "Print where your file is."), EmptyOptions, path_)
