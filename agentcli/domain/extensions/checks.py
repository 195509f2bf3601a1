"""A check after edits: a formatter or a linter that runs on the files that a batch has changed."""

from __future__ import annotations

from agentcli.domain.values import frozen

DEFAULT_TIMEOUT_S = 10.0
_RUNNERS = frozenset(
    {"uv", "uvx", "run", "npx", "pnpm", "exec", "bunx", "poetry", "pdm", "python", "python3", "sh"}
)


@frozen
class CheckConfig:
    """One ``[[checks]]`` of the settings, or one that a project's own configuration stands for.

    ``globs`` select the files, tried as ``glob_files`` tries them. ``format`` may change the files,
    ``check`` only looks; in both ``{files}`` stands for their quoted names, which are appended
    where it is missing and ``adds_files`` is set. With ``is_filter`` the formatter reads one file
    from standard input and prints what it should be. ``runs_project``: it may run code that
    the project holds, so it never runs outside of a sandbox. ``source`` says where it is written.
    """

    globs: tuple[str, ...]
    format: str = ""
    check: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    adds_files: bool = True
    is_filter: bool = False
    runs_project: bool = False
    source: str = ""

    @property
    def name(self) -> str:
        """What users know it by: its programs."""
        return " and ".join(dict.fromkeys(map(program_of, self.commands)))

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines as they are written."""
        return tuple(filter(None, (self.format, self.check)))


def program_of(command: str) -> str:
    """The program that a command line is about: its first word that only has another one run."""
    words = [word.rpartition("/")[2] for word in command.split()]
    own = (
        word
        for word in words
        if word and word[0] != "-" and "=" not in word and word not in _RUNNERS
    )
    return next(own, words[0] if words else "")


@frozen
class CheckReport:
    """What checks have said of a batch: for the model, and lines for the user (EXT-6).

    ``warnings`` are of checks that could not do their work.
    """

    feedback: str = ""
    news: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
