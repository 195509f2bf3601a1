"""Shell commands that are known to change nothing (LOOP-4, SEC-3, SEC-4).

Law: a command is read-only when it is a list or pipe of known programs whose every word is
known, each with known options, whose files stay in the workspace. The syntax tree and a second
reading by hand must agree on the words. Whatever is not certain is not read-only.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentcli.domain.tools import Workspace
from agentcli.domain.values import frozen
from agentcli.policy.bash_command import Redirection, SimpleCommand
from agentcli.policy.bash_plain import read_plain
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.bash_text import joined
from agentcli.policy.bash_words import unquote
from agentcli.policy.bash_wrappers import look_through
from agentcli.policy.read_only_options import Reading, UnknownOptionError
from agentcli.policy.read_only_special import SPECIAL
from agentcli.policy.read_only_tables import (
    BUILT_IN,
    FOLLOWING,
    HELPERS,
    PATTERN_GIVEN,
    Spec,
    spec_of,
)

# another project's table wants a person to see this text, though it is only printed
_QUOTED_DELETION = re.compile(r"\brm\s+-")
_MOST_OPERANDS = {"none": 0, "file": 1}
_NO_FILES = frozenset({"none", "text"})
# no option that a file could be named like would have them write or run anything
_HARMLESS_WITH_ANY_OPTION = frozenset(
    {
        "cat", "ls", "dir", "head", "wc", "stat", "du", "grep", "egrep", "fgrep", "cksum", "md5sum",
        "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum",
    }
)  # fmt: skip
_GLOB = re.compile(r"[A-Za-z0-9_./@%+=:,*?-]*[*?][A-Za-z0-9_./@%+=:,*?-]*", re.ASCII)
_MAX_MATCHES = 500
_MAX_SEEN = 3_000
_NULL = "/dev/null"
# wrappers that change how long or how urgently a program runs, not what it does
_HARMLESS_WRAPPERS = frozenset({"timeout", "time", "nice", "stdbuf"})


def is_read_only(command: str, workspace: Workspace, search_path: str | None = None) -> bool:
    """Whether ``command`` certainly changes nothing and reads only the workspace.

    ``workspace.cwd`` is the shell's directory: it must be there and in the workspace as well,
    since commands without operands read it. ``search_path`` is the shell's ``PATH`` (by default
    our own): a program that it finds inside the workspace is the repository's (SEC-2).
    """
    parsed = parse_bash(command)
    if not (parsed.understood and parsed.plain and parsed.commands):
        return False
    again = read_plain(joined(command))
    own = [each for each in parsed.commands if not each.wrappers]
    if again is None or [each.words for each in again] != [each.sources for each in own]:
        return False
    written = {(op.lstrip("0123456789"), unquote(to)) for c in again for op, to in c.redirections}
    if written != {(one.operator, one.target) for c in own for one in c.redirections}:
        return False
    place = _Place(workspace, search_path)
    return place.is_safe() and all(map(place.only_reads, own))


def reads_only(command: SimpleCommand, workspace: Workspace, search_path: str | None) -> bool:
    """Whether this one command of an understood text only reads, run in ``workspace.cwd``.

    For texts that a rule allows in part. The caller must know that no other command of the text
    changes the shell: its directory, its variables, its functions.
    """
    place = _Place(workspace, search_path)
    return place.is_safe() and place.only_reads(command)


def _takes_matches(words: Sequence[str], source: str) -> bool:
    """Whether a glob may stand behind ``words``, whatever files there are by the time it runs."""
    if not words:
        return False
    if source[0] in "*?" and "--" not in words:
        return words[0] in _HARMLESS_WITH_ANY_OPTION
    spec = spec_of(words[0])
    return spec is None or spec.operands not in _MOST_OPERANDS


@frozen
class _Place:
    """Where commands run: what they may read, and which programs are the system's."""

    workspace: Workspace
    search_path: str | None

    def is_safe(self) -> bool:
        cwd = self.workspace.cwd
        return cwd.is_dir() and self.workspace.contains(cwd)

    def only_reads(self, command: SimpleCommand) -> bool:
        if command.assignments or not all(map(self._harmless, command.redirections)):
            return False
        words: list[str] = []
        for word, source in zip(command.words, command.sources, strict=True):
            found = [word] if word is not None else self._matches(source)
            if found is None or (word is None and not _takes_matches(words, source)):
                return False
            words += found
        return bool(words) and self._call(words, in_shell=True)

    def may_read(self, path: str) -> bool:
        """Whether a file operand stays in the workspace; ``-`` is standard input."""
        if path in {"-", _NULL}:
            return True
        try:
            return self.workspace.contains(self.workspace.resolve(path))
        except (RuntimeError, ValueError):  # a user who is not there; no name of a file
            return False

    def _harmless(self, redirection: Redirection) -> bool:
        target = redirection.target
        if redirection.operator == "<":
            return target is not None and self.may_read(target)
        if redirection.operator == ">&":
            return target in {"1", "2"}
        return redirection.operator in {">", ">>", "&>", "&>>"} and target == _NULL

    def _matches(self, source: str) -> list[str] | None:
        """What bash makes of a glob, judged now; ``None`` when that is not certain."""
        if not _GLOB.fullmatch(source):
            return None
        found = []
        for match in glob.iglob(source, root_dir=self.workspace.cwd):  # noqa: PTH207 - as bash does: relative words
            found.append(match)
            if len(found) > _MAX_MATCHES or match.startswith("-"):
                return None
        return sorted(found) or [source]

    def _call(self, words: Sequence[str], *, in_shell: bool) -> bool:
        name = words[0]
        if name in _HARMLESS_WRAPPERS:
            return self._wrapped(words, in_shell=in_shell)
        if name == "cd":
            return in_shell and self._stays(words)
        built_in = in_shell and name in BUILT_IN
        if not built_in and not all(map(self._is_foreign, (name, *HELPERS.get(name, ())))):
            return False
        if special := SPECIAL.get(name):
            return special(words, self.may_read)
        spec = spec_of(name)
        return spec is not None and self._fits(words, spec)

    def _wrapped(self, words: Sequence[str], *, in_shell: bool) -> bool:
        name = words[0]
        if name == "time":
            rest = words[2:] if words[1:2] == ["-p"] else words[1:]
            return in_shell and bool(rest) and self._call(rest, in_shell=True)
        looked = look_through(tuple(words))
        if looked.why_not or len(looked.inner) != 1 or not self._is_foreign(name):
            return False
        inner = [word for word in looked.inner[0].words if word is not None]
        return bool(inner) and self._call(inner, in_shell=False)

    def _stays(self, words: Sequence[str]) -> bool:
        """Whether ``cd`` goes where the shell already is: nothing is to be remembered."""
        if len(words) != 2 or not words[1].startswith(("/", ".")):  # noqa: PLR2004 - cd and a directory
            return False
        cwd = self.workspace.cwd
        return os.path.realpath(self.workspace.resolve(words[1])) == os.path.realpath(cwd)

    def _is_foreign(self, program: str) -> bool:
        """Whether the program is found, and not in a directory that the repository could fill.

        A ``PATH`` that was changed must lead to the same program as our own: a command that was
        approved for one thing has not named what others run.
        """
        if "/" in program:
            return False
        found = self._found(program, self.search_path)
        if found is None or self.search_path is None:
            return found is not None
        return found == self._found(program, None)

    def _found(self, program: str, search_path: str | None) -> str | None:
        """Where bash finds it, all links followed; ``None``: not, or where it may not be."""
        path = os.environ.get("PATH", os.defpath) if search_path is None else search_path
        entries = path.split(os.pathsep)
        if not path or any(entry.startswith("~") for entry in entries):
            return None  # bash expands it
        # bash looks from where it is, and takes an empty entry for that place
        places = os.pathsep.join(str(self.workspace.cwd / entry) for entry in entries)
        found = shutil.which(program, path=places)
        if found is None or self.workspace.contains(Path(found).parent):
            return None
        return None if self.workspace.contains(Path(found)) else os.path.realpath(found)

    def _fits(self, words: Sequence[str], spec: Spec) -> bool:
        """Whether all options are in the table and all files in the workspace."""
        if spec.operands == "any":
            return not any(map(_QUOTED_DELETION.search, words))
        try:
            reading = Reading.of(words, spec)
        except UnknownOptionError:
            return False
        operands = reading.operands
        if len(operands) > _MOST_OPERANDS.get(spec.operands, len(operands)):
            return False
        if spec.operands == "pattern" and PATTERN_GIVEN.isdisjoint(reading.options):
            operands = operands[1:]
        files = reading.files + (operands if spec.operands not in _NO_FILES else [])
        if words[0] == "strings" and any(word.startswith("@") for word in words):
            return False  # a file of further arguments
        if not all(map(self.may_read, files)):
            return False
        follows = words[0] == "diff" or not FOLLOWING.isdisjoint(reading.options)
        return not follows or self._holds_no_way_out(files or ["."])

    def _holds_no_way_out(self, names: Sequence[str]) -> bool:
        """Whether no link below these directories leads out of the workspace; bounded."""
        waiting = [self.workspace.resolve(name) for name in names if name != "-"]
        seen = 0
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        seen += 1
                        path = Path(entry.path)
                        if seen > _MAX_SEEN:
                            return False
                        if entry.is_symlink() and not self.workspace.contains(path):
                            return False
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path)
            except NotADirectoryError:
                continue
            except OSError:
                return False
        return True
