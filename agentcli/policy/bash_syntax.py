"""Judges bash by its syntax: which simple commands would a text run? (SEC-4)

Law: whatever bash would run is listed, or ``understood`` is false: also where a text holds a
character that a user would not see, or that bash and the parser may read differently.
``parse_bash`` never raises and answers within a second whatever the text.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import lru_cache
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import Loop, ParsedCommand, SimpleCommand, unquote, within_quotes
from agentcli.policy.bash_wrappers import Inner, evaluates, look_through

if TYPE_CHECKING:
    from agentcli.policy.bash_tree import Tree

MAX_CHARS = 100_000
_SEPARATORS = LazyPattern(r"[;&|\n\r(){}`]|\$\(")
_COPY = LazyPattern(r"(?<![0-9])[0-9]*[<>]&(?:[0-9]+-?|-)(?![^\s;&|<>()])")
_REDIRECTION = LazyPattern(r"(?<![0-9])[0-9]*(?:<<<|<<-?|>>|<>|>\||[<>])&?[ \t]*[^ \t<>]*")
_WRITTEN = LazyPattern(
    r"""(?:>>|<>|>\||>)&?(?:[\ \t]|\\\n)*((?:"[^"\n]*"|'[^'\n]*'|\\(?s:.)
    |\$\((?:[^()]|\([^()]*+\))*+\)|`[^`]*+`|\$\{[^{}]*+\}|[^\s<>;&|()"'])+)""",
    re.VERBOSE,
)
_NAMED = LazyPattern(r"(?:\$\{([A-Za-z_]\w*)\}|\$\(pwd\)|`pwd`)(?!\w)")
_QUOTING = LazyPattern(r"\\\n|\$(?=['\"])|['\"\\]")
_ASSIGNMENT = LazyPattern(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=.*", re.DOTALL)
_KEYWORDS = frozenset(
    {
        "if", "then", "elif", "else", "while", "until", "do", "!", "time", "coproc", "function",
        "in", "case", "for", "select",
    }
)  # fmt: skip
_RUNS_OTHERS = frozenset(
    {
        "bash", "builtin", "bunx", "busybox", "bwrap", "capsh", "ccache", "cgexec", "chroot",
        "command",
        "concurrently", "cpulimit", "cross-env", "cross-env-shell", "dash", "distcc", "doas",
        "dotenv", "env", "envchain", "envdir", "eval", "exec", "find", "firejail", "flatpak-spawn",
        "flock", "gdb", "heaptrack", "nix-shell",
        "hyperfine", "ionice", "ksh", "lima", "mpiexec", "mpirun", "nice", "nodemon", "nohup",
        "npx", "nsenter", "nsjail", "parallel", "pnpx", "proot", "runcon", "sccache", "screen",
        "script", "setsid", "sg", "sh", "softlimit", "srun", "ssh", "ssh-agent", "sshpass",
        "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
        "timeout", "tmux", "trap", "unshare", "uvx", "watch", "watchexec", "wsl", "xargs", "zsh",
    }
)  # fmt: skip
# programs that do so behind such a word
_RUNNERS = {
    name: frozenset(words.split())
    for names, words in (
        ("uv poetry pdm rye hatch pipenv pipx conda mamba micromamba toolbox op doppler", "run"),
        ("npm pnpm yarn bun bundle rbenv pyenv nodenv mise asdf direnv", "exec dlx x"),
        ("docker podman nerdctl docker-compose apptainer singularity", "exec run"),
        ("infisical foreman honcho devbox", "run"),
        ("aws-vault chamber kubectl multipass lxc incus lerna tox turbo", "exec"),
        ("nix guix", "develop run shell"),
        ("distrobox", "enter"),
        ("vagrant", "ssh"),
        ("sops", "exec-env exec-file"),
        ("perf", "record stat trace"),
    )
    for name in names.split()
}
_MAX_INNER = 100
MAX_TOKENS = 1_500
_EXPANDING = LazyPattern(r"[$`\\]")
_PATTERN = LazyPattern(r"[][*?]")
_NO_PATTERNS = frozenset({"[", "[[", "]", "]]"})
_MAX_HEREDOCS = 40
_MAX_ROUGH = 5_000
_MAX_ROUGH_WORDS = 500
_ORDINARY = LazyPattern(r"[\t\n -~]*")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
# what ``joined`` follows: comments, quotes without expansions, escapes, harmless characters
_PIECE = LazyPattern(
    r"""(?<![^\s;&|()])\#[^\n]* | '[^']*' | "(?:\\.|[^"\\`$])*" | \\. | \$(?=\w)
    | <(?!<) | \[(?!\[) | [^'"\\`$<\[]""",
    re.DOTALL | re.VERBOSE,
)
# what the parser reads as one: quoted texts, comments and the bodies of here-documents
_LUMP = LazyPattern(
    r"""(?P<quoted>'[^']*' | "(?:\\.|[^"\\`$])*") | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
    | <<-?[ ]*(?P<quote>['"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)[^\n'"\\`$<#]*\n
      (?P<body>(?:(?!\t*(?P=end)(?:\n|\Z)).*\n)*)\t*(?P=end)(?=\n|\Z)
    | \\. | (?<![$<])[^'"\\`<\[(] | <(?!<) | \[(?!\[) | (?<![(@?*+!])\((?!\()""",
    re.VERBOSE,
)
_TOKEN = LazyPattern(r"\w+|[^\w\s]")
_MAX_WRAPPERS = 12
_MAX_SCRIPTS = 40
_MAX_TOKENS = 2 * MAX_TOKENS
_MAX_COMMANDS = 6_000
_MAX_INNER_WORDS = 20_000
_SHELLS = frozenset({"bash", "sh", "dash", "ash", "rbash", "zsh", "ksh"})


@lru_cache(maxsize=16)
def parse_bash(text: str) -> ParsedCommand:
    """Every simple command of ``text``, wrappers such as ``sudo`` looked through.

    The newest few are kept, since a call is judged more than once.
    """
    reading = _Reading([], "")
    tree = reading.script(text, ())
    why_not = reading.why_not
    loops = (*tree.loops, *reading.inner_loops)
    found = tuple(reading.found)
    return ParsedCommand(found, not why_not, why_not, tree.plain, tree.kinds, loops, tree.subshells)


@frozen
class _Open:
    """A script or a command that is still to be looked through."""

    script: str | None
    command: SimpleCommand | None
    wrappers: tuple[str, ...]


@mutable
class _Reading:
    """One text being read. Work waits in a queue: nothing here recurses."""

    found: list[SimpleCommand]
    why_not: str
    inner_loops: list[Loop] = field(default_factory=list)
    scripts: int = 0
    tokens: int = 0
    words: int = 0

    def script(self, text: str, wrappers: tuple[str, ...]) -> Tree:
        """Read ``text`` and all that it wraps; its own syntax."""
        waiting: deque[_Open] = deque()
        tree = self._parse(text, wrappers, waiting)
        while waiting and len(self.found) < _MAX_COMMANDS:
            item = waiting.popleft()
            if item.command is not None:
                self._look(item.command, waiting)
            elif item.script is not None:
                self._parse(item.script, item.wrappers, waiting)
        if waiting:
            self._doubt("it holds too many commands")
        return tree

    def _doubt(self, why_not: str) -> None:
        self.why_not = self.why_not or why_not

    def _parse(self, text: str, wrappers: tuple[str, ...], waiting: deque[_Open]) -> Tree:
        from agentcli.policy.bash_tree import Tree, read_tree

        self.scripts += 1
        if self.scripts > _MAX_SCRIPTS:
            self._doubt("it nests too many scripts")
            return Tree((), self.why_not, plain=False)
        if why_not := why_unreadable(text) or self._too_costly(text):
            self._doubt(why_not)
            if len(text) <= MAX_CHARS:  # rules that forbid look for the names in a longer one
                self._roughly(text, wrappers, waiting, is_torn=True)
            return Tree((), why_not, plain=False)
        tree = read_tree(joined(text))
        if self.scripts > 1:  # a part of a word has no place in the whole
            self.inner_loops += (replace(loop, start=-1, end=-1) for loop in tree.loops)
        for command in reversed(tree.commands):
            within = replace(command, wrappers=wrappers) if wrappers else command
            waiting.appendleft(_Open(None, within, wrappers))
        if tree.why_not:
            self._doubt(tree.why_not)
            self._roughly(text, wrappers, waiting, is_torn=tree.is_torn)
        return tree

    def _too_costly(self, text: str) -> str:
        """Long texts are parsed only when their skeleton is short and without a fault."""
        cost = tokens(text)
        if cost >= MAX_TOKENS:
            short = skeleton(text)
            cost = tokens(short)
            if cost < MAX_TOKENS and self.tokens + cost < _MAX_TOKENS:
                from agentcli.policy.bash_tree import is_well_formed

                if not is_well_formed(short):
                    return "it is not complete shell syntax"
        self.tokens += cost
        too_long = cost >= MAX_TOKENS or self.tokens > _MAX_TOKENS
        return "it is too long to be judged" if too_long else ""

    def _roughly(
        self, text: str, wrappers: tuple[str, ...], waiting: deque[_Open], *, is_torn: bool
    ) -> None:
        """What may be commands where there is no syntax tree, for rules that forbid; bounded.

        ``is_torn``: a word with an expansion may be told as several, and be any program, as a
        pattern may that finds one's name.
        """
        if is_torn and _EXPANDING.search(text):
            waiting.append(_Open(None, SimpleCommand((None,), "$…", wrappers=wrappers), wrappers))
        lists = islice(word_lists(text, _MAX_ROUGH_WORDS), _MAX_ROUGH)
        for words in dict.fromkeys(map(tuple, lists)):
            shown = " ".join(words)
            is_made = is_torn and words[0] not in _NO_PATTERNS and _PATTERN.search(words[0])
            seen = (None, *words[1:]) if is_made else words
            command = SimpleCommand(seen, shown, wrappers=wrappers, sources=words)
            waiting.append(_Open(None, command, wrappers))

    def _without_first(self, command: SimpleCommand, waiting: deque[_Open]) -> None:
        """The expansion may be nothing at all: then the next word is the program."""
        self._doubt("it is not known which program it runs")
        self.words += len(command.words)
        if len(command.words) > 1 and self.words <= _MAX_INNER_WORDS:
            inner = Inner(command.words[1:], 1)
            waiting.appendleft(_opened(command, inner, command.wrappers))

    def _look(self, command: SimpleCommand, waiting: deque[_Open]) -> None:
        self.found.append(command)
        if not command.words:
            return
        name = command.words[0]
        if name is None:
            self._without_first(command, waiting)
        base = (name or "").rpartition("/")[2]
        wrappers = (*command.wrappers, base)
        if base in _SHELLS or name in {"source", "."}:
            for body in command.fed:
                waiting.appendleft(_Open(body, None, wrappers))
        looked = look_through(command.words)
        self._doubt(evaluates(command.words, command.sources) or looked.why_not)
        if looked.why_not and None in command.words[1:]:  # a script, perhaps, as it is written
            both = zip(command.words[1:], command.sources[1:], strict=False)
            unseen = "\n".join(
                unquote(source) or within_quotes(source) for word, source in both if word is None
            )
            text = within_quotes(" ".join(command.sources[1:])) if base == "eval" else unseen
            waiting.appendleft(_Open(text, None, wrappers))
        if not looked.inner:
            return
        if len(wrappers) > _MAX_WRAPPERS:
            self._doubt("it wraps commands too deeply")
            return
        self.words += sum(len(inner.words) for inner in looked.inner)
        if self.words > _MAX_INNER_WORDS:
            self._doubt("it wraps too many commands")
            return
        for inner in reversed(looked.inner):
            waiting.appendleft(_opened(command, inner, wrappers))


def _opened(outer: SimpleCommand, inner: Inner, wrappers: tuple[str, ...]) -> _Open:
    if inner.script is not None:
        return _Open(inner.script, None, wrappers)
    place = slice(inner.start, inner.start + len(inner.words))
    own, written = outer.words[place], outer.sources[place]
    if len(outer.sources) != len(outer.words):
        own = written = ()
    if inner.words == own:
        sources, shown = written, " ".join(written)
    else:
        shorts = tuple("…" if word is None else shlex.quote(word) for word in inner.words)
        shown = " ".join(shorts)
        # what the shell, or the wrapper, puts another text in is told of as it is written
        each = zip_longest(inner.words, written, shorts, fillvalue="")
        sources = tuple((word is None and source) or short for word, source, short in each)
    command = SimpleCommand(
        inner.words,
        shown,
        redirections=tuple(each for each in outer.redirections if each.text is not None),
        wrappers=wrappers,
        sources=sources,
    )
    return _Open(None, command, wrappers)


# --- the text before it is parsed ------------------------------------------------------------


def why_unreadable(text: str) -> str:
    """Why this text is not judged by its syntax; empty when it is."""
    if len(text) > MAX_CHARS:
        return f"it is longer than {MAX_CHARS} characters"
    if not _ORDINARY.fullmatch(text):
        for char in text:
            if char not in "\t\n " and unicodedata.category(char) in _HIDDEN:
                return f"it holds the invisible character U+{ord(char):04X}"
    if text.count("<<") > _MAX_HEREDOCS:
        return "it holds too many here-documents"
    return ""


def tokens(text: str) -> int:
    """About how many tokens the parser makes of it: a faulty text costs it their square."""
    if len(text) < MAX_TOKENS:
        return len(text)
    return sum(1 for _ in islice(_TOKEN.finditer(text), _MAX_TOKENS))


def skeleton(text: str) -> str:
    """``text`` with its long quoted parts emptied: short, and no less faulty than the whole."""
    out: list[str] = []
    at = 0
    while at < len(text):
        found = _LUMP.match(text, at)
        if found is None:
            break
        at = found.end()
        body = found["body"]
        if found["quoted"]:
            out.append(found[0][0] + "x" + found[0][0])
        elif body and (found["quote"] or not _EXPANDING.search(body)):
            out.append(found[0].replace(body, "x\n", 1))
        elif not found["comment"]:
            out.append(found[0])
    return "".join(out) + text[at:]


def joined(text: str) -> str:
    r"""``text`` without the line continuations (``\`` at a line's end) that bash removes.

    Stops at what it does not follow: substitutions, here-documents, tests and ``$'…'``.
    """
    if "\\\n" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            break
        if piece[0] != "\\\n":
            inside = piece[0].replace("\\\\", "\0").replace("\\\n", "").replace("\0", "\\\\")
            out.append(inside if piece[0].startswith('"') else piece[0])
        at = piece.end()
    return "".join(out) + text[at:]


# --- without a parser -----------------------------------------------------------------------------
# The net below the syntax tree, for rules that forbid and for what the parser does not understand.
# A command that bash would run is among the parts, as far as it is written out; parts that bash
# would not run may be among them too.


def unquoted(text: str) -> str:
    """``text`` without quotes, backslashes and joined lines."""
    return _QUOTING.sub("", text)


def parts_of(text: str) -> Iterator[str]:
    """The text and whatever in it may be run as a command, without quotes, spaces made one."""
    yield text
    for source in dict.fromkeys((text, unquoted(text))):
        for piece in _pieces_of(source):
            yield piece.strip()
            for words in _commands_in(_REDIRECTION.sub(" ", unquoted(piece)).split()):
                yield " ".join(words)


def _pieces_of(text: str) -> Iterable[str]:
    return dict.fromkeys(_SEPARATORS.split(_COPY.sub(" ", text)))


def word_lists(text: str, most: int | None = None) -> Iterator[list[str]]:
    """The commands of ``parts_of`` as words, at most so many of each."""
    named = _NAMED.sub(lambda found: f"${found[1] or 'PWD'}", text)  # which begins no command
    for source in dict.fromkeys((text, unquoted(text), named, unquoted(named))):
        for piece in _pieces_of(source):
            yield from _commands_in(_REDIRECTION.sub(" ", unquoted(piece)).split(), most)


def written_names(text: str) -> Iterator[str]:
    """Whatever stands behind a redirection that writes, as it is written."""
    for found in _WRITTEN.finditer(text[:MAX_CHARS]):
        yield found[1]
        before, ends, _ = found[1].partition("`")  # perhaps those of a substitution around it
        if ends and before:
            yield before


def matches_pattern(text: str, pattern: str) -> bool:
    """Whether ``pattern`` covers ``text``: ``*`` is any text, a final `` *`` also none."""
    if text == pattern:
        return True
    if pattern.endswith(" *") and text == pattern[:-2]:
        return True
    return "*" in pattern and fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def names_command_of(pattern: str, text: str) -> bool:
    """Whether ``text`` holds the first word of ``pattern`` at all, quoted or not."""
    start = re.split(r"[*?]", pattern, maxsplit=1)[0].split()
    return not start or start[0] in text or start[0] in unquoted(text)


def _commands_in(words: list[str], most: int | None = None) -> Iterator[list[str]]:
    most = most or len(words)
    start = 0
    while start < len(words) and (
        words[start] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[start]) is not None
    ):
        start += 1
    if start == len(words):
        return
    yield from _named(words[start : start + most])
    name = words[start].rpartition("/")[2]
    end = min(len(words), start + _MAX_INNER)
    behind = _RUNNERS.get(name, frozenset())
    says = (at for at in range(start + 1, end) if words[at] in behind)
    first = start if name in _RUNS_OTHERS else next(says, end)
    for inner in range(first + 1, end):
        yield from _named(words[inner : inner + most])


def _named(words: list[str]) -> Iterator[list[str]]:
    """A command as written, and by its program's bare name."""
    yield words
    yield [words[0].rpartition("/")[2], *words[1:]]
