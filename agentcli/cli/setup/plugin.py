"""``agent plugin add|list|update|remove|validate``: plugins that are directories of files (EXT-5).

Law: nothing of a plugin takes effect that the user was not shown in full and has not said yes to;
without a terminal the yes names the very content: ``--yes MARK``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.config.paths import Paths
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import is_terminal, write_error_line, write_line
from agentcli.ui.sanitize import clean_line, reveal
from agentcli.ui.theme import theme_for

if TYPE_CHECKING:
    from agentcli.app.extensions.plugin_store import StagedPlugin
    from agentcli.config.settings import Settings

_SHOWN_MARK = 16
_YES = "The mark of the content that you say yes to, where nobody can be asked."


class AddOptions(OptionSet):
    """Options of ``add``."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A directory, github:OWNER/REPO[@REF], or an https, ssh or file address.",
        ),
    ]
    plugin: Annotated[
        str | None, typer.Option("--plugin", metavar="NAME", help="The plugin of a marketplace.")
    ] = None
    yes: Annotated[str | None, typer.Option("--yes", metavar="MARK", help=_YES)] = None


class UpdateOptions(OptionSet):
    """Options of ``update``."""

    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A plugin. None: all of them.")
    ] = None
    yes: Annotated[str | None, typer.Option("--yes", metavar="MARK", help=_YES)] = None


class NameOptions(OptionSet):
    """Options of ``remove``."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="A plugin.")]


class ValidateOptions(OptionSet):
    """Options of ``validate``."""

    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="As for add. None: this directory.")
    ] = None
    plugin: Annotated[
        str | None, typer.Option("--plugin", metavar="NAME", help="The plugin of a marketplace.")
    ] = None


def add(options: AddOptions) -> int:
    """Fetch a plugin, show all of it, and keep it after a yes."""
    from agentcli.app.extensions.plugin_store import added_plugins, staged

    paths = Paths.from_env(os.environ)
    with staged(paths, options.source, options.plugin or "") as new:
        name = new.added.name
        there = next((each for each in added_plugins(paths) if each.name == name), None)
        if there is not None and (there.source, there.within) != (
            new.added.source,
            new.added.within,
        ):
            raise UsageError(
                f"there is a plugin {name} already, from {there.source}",
                f"remove it first: agent plugin remove {name}",
            )
        if there is not None and there.is_kept_as(new.added, paths):
            write_line(f"{name} is there already, with this content")
            return 0
        old = there.root(paths) if there is not None else None
        return _decide(paths, new, old, options.yes, f"agent plugin add {options.source}")


def update(options: UpdateOptions) -> int:
    """Fetch plugins again, show what has changed, and keep it after a yes."""
    from agentcli.app.extensions.plugin_store import added_plugins, named, staged

    paths = Paths.from_env(os.environ)
    chosen = [named(paths, options.name)] if options.name else added_plugins(paths)
    worst = 0
    for each in chosen:
        plugin = each.name if each.within else ""
        with staged(paths, each.source, plugin) as new:
            if new.added.name != each.name:
                raise ConfigError(
                    f"{each.source} is now the plugin {new.added.name}, not {each.name}",
                    "remove the one and add the other",
                )
            if each.is_kept_as(new.added, paths):
                write_line(f"{each.name} is up to date")
                continue
            how = f"agent plugin update {each.name}"
            worst = _decide(paths, new, each.root(paths), options.yes, how) or worst
    if not chosen:
        write_line("no plugin was added")
    return worst


def _decide(
    paths: Paths, new: StagedPlugin, before: Path | None, yes: str | None, command: str
) -> int:
    """Show it, and keep it after a yes; the exit code."""
    from agentcli.app.extensions.plugin_store import collisions, keep, shown_lines
    from agentcli.app.trust import user_places
    from agentcli.config.settings import load_settings

    settings = load_settings(paths, os.environ)
    places = [
        ("your own" if not place.plugin else f"the plugin {place.plugin}", place.path)
        for place in user_places(settings)
        if place.plugin != new.added.name
    ]
    notes = [f"  note: {line}" for line in collisions(new.package, places)]
    for line in [*shown_lines(new, before), *notes]:
        write_line(f"{reveal(line)}")
    mark = new.added.mark[:_SHOWN_MARK]
    if yes is None and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        if not _asked(new.added.name, settings):
            write_error_line("nothing was added")
            return int(ExitCode.FAILED)
    elif yes is None or len(yes) < _SHOWN_MARK or not new.added.mark.startswith(yes):
        why = "" if yes is None else f"its content is not that of {clean_line(yes)}: "
        write_error_line(
            f"{why}nothing was added; for a yes to exactly this: {command} --yes {mark}"
        )
        return int(ExitCode.APPROVAL)
    keep(paths, new)
    write_error_line(f"added {new.added.name}: it takes effect with the next start")
    return 0


def _asked(name: str, settings: Settings) -> bool:
    """Whether the user says yes; the end of the input is a no."""
    title = f"Add {name}? All of the above takes effect."
    if theme_for(sys.stdout, os.environ).live and not settings.screen_reader:
        from agentcli.repl.question import Question, ask

        choices = {"y": "yes, add it", "n": "no"}
        return ask(Question(title, choices, "n", "Esc: no"), Path.cwd(), settings.theme) == "y"
    while True:
        sys.stderr.write(f"{title} [y]es / [n]o: ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer or answer.strip().lower() in {"n", "no"}:
            return False
        if answer.strip().lower() in {"y", "yes"}:
            return True


def list_(options: FormatOption) -> int:
    """The plugins that take effect."""
    from agentcli.app.extensions.plugin_store import plugin_rows

    rows = plugin_rows(Paths.from_env(os.environ))
    if options.as_json:
        print_json(rows)
    elif rows:
        columns = ("name", "version", "source", "commit", "brings")
        cells = [tuple(clean_line(str(row[column])) or "-" for column in columns) for row in rows]
        print_table(tuple(column.upper() for column in columns), cells)
    else:
        write_error_line("no plugin was added; see: agent plugin add --help")
    return 0


def remove(options: NameOptions) -> int:
    """Forget a plugin and its files."""
    from agentcli.app.extensions.plugin_store import remove as forget

    found = forget(Paths.from_env(os.environ), options.name)
    write_error_line(f"removed {found.name}")
    return 0


def validate(options: ValidateOptions) -> int:
    """Say what a plugin brings and what of it is left out; nothing is kept."""
    from agentcli.app.extensions.plugin_store import staged, summary

    paths = Paths.from_env(os.environ)
    try:
        with staged(paths, options.source or ".", options.plugin or "") as new:
            brings = summary(new.package) or "nothing"
            write_line(f"{new.package.name} is valid ({new.package.layout}): {clean_line(brings)}")
            for notice in new.notices:
                write_line(f"note: {clean_line(notice)}")
    except ConfigError as error:
        write_error_line(f"error: {error.message}" + (f" - {error.advice}" if error.advice else ""))
        return int(ExitCode.FAILED)
    return 0


APP = new_app("Plugins: skills, commands, agents and hooks in a directory.", "list")
add_command(APP, CommandSpec("add", "Fetch a plugin, show all of it, and ask."), AddOptions, add)
add_command(APP, CommandSpec("list", "The plugins that take effect."), FormatOption, list_)
add_command(
    APP, CommandSpec("update", "Show what is new in a plugin, and ask."), UpdateOptions, update
)
add_command(APP, CommandSpec("remove", "Forget a plugin and its files."), NameOptions, remove)
add_command(
    APP,
    CommandSpec("validate", "Say whether a plugin is sound; nothing is kept."),
    ValidateOptions,
    validate,
)
