"""Git's configuration: which programs it has git run, and what it has it read besides (SEC-17).

Law: it is read as git reads it, or not at all: no setting that git would see is passed over.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from urllib.parse import unquote

from agentcli.domain.files import read_start, real_text
from agentcli.domain.sandbox import ENTERED, says_only_versions, says_versions
from agentcli.domain.worktrees import GITDIR, common_of_worktree, is_of_submodule, link_in
from agentcli.process.directories import parents_of
from agentcli.process.hook_scripts import is_run_by, joined, named_by_hook, run_by
from agentcli.process.set_aside import MINIMAL, Held, Kind, Watched, held_at

_MOST_INCLUDED = 30
_BETWEEN = re.compile(r"(?:[ \t\r\n]|[#;][^\n]*)*")
_SECTION = re.compile(r"""\[([A-Za-z0-9.-]+)(?:[ \t\r]+("(?:[^"\\\n]|\\[^\n])*"))?[ \t\r]*\]""")
_SETTING = re.compile(
    r"([A-Za-z][A-Za-z0-9-]*)[ \t]*"
    r"""(?:=((?:[^"\\\n#;]|\\[tbn\\"\n]|"(?:[^"\\\n]|\\[tbn\\"\n])*")*))?(?:[#;][^\n]*)?(?:\n|\Z)"""
)
_PARTS = re.compile(r"\\?.", re.DOTALL)
_ESCAPED = {"\\t": "\t", "\\b": "\b", "\\n": "\n", "\\\\": "\\", '\\"': '"'}
# of git-config(1) what names no program and no place to read or write; that git will know more is
# certain, so others count
_HARMLESS = {
    "core": frozenset(
        {
            "repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase",
            "precomposeunicode", "symlinks", "autocrlf", "eol", "safecrlf", "sparsecheckout",
            "sparsecheckoutcone",
        }
    ),
    "index": frozenset({"sparse"}),
    "init": frozenset({"defaultbranch"}),
    "user": frozenset({"name", "email", "useconfigonly"}),
    "remote": frozenset(
        {
            "url", "pushurl", "pushdefault", "fetch", "push", "tagopt", "prune", "prunetags",
            "mirror", "promisor", "partialclonefilter", "skipfetchall", "skipdefaultupdate",
            "followremotehead",
        }
    ),
    "branch": frozenset(
        {
            "remote", "pushremote", "merge", "rebase", "description", "autosetuprebase",
            "autosetupmerge", "sort",
        }
    ),
    "submodule": frozenset(
        {
            "url", "active", "branch", "ignore", "fetchrecursesubmodules", "recurse", "fetchjobs",
            "propagatebranches", "alternatelocation", "alternateerrorstrategy",
        }
    ),
    "extensions": frozenset(
        {
            "worktreeconfig", "objectformat", "compatobjectformat", "partialclone", "noop",
            "preciousobjects", "relativeworktrees", "submodulepathconfig",
        }
    ),
}  # fmt: skip
# and these of such a value: since Git 2.54 others are places
_HARMLESS_VALUES = {
    ("submodule", "gitdir"): re.compile(r"\.git/modules/(?!\.\.?\Z)[^/]+"),
    ("extensions", "refstorage"): re.compile(r"files|reftable"),
}
_REMOTES = frozenset(
    {
        ("remote", "url"), ("remote", "pushurl"), ("remote", "pushdefault"), ("branch", "remote"),
        ("branch", "pushremote"),
    }
)  # fmt: skip
# for such an address git runs "git-remote-NAME", from PATH; see gitremote-helpers(7)
_HELPED = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9+.-]*::"
    r"|(?!(?:file|git|ssh|git\+ssh|ssh\+git|https?|ftps?):)[A-Za-z0-9][A-Za-z0-9+.-]*://"
)
# git-merge(1): "merge strategies"; of another name git runs a program
_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})
_APPLIES = re.compile(
    rb"(?:\s*'(?:-[Cp]\d+|--(?:whitespace|directory|exclude|include)=[^']*"
    rb"|--(?:reject|ignore-space-change|ignore-whitespace))')*\s*"
)
# githooks(5), and what git copies besides; where such a directory is the workspace
AT_TOP = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit",
    "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge",
    "pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update",
    "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite",
    "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist",
    "p4-post-changelist", "p4-pre-submit", "post-index-change", "hooks", "config", "info",
)  # fmt: skip
WORKTREE = ("core", "worktree")
_MOST_OLD = 400  # files of an older form that name remotes
# what ``enter_repo`` of git's path.c adds to the name of a repository that is pushed to
_ENDS = ("/.git", "", ".git/.git", ".git")
_MOST_BESIDE = 500
_RUNS = re.compile(rb"[ \t]*(?:exec|x)(?:\s|$)")
# hgrc(5): where a clone came from
_NAMES_NO_PROGRAM = re.compile(rb"\s*(?:[#;].*|\[paths\]|[\w.:-]+\s*=.*)?")
_MOST_GIVEN = 100  # settings in the environment
# of each working tree: what "git rebase --continue" goes on with (git-rebase(1): "exec"), how that
# and "git cherry-pick --continue" merge; what the next commit reads, writes and applies; its place
OF_TREES = {
    "config.worktree": Kind.CONFIG,
    "gitdir": Kind.TREE,
    "rebase-merge/git-rebase-todo": Kind.TODO,
    "rebase-merge/strategy": Kind.STRATEGY,
    "sequencer/opts": Kind.STRATEGY,
    "rebase-apply/apply-opt": Kind.STRATEGY,
    "MERGE_RR": Kind.RESUMED,
    "MERGE_AUTOSTASH": Kind.RESUMED,
}
Settings = tuple[tuple[str, str, str, str], ...]


def programs_of(config: bytes) -> Settings | None:
    """Section, key, value and whole heading of what may run programs or read more configuration.

    ``None`` where that cannot be told. Git's syntax: https://git-scm.com/docs/git-config#_syntax
    """
    text = os.fsdecode(config.removeprefix(b"\xef\xbb\xbf")).replace("\r\n", "\n")
    if "\0" in text:
        return None
    section, heading, found, at = "", "", [], 0
    while (space := _BETWEEN.match(text, at)) and (at := space.end()) < len(text):
        if match := _SECTION.match(text, at):
            section, heading = match[1].lower().partition(".")[0], match[0]
            if section == "remote":  # git-push(1): without an address its name is one
                name = _plain(match[2] or "") or match[1].partition(".")[2]
                found.append(("remote", "url", name, heading))
        elif match := _SETTING.match(text, at):
            key = match[1].lower()
            value = _plain(match[2] or "")
            if (section, key) in _REMOTES or not _is_harmless(section, key, value):
                found.append((section, key, value, heading))
        else:
            return None
        at = match.end()
    return tuple(found)


def _plain(value: str) -> str:
    """What git takes from ``value`` as it is written: no quotes, escapes and spaces at its end."""
    found, spaces, is_quoted = list[str](), "", False
    for part in _PARTS.findall(value):
        if part == '"':
            is_quoted = not is_quoted
        elif part in " \t\r" and not is_quoted:
            spaces += " " if found else ""
        elif part != "\\\n":
            found += [spaces, _ESCAPED.get(part, part)]
            spaces = ""
    return "".join(found)


def _is_harmless(section: str, key: str, value: str) -> bool:
    # as no name of git's own; VS Code and gh have such
    is_others = section in {"branch", "remote"} and "-" in key
    if is_others or key in _HARMLESS.get(section, ()):
        return True
    values = _HARMLESS_VALUES.get((section, key))
    return values is not None and values.fullmatch(value) is not None


def linked(base: str, data: bytes, key: bytes = b"") -> str:
    """Where a ``.git`` file or ``commondir`` with ``data`` leads from ``base``; empty: nowhere."""
    name = link_in(data, key)
    return real_text(os.path.join(base, name)) if name else ""  # noqa: PTH118 - texts


def places_of_remote(git: str, setting: Sequence[str], trees: Iterable[str] = ()) -> list[str]:
    """Where a remote that ``git``'s ``setting`` names may be here; empty if it names a program.

    Git runs the hooks of what it pushes to. ``trees`` are working trees that use ``git``.
    """
    if (setting[0], setting[1]) not in _REMOTES or _HELPED.match(setting[2]):
        return []
    path = unquote(setting[2].removeprefix("file://"))
    names = dict.fromkeys((setting[2], path, path.removeprefix("/") if path[:2] == "/~" else path))
    bases = dict.fromkeys((git, os.path.dirname(git), *trees))  # noqa: PTH120 - a text
    return [joined(base, name) for base in bases for name in names]


def moves_remotes(before: Iterable[Sequence[str]], now: Iterable[Sequence[str]]) -> bool:
    """Whether what the user pushes would go elsewhere than it went before.

    That is to another address of a remote, or to another remote of a branch that had one.
    """
    was, new = _remotes_in(before), _remotes_in(now)
    known = (each for each in was if each[0] == "remote" or each in new)
    return any(was.get(each) != new.get(each) for each in (("remote", ""), *known))


def _remotes_in(settings: Iterable[Sequence[str]]) -> dict[tuple[str, str], set[tuple[str, str]]]:
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for section, key, value, heading in settings:
        if (section, key) in _REMOTES and (match := _SECTION.fullmatch(heading)):
            name = _plain(match[2] or "") or match[1].partition(".")[2]
            found.setdefault((section, name), set()).add((key, value))
    return found


def pushed_to(
    configs: Mapping[str, Iterable[Sequence[str]]],
    directories: Iterable[str],
    trees: Mapping[str, set[str]],
    is_over: Callable[[], bool],
) -> Iterator[str]:
    """The ``.git`` files and git directories here that remotes lead to, until it ``is_over``.

    ``configs`` are the settings by file, ``directories`` git's own, ``trees`` what uses each.
    """
    every = frozenset[str]().union(*trees.values())
    named = [
        (os.path.dirname(path), each[2])  # noqa: PTH120 - a text
        for path, found in configs.items()
        for each in found
        if each[:2] in _REMOTES
    ]
    named += [(git, url) for git in directories for url in ("origin", *_old_remotes(git))]
    for git, url in dict.fromkeys(named):
        if is_over():
            return
        setting = ("remote", "url", url)
        for place in dict.fromkeys(places_of_remote(git, setting, trees.get(git, every))):
            for path in (f"{place}{end}" for end in _ENDS):
                if os.path.isfile(path):  # noqa: PTH113 - a text
                    # else it is a bundle, or a name like any: git takes it for no repository
                    yield from (path,) if link_in(read_start(path), GITDIR) else ()
                elif os.path.lexists(f"{path}/HEAD"):
                    yield real_text(path)


def _old_remotes(git: str) -> Iterator[str]:
    """gitrepository-layout(5): "branches", "remotes"."""
    for directory in (f"{git}/remotes", f"{git}/branches"):
        try:
            names = os.listdir(directory)  # noqa: PTH208 - names
        except OSError:
            continue
        yield from names[:_MOST_OLD]
        for name in names[:_MOST_OLD]:
            for line in os.fsdecode(read_start(f"{directory}/{name}")).splitlines():
                url = line.removeprefix("URL:").strip()
                yield from dict.fromkeys((url, url.partition("#")[0]))


def names_no_helper(remote: bytes) -> bool:
    """Whether a remote's file of an older form has git run no program for its address."""
    lines = os.fsdecode(remote).splitlines()
    return not any(_HELPED.match(line.removeprefix("URL:").strip()) for line in lines)


def target_of(path: str) -> str:
    """Where a ``.git`` that is no directory leads; empty: nowhere."""
    content = held_at(path)
    if content is None:
        return ""
    if stat.S_ISLNK(content.type):
        return real_text(path)
    return linked(os.path.dirname(path), content.data, GITDIR)  # noqa: PTH120 - a text


def named_by(config: bytes, directory: str, tree: str) -> Iterator[tuple[str, bool]]:
    """The real paths that ``config`` names, and whether each is more configuration.

    ``directory`` is where relative includes start, ``tree`` where programs do.
    """
    for section, key, value, _ in programs_of(config) or ():
        if (section, key) in _REMOTES:
            continue
        if section.startswith("include") and key == "path":
            yield joined(directory, value), True
        elif key in {"hookspath", "templatedir"}:  # what "git init" copies is run in what it makes
            place = joined(tree, value)
            yield from ((each, False) for each in (place, f"{place}/hooks"))
        else:
            places = (joined(tree, word) for word in _words(value) if "/" in word)
            yield from ((place, False) for place in places if not os.path.isdir(place))  # noqa: PTH112 - a text
            yield from ((place, False) for place in named_by_hook(os.fsencode(value), tree))


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value.removeprefix("!"))
    except ValueError:
        return value.split()


def users_configurations() -> list[str]:
    """Where the user's own configuration and the machine's is, and what they include anywhere."""
    home = os.path.expanduser("~")  # noqa: PTH111 - never raises
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    users = os.environ.get("GIT_CONFIG_GLOBAL") or f"{home}/.gitconfig"
    system = os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    found = [users, f"{xdg}/git/config", system]
    for config in found:  # includes are added on the way
        directory = os.path.dirname(config)  # noqa: PTH120 - a text
        for place, is_config in named_by(read_start(config), directory, directory):
            if is_config and place and place not in found and len(found) < _MOST_INCLUDED:
                found.append(place)
    return found


def settings_given() -> bytes:
    """The user's settings in the environment, as a file would say them (git-config(1))."""
    lines, env = [], os.environ
    count = env.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count), _MOST_GIVEN) if count.isdecimal() else 0):
        section, _, rest = env.get(f"GIT_CONFIG_KEY_{number}", "").partition(".")
        value = re.sub(r'["\\]', r"\\\g<0>", env.get(f"GIT_CONFIG_VALUE_{number}", ""))
        value = value.replace("\n", r"\n")
        lines.append(f'[{section}]\n{rest.rpartition(".")[2]} = "{value}"\n')
    return os.fsencode("".join(lines))


def run_by_git(path: Path, workplaces: Iterable[str] = ()) -> str:
    """What ``path`` is to a repository that would run or obey it; empty: nothing.

    A file that its configuration, a hook or an ``.envrc`` names, one of its hooks, or what one of
    these is a link to. Looked at are those around it and directly in these, and ``workplaces``.
    """
    real = real_text(str(path))
    around = (
        each
        for tree in parents_of(real)
        for each in (tree, *(_repositories_in(tree) if os.path.lexists(f"{tree}/.git") else ()))
    )
    for tree in dict.fromkeys(chain(around, workplaces)):
        is_one = any(os.path.lexists(f"{tree}/{name}") for name in (".git", "HEAD"))
        if is_one and (found := _run_in(real, tree)):
            return found
        for name in ENTERED:
            entered = f"{tree}/{name}"
            if os.path.lexists(entered) and is_run_by(real, [entered], tree):
                return f"run by {name}"
    return ""


def _repositories_in(tree: str) -> Iterator[str]:
    """Those directly in it, such as submodules, whose hooks may lead out of them."""
    with contextlib.suppress(OSError), os.scandir(tree) as entries:
        for entry in islice(entries, _MOST_BESIDE):
            if os.path.lexists(f"{entry.path}/.git"):
                yield entry.path


def run_around(root: str) -> Iterator[tuple[str, bool]]:
    """What the repositories that ``root`` lies in run or obey, as ``named_by`` says it."""
    tree = os.path.dirname(root)  # noqa: PTH120 - a text
    while True:
        hooks = [f"{tree}/{name}" for name in ENTERED]
        if os.path.lexists(f"{tree}/.git"):
            named, used = _used_in(tree)
            yield from named
            yield from ((real_text(hook), False) for hook in used)
            hooks += used
        yield from ((place, False) for place in run_by(hooks, tree))
        if tree == (tree := os.path.dirname(tree)):  # noqa: PTH120 - a text
            return


def _run_in(real: str, tree: str) -> str:
    named, hooks = _used_in(tree)
    for place, is_config in named:
        holds_all = f"{tree}/".startswith(f"{place.rstrip('/')}/")
        if real == place or (real.startswith(f"{place}/") and not holds_all):
            return "git's configuration" if is_config else "run by git"
        if holds_all and real.rpartition("/")[0] == place:
            return "run by git"
    if any(real_text(hook) == real for hook in hooks):
        return "a hook of git's"
    return "run by a hook of git's" if is_run_by(real, hooks, tree) else ""


def _used_in(tree: str) -> tuple[list[tuple[str, bool]], list[str]]:
    """What git's configuration names in ``tree``, and its hooks."""
    git = _git_directory(tree)
    common = linked(git, read_start(f"{git}/commondir")) or git
    hooks = hooks_in(f"{common}/hooks") + hooks_in(f"{tree}/.husky")
    # new ones may come up where it leads
    named = [(real_text(f"{common}/hooks"), False)] if os.path.islink(f"{common}/hooks") else []  # noqa: PTH114 - a text
    waiting = [f"{common}/config", f"{git}/config.worktree", *users_configurations(), ""]
    for config in waiting:  # includes are added on the way
        directory = os.path.dirname(config)  # noqa: PTH120 - a text
        text = read_start(config) if config else settings_given()
        if os.path.islink(config):  # noqa: PTH114 - a text
            named.append((real_text(config), True))
        for place, is_config in named_by(text, directory, tree):
            named.append((place, is_config))
            if is_config and place and len(waiting) < _MOST_INCLUDED:
                waiting.append(place)
            elif not is_config:
                is_here = place.startswith(f"{tree}/")
                hooks += hooks_in(place) or ([place] if is_here else [])
    return named, hooks


def _git_directory(tree: str) -> str:
    entry = f"{tree}/.git"
    if os.path.isdir(entry):  # noqa: PTH112 - a text
        return real_text(entry)
    if not os.path.lexists(entry):  # a bare one
        return tree
    return linked(tree, read_start(entry), GITDIR)


def hooks_in(directory: str) -> list[str]:
    """The files there that git runs; none where it is no directory."""
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if not entry.name.endswith(".sample")]
    except OSError:
        return []


def steps_that_run(todo: bytes) -> frozenset[bytes]:
    """The lines of a rebase's list of steps that run a command; git-rebase(1): "exec"."""
    return frozenset(line.strip() for line in todo.splitlines() if _RUNS.match(line))


def without_steps_that_run(todo: bytes) -> bytes:
    """The other lines."""
    return b"".join(line for line in todo.splitlines(keepends=True) if not _RUNS.match(line))


def resumed_in(state: bytes) -> frozenset[bytes]:
    """What a commit goes on with: a stash, or keys of resolutions and the file for each."""
    return frozenset(filter(None, state.split(b"\0")))


def files_resumed(items: Mapping[str, Watched], trees: Mapping[str, set[str]]) -> Iterator[Path]:
    """The files from which git takes the resolution of a conflict, and to which it writes one."""
    for path, item in items.items():
        if item.kind is Kind.RESUMED and item.content.is_read:
            for entry in resumed_in(item.content.data):
                _, is_named, name = entry.partition(b"\t")
                users = trees.get(os.path.dirname(path), ()) if is_named else ()  # noqa: PTH120 - a text
                yield from (Path(tree, os.fsdecode(name)) for tree in users)


def configs_in(items: Mapping[str, Watched]) -> dict[str, Settings]:
    """``programs_of`` the configuration that there is, by its path."""
    found = items.items()
    return {p: programs_of(i.content.data) or () for p, i in found if i.kind is Kind.CONFIG}


def merges_by_itself(path: str, state: bytes) -> bool:
    """Whether git merges with a strategy of its own where ``path`` of its directory says how.

    That is the name of one alone, or (``opts``) configuration with ``options.strategy``. Patches
    (``apply-opt``) are applied with options of "git am", none of which names a file to write.
    """
    if path.endswith("/apply-opt"):
        return bool(_APPLIES.fullmatch(state))
    if not path.endswith("/opts"):
        return state.rstrip().decode("utf-8", "replace") in _STRATEGIES
    settings = programs_of(state)
    return settings is not None and all(
        key != "strategy" or value in _STRATEGIES for _, key, value, _ in settings
    )


def is_plain(path: str, item: Watched) -> bool:
    """Whether it says no more than versions, or Mercurial's where a clone came from."""
    text = item.content.data
    if says_versions(os.path.basename(path)):  # noqa: PTH119 - a text
        return says_only_versions(text)
    is_hgs = path.endswith(("/.hg/hgrc", "/.sl/config"))
    return is_hgs and all(map(_NAMES_NO_PROGRAM.fullmatch, text.splitlines()))


def trees_of(
    linked_trees: Mapping[str, set[str]],
    items: Mapping[str, Watched],
    configs: Mapping[str, Iterable[tuple[str, str, str, str]]],
) -> dict[str, set[str]]:
    """By git directory: the working trees that its configuration and hooks are for."""
    found = items.items()
    commons = {os.path.dirname(p): i.content.data for p, i in found if i.kind is Kind.COMMON}  # noqa: PTH120 - texts
    trees = {git: set(users) for git, users in linked_trees.items()}
    for git in filter(trees.__contains__, commons):
        trees.setdefault(linked(git, commons[git]), set()).update(trees[git])
    for git, tree in trees_said(configs):
        trees.setdefault(git, set()).add(joined(git, tree))
    return trees


def trees_said(
    configs: Mapping[str, Iterable[tuple[str, str, str, str]]],
) -> Iterator[tuple[str, str]]:
    """Git directories and the working trees that their configuration says, as it is written."""
    for path, settings in configs.items():
        for section, key, value, _ in settings:
            if (section, key) == WORKTREE:
                yield os.path.dirname(path), value  # noqa: PTH120 - a text


def to_put_right(
    changed: Iterable[str],
    now: Mapping[str, Watched],
    known: Mapping[str, Watched],
    directories: Collection[str],
) -> Iterator[tuple[str, Held | None]]:
    """What goes, and what comes back to its place. ``directories`` were there before."""
    known_tops = {item.top for item in known.values()}
    gone: set[str] = set()
    for path in changed:
        item, before = now[path], known.get(path)
        is_old = item.top in known_tops or item.top in directories
        target = path if is_old else item.top
        if target in gone:
            continue
        gone.add(target)
        restored = None if before is None or not before.content.is_whole else before.content
        if restored is None and item.kind is Kind.CONFIG:
            restored = MINIMAL
        if item.kind is Kind.TODO and item.content.is_read:
            restored = replace(item.content, data=without_steps_that_run(item.content.data))
        yield target, restored


def tree_of(path: str, item: Watched) -> str:
    """The working tree that a ``gitdir`` at ``path`` names, by links, too; empty: none."""
    name = link_in(item.content.data)
    tree = os.path.join(os.path.dirname(path), name.removesuffix("/.git"))  # noqa: PTH118, PTH120 - texts
    return tree if name.endswith("/.git") else ""


def shared_by(link: str) -> str:
    """The git directory that a working tree's ``.git`` leads to, which git has made; else empty."""
    target = target_of(link)
    if target and (common := common_of_worktree(Path(link), Path(target))):
        return str(common)
    return target if target and is_of_submodule(Path(link), Path(target)) else ""
