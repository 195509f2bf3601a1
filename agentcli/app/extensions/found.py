"""Skills, commands and agents that users bring, for one session (EXT-1 to EXT-3).

What was found is settled when the session is opened: it is part of the cached prompt (CTX-2).
Laws: without any of these nothing is read or imported; of a repository only what the user trusts,
as it was then (SEC-17); what a file says runs is judged, and asked about, like a command of the
model's; disks are waited for in threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.trust import installed_plugins, is_changed, of_plugins, user_places
from agentcli.config.project import SERVERS_FILE
from agentcli.config.settings import Settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.values import mutable
from agentcli.engine.context.system_prompt import project_root
from agentcli.extensions.places import KINDS

if TYPE_CHECKING:
    from agentcli.app.extensions.servers import GivenServers
    from agentcli.domain.extensions.hooks import HookConfig
    from agentcli.extensions.agents import AgentDefinition
    from agentcli.extensions.commands import CustomCommand
    from agentcli.extensions.front_matter import Heads
    from agentcli.extensions.skills import Skill
    from agentcli.mcp.servers import McpServer

WINDOW_SHARE = 0.02
CHARACTERS_PER_TOKEN = 4
CHANGED = (
    "the directory's own files have changed since you trusted them and are ignored;"
    ' to decide: /trust in the chat, or start "agent" there again'
)
_MAX_HEADS_BYTES = 8_000_000
_NAME = attrgetter("name")


@mutable
class SessionExtensions:
    """What the places in force hold; ``hooks`` are those of plugins, ``notices`` for the user.

    ``readable`` are the directories of the skills, which the model may read and commands see.
    ``servers`` are the MCP servers, those that are switched off too; ``watch`` is told each secret
    of theirs that becomes known.
    ``is_changed``: a repository's is not what the user trusts any more; it blocks.
    """

    skills: tuple[Skill, ...] = ()
    commands: tuple[CustomCommand, ...] = ()
    agents: Mapping[str, AgentDefinition] = field(default_factory=dict)
    hooks: tuple[HookConfig, ...] = ()
    notices: tuple[str, ...] = ()
    is_changed: Callable[[], bool] = lambda: False
    readable: tuple[Path, ...] = ()
    servers: tuple[McpServer, ...] = ()
    watch: Callable[[Iterable[str]], None] = lambda _: None

    def catalogue(self, window_tokens: int) -> str:
        """The skills as the model is told of them: 2 % of its window, 8,000 characters at most."""
        from agentcli.extensions.skills import catalogue

        text, notice = catalogue(
            self.skills, int(WINDOW_SHARE * window_tokens * CHARACTERS_PER_TOKEN)
        )
        self.notices += (notice,) if notice else ()
        return text

    def names(self) -> dict[str, list[str]]:
        """The names of what there is, under the kinds that programs which start us know."""
        return {
            "slash_commands": list(map(_NAME, self.commands)),
            "agents": list(self.agents),
            "skills": list(map(_NAME, self.skills)),
            "mcp_servers": list(map(_NAME, filter(attrgetter("enabled"), self.servers))),
        }

    def texts(self, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The skills of these ``names`` as an agent begins with them, and what is wrong. Blocks."""
        if not names:
            return "", ()
        from agentcli.extensions.front_matter import Unusable
        from agentcli.extensions.skills import text_of

        known = {skill.name: skill for skill in self.skills}
        changed = self.is_changed()
        texts, problems = [], []
        for name in names:
            skill = known.get(name.strip().lower())
            try:
                if skill is None:
                    problems.append(f"names the skill {name!r}, which does not exist")
                elif skill.place.in_repository and changed:
                    problems.append(f"goes without the skill {name}: {CHANGED}")
                else:
                    texts.append(text_of(skill))
            except Unusable as error:
                problems.append(f"goes without the skill {name}: {error}")
        return "\n\n".join(texts), tuple(problems)


async def find_extensions(
    settings: Settings, cwd: Path, given: Sequence[GivenServers] = (), *, is_strict: bool = False
) -> SessionExtensions:
    """What there is; imports nothing where there is nothing.

    ``given`` are MCP servers of the start; with ``is_strict`` no others count.
    """
    found = SessionExtensions(is_changed=partial(is_changed, settings, cwd))
    for place in user_places(settings):
        if place.plugin or any(_holds_any(place.path / kind) for kind in KINDS):
            found = await asyncio.to_thread(_find, settings, cwd)
            break
    else:  # plugins that have lost their files are no places
        if installed_plugins(settings.paths):
            found = await asyncio.to_thread(_find, settings, cwd)
    if given or (not is_strict and has_servers(settings, cwd)):
        from agentcli.app.extensions.servers import find_servers

        configured = await asyncio.to_thread(
            find_servers, settings, cwd, given, is_strict=is_strict
        )
        found.servers = configured.servers
        found.notices += configured.notices
    return found


def has_servers(settings: Settings, cwd: Path) -> bool:
    """Whether MCP servers may be configured: a few ``stat`` where there are none (MCP-2)."""
    return bool(
        settings.mcp_servers
        or settings.project_servers
        or installed_plugins(settings.paths)
        or os.path.lexists(settings.paths.servers_file)
        or os.path.lexists(project_root(cwd) / SERVERS_FILE)
    )


def _find(settings: Settings, cwd: Path) -> SessionExtensions:
    places = user_places(settings, cwd)
    found = SessionExtensions(is_changed=partial(is_changed, settings, cwd))
    if settings.project_places and not any(place.in_repository for place in places):
        found.notices += (CHANGED,)
    from agentcli.extensions.commands import find_commands
    from agentcli.extensions.skills import find_skills

    with _heads(settings) as heads:
        found.skills, notices = find_skills(places, heads)
        found.notices += notices
        found.readable = _readable(found.skills)
        commands, notices = find_commands(places, found.skills, heads)
        found.commands = tuple(commands)
        found.notices += notices
        if any(_is_directory(place.path / "agents") for place in places):
            from agentcli.extensions.agents import load_agents

            found.agents, notices = load_agents(places, heads)
            found.notices += notices
    found.hooks, notices = of_plugins(settings)
    found.notices += notices
    return found


def _readable(skills: Sequence[Skill]) -> tuple[Path, ...]:
    """Of a repository only what lies in it: a link of its own opens no other directory."""
    found: list[Path] = []
    for skill in skills:
        real = Path(os.path.realpath(skill.directory))
        around = Path(os.path.realpath(skill.place.path.parent))
        if not skill.place.in_repository or real.is_relative_to(around):
            found.append(real)
    return tuple(dict.fromkeys(found))


@contextmanager
def _heads(settings: Settings) -> Iterator[Heads]:
    """What was parsed before; kept where there is more of it by the end (EXT-2)."""
    from agentcli.extensions.front_matter import Heads

    file = settings.paths.heads_file
    text = ""
    with suppress(OSError, ValueError), file.open("rb") as opened:
        data = opened.read(_MAX_HEADS_BYTES + 1)
        text = data.decode() if len(data) <= _MAX_HEADS_BYTES else ""
    heads = Heads(text)
    yield heads
    if heads.has_news:
        from agentcli.config.paths import write

        with suppress(ConfigError, OSError):  # it is looked at again next time
            write(file, heads.text())


def _holds_any(path: Path) -> bool:
    """Whether there is anything in the directory; true where that may not be known."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - never raises
