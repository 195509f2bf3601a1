"""Which files of a directory a script says by their names (SEC-17).

Law: what is there is looked for in the script, and not the script for what looks like a name.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from agentcli.domain.files import real_text
from agentcli.domain.sandbox import EXAMPLES

_WORD = re.compile(rb"[\w.@+-]+")
_OF_SHELL = rb"(?:^|[\s;&|({`\"'/])"
# what a shell reads as its own, to the end of the line; also by direnv-stdlib(1)
_LOADS = rb"(?:\.|source|(?:source_env|dotenv)(?:_if_exists)?)"
_SOURCES = re.compile(_OF_SHELL + _LOADS + rb"[ \t]+([^\n]+)")
# what an interpreter is told to run: its first word, and the rest of the line
_INTERPRETER = (
    rb"(?:(?:ba|da|k|z)?sh|(?:python|pypy)[\d.]*|(?:node|bun|deno)(?:[ \t]+run)?|perl|ruby|php)"
)
_STARTS = re.compile(
    _OF_SHELL + _INTERPRETER + rb"[ \t]+"
    rb"((?:-\S*[ \t]+)*(?:[^\s$]*\$\([^)\n]*\)\S*|\S+))([^\n]*)"
)
# a line that has a shell run a text, which a file of another name holds
_RUNS_TEXT = re.compile(
    rb"(?m)^(?=[^\n]{0,500}?"
    rb"(?:\beval\b|\|[ \t]*(?:/\S{1,100}/)?(?:ba|da|k|z)?sh\b|\b(?:BASH_)?ENV=))[^\n]+"
)
_MOST_STARTS = 100  # directories that a script may go to, beside those that it says in full
_MOST_IN_FULL = 1_000
_MOST_LISTED = 5_000  # names of one of them
_RUNNER = rb"(?:" + _LOADS + rb"|" + _INTERPRETER + rb")[ \t]++"
_MADE = rb"[\"']?[*?\[{$`]"  # the shell makes the rest of the name
# a file that only a variable or a pattern names is run
_RUNS_A_VARIABLE = re.compile(_OF_SHELL + _RUNNER + rb"[\"']?[\w.@+/-]*" + _MADE)
_LOOPS = re.compile(rb"\b(?:for|read)[ \t]+(?:-\w++[ \t]++){0,8}(\w+)")
_STARTED = rb"(?m:^|[;&|({]|\b(?:do|then|else|exec)\b|" + _OF_SHELL + _RUNNER + rb")[ \t]*[\"']?"
# not what looks at files, or is given them: "xargs python -m black", "bash -n", "python lint.py"
_RUNS_WHAT_COMES = (
    rb"(?<![\w.])(?:[bdkz]?a?sh|python[\d.]*+|node|perl|ruby)\b"
    rb"(?![ \t]{1,9}(?:-[^-\s]\S{0,20}[ \t]{1,9}){0,3}"
    rb"(?:-(?:m|n\b|-check\b)|[\w./$-]{1,100}\.(?:sh|py|[cm]?[jt]s|pl|rb)\b))"
)
_RUNS_FOUND = re.compile(
    rb"\brun-parts\b|(?:\bxargs|-exec|-execdir)\b[^\n;&|]{0,200}"
    + _RUNS_WHAT_COMES
    + rb"|-exec(?:dir)?[ \t]+[\"']?\{\}|"
    + _STARTED
    + rb"(?:\./|\$\{?\w+\}?[\"']?/)[\w.@+-]*"
    + _MADE
)
# "python -m tools.check", "uv run -m tools.check", "$PYTHON -mtools.check"
_MODULES = re.compile(
    rb"(?:\bpy(?:thon|py)?[\d.]*|\brun|\$\{?\w+\}?)[\"']?[ \t]+(?:[^\n;|&]{0,200}?[ \t])??"
    rb"-m[ \t]*[\"']?([A-Za-z_][\w.]*)"
)
# "node tools/check", "python tools"; from the working directory or from what a shell finds out
_PARTLY = re.compile(
    _OF_SHELL + rb"((?:python|pypy)[\d.]*|node|bun|deno)[ \t]+"
    rb"(?:(?:-\S*+|run(?=[ \t]+\S*/))[ \t]++){0,8}[\"']?"
    rb"(?:\$\([^)\n]{0,200}\)|\$\{?\w++\}?)?[\"']?/?((?:[\w@+-]+|\.{1,2})(?:/[\w.@+-]*)*)[\"']?(?=[\s;|&)]|\Z)"
)
_OF_PYTHON = ("/__main__.py",)
_OF_NODE = tuple(
    f"{start}.{end}" for start in ("", "/index") for end in ("js", "cjs", "mjs", "ts", "tsx", "jsx")
)
# what bun and deno do by themselves: "bun test" runs no "test.js"
_COMMANDS = frozenset(
    b"add bench build bundle cache check ci compile create doc exec fmt i init install lint pm"
    b" publish remove run serve task test update upgrade x".split()
)
_MOST_PARTLY = 200
# what is said to lie in there lies nowhere else: "$dir/node_modules/lefthook/bin/index.js"
_PACKAGES = "node_modules"
_IN_PACKAGES = re.compile(rb"(?<=[\s\"'/]node_modules)/(?![^\s\"']{0,500}\.\.)[\w.@+${}*?/-]+")
_STARTS_ONE = re.compile(_STARTED + rb"\$\{?(\w+)")
# a pattern of files that lie where it starts, and what the shell or "find" puts in its place
# nothing of it is given back: "$a$b/" is read in one way, not in as many as it has letters
_MADE_WORD = rb"(?:[\w.@+*?\[\]-]|\$\{?\w++\}?+|\{[\w.,-]++\})++"
_AT_START = rb"(?m:^|[;&|({!]|\b(?:do|then|else|exec)\b)[ \t]*"
# not one that is told to look at the file only: "bash -n"
_TOLD_TO_RUN = (
    rb"(?:" + _AT_START + _LOADS + rb"[ \t]+|" + _OF_SHELL + _INTERPRETER + rb"[ \t]+"
    rb"(?:-(?!(?:[cln]|-check)\b)\S*+[ \t]++){0,8})"
)
_STARTS_LIKE = re.compile(
    rb"(?:"
    + _TOLD_TO_RUN
    + rb"|"
    + _OF_SHELL
    + rb"(?=[\"']?\./))[\"']?((?:\./)?"
    + _MADE_WORD
    + rb")"
)
_LOOPS_OVER = re.compile(rb"\bfor[ \t]+(\w+)[ \t]+in[ \t]+([^\n;]{1,500})")
_HANDS_ON = re.compile(
    rb"(?m)^(?=[^\n]{0,500}?(?:\bxargs|-exec|-execdir)\b[^\n]{0,200}"
    + _RUNS_WHAT_COMES
    + rb")[^\n]+"
)
_RUN_IN_LOOP = re.compile(
    rb"(?:" + _TOLD_TO_RUN + rb"|" + _AT_START + rb")[\"']?(?:\./)?\$\{?(\w+)"
)
# a file that a variable holds whole: "LIB=tools/lib; . $LIB"
_GIVEN = re.compile(_TOLD_TO_RUN + rb"[\"']?\$\{?(\w+)")
_HOLDS = re.compile(rb"(?<![\w$])(?:for[ \t]+(\w+)[ \t]+in[ \t]|(\w+)=)([^\n;]{1,500})")
_LIKE = re.compile(rb"(?<![^\s\"'])(?:\./)?" + _MADE_WORD + rb"(?![^\s\"';&|\\])")
_FILLED_IN = re.compile(rb"\$\{?\w+\}?|\{[\w.,-]+\}")
_MOST_PATTERNS = 50


def files_said(text: bytes, bases: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The files that ``text`` says, and whether by name: else by a pattern or a variable.

    A name may start at one of ``bases`` or of the directories that are said, as in
    "cd tools && ./run.sh". A crowded directory of which all are said stands for what is in it.
    """
    if not text:
        return
    runs_found, partly = _runs_found(text), _said_partly(text)
    patterns = _patterns_run(text)
    texts = (_outside_of_packages(text), text)
    said = [(each, _said_in(each)) for each in texts]
    seen, waiting = set[str](), list(bases)
    tops, left = frozenset(waiting), _MOST_STARTS
    for base in waiting:
        text, is_said = said[_is_in_packages(base)]
        end = os.fsencode(os.path.basename(base))  # noqa: PTH119 - a text
        is_all = _runs_all_of(os.fsdecode(end), text, runs_found)
        for path in (f"{base}/{each}" for each in partly):
            if path not in seen and os.path.isfile(path):  # noqa: PTH113 - a text
                seen.add(path)
                yield path, True
        names, is_crowded = _names_in(base, text)
        if is_all and is_crowded:
            yield base, False
        for name in names:
            is_named = is_said(name)
            is_like = base in tops and _is_like(name, patterns)
            is_found = is_all or is_like
            if not (is_named or is_found) or (path := f"{base}/{name}") in seen:
                continue
            seen.add(path)
            if not os.path.isdir(path):  # noqa: PTH112 - a text
                # "for c in lint; do sh tools/$c; done" says it in both ways
                yield from ((path, by_name) for by_name in {is_named, not is_found})
            elif is_named:
                # no more of these than words in the text, so that no crowd hides one
                is_in_full = _WORD.fullmatch(os.fsencode(name)) and (
                    base in tops or end + b"/" + os.fsencode(name) in text
                )
                left -= not is_in_full
                is_near = is_in_full and len(waiting) < _MOST_IN_FULL
                waiting += [path] if is_near or left >= 0 else []


def scripts_said(text: bytes, bases: Iterable[str], script: re.Pattern[str]) -> Iterator[str]:
    """Those of them that are run: programs, what ``script`` finds, and what a shell is given."""
    is_started = _started_in(text)
    runs_any = bool(_RUNS_A_VARIABLE.search(text) or _patterns_run(text))
    for path, is_named in files_said(text, bases):
        is_script = is_named and (
            script.search(real_text(path)) or is_started(os.path.basename(path))  # noqa: PTH119 - a text
        )
        if is_script or (runs_any and not is_named) or os.access(path, os.X_OK):
            yield path


def awaits(text: bytes, path: str, bases: Collection[str], script: re.Pattern[str]) -> bool:
    """Whether ``text`` would run what is not at ``path`` yet; see ``scripts_said``."""
    directory, name = os.path.split(path)
    place = os.path.basename(directory)  # noqa: PTH119 - a text
    partly = _said_partly(text)
    text = text if _is_in_packages(directory) else _outside_of_packages(text)
    is_said = _said_in(text)
    for base in (path.removesuffix(f"/{each}") for each in partly):
        if base in bases or (base != path and is_said(os.path.basename(base))):  # noqa: PTH119 - a text
            return True
    if directory in bases and _is_like(name, _patterns_run(text)):
        return True
    if directory in bases or is_said(place):
        if is_said(name) and (script.search(name) or _started_in(text)(name)):
            return True
        runs_all = _runs_all_of(place, text, _runs_found(text))
        return runs_all and bool(_RUNS_A_VARIABLE.search(text))
    return False


def _outside_of_packages(text: bytes) -> bytes:
    return _IN_PACKAGES.sub(b"", text)


def _is_in_packages(place: str) -> bool:
    return _PACKAGES in place.split("/")


def _said_partly(text: bytes) -> list[str]:
    """The files that are run where an interpreter is told a module, a directory or less."""
    found = list[str]()
    for module in _MODULES.findall(text):
        parts = os.fsdecode(module).strip(".").split(".")
        path = "/".join(parts)
        found += [f"{path}.py", f"{path}/__main__.py"]
        found += ["/".join((*parts[:end], "__init__.py")) for end in range(1, len(parts) + 1)]
    for program, word in _PARTLY.findall(text):
        if program in {b"bun", b"deno"} and word in _COMMANDS:
            continue
        path = os.path.normpath(os.fsdecode(word))
        ends = _OF_PYTHON if program.startswith(b"py") else _OF_NODE
        found += [os.path.normpath(f"{path}{end}") for end in ends]
    return list(dict.fromkeys(found))[:_MOST_PARTLY]


def _started_in(text: bytes) -> Callable[[str], bool]:
    """Whether a shell, or another interpreter, is told to run what is called so."""
    starts = [
        b" ".join((first, *(word for word in rest.split() if b"." not in word)))
        for first, rest in _STARTS.findall(text)
    ]
    given = set(_GIVEN.findall(text))
    held = [words for each, name, words in _HOLDS.findall(text) if (each or name) in given]
    run = (*_SOURCES.findall(text), *_RUNS_TEXT.findall(text), *starts, *held)
    return _said_in(b"\n".join(run))


def _said_in(text: bytes) -> Callable[[str], bool]:
    """Whether a name stands in ``text``, also with quotes and escapes in it."""
    plain = text.translate(None, b"\\\"'")
    words = frozenset((*_WORD.findall(text), *_WORD.findall(plain)))

    def is_said(name: str) -> bool:
        said = os.fsencode(name)
        return said in words or (not _WORD.fullmatch(said) and said in plain)

    return is_said


def _runs_found(script: bytes) -> bool:
    """Whether it runs what a loop or another program has found in a directory."""
    found = set(_LOOPS.findall(script))
    return bool(_RUNS_FOUND.search(script)) or not found.isdisjoint(_STARTS_ONE.findall(script))


def _runs_all_of(directory: str, script: bytes, runs_found: bool) -> bool:  # noqa: FBT001
    """Whether ``script`` names what is in it by a pattern, a variable or as a whole."""
    name = rb"(?<![\w.@+-])" + re.escape(os.fsencode(directory))
    pattern = rb"[\"']?/[\"']?[\w.@+-]*" + _MADE
    whole = rb"|[\"']?/?[\"']?(?![\w.@+/\"'-])" if runs_found else b""
    return bool(re.search(name + rb"(?:" + pattern + whole + rb")", script))


def _is_like(name: str, patterns: Mapping[str, bool]) -> bool:
    """Whether one of them stands for ``name``; nobody has a variable say an example."""
    is_example = name.endswith(EXAMPLES)
    found = (is_any for each, is_any in patterns.items() if fnmatch.fnmatchcase(name, each))
    return any(is_any or not is_example for is_any in found)


def _patterns_run(script: bytes) -> dict[str, bool]:
    """What files are called that ``script`` runs by a pattern, of the directory it starts in.

    Or as the words of a loop, each of which it runs. And whether it says the pattern itself, and
    no variable in its place.
    """
    run = set(_RUN_IN_LOOP.findall(script))
    over = [words for variable, words in _LOOPS_OVER.findall(script) if variable in run]
    in_loops = dict.fromkeys(word for text in over for word in _LIKE.findall(text))
    words = [word for text in _HANDS_ON.findall(script) for word in _LIKE.findall(text)]
    found = dict[str, bool]()
    for word in dict.fromkeys((*in_loops, *_STARTS_LIKE.findall(script), *words)):
        pattern = re.sub(r"\*+", "*", os.fsdecode(_FILLED_IN.sub(b"*", word.removeprefix(b"./"))))
        if (word in in_loops or re.search(r"[*?\[]", pattern)) and re.search(r"\w", pattern):
            found[pattern] = found.get(pattern, False) or b"$" not in word
    return dict(islice(found.items(), _MOST_PATTERNS))


def _names_in(directory: str, script: bytes) -> tuple[list[str], bool]:
    """Those there, or in a crowd, which is told, those of ``script`` that may be there."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_LISTED)]
    except OSError:
        return [], False
    if len(names) < _MOST_LISTED:
        return sorted(names), False
    words = dict.fromkeys(map(os.fsdecode, _WORD.findall(script)))
    return [word for word in words if os.path.lexists(f"{directory}/{word}")], True
