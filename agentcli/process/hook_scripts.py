"""What git's hooks and ``.envrc`` lead to, step by step (SEC-17).

That is scripts, and what managers of hooks, direnv and Nix read. Law: a file of the project's build
that none of these names is none of it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from agentcli.domain.files import read_start, real_text
from agentcli.domain.said import awaits, scripts_said
from agentcli.domain.sandbox import MANAGED, OF_MISE
from agentcli.domain.worktrees import git_directories_for
from agentcli.process.directories import Listing, parents_of
from agentcli.process.set_aside import SET_ASIDE

# what runs a repository's hooks -> where it is told which
_MANAGERS = (
    (b"pre-commit", (".pre-commit-config.yaml", ".pre-commit-config.yml")),
    (
        b"lefthook",
        (
            *(f"{start}lefthook{local}.{end}" for start in ("", ".", ".config/")
              for local in ("", "-local") for end in ("yml", "yaml", "toml", "json", "jsonc")),
        ),
    ),
    (b"prek", (*MANAGED, *(f"**/{name}" for name in MANAGED))),
    (b"overcommit", (".overcommit.yml", ".local-overcommit.yml")),
    (b"captainhook", ("captainhook.json",)),
    (b"grumphp", ("grumphp.yml", "grumphp.yaml", "grumphp.yml.dist")),
    (b"hk ", ("hk.pkl",)),
    # of direnv, which runs them again when they change
    (b"dotenv", (".env",)),
    (b"use flake", ("flake.nix", "flake.lock")),
    (b"use nix", ("shell.nix", "default.nix")),
    (
        b"devenv",
        ("devenv.nix", "devenv.yaml", "devenv.local.nix", "devenv.local.yaml", "devenv.lock"),
    ),
    (b"devbox", ("devbox.json",)),
    (b"pixi shell-hook", ("pixi.toml", "pixi.lock")),
)  # fmt: skip
_AT_ANY_DEPTH = "/**/"
# nor does prek look there: https://prek.j178.dev/reference/workspace
_OUT_OF_SIGHT = re.compile(r"/(?:\.|node_modules/)")
# pre-commit and prek: what a hook was installed with
_INSTALLED_WITH = re.compile(rb"\bhook-impl\b[^\n]{0,500}?--config[= \t][\"']?([^\s\"']+)")
_FLAKE = re.compile(rb"use flake[ \t]+[\"']?(?:path:)?([\w.@+/-]+)")
# what configuration has read besides, and what is meant where that is a directory
_CONFIGURATION = re.compile(r"\.(?:ya?ml|toml|jsonc?)\Z")
_READS = re.compile(
    rb"(?m)(?:^|[{,])[ \t-]*[\"']?(?:extends|configs?|rc|imports)[\"']?[ \t]*[:=][ \t]*(?:#[^\n]*)?"
    rb"(\[[^]]{0,2000}\]|(?:\n[ \t]*(?:[-#][^\n]*)?)+|[^\n]+)"
)
# which files are not meant is no word about what runs; to the next key
_EXCLUDED = re.compile(
    rb"(?m)^[ \t-]*[\"']?exclude[\"']?[ \t]*[:=][^\n]*"
    rb"(?:\n(?![ \t]*(?:-[ \t]+)?[\"']?[\w-]+[\"']?[ \t]*[:=])[^\n]*)*"
)
_READ = re.compile(rb"[^\s\"',\[\]]+")
_READ_BY_NIX = re.compile(rb"(?<![\w./-])\.{1,2}(?:/[\w.+-]+)+")
_IN_DIRECTORY = ("default.nix", "flake.nix", "devenv.nix", "devenv.yaml")
# what mise loads on entering, and runs then: https://mise.jdx.dev/environments, .../hooks.html
_LOADED = re.compile(
    rb"\b(?:_|mise)\.(?:file|source)[ \t]*=[ \t]*(\[[^]]{0,2000}\]|[^\n]+)"
    rb"|\b(?:_|mise)[ \t]*=[ \t]*(\{[^\n]*)|\bexec\(([^\n]*)"  # what a template runs, in any value
    rb"|\[(?:env|vars)\.(?:_|mise)\b[^\n]*((?:\n(?![ \t]*\[)[^\n]*)*)|\benv_file[ \t]*=([^\n]+)"
)
_QUOTED = re.compile(rb"\"([^\"\n]+)\"|'([^'\n]+)'")
_HOOKS_OF_MISE = re.compile(
    rb"(?m)^[ \t]*(?:\[+(?:hooks|watch_files)\b|hooks[ \t]*[.=])(?:[^\n]*(?:\n(?![ \t]*\[))?)*"
)
_SUFFIX = re.compile(r"[^./]\.\w+\Z")
FETCHED_BY_LEFTHOOK = "info/lefthook-remotes/*"
_SCRIPT = re.compile(
    r"\.(?:sh|bash|zsh|fish|py|[cm]?[jt]sx?|rb|pl|php|lua|nix|env"
    r"|[rR]|ps1|awk|sed|tcl|csh|exs|jl|dart|swift|go|groovy|clj|rkt|scm|el|nu|bat|cmd|scpt)\Z"
)
_MAX_HOOK_BYTES = 100_000
_LEADS_OUT = re.compile(rb"(?<![\w.])\.\.(?![\w.])|--show-superproject")
_MOST_AROUND = 4
_MOST_NAMED = 1_000
_MOST_S = 0.2  # for patterns


def run_by(scripts: Iterable[str], tree: str) -> Iterator[str]:
    """The real paths in ``tree`` that ``scripts``, as they are on the disk, lead to step by step.

    What a script of a shell names is run by it, too, and what configuration and Nix read; what
    programs of other languages load is the project itself, and protected by nobody.
    """
    waiting, seen, end = list(scripts), set[str](), time.monotonic() + _MOST_S
    while waiting and len(seen) < _MOST_NAMED:
        script = waiting.pop()
        text = _text_of(script)
        read = (place for each in _read_by(script, text, tree) for place in _matching(each, end))
        own = os.path.dirname(script)  # noqa: PTH120 - a text
        for place in chain(read, () if _is_nix(script) else named_by_hook(text, tree, own)):
            if place not in seen:
                seen.add(place)
                waiting += [place] if _leads_on(place) else []
                yield place


def _text_of(script: str) -> bytes:
    text = read_start(script)
    if OF_MISE.search(script):  # its tasks are run by who calls them
        values = b"\n".join(map(b"".join, _LOADED.findall(text)))
        loaded = (b"source " + b"".join(each) for each in _QUOTED.findall(values))
        return b"\n".join((*loaded, *_HOOKS_OF_MISE.findall(text)))
    return _EXCLUDED.sub(b"", text) if _CONFIGURATION.search(script) else text


def _read_by(script: str, text: bytes, tree: str) -> Iterator[str]:
    """Patterns of what ``script`` has read besides, where it is configuration or Nix.

    https://lefthook.dev/configuration/extends, https://devenv.sh/composing-using-imports
    """
    is_nix = _is_nix(script)
    if not is_nix and not _CONFIGURATION.search(script):
        return
    told = [text] if is_nix else _READS.findall(text)
    said = (word for each in told for word in (_READ_BY_NIX if is_nix else _READ).findall(each))
    words = [os.fsdecode(word) for word in islice(dict.fromkeys(said), _MOST_NAMED)]
    own = os.path.dirname(script)  # noqa: PTH120 - a text
    bases = [glob.escape(each) for each in dict.fromkeys((own, own if is_nix else tree))]
    for git in git_directories_for(Path(tree))[1:] if b"remotes" in text and not is_nix else ():
        bases.append(f"{glob.escape(os.path.realpath(git))}/{FETCHED_BY_LEFTHOOK}")
        words += ["lefthook.yml", ".lefthook/*/*"]
    for base, word in itertools.product(bases, words):
        path = os.path.normpath(os.path.join(base, word))  # noqa: PTH118 - texts
        if not is_nix or _SCRIPT.search(path):
            yield path
        if not _SUFFIX.search(word):
            yield from (f"{path}/{name}" for name in _IN_DIRECTORY)


def _matching(pattern: str, give_up: float) -> Iterator[str]:
    """What is there, as far as time allows; also what is not, and is named in full."""
    places = [""]
    for part in pattern.split("/")[1:]:
        if glob.has_magic(part):
            places = list(_names_like(part, places, give_up))
        else:
            places = [f"{place}/{part}" for place in places]
    for place in places:
        is_there = os.path.lexists(place) or not glob.has_magic(pattern)
        if is_there and not (os.path.isdir(place) or SET_ASIDE.search(place)):  # noqa: PTH112 - a text
            yield joined("/", place)


def _names_like(part: str, places: Iterable[str], give_up: float) -> Iterator[str]:
    for place in places:
        with contextlib.suppress(OSError, ValueError), os.scandir(place or "/") as entries:
            for entry in entries:
                if time.monotonic() > give_up:
                    return
                if fnmatch.fnmatchcase(entry.name, part):
                    yield f"{place}/{entry.name}"


def _is_nix(script: str) -> bool:
    return script.endswith(".nix")


def _leads_on(script: str) -> bool:
    is_read = _is_nix(script) or bool(_CONFIGURATION.search(script))
    return is_read or _is_of_a_shell(script)


def _is_of_a_shell(script: str) -> bool:
    if end := _SCRIPT.search(script):
        return end[0] in {".sh", ".bash", ".zsh"}
    first, _, rest = read_start(script).partition(b"\n")
    return b"\0" not in rest and (b"sh" in first if first.startswith(b"#!") else bool(rest))


def named_by_hook(script: bytes, tree: str, own: str = "") -> Iterator[str]:
    """The real paths of scripts in ``tree`` that a hook's ``script`` names, or its manager obeys.

    ``own`` is the directory that the script lies in, if a name may start there. One that leads out
    of ``tree``, as a submodule's may, counts in the directories around it.
    One with ``/**/`` stands for what is called so at any depth; see ``at_any_depth``.
    https://pre-commit.com, https://lefthook.dev/configuration, https://github.com/sds/overcommit
    """
    for manager, names in _MANAGERS:
        if manager in script:
            places = dict.fromkeys((tree, own or tree, *_flakes(script, own or tree)))
            yield from (joined(place, name) for place in places for name in names)
    yield from (joined(tree, os.fsdecode(said)) for said in _INSTALLED_WITH.findall(script))
    bases, top = [tree, own] if own else [tree], tree
    if _LEADS_OUT.search(script) or os.fsencode(os.path.dirname(tree)) + b"/" in script:  # noqa: PTH120 - a text
        around = list(islice(parents_of(tree), _MOST_AROUND))
        bases, top = bases + around, (around or [tree])[-1].rstrip("/")
    for path in scripts_said(script[:_MAX_HOOK_BYTES], bases, _SCRIPT):
        place = real_text(path)
        if place.startswith(f"{top}/"):
            yield place


def at_any_depth(places: Iterable[str], listings: Mapping[str, Listing]) -> Iterator[str]:
    """What there is of what ``places``, of those that hooks name, stand for, and what that runs.

    See ``MANAGED``: a manager runs it in the directory where it lies.
    """
    wanted = [place for place in places if _AT_ANY_DEPTH in place]
    for directory, found in listings.items() if wanted else ():
        for path in (f"{directory}/{name}" for name in found.marks):
            if any(_is_at_any_depth(path, place) for place in wanted):
                yield from (path, *run_by([path], directory))


def _is_at_any_depth(path: str, place: str) -> bool:
    top, _, name = place.partition(_AT_ANY_DEPTH)
    is_below = bool(name) and path.startswith(f"{top}/") and path.endswith(f"/{name}")
    return is_below and not _OUT_OF_SIGHT.search(path[len(top) : -len(name)])


def _flakes(script: bytes, own: str) -> Iterator[str]:
    """The directories that "use flake ./nix#shell" names in an ``.envrc``."""
    for said in _FLAKE.findall(script):
        yield joined(own, os.fsdecode(said))


def is_run_by(real: str, scripts: Sequence[str], tree: str) -> bool:
    """Whether they lead to it, or would once it is there."""
    led_to = list(run_by(scripts, tree))
    wanted = [each for each in led_to if _AT_ANY_DEPTH in each]
    if any(_is_at_any_depth(real, each) for each in wanted):
        return True
    for place in parents_of(real) if wanted else ():
        read = (f"{place}/{name}" for name in MANAGED)
        below = [path for path in read if any(_is_at_any_depth(path, each) for each in wanted)]
        if below and _is_among(real, list(run_by(below, place)), below, place):
            return True
    return _is_among(real, led_to, scripts, tree)


def _is_among(real: str, led_to: Sequence[str], scripts: Sequence[str], tree: str) -> bool:
    if os.path.lexists(real) or real in led_to:
        return real in led_to
    for each in (*scripts, *filter(_leads_on, led_to)):
        text, bases = _text_of(each), (tree, os.path.dirname(each))  # noqa: PTH120 - a text
        if not _is_nix(each) and awaits(text, real, bases, _SCRIPT):
            return True
        if any(map(Path(real).match, _read_by(each, text, tree))):
            return True
    return False


def joined(base: str, name: str) -> str:
    """Where ``name`` leads from ``base``; what is no path leads nowhere."""
    try:
        plain = os.path.expanduser(name.strip('"'))  # noqa: PTH111 - a text
        return real_text(os.path.join(base, plain))  # noqa: PTH118 - texts
    except (OSError, ValueError):
        return ""
