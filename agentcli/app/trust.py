"""Whether the directory's own files take effect: the answer of the book, or of the user.

Laws (SEC-1, SEC-17): only the chat asks, before anything of the directory is used, and once: the
answer is kept until what it was given for has changed, also where there is no terminal: content of
commands, skills, agents and scripts included. ``--trust`` on the command line is the user's own
word, for one run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.paths import Paths
from agentcli.config.project import SCRIPTS, Project, Standing, decide, read_project, standing
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.engine.context.system_prompt import project_root
from agentcli.extensions.places import (
    ExtensionPlace,
    extension_places,
    repository_directories,
)

if TYPE_CHECKING:
    from agentcli.config.settings import Settings
    from agentcli.domain.extensions.hooks import HookConfig

Ask = Callable[[Project, Standing], bool | None]
_SIMPLE = r"(?!.*\s(?:-\w*f|--file))[^;|&`$()<>\\\n]*"  # sed -f takes a program
# formatters and linters that take only data from the directory
_STATIC = frozenset(
    {"ruff", "gofmt", "shfmt", "shellcheck", "clang-format", "taplo", "hadolint"}
    | {"yamllint", "typos", "codespell", "sed", "xmllint", "stylua", "buildifier"}
)
_SERVER_WORDS = {
    "url": "is called at",
    "env": "variable",
    "headers": "header",
    "headersHelper": "command that prints headers",
    "cwd": "directory",
}
_WORDS = {
    Standing.UNKNOWN: "Not decided yet, so its own files are ignored",
    Standing.TRUSTED: "Trusted",
    Standing.CHANGED: "Changed since it was trusted, so its own files are ignored",
    Standing.REFUSED: "Not trusted, so its own files are ignored",
}


def find_project(cwd: Path, env: Mapping[str, str], hooks: Sequence[HookConfig]) -> Project | None:
    """What the project of ``cwd`` would bring; ``None`` when that is nothing.

    ``hooks`` are those in force: scripts of the project that the user's own run count, too.
    """
    own = [hook for hook in hooks if not hook.contained and hook.command] if hooks else []
    root, home = project_root(cwd), env.get("HOME", "")
    directories = repository_directories(cwd, root, home)
    return read_project(root, home, cwd=cwd, hooks=own, directories=directories)


def user_places(settings: Settings, cwd: Path | None = None) -> tuple[ExtensionPlace, ...]:
    """Where skills, commands and agents in force are, nearest first (EXT-1, EXT-3).

    With ``cwd`` those of the repository are left out when it has changed since it was trusted.
    """
    trusted = settings.project_places
    if trusted and cwd is not None and is_changed(settings, cwd):
        trusted = ()
    home = settings.env.get("HOME", "")
    plugins = installed_plugins(settings.paths)
    repository = _of_repository(settings.project) if trusted else None
    return extension_places(trusted, home, settings.paths.config_dir, plugins, repository)


def _of_repository(root: Path | None) -> ExtensionPlace:
    """A place of the repository at ``root``, whose path is yet to be given."""
    return ExtensionPlace(
        Path(), "project", in_repository=True, root=root, is_secret=holds_credentials
    )


def holds_credentials(path: Path) -> bool:
    """Whether ``path`` is one of those that hold keys or passwords."""
    from agentcli.policy.places import credential_place  # the judge is loaded when there is a file

    return bool(credential_place((path,)))


def is_changed(settings: Settings, cwd: Path) -> bool:
    """Whether what the user trusts in the project of ``cwd`` is not what it was (SEC-17)."""
    found = find_project(cwd, settings.env, settings.hooks)
    marks = set()
    while found is not None:
        marks.add(found.fingerprint)
        found = found.outer
    return settings.project_mark not in marks


def installed_plugins(paths: Paths) -> Sequence[tuple[str, Path]]:
    """The name and root of each plugin that takes effect; one ``stat`` where there is none."""
    if not os.path.exists(paths.plugins_file):  # noqa: PTH110 - never raises
        return ()
    from agentcli.app.extensions.plugin_store import plugin_places

    return plugin_places(paths)


def plugin_lines(paths: Paths) -> Sequence[str]:
    """The plugins that take effect, a line each. Blocks."""
    from agentcli.app.extensions.plugin_store import plugin_rows

    lines = []
    for row in plugin_rows(paths):
        source = " ".join(filter(None, (row["source"], row["commit"])))
        lines.append(f"{row['name']} {row['version']} ({source}): {row['brings']}")
    return lines or ["No plugin was added. To add one: agent plugin add SOURCE"]


def of_plugins(settings: Settings) -> tuple[tuple[HookConfig, ...], tuple[str, ...]]:
    """The hooks of plugins, and lines about those whose source has changed. Blocks."""
    if not installed_plugins(settings.paths):
        return (), ()
    from agentcli.app.extensions.plugin_store import changed_sources, plugin_hooks

    hooks = () if settings.hooks_off else plugin_hooks(settings.paths)
    return hooks, changed_sources(settings.paths)


def hook_scripts(hooks: Sequence[HookConfig], cwd: Path) -> tuple[Path, ...]:
    """The files of the project of ``cwd`` that ``hooks`` run: nobody changes one unasked."""
    if not hooks:
        return ()
    from agentcli.config.hooks import scripts_of

    return scripts_of([hook for hook in hooks if hook.command], project_root(cwd), cwd)


def contained_hooks(
    hooks: Sequence[HookConfig], cwd: Path, project: Path | None
) -> tuple[HookConfig, ...]:
    """``hooks`` as they are to run in ``cwd``; ``project`` is the root of a trusted project.

    A hook of the user's that may run what a directory holds which is not trusted is contained,
    and frees no call. In a trusted one, and in the home directory, it is contained where no script
    that it names says what it runs, or one has ``make`` or its kind run what a build file says:
    nobody is asked about an edit of that. So such a hook, a project's own too, frees no call.
    """
    if not hooks:
        return ()
    from agentcli.config.hooks import (
        as_it_runs,
        finds_modules,
        is_found_out,
        may_run_from,
        run_the_directory,
        runs_what_it_reads,
    )

    root = project_root(cwd)
    is_trusted = project is not None or os.path.realpath(root) == os.path.realpath(Path.home())
    certain = frozenset({"git"} if is_trusted else ())  # what it obeys is protected

    def placed(hook: HookConfig) -> HookConfig:
        scripts = hook_scripts([hook], cwd) if hook.command else ()
        if not hook.command:
            return hook
        is_brought = bool(scripts) or hook.source.startswith(f"{root}/")
        hook = replace(hook, of_project=is_trusted and is_brought)
        if scripts:  # what was compiled beside them is not what the user has seen
            hook = replace(hook, variables=(*hook.variables, ("PYTHONPYCACHEPREFIX", os.devnull)))
        is_safe, is_open = finds_modules(hook, root, cwd)
        is_open = is_open or runs_what_it_reads(scripts, root)
        if is_safe:
            hook = replace(hook, variables=(*hook.variables, ("PYTHONSAFEPATH", "1")))
        names_all = is_trusted and scripts and not is_found_out(hook, root, cwd)
        if names_all and not is_open and not run_the_directory(scripts):
            return hook
        if is_open or scripts or may_run_from(as_it_runs(hook), root, cwd, certain):
            return replace(hook, contained=True, may_allow=is_trusted, obeys_files=True)
        return hook

    return tuple(map(placed, hooks))


def check_runs_project(command: str, cwd: Path) -> bool:
    """Whether a check in ``cwd`` may run what the project there holds (EXT-6)."""
    from agentcli.config.hooks import may_run_from
    from agentcli.domain.worktrees import is_chosen_there

    root = project_root(cwd)
    program = command.split(maxsplit=1)[0]
    if program in _STATIC and re.fullmatch(_SIMPLE, command) and (found := shutil.which(program)):
        is_inside = Path(os.path.realpath(found)).is_relative_to(os.path.realpath(root))
        return is_inside or is_chosen_there(found)
    return may_run_from(command, root, cwd)


def trusted_project(
    paths: Paths, project: Project | None, *, ask: Ask | None = None, by_option: bool = False
) -> tuple[Project | None, tuple[str, ...]]:
    """``project`` if it may take effect, and lines for the user; ``ask`` puts the question.

    Raises ``ConfigError`` when the answer cannot be kept.
    """
    if project is None:
        return None, ()
    if problem := project.problem if by_option else _problem(project):
        return None, (f"{problem}: nothing in {project.root} takes effect",)
    said = standing(paths, project.place, project.fingerprint, project.root)
    if by_option or said is Standing.TRUSTED:
        return project, ()
    trusted = None
    if ask is not None and said is not Standing.REFUSED:
        trusted = ask(project, said)
    if trusted is not None:
        decide(paths, project.place, project.fingerprint, trusted=trusted)
    if trusted:
        return project, ()
    is_news = ask is None and said is not Standing.REFUSED
    notices = (_ignored(project, said),) if is_news else ()
    outer, _ = trusted_project(paths, project.outer)  # what was said of the root holds there
    return outer, notices


def trust_lines(paths: Paths, project: Project | None) -> tuple[str, ...]:
    """How the directory stands and what it brings, for a user."""
    if project is None:
        return ("This directory has no files of its own for an agent: nothing to trust.",)
    if project.problem:
        return (project.problem,)
    said = standing(paths, project.place, project.fingerprint, project.root)
    return (f"{_WORDS[said]}: {project.place}", *project_lines(project))


def change_trust(paths: Paths, project: Project | None, *, trusted: bool) -> str:
    """Keep what the user says of the directory; the line that says so. Raises ``AgentError``."""
    if project is None:
        raise UsageError(
            "this directory has no files of its own for an agent", "there is nothing to trust"
        )
    if trusted and (problem := _problem(project)):
        raise ConfigError(problem, "fix it first")
    decide(paths, project.place, project.fingerprint, trusted=trusted)
    what = "Trusted" if trusted else "Not trusted any more"
    return f"{what}, from /reload or the next start of the chat on: {project.place}"


def project_lines(project: Project) -> list[str]:
    """What ``project`` would bring, in lines; each command that it runs whole (SEC-6, SEC-17)."""
    named = [f"{kind}: {', '.join(names)}" for kind, names in project.names if names]
    found = (*_settings_lines(project), *named, *_server_lines(project), *_file_lines(project))
    return [
        "  " + line.replace("\n", "\n      ") for line in found
    ]  # no line of it looks like ours


def _server_lines(project: Project) -> Iterator[str]:
    """Each MCP server: what would be started or called, and all else that it says (MCP-3)."""
    for name, entry in project.servers.items():
        said = dict(entry) if isinstance(entry, Mapping) else {"entry": entry}
        command = [said.get("command"), *_listed(said.get("args", []))]
        rows = []
        if all(isinstance(word, str) for word in command):
            import shlex  # where there is something to quote

            rows.append(f"runs: {shlex.join(map(str, command))}")
            said = {key: said[key] for key in said if key not in {"command", "args"}}
        elif "url" in said:
            said = {"url": said["url"]} | said
        for key, value in said.items():
            inner = value.items() if isinstance(value, Mapping) else [("", value)]
            what = _SERVER_WORDS.get(key, key)
            rows += [f"{what} {one}".rstrip() + f": {_plain(text)}" for one, text in inner]
        yield f"MCP server {name} {rows[0]}" if rows else f"MCP server {name}"
        yield from (f"  {row}" for row in rows[1:])


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _file_lines(project: Project) -> Iterator[str]:
    """What skills, commands and agents say of themselves, would run and have allowed."""
    if not project.directories:
        return
    from agentcli.extensions.agents import load_agents
    from agentcli.extensions.commands import find_commands, lines_of, of_skill
    from agentcli.extensions.skills import find_skills

    of_project = _of_repository(project.root)
    places = [replace(of_project, path=path) for path in project.directories]
    skills, _ = find_skills(places)
    commands, notices = find_commands(places)
    for command in (*commands, *map(of_skill, skills)):  # also those that only the model calls
        yield from lines_of(command)
    agents, more = load_agents(places)
    for name, agent in agents.items():
        tools = "" if agent.tools is None else f" (tools: {', '.join(agent.tools)})"
        yield f"agent {name}: {agent.description}{tools}"
    yield from (*notices, *more)


def _settings_lines(project: Project) -> list[str]:
    """Settings and hooks as they would be in force; raises nothing."""
    from agentcli.config.checks import as_line as checks_line
    from agentcli.config.hooks import as_line

    try:
        settings = _settings_of(project)
    except ConfigError as error:
        return [f"its settings cannot be used: {error}"]
    mark = str(project.file)
    marks = (mark, *(str(file.path) for file in project.claude))
    plain = [
        f"setting {name} = {_value(settings.values[name])}"
        for name, source in settings.sources.items()
        if source.startswith(marks) and not name.startswith(("hooks", "checks."))
    ]
    hooks = [f"hook on {hook.event}: {as_line(hook)}" for hook in settings.hooks]
    checks = [f"check after edits on {checks_line(check)}" for check in settings.own_checks]
    return [
        *plain,
        *hooks,
        *checks,
        *(f"left out: {_short(line, mark)}" for line in settings.warnings),
    ]


def _problem(project: Project) -> str:
    """Why nothing of it can be used: to trust it would shut the user out."""
    if project.problem:
        return project.problem
    try:
        _settings_of(project)
    except ConfigError as error:
        return error.message
    return ""


def _settings_of(project: Project) -> Settings:
    """What ``project`` says, without the user's own. Raises ``ConfigError``."""
    from agentcli.config.settings import load_settings

    nowhere = Path(os.devnull, "nowhere")  # a name that anyone could give may be there
    return load_settings(Paths(nowhere, nowhere, nowhere), {}, project=project)


def _value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _short(line: str, mark: str) -> str:
    return line.removeprefix(mark).lstrip(":")


def _ignored(project: Project, said: Standing) -> str:
    why = "has changed since you trusted it" if said is Standing.CHANGED else "is not trusted"
    how = 'start "agent" there to decide, or give --trust'
    has_settings = project.text is not None or project.claude or project.servers
    if not has_settings and not any(names for kind, names in project.names if kind != SCRIPTS):
        shown = ", ".join(name for _, names in project.names for name in names)
        return f"{shown} of your hooks runs in the sandbox: {project.root} {why} ({how})"
    files = [project.file] if project.text is not None else []
    holders = (*project.directories, *files, *(file.path for file in project.claude))
    names = dict.fromkeys(
        str(each if each in project.directories else each.parent) for each in holders
    )
    names |= {str(project.servers_file): None} if project.servers else {}
    return f"{', '.join(names)} is ignored: the directory {why} ({how})"
