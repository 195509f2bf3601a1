"""Hooks as they are written in ``config.toml``.

Three spellings mean the same, so that hooks of other agents can be pasted::

    [[hooks.PreToolUse]]          [[hooks.PreToolUse]]            [[hooks]]
    matcher = "bash"              matcher = "bash"                event = "PreToolUse"
    command = "check"             [[hooks.PreToolUse.hooks]]      matcher = "bash"
    timeout_s = 10                type = "command"                command = "check"
                                  command = "check"
                                  timeout = 10

Law: a value that is wrong is refused (a guard that is silently not there is worse than none); an
event that does not exist here is a warning.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.config.toml_file import locate
from agentcli.domain.extensions.hooks import HookConfig, HookEvent
from agentcli.domain.files import real_text, walk
from agentcli.domain.said import files_said, scripts_said
from agentcli.domain.sandbox import has_obeyed
from agentcli.domain.worktrees import filled_by_others, is_chosen_there, lies_in

MAX_TIMEOUT_S = 3600.0
_PROJECT_DIRECTORY = re.compile(
    r"\$(?:\{(?:CLAUDE|AGENTCLI)_PROJECT_DIR(?::?-[^{}]*)?\}|(?:CLAUDE|AGENTCLI)_PROJECT_DIR\b)"
)
_TOP_BY_GIT = re.compile(
    r"\$\(git rev-parse --show-toplevel[^()`]*\)|`git rev-parse --show-toplevel[^()`]*`"
)
_WORKING_DIRECTORY = re.compile(r"\$(?:\{PWD\}|PWD\b)|\$\(pwd\)|`pwd`")
_HOME = re.compile(r"\$(?:\{HOME\}|HOME\b)")
_PATH = re.compile(r"/|\.\w{1,5}$")
_SCRIPT = re.compile(
    r"\.(?:sh|bash|zsh|ksh|fish|pyw?|pyz|[cm]?[jt]s|rb|pl|php|lua|r|ps1|awk|sed|tcl|exs"
    r"|jar|dll|wasm|jl|kts|groovy|clj|rkt|scm|scpt)$",
    re.IGNORECASE,
)
# what is run of a directory that an interpreter is given; a package's names the rest
_OF_DIRECTORY = (
    "__main__.py",
    "package.json",
    *(f"index.{end}" for end in ("js", "mjs", "cjs", "ts")),
)
_NAMED_IN_SCRIPT = re.compile(
    r"(?<![\w./-])[\w./-]+\.(?:sh|bash|zsh|fish|py|[cm]?[jt]s|rb|pl|php|lua)\b|/[\w.-]+/[\w./-]+"
)
# what such a script takes from elsewhere
_IMPORTS = re.compile(r"(?m)^[ \t]*(?:from[ \t]+|import[ \t]+)([\w.]*(?:[ \t]*,[ \t]*[\w.]+)*)")
_ODD_IMPORTS = re.compile(r"\bsys\.path\b|importlib|__import__|runpy|\bsite\b")
_JS_IMPORTS = re.compile(
    r"""(?:\brequire|\bimport)\b[\s(]*["'`]([^"'`]+)["'`]|\bfrom\s*["']([^"']+)["']"""
)
_JS_OWN = frozenset(
    {
        "assert", "buffer", "child_process", "crypto", "events", "fs", "fs/promises", "http",
        "https", "net", "os", "path", "process", "readline", "stream", "timers", "tty", "url",
        "util", "worker_threads", "zlib",
    }
)  # fmt: skip
_JAVASCRIPT = re.compile(r"\.[cm]?[jt]s")
_OTHER = re.compile(r"\.(?:rb|pl|php|lua|r|tcl|exs)", re.IGNORECASE)
_LOADS = re.compile(r"\b(?:require\w*|load\w*|include\w*|use\s+lib|do|dofile|source)\b")
_PYTHON = re.compile(r"\b(?:python|pypy)[\d.]*(?:\s|$)")
_PYTHON_FILE = re.compile(r"(?:(?<![\w-])|(?<=\.pyw)|(?<=\.py))[\w-]+\.pyw?\b")
_PYTHON_TEXT = re.compile(r"\b(?:python|pypy)[\d.]*(?:[ \t]+-\w+)*[ \t]+(?:-\w*[cm]\b|-(?!\w)|<<)")
_MODULE = re.compile(r"\b(?:python|pypy)[\d.]*(?:[ \t]+-\w+)*[ \t]+-\w*m[ \t]*([\w.]+)")
_GLUED_MODULE = re.compile(r"(?<=\s)-m(?=[A-Za-z_])")
_MAX_SCRIPT_BYTES = 200_000
_MAX_NAMED = 200
# what runs the orders that it finds in the directory
_RUN_THE_DIRECTORY = re.compile(
    r"g?make|just|task|rake|npm|npx|yarn|pnpm|bun|deno|cargo|go|tox|nox|pytest|py\.test|mvn|gradle"
    r"|ant|bazel|cmake|ninja|meson|composer|bundle|mix|direnv|pre-commit|husky|lefthook|git|hg|jj"
    r"|eslint|prettier|stylelint|tsc|tsx|ts-node|jest|vitest|mocha|webpack|vite|rollup|babel|gulp"
    r"|grunt|turbo|nx|lerna|mypy|pylint|flake8|ruff|uvx?|poetry|pipenv|pdm|hatch|rye|mise|asdf"
    r"|rubocop|rspec|rails|phpunit|phpcs|php-cs-fixer|dotnet|sbt|lein|swift|dart|flutter"
    r"|ansible\S*|terraform|docker|podman|vagrant|watchexec|entr|xargs|parallel|find|gdb|n?vim|emacs"
)
_LONG_VALUE = re.compile(r"=\S{500}")
_CALLS_ONE = re.compile(
    r"(?m)(?:^|[;&|({!]|\b(?:then|do|else|exec|time|env)\b)[ \t]*(?:\w++=\S{0,500}[ \t]+){0,50}"
    rf"(?!(?:git|hg|jj|find|xargs|parallel|gdb|n?vim|emacs)\b)(?:{_RUN_THE_DIRECTORY.pattern})(?![\w./=-])"
)
# of what a hook of the user's is made: they run nothing, and obey no file of the directory
_BUILT_IN = frozenset(
    {
        "[", "[[", ":", "break", "cd", "continue", "done", "echo", "esac", "exit", "export",
        "false", "fi", "kill", "printf", "pwd", "read", "return", "set", "shift", "test", "true",
        "unset", "wait", "}",
    }
)  # fmt: skip
_CERTAIN = _BUILT_IN | {
    "afplay", "aplay", "base64", "basename", "beep", "canberra-gtk-play", "cat", "cp", "curl",
    "cut", "date", "dirname", "espeak", "expr", "fold", "grep", "head", "hostname", "id", "jq",
    "kdialog", "logger", "ls", "md5sum", "mkdir", "mktemp", "mv", "notify-send", "od", "paplay",
    "pkill", "play", "ps", "pw-play", "readlink", "realpath", "rm", "say", "seq", "sha1sum",
    "sha256sum", "sleep", "sort", "spd-say", "stat", "tac", "tail", "tee", "terminal-notifier",
    "touch", "tput", "tr", "uname", "uniq", "wall", "wc", "wget", "whoami", "xxd", "zenity",
}  # fmt: skip
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "not", "!", "{"})
_PREFIXES = frozenset(
    {
        "env", "nice", "nohup", "time", "timeout", "stdbuf", "setsid", "exec", "command", "ionice",
    }
)  # fmt: skip
_PLAIN_OPTION = re.compile(r"-[npck]|-\d+|-[oei][0L]|\d+(?:\.\d+)?[smhd]?")
_SHELL = re.compile(r"(?:ba|da|z|k)?sh")
# what runs a text that it is given as code
_RUNS_TEXTS = re.compile(
    r"\beval\b|(?<![\w.])exec\w*[ \t]*\(|\bsystem[ \t(]|(?<![\w.])compile[ \t]*\(|\bvm\b"
    rf"|\|[ \t]*(?:\S{{0,200}}/)?(?:{_SHELL.pattern}|python[\d.]*|node|perl|ruby)\b"
    r"(?![ \t]+-\w*[ce])"
    r"|sh[ \t][^\n<]{0,200}<|\b(?:awk|sed|jq|bc)\b[^\n]{0,500}[ \t](?:-\w*f|--f\w+)"
    r"|\bsubprocess\b|\bos\.(?:system|popen|exec|spawn)|\bchild_process\b|\bFunction[ \t]*\("
)
# what a shell script is given to read as one
_GIVEN = re.compile(rf"(?m)(?:^|[\s;&|(`])(?:\.|source|{_SHELL.pattern})[ \t]+([^\n;&|]{{1,500}})")
_SAID = re.compile(r"[\w.-]+")
_INTERPRETER = re.compile(
    rf"{_SHELL.pattern}|python[\d.]*|pypy[\d.]*|node|nodejs|ruby|perl|php|lua|osascript|source|\."
)
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/opt/homebrew/bin/", "/home/linuxbrew/")
_PATTERN = re.compile(r"[*?\[{$]")
# variables that say which program, or what else, is run
_STEERS = re.compile(
    r"(?:PATH|CDPATH|ENV|BASH_ENV|IFS|SHELL|EDITOR|VISUAL|PAGER|HOME|XDG_\w+|LD_\w+|DYLD_\w+"
    r"|PYTHON\w*|NODE_\w+|PERL\w*|RUBY\w*|GEM_\w+|GIT_\w+|LUA_\w+|PHP\w*|JAVA_\w+|PROMPT_COMMAND"
    r"|CURL_HOME|WGETRC|JQ_\w+|LESSOPEN)="
)
_REDIRECTIONS = frozenset({"<", ">", ">>", ">|", ">&", "<&"})
_SEPARATOR = re.compile(r"[;&|()]+|&>>?")
_MARKS = frozenset(" \t\n;&|()")
_MADE = frozenset("$`*?[")  # the shell makes the name
_TESTS = frozenset({"[", "[["})
_ASSIGNMENT = re.compile(r"\w+=")
# what runs the next word, or the script that it names
_RUNNERS = re.compile(
    r"(?:ba|da|z|k|fi)?sh|python[\d.]*|pypy\d*|node|deno|bun|ruby|perl|php|lua|pwsh|Rscript|tsx"
    r"|npx|uvx?|run|exec|env|nice|nohup|time|timeout|stdbuf|setsid|sudo|doas|command|source|\.|if"
    r"|then|else|do|while|until|not|!"
)
_FIELDS = frozenset(
    {"event", "matcher", "command", "timeout_s", "timeout", "type", "hooks", "statusMessage"}
)
Refuse = Callable[[tuple[str, ...], str], None]
Found = tuple[list[HookConfig], list[str]]


def read_hooks(
    text: str, value: object, where: Path, refuse: Refuse, *, is_project: bool = False
) -> Found:
    """The hooks in ``value``, the key ``hooks`` of the file ``where``; and warnings.

    Those of a project run in the sandbox. ``refuse`` is told the path and the problem of each that
    is left out.
    """
    hooks: list[HookConfig] = []
    warnings: list[str] = []
    for path, table in _tables(value, refuse):
        name = table.get("event") if path == ("hooks",) else path[1]
        line, column = locate(text, path)
        event = next((event for event in HookEvent if str(event) == name), None)
        if event is None:
            known = ", ".join(HookEvent)
            warnings.append(f"{where}:{line}:{column}: no hook event {name!r} - there are: {known}")
            continue
        source = f"{where}:{line}"
        for one in _commands(path, table, refuse):
            if problem := _problem_of(one):
                refuse(path, f"{'.'.join(path)}: {problem}")
            else:
                hooks.append(_hook(event, one, source))
    return [replace(hook, contained=is_project) for hook in hooks], warnings


def scripts_of(hooks: Iterable[HookConfig], root: Path, cwd: Path) -> tuple[Path, ...]:
    """The files of ``root``, there or not, that the commands may run, in order (SEC-17).

    Rather one too many: what is named as a program by a path or given to an interpreter, and
    every other word that names a script; scripts that those name count, too. A link is named by
    its own place, whatever it leads to, and by the file behind it if that is in ``root`` as well.
    """
    found: dict[Path, None] = {}
    top = os.path.realpath(root)
    for hook in hooks:
        command = _TOP_BY_GIT.sub(lambda _: top, as_it_runs(hook))
        words = list(_words(_expanded(command, top, str(cwd))))
        bases = [top, os.path.realpath(cwd)]
        bases += [place for word, _ in words for place in _places(word, bases, top, os.path.isdir)]
        for word, is_run in words:
            for place in _places(word, bases, top, lambda _: True):
                is_there = os.path.isfile(place)  # noqa: PTH113 - never raises
                may_come = not (_MARKS & set(word) or os.path.lexists(place)) and (
                    bool(_SCRIPT.search(word)) or (is_run and bool(_PATH.search(word)))
                )
                if may_come or (is_there and (is_run or _is_script(place))):
                    found[Path(place)] = None
                elif is_run and not is_there:
                    inner = (f"{place}/{name}" for name in _OF_DIRECTORY)
                    found |= dict.fromkeys(map(Path, filter(os.path.isfile, inner)))
    for script in list(found):
        _add_named(script, top, found)
    return tuple(found)


def run_the_directory(scripts: Iterable[Path]) -> bool:
    """Whether one of them has a program run what files of the directory say, as ``make`` does.

    So may one that names more than is looked at.
    """
    texts = [_text_of(script) for script in scripts]
    is_long = any(
        len(text) >= _MAX_SCRIPT_BYTES
        or len(_named_in(text)) > _MAX_NAMED
        or _LONG_VALUE.search(text)
        for text in texts
    )
    return is_long or len(texts) >= _MAX_NAMED or any(map(_CALLS_ONE.search, texts))


def runs_what_it_reads(scripts: Sequence[Path], root: Path) -> bool:
    """Whether one runs texts as code, and says files of ``root`` that anybody may edit."""
    top = os.path.realpath(root)
    for script in scripts:
        text = _text_of(script)
        if not _RUNS_TEXTS.search(text):
            continue
        said = files_said(os.fsencode(text), dict.fromkeys((str(script.parent), top)))
        for place in (
            Path(each) for path, _ in said for each in _places(path, ("/",), top, os.path.isfile)
        ):
            if place not in scripts and not _is_protected(place, top):
                return True
    return False


def is_found_out(hook: HookConfig, root: Path, cwd: Path) -> bool:
    """Whether what the command runs is known only when it runs (``$D/x.sh``, ``*.sh``)."""
    command = _TOP_BY_GIT.sub(".", as_it_runs(hook))
    words = _words(_expanded(command, os.path.realpath(root), str(cwd)))
    run = {word for word, is_run in words if is_run} - _TESTS
    return any(not _MADE.isdisjoint(word) for word in run)


def finds_modules(hook: HookConfig, root: Path, cwd: Path) -> tuple[bool, bool]:
    """Whether Python of a hook's need not look beside scripts, and whether ``root`` may answer.

    Where it need not look there, it does not find what a repository calls ``json`` (SEC-2).
    """
    top = os.path.realpath(root)
    scripts = dict.fromkeys(scripts_of([hook], root, cwd))
    command = _expanded(as_it_runs(hook), top, str(cwd))
    for word in _split(command):
        own = Path(os.path.expanduser(word))  # noqa: PTH111 - never raises
        if own.is_absolute() and _text_of(own) and not _is_below(os.path.realpath(own), top):
            scripts[own] = None
            _add_named(own, str(own.parent), scripts)
    beside = [each for each in scripts if _takes_from_beside(each)]
    texts = (command, *(_text_of(each) for each in scripts if not _is_python(each)))
    needs_path = any(map(_is_python, beside)) or any(_names_module(each, top) for each in texts)
    seen = {each.name for each in scripts}
    needs_path |= any(name not in seen for each in texts for name in _PYTHON_FILE.findall(each))
    is_open = any(_is_below(str(each), top) and not _is_protected(each, top) for each in beside)
    runs_python = any(map(_is_python, scripts)) or any(map(_PYTHON.search, texts))
    is_open |= needs_path and any(map(_PYTHON_TEXT.search, texts))
    return runs_python and not needs_path, is_open


def _is_python(script: Path) -> bool:
    is_named = script.suffix in {".py", ".pyw"}
    return is_named or bool(re.match(r"#!.*\b(?:python|pypy)", _text_of(script)))


def _takes_from_beside(script: Path) -> bool:
    """Whether a script takes code from files that it does not name; a doubt is a yes."""
    text = _text_of(script)
    if _is_python(script):
        names = (name for found in _IMPORTS.findall(text) for name in re.split("[, ]+", found))
        tops = {name.partition(".")[0] for name in names}
        try:
            beside = os.listdir(script.parent)  # noqa: PTH208 - names alone
        except OSError:
            return True
        there = {name.partition(".")[0] for name in beside} - {script.stem}
        return bool(_ODD_IMPORTS.search(text) or "" in tops or tops & there)
    if _JAVASCRIPT.fullmatch(script.suffix):
        named = {one or other for one, other in _JS_IMPORTS.findall(text)}
        return any(not name.startswith("node:") and name not in _JS_OWN for name in named)
    return bool(_OTHER.fullmatch(script.suffix) and _LOADS.search(text))


def _names_module(text: str, top: str) -> bool:
    """Whether a module of the directory's is run by its name."""
    return any(
        os.path.lexists(f"{top}/{name.partition('.')[0]}{end}")
        for name in _MODULE.findall(text)
        for end in ("", ".py")
    )


def _is_protected(script: Path, top: str) -> bool:
    """Whether nobody puts a file beside it unasked."""
    names = Path(str(script.relative_to(top)).casefold()).parts
    return names[0] == ".agents" or has_obeyed((*names[:-1], "any"))


def as_it_runs(hook: HookConfig) -> str:
    """The command with the hook's own variables put in."""
    command = hook.command
    for name, value in hook.variables:
        command = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", value.replace("\\", r"\\"), command)
    return command


def may_run_from(
    command: str, root: Path, cwd: Path, certain: frozenset[str] = frozenset()
) -> bool:
    """Whether a command may run what ``root`` holds: a doubt is a yes (SEC-17).

    Certain are a script or program that an absolute path outside of ``root`` names, and programs
    that run nothing else and take no orders from the directory; nothing that they are given lies
    in ``root``, and nothing is found out only when it runs. ``certain`` are more such programs.
    """
    return _Doubt(os.path.realpath(root), cwd, certain).has(command)


def doubted(hooks: Iterable[HookConfig], root: Path, cwd: Path) -> tuple[str, ...]:
    """The commands that may run what ``root`` holds without naming a script there, in order."""
    return tuple(
        hook.command
        for hook in hooks
        if not scripts_of([hook], root, cwd) and may_run_from(as_it_runs(hook), root, cwd)
    )


class _Doubt:
    """Whether commands that start in ``cwd`` may run what ``top`` holds."""

    def __init__(self, top: str, cwd: Path, certain: frozenset[str]) -> None:
        self._top = top
        self._certain = _CERTAIN | certain
        self._cwd = str(cwd)
        self._bases = [top, os.path.realpath(cwd)]

    def has(self, command: str) -> bool:
        """A doubt about any part of it."""
        call: list[str] = []
        is_target = False
        for word in [*_split(_expanded(command, self._top, self._cwd)), ";"]:
            if self._is_of_the_directory(word):
                return True
            if word.strip("();&|<>"):
                call += [] if is_target else [word]
                is_target = False
            elif word in _REDIRECTIONS:
                is_target = True
                call = call[:-1] if call and call[-1].isdigit() else call
            elif not _SEPARATOR.fullmatch(word) or (call and self._is_about(call)):
                return True
            else:
                call, is_target = [], word.endswith(">")
        return False

    def _is_of_the_directory(self, word: str) -> bool:
        """Whether it names something there, or is found out only when it runs."""
        names = (word, word.partition("=")[2])
        lies_there = any(
            True for name in names if name for _ in self._places(name, os.path.lexists)
        )
        return lies_there or "$(" in word or "`" in word

    def _places(self, word: str, is_wanted: Callable[[str], bool]) -> Iterator[str]:
        return _places(word, self._bases, self._top, is_wanted)

    def _is_about(self, call: Sequence[str]) -> bool:
        """A doubt about one call, whose first word may be a keyword, or an assignment."""
        word, *rest = call
        name = word.rpartition("/")[2]
        is_path = "/" in word
        if word in _KEYWORDS or (_ASSIGNMENT.match(word) and not _STEERS.match(word)):
            is_doubt = bool(rest) and self._is_about(rest)
        elif is_path and (word[0] not in "/~" or _PATTERN.search(word)):
            is_doubt = True
        elif is_path and not word.startswith(_SYSTEM) and not _INTERPRETER.fullmatch(name):
            named = os.path.expanduser(word)  # noqa: PTH111 - never raises
            is_doubt = bool(_RUN_THE_DIRECTORY.fullmatch(name)) or is_chosen_there(named)
        elif not is_path and name not in _BUILT_IN and self._finds_there(name):
            is_doubt = True
        elif name in _PREFIXES:
            inner = list(itertools.dropwhile(_PLAIN_OPTION.fullmatch, rest))
            is_doubt = not inner or self._is_about(inner)
        elif _INTERPRETER.fullmatch(name):
            is_doubt = self._is_about_script(name, rest)
        else:
            is_doubt = name not in self._certain or any(map(_STEERS.match, rest))
        return is_doubt

    def _is_about_script(self, name: str, rest: Sequence[str]) -> bool:
        """No doubt: a script of an absolute path, or a text that says it all."""
        is_python, is_shell = name.startswith("py"), _SHELL.fullmatch(name)
        is_isolated = False
        for at, word in enumerate(rest):
            if not word.startswith("-"):
                return word[0] not in "/~" or bool(_PATTERN.search(word))
            is_isolated |= is_python and bool(re.match(r"-[BuEsSOq]*[IP]", word))
            if is_isolated and re.fullmatch(r"-\w*c", word):
                return False
            if is_shell and re.fullmatch(r"-[eux]*c", word):
                return at + 1 == len(rest) or self.has(rest[at + 1])
            if not re.fullmatch(r"-[IBuEsSOqP]+" if is_python else r"-[eux]+", word):
                break
        return True

    def _finds_there(self, name: str) -> bool:
        """Whether PATH may lead to a program of the directory's, or one that it chooses."""
        barred = filled_by_others(Path(self._top))
        for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
            if not entry.startswith("/") or lies_in(Path(entry), barred):
                return True
            if os.access(f"{entry}/{name}", os.X_OK):
                found = f"{entry}/{name}"
                return lies_in(Path(found), barred) or is_chosen_there(found)
        return False


def _expanded(command: str, top: str, cwd: str) -> str:
    """``command`` with the variables that are known before it runs."""
    command = _PROJECT_DIRECTORY.sub(lambda _: top, command)
    command = _WORKING_DIRECTORY.sub(lambda _: cwd, command)
    home = os.path.expanduser("~")  # noqa: PTH111 - never raises
    return _HOME.sub(lambda _: home, command)


def _places(
    word: str, bases: Sequence[str], top: str, is_wanted: Callable[[str], bool]
) -> Iterator[str]:
    """Where ``word`` may lead below ``top``: links are places of their own."""
    for base in dict.fromkeys(bases):
        named = os.path.normpath(os.path.join(base, word))  # noqa: PTH118 - never raises
        for place in dict.fromkeys((named, real_text(named))):
            if _is_below(place, top) and is_wanted(place):
                yield place


def _is_below(place: str, top: str) -> bool:
    return place.startswith(top.rstrip("/") + "/")


def _is_script(place: str) -> bool:
    return bool(_SCRIPT.search(place)) or os.access(place, os.X_OK)


def _add_named(script: Path, top: str, found: dict[Path, None], depth: int = 3) -> None:
    """What a script takes code from: sourced, called and imported files, within bounds."""
    text, bases = _text_of(script), (str(script.parent), top)
    named = (word.lstrip("/") for word in _named_in(text)[:_MAX_NAMED])
    places = (each for word in named for each in _places(word, bases, top, os.path.isfile))
    said = scripts_said(os.fsencode(text), dict.fromkeys(bases), _SCRIPT)
    run = (each for path in said for each in _places(path, bases, top, os.path.isfile))
    beside = (*_taken_from_beside(script, text), *_imported_by_path(script, text, top))
    for place in (*places, *beside, *run):
        if Path(place) not in found and len(found) < _MAX_NAMED:
            found[Path(place)] = None
            if depth:
                _add_named(Path(place), top, found, depth - 1)


def _taken_from_beside(script: Path, text: str) -> Iterator[str]:
    """The files beside a script that it says by their names, or imports."""
    imported, run = set[str](), set[str]()
    if _is_python(script):
        names = (name for each in set(_IMPORTS.findall(text)) for name in re.split("[, ]+", each))
        imported = {name.partition(".")[0] for name in names}
    elif _JAVASCRIPT.fullmatch(script.suffix):
        imported = {Path(one or other).stem for one, other in _JS_IMPORTS.findall(text)}
    elif _OTHER.fullmatch(script.suffix):
        imported = set(re.findall(r"\w+", text)) if _LOADS.search(text) else imported
    else:
        run = {word for each in set(_GIVEN.findall(text)) for word in _SAID.findall(each)}
    said = set(_SAID.findall(text))
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(script.parent), key=lambda each: each.name):
            name, stem = entry.name, entry.name.partition(".")[0]
            is_said = name in said or (not _SAID.fullmatch(name) and name in text)
            if entry.is_dir():
                if stem in imported or (is_said and _ODD_IMPORTS.search(text)):
                    yield from _python_below(entry.path)
            elif stem in imported or (is_said and (name in run or _is_script(entry.path))):
                yield entry.path


def _imported_by_path(script: Path, text: str, top: str) -> Iterator[str]:
    """Where ``./lib`` of a JavaScript may lead, there or not (nodejs.org/api/modules.html)."""
    if not _JAVASCRIPT.fullmatch(script.suffix):
        return
    names = (one or other for one, other in _JS_IMPORTS.findall(text)[:_MAX_NAMED])
    wanted: dict[str, set[str]] = {}  # of a directory, which is read once
    for name in dict.fromkeys(each for each in names if each.startswith(".")):
        for place in _places(name, (str(script.parent),), top, lambda _: True):
            directory, _, base = place.rpartition("/")
            wanted.setdefault(directory, set()).add(base)
            if os.path.isdir(place):  # noqa: PTH112 - never raises
                wanted.setdefault(place, set()).update(("index", "package"))
                yield f"{place}.js"  # it would come before the directory
    for directory, bases in wanted.items():
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            found = {each.path: {each.name, each.name.rpartition(".")[0]} for each in entries}
            yield from sorted(place for place, called in found.items() if called & bases)


def _python_below(directory: str) -> list[str]:
    places = itertools.islice(walk(directory), _MAX_NAMED)
    found = (f"{place}/{name}" for place, _, names in places for name in names)
    return sorted(
        itertools.islice((each for each in found if each.endswith((".py", ".so"))), _MAX_NAMED)
    )


def _named_in(text: str) -> list[str]:
    return list(dict.fromkeys(_NAMED_IN_SCRIPT.findall(text)))


def _text_of(script: Path) -> str:
    """The beginning of a regular file; empty where there is none."""
    try:
        if not script.is_file():
            return ""
        with script.open("rb") as file:
            return os.fsdecode(file.read(_MAX_SCRIPT_BYTES))
    except OSError:
        return ""


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return command.split()


def _words(command: str, depth: int = 3) -> Iterator[tuple[str, bool]]:
    """The words of a command line, and whether each is run, or given to what runs it."""
    words = filter(None, _split(_GLUED_MODULE.sub("-m ", command)))  # an empty one names nothing
    is_next, is_given, is_target, runs_module = True, False, False, False
    for word in words:
        if depth and any(mark in word for mark in _MARKS):
            yield from _words(word, depth - 1)
        if not word.strip("();&|<>"):
            is_target = word[-1] == ">"
            if not word.endswith(("<", ">")):
                is_next, is_given = True, False
            continue
        if is_target:
            is_target = False
            continue
        if runs_module:
            path = word.replace(".", "/")
            yield from ((place, False) for place in (f"{path}.py", f"{path}/__main__.py"))
            is_next = runs_module = False
            continue
        runs_module = is_next and is_given and word == "-m"
        _, is_value, value = word.partition("=")
        if is_value:
            yield value, False
        if word.startswith("-") or (is_next and (_ASSIGNMENT.match(word) or word.isdigit())):
            continue
        if is_next and _RUNNERS.fullmatch(word.rpartition("/")[2]):
            is_given = True
            yield word, "/" in word
        else:
            is_run = is_next and not any(mark in word for mark in ";&|()")
            yield word, is_run and (is_given or "/" in word or _is_found_out(word))
            is_next = False


def _is_found_out(word: str) -> bool:
    """Whether a program without a path is known only when it runs, or runs the directory."""
    return "$" in word or bool(_RUN_THE_DIRECTORY.fullmatch(word))


def as_line(hook: HookConfig) -> str:
    """How a hook reads in a list of settings."""
    matcher = f"{hook.matcher}: " if hook.matcher else ""
    return f"{matcher}{hook.command} ({hook.limit_s:g} s)"


def _tables(value: object, refuse: Refuse) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        for event, listed in value.items():
            path = ("hooks", str(event))
            for table in _list_of_tables(path, listed, refuse):
                yield path, table
    else:
        for table in _list_of_tables(("hooks",), value, refuse):
            yield ("hooks",), table


def _list_of_tables(
    path: tuple[str, ...], value: object, refuse: Refuse
) -> Sequence[Mapping[str, Any]]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    tables = [item for item in listed if isinstance(item, Mapping)]
    if len(tables) < len(listed):
        name = ".".join(path)
        refuse(path, f"{name}: expected tables: [[{name}]] with a command")
    return tables


def _commands(
    path: tuple[str, ...], table: Mapping[str, Any], refuse: Refuse
) -> Iterator[Mapping[str, Any]]:
    """The hooks of a table: itself, or those that it groups below one matcher."""
    if "hooks" not in table:
        yield table
        return
    for inner in _list_of_tables((*path, "hooks"), table["hooks"], refuse):
        yield {"matcher": table.get("matcher", ""), **inner}


def _problem_of(table: Mapping[str, Any]) -> str:
    """Why ``table`` is no hook; empty when it is one."""
    unknown = sorted(set(table) - _FIELDS)
    command, matcher = table.get("command"), table.get("matcher", "")
    timeout_s = table.get("timeout_s", table.get("timeout"))
    problem = ""
    if unknown:
        problem = f"unknown field {unknown[0]}: a hook has matcher, command, timeout_s"
    elif table.get("type", "command") != "command":
        problem = f"the type {table['type']!r} is not supported: only command is"
    elif not isinstance(command, str) or not command.strip() or "\0" in command:
        problem = "a hook needs a command, as a text"
    elif not isinstance(matcher, str) or not is_matcher(matcher):
        problem = "the matcher is no tool name and no regular expression"
    elif timeout_s is not None and not _is_timeout(timeout_s):
        problem = f"timeout_s is a number of seconds, at most {MAX_TIMEOUT_S:g}"
    return problem


def _hook(event: HookEvent, table: Mapping[str, Any], source: str) -> HookConfig:
    """The hook of a table without a problem."""
    timeout_s = table.get("timeout_s", table.get("timeout"))
    limit_s = None if timeout_s is None else float(timeout_s)
    return HookConfig(event, table["command"], table.get("matcher", ""), limit_s, source)


def is_matcher(matcher: str) -> bool:
    """Whether it is a name, several, or a regular expression."""
    if matcher.strip() in {"", "*"}:
        return True
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _is_timeout(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < float(value) <= MAX_TIMEOUT_S  # type: ignore[arg-type]  # a number, as just seen
