"""What others will execute, compared before and after each command (SEC-17).

A command in the sandbox may write in the workspace, and later the user's own git, shell or editor
runs what lies there: hooks and programs that a repository's configuration names, wherever below the
workspace the repository is, files such as ``.envrc`` and ``.vscode/tasks.json``, scripts of the
user's hooks. All of it is known before a command starts. Laws: what a command has made or changed
is renamed, never deleted, and what was there before is put back; what names no program is left
alone, so that ``git init``, ``git clone`` and ``git worktree add`` go on. A directory is listed
again only when its change time says so. At most ``MOST_DIRECTORIES`` are looked at, the nearest
first, and that there are more is said.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from agentcli.domain.files import real_text
from agentcli.domain.sandbox import IN_DIRECTORIES, MANAGED, has_form, is_obeyed, plain_name
from agentcli.process import directories
from agentcli.process.directories import (
    OF_NAMED_S,
    SCRIPTS,
    Listing,
    Survey,
    all_below,
    directories_in,
    git_directories_below,
    holds_form,
    identity_of,
    is_executable,
    is_in_package,
    is_of_git,
    lies_below,
    link_or,
    links_in,
    listing_of,
    parents_of,
    ways_to,
)
from agentcli.process.environment import hiding_below, searched_by_each
from agentcli.process.git_config import (
    AT_TOP,
    OF_TREES,
    WORKTREE,
    configs_in,
    files_resumed,
    hooks_in,
    is_plain,
    linked,
    merges_by_itself,
    moves_remotes,
    named_by,
    names_no_helper,
    places_of_remote,
    programs_of,
    pushed_to,
    resumed_in,
    run_around,
    settings_given,
    shared_by,
    steps_that_run,
    target_of,
    to_put_right,
    tree_of,
    trees_of,
    trees_said,
)
from agentcli.process.git_index import indexes_in, writes_elsewhere
from agentcli.process.hook_scripts import FETCHED_BY_LEFTHOOK, at_any_depth, joined, run_by
from agentcli.process.set_aside import (
    MINIMAL,
    SET_ASIDE,
    SUFFIX,
    Held,
    Kind,
    Pinned,
    Watched,
    held_at,
    is_later,
    open_again,
    put_back,
    set_aside_each,
)

MOST_DIRECTORIES = 50_000
_MOST_KEPT_BYTES = 32 * 1024 * 1024  # of all files, to be put back
_MOST_LINES = 8
_PLAIN = re.compile(r"[\w./+@ -]+")
_MOST_S = 4.0  # of one look or comparison, however much there is
_MOST_INCLUDED = 4  # configuration that includes configuration

_HOOKS = "hooks"
_GOES_ON = frozenset({Kind.TODO, Kind.STRATEGY, Kind.RESUMED, Kind.SHUT})
_OLD_REMOTES = ("remotes", "branches")  # gitrepository-layout(5)
_RUNS_SCRIPTS = re.compile(
    r"/\.husky/|/\.envrc[^/]*\Z|/\.?mise[./](?:[^/]*\.)?toml\Z|/mise/conf\.d/"
)


class TreeWatch:
    """Knows what lies in ``roots``.

    ``scripts`` are protected wherever they are in there, and ``user_configs`` name more. In
    ``untrusted`` only commands write: what lies there counts where a link of ``roots`` leads there,
    and is never known from before. ``users`` is what was there when no command ran, ``named`` what
    git was found to use; ``read_only`` is what none that runs can change; what was changed later
    than ``until``, a ``time.time``, is the user's. The methods block, and never run side by side.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        scripts: Iterable[Path] = (),
        untrusted: Sequence[Path] = (),
        user_configs: Sequence[Path] = (),
    ) -> None:
        self._roots = [str(root) for root in roots]
        self._scripts = tuple(scripts)
        self._untrusted = [str(place) for place in untrusted]
        self._user_configs = tuple(user_configs)
        self._listings: dict[str, Listing] = {}
        self.named: dict[str, Kind] = {}
        self._searched: tuple[str | None, ...] = (None,)  # by shells: PATH, ours first
        self._repositories: tuple[set[str], ...] = ()  # of each the working trees
        self._is_cut_told = False
        self._crowded_told: set[str] = set()
        self._owed: set[str] = set()  # what could not be put back yet
        self.shared: set[str] = set()  # what working trees in the roots have outside of them
        self.known = Survey()
        self.users = Survey()
        self._trees = set[str]()
        self.read_only: Mapping[str, Pinned] = {}
        self.until = math.inf

    def learn(self, others: Iterable[TreeWatch] = (), check: Callable[[], object] = bool) -> Survey:
        """Take what is there now for the user's own; where ``others`` look, what these know.

        What ``check`` raises on the way ends this: what was known stays known.
        """
        now = self._look(check=check)
        for _ in range(_MOST_INCLUDED):
            named, old = self._named_by_configuration(now, Kind.NAMED), self.named
            self.named = named
            if not old.items() <= named.items():
                now = self._look(now.give_up, check)
            elif not self._add_named([path for path in named if path not in old], now):
                break
        for other in others:
            for path in [path for path in now.items if other.is_inside(path)]:
                if (known := other.known.items.get(path)) is not None:
                    now.items[path] = known
                else:
                    del now.items[path]
        before, self.known, self.users = self.known, now, now
        self._owed.clear()
        now.items = {
            path: item for path, item in now.items.items() if not self._is_untrusted(path)
        } | {path: item for path, item in before.items.items() if self._is_untrusted(path)}
        return now

    def search_along(self, path: str) -> None:
        """The user's shell looks for programs there, too: what is there now is the user's own."""
        self._searched += (path,)
        self.known.give_up = time.monotonic() + OF_NAMED_S
        for place in hiding_below(self._roots, self._listings, path):
            self._add_tree(place, Kind.NAMED, self.known)

    def learn_only(self, written: Mapping[Path, str]) -> None:
        """Take these files for the user's own, as far as they are what was written there.

        Something inside may have changed them since, or made what was deleted, or others beside.
        """
        now = self._look().items
        for path, content in written.items():
            item, old = now.get(str(path)), self.known.items.get(str(path))
            if item and content == f"sha256:{hashlib.sha256(item.content.data).hexdigest()}":
                self.known.items[str(path)] = item
            elif not (item and (content or (old and old.content == item.content))):
                self.known.items.pop(str(path), None)

    def compare(self, *, is_under_way: bool = False) -> list[str]:
        """Set aside what has come up or changed since; one line about each.

        While a command ``is_under_way`` what it may be in the middle of is left to it, and what it
        has made counts as known no sooner than it has ended.
        """
        crowded = self.known.crowded
        now, changed = self._look_closely()
        old = self.known
        for path in [p for p in changed if is_under_way and self._can_wait(p, now)]:
            del changed[path]
            now.items.pop(path)
        shut = (path for path in changed if now.items[path].kind is Kind.SHUT)
        known = (old.directories, old.git_directories)
        opened = [open_again(path) for path in shut if any(path in each for each in known)]
        if any(opened):
            now, changed = self._look_closely()
        wrong = to_put_right(changed, now.items, old.items, old.directories) if changed else ()
        gone = set_aside_each(wrong, (*self._roots, *now.git_directories))
        lines = [*islice(chain(filter(None, opened), gone), _MOST_LINES)]
        rest = sum(1 for _ in gone)
        lines += self._settle(changed, now, is_under_way)
        both = {path: now.items.get(path, item) for path, item in old.items.items()}
        self.known = replace(old, items=both) if is_under_way else now
        if rest := rest + len(lines[_MOST_LINES:]):
            lines[_MOST_LINES:] = [f"[sandbox: {rest} more were renamed, to NAME{SUFFIX}]"]
        if now.is_cut and not self._is_cut_told:
            self._is_cut_told = True
            lines.append(directories.line_of_more(now))
        if new := sorted((now.crowded & crowded) - self._crowded_told):
            self._crowded_told |= now.crowded
            lines.append(directories.line_of_crowds(new[:_MOST_LINES]))
        return lines

    def _can_wait(self, path: str, now: Survey) -> bool:
        """Whether nothing runs it before the user has git go on, or can go there."""
        kind, git = now.items[path].kind, os.path.dirname(path)  # noqa: PTH120 - a text
        return kind in _GOES_ON or (kind is Kind.INDEX and git not in self.known.git_directories)

    def _settle(self, changed: Iterable[str], now: Survey, is_under_way: bool) -> list[str]:  # noqa: FBT001 - as above
        """Have ``now`` hold what counts as known; what was removed is put back, a line for each."""
        owed, lines = set[str](), []
        for path in changed:  # nothing counts as known that was not looked at: others may write
            item, was = now.items.pop(path), self.known.items.get(path)
            content = held_at(path, whole=was is None or was.content.is_whole)
            if content and (content == MINIMAL or (was and content == was.content)):
                now.items[path] = replace(item, content=content)
            elif was and was.content.is_whole:  # to be put back yet: something else was there first
                now.items[path] = was
                owed.add(path)
        for path, item in () if is_under_way else self._removed(now):
            now.items[path] = item
            if line := put_back(Path(path), item.content):
                lines.append(line)
            else:
                owed.add(path)
        self._owed = owed | (self._owed if is_under_way else set())
        return lines

    def _look_closely(self) -> tuple[Survey, dict[str, None]]:
        """What is there, also what new configuration and scripts name; and what has changed."""
        now = self._look()
        changed = self._changed(now)
        for _ in range(_MOST_INCLUDED):
            kept = replace(now, items={p: i for p, i in now.items.items() if p not in changed})
            named = self._named_by_configuration(kept)
            born = [path for path in named if path not in self.named]
            if not born:
                break
            # a repository or a script that has come up is run as the others are
            ours = self._named_by_configuration(self._without_new_repositories(kept), Kind.NAMED)
            self.named |= {each: ours.get(each, named[each]) for each in born}
            self._add_named(born, now)
            changed = self._changed(now)
        return now, changed

    def _is_untrusted(self, path: str) -> bool:
        return any(lies_below(path, place) for place in self._untrusted)

    # --- looking -------------------------------------------------------------------------

    def _look(self, give_up: float = 0.0, check: Callable[[], object] = bool) -> Survey:
        found = Survey()
        # what a ".git" that has been removed belonged to still counts
        self._trees = set().union(*self.users.trees.values(), *self.known.trees.values())
        # no crowd of new directories hides what was known, nor what comes up where the user works
        old = (p for p, seen in self._listings.items() if seen.marks or seen.is_repository)
        waiting = [*self._roots, *old, *islice(self._listings, MOST_DIRECTORIES // 2)]
        kept = sum(len(item.content.data) for item in self.known.items.values())
        found.room_bytes = _MOST_KEPT_BYTES - kept
        found.give_up = give_up or time.monotonic() + _MOST_S
        at = 0
        while at < len(waiting):
            path = waiting[at]
            at += 1
            if path in found.directories:
                continue
            check()
            if found.is_over or len(found.directories) >= MOST_DIRECTORIES:
                found.is_cut = True
                break
            try:
                known, most = self._listings.get(path), MOST_DIRECTORIES
                listing = listing_of(path, known, most, self._is_untrusted, found.give_up)
            except PermissionError:
                self._add_file(path, Kind.SHUT, found)
                continue
            if listing is None:
                continue
            found.directories[path] = listing
            found.is_cut |= not listing.is_whole
            prefix = path.rstrip("/") + "/"
            if listing.is_repository:
                found.repositories.append(Path(path))
                self._git_directory(path, found)
            for number, name in enumerate(listing.marks):
                if not found.has_room(prefix + name, number):
                    break
                self._mark(prefix, name, found)
                waiting += [prefix + name] if plain_name(name) == ".git" else []
            waiting += found.fitting(prefix, listing.directories)
            waiting += found.fitting("", map(real_text, listing.links))
        self._listings = found.directories
        self._add_others(found)
        searched = (*self._searched, *searched_by_each(found.items))
        hiding = hiding_below([*self._roots, *self._untrusted], found.directories, *searched)
        for place in dict.fromkeys((*ways_to(self._scripts, self._roots), *hiding)):
            self._add_tree(place, Kind.NAMED, found)
        self._add_named(self.named, found)
        return found

    def _add_others(self, found: Survey) -> None:
        """What was known, however crowded it is now, and where git pushes to, which runs hooks."""
        for git in self.known.git_directories:
            if real_text(git) == git and os.path.isdir(git):  # noqa: PTH112 - a text
                self._git_directory(git, found)
        for path, item in self.known.items.items() if found.is_cut else ():
            is_file = stat.S_ISREG(item.content.type) or stat.S_ISLNK(item.content.type)
            parent = os.path.dirname(path)  # noqa: PTH120 - a text
            if is_file and path not in found.items and real_text(parent) == parent:
                self._add_file(path, item.kind, found, item.top)
        configs = configs_in(found.items)
        trees = trees_of(found.trees, found.items, configs)
        written = [Path(git, tree) for git, tree in trees_said(configs)]
        written += files_resumed(found.items, trees)
        written += [Path(tree_of(p, i)) for p, i in found.items.items() if i.kind is Kind.TREE]
        for place in filter(os.path.islink, ways_to(written, self._roots)):
            self._add_file(place, Kind.WRITTEN, found)
        places = pushed_to(configs, tuple(found.git_directories), trees, lambda: found.is_over)
        for path in filter(self.is_inside, places):
            add = self._link if os.path.isfile(path) else self._git_directory  # noqa: PTH113 - a text
            add(path, found)
        found.is_cut |= found.is_over

    def _add_named(self, paths: Collection[str], found: Survey) -> bool:
        for path in paths:
            self._add_tree(path, self.named[path], found)
        return bool(paths)

    def _mark(self, prefix: str, name: str, found: Survey) -> None:
        path = prefix + name
        if plain_name(name) == ".git":
            found.repositories.append(Path(path))
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - texts
                is_known = path in self.known.git_directories
                self._git_directory(path, found)
                found.trees.setdefault(path, set()).add(prefix.rstrip("/"))
                # its branches would bring hooks of the git directory that it lies in
                if "/.git/" in prefix.lower() and not is_known:
                    self._add_file(path, Kind.LINK, found)
            else:
                self._link(path, found)
            return
        is_packed = is_in_package(prefix, (*self._roots, *self._untrusted), self._trees)
        plain, above = plain_name(name), prefix.rstrip("/")
        if is_packed or plain in MANAGED:
            return
        is_listed = plain in IN_DIRECTORIES or is_obeyed(plain)
        if not is_listed and has_form(plain_name(os.path.basename(above)), plain):  # noqa: PTH119 - a text
            self._add_tree(path, Kind.SCRIPT, found, top=above)
        elif is_obeyed(plain) or os.path.islink(path):  # noqa: PTH114 - a text
            if is_listed or holds_form(plain, path):
                self._add_file(path, Kind.SCRIPT, found)  # where a link leads is named by it
            return
        for inner in IN_DIRECTORIES.get(plain, ()):
            way = f"{path}/{inner.partition('/')[0]}" if inner else path
            leads_away = os.path.islink(way) or os.path.isfile(way)  # noqa: PTH113, PTH114 - texts
            place = way if leads_away or not inner else f"{path}/{inner}"
            self._add_tree(place, Kind.SCRIPT, found, top=path)

    def _link(self, path: str, found: Survey) -> None:
        """A ``.git`` that leads elsewhere, and where."""
        self._add_file(path, Kind.LINK, found)
        if target := target_of(path):
            found.trees.setdefault(target, set()).add(os.path.dirname(path))  # noqa: PTH120 - a text
        if target and self.is_inside(target):
            self._git_directory(target, found)
        elif shared := shared_by(path):
            self.shared.add(shared)
            self._git_directory(shared, found)

    def is_inside(self, path: str) -> bool:
        """Whether what lies there is looked at."""
        places = (*self._roots, *self._untrusted, *self.shared)
        return any(lies_below(path, place) for place in places)

    def _git_directory(self, git: str, found: Survey) -> None:
        """What in it, and in those that it leads to, decides which programs git runs."""

        def tell(shut: str) -> None:
            if shut:
                self._add_file(shut, Kind.SHUT, found)
            found.is_cut |= not shut

        waiting = [git]
        while waiting:
            git = waiting.pop()
            if git in found.git_directories:
                continue
            found.git_directories[git] = identity_of(git)
            self._add_file(f"{git}/config", Kind.CONFIG, found)
            self._add_file(f"{git}/lazygit.yml", Kind.NAMED, found)
            self._add_file(link_or(f"{git}/info/attributes"), Kind.ATTRIBUTES, found)
            self._add_tree(f"{git}/{_HOOKS}", Kind.HOOK, found)
            for name in _OLD_REMOTES:
                self._add_tree(f"{git}/{name}", Kind.REMOTE, found)
            # a linked working tree has submodules of its own
            for part in (Path(git), *directories_in(Path(git, "worktrees"), tell)):
                for name, kind in OF_TREES.items():
                    path = f"{part}/{name}"
                    self._add_file(link_or(path) if "/" in name else path, kind, found)
                for link in links_in(str(part), found.give_up):
                    self._add_file(link, Kind.WRITTEN, found)
                for index in indexes_in(str(part)):
                    content = held_at(index, whole=False)  # nothing that is put back
                    found.items |= {index: Watched(Kind.INDEX, content, index)} if content else {}
                fetched = map(real_text, map(str, part.glob(f"{FETCHED_BY_LEFTHOOK}/.git")))
                waiting += filter(self.is_inside, [self._common(str(part), found), *fetched])
                modules = part / "modules"
                waiting += map(
                    str, git_directories_below(modules, lambda at: self.is_inside(str(at)), tell)
                )

    def _common(self, git: str, found: Survey) -> str:
        """The directory that ``commondir`` names; empty for none."""
        path = f"{git}/commondir"
        self._add_file(path, Kind.COMMON, found)
        return linked(git, found.items[path].content.data) if path in found.items else ""

    def _add_file(self, path: str, kind: Kind, found: Survey, top: str = "") -> None:
        """One file, if it is there."""
        content = self._held(path, found)
        if content is not None and path not in found.items:
            found.items[path] = Watched(kind, content, top or path)

    def _held(self, path: str, found: Survey) -> Held | None:
        """What is there: whole as it was before, or else as long as there is room."""
        known = self.known.items.get(path)
        content = held_at(path, whole=known.content.is_whole if known else found.room_bytes > 0)
        if known is not None and known.content == content:
            return known.content
        found.room_bytes -= len(content.data) if content is not None else 0
        return content

    def _add_tree(self, path: str, kind: Kind, found: Survey, top: str = "") -> None:
        """A file, or all that is in a directory, to a bound."""
        left, above = dict.fromkeys((True, False), directories.MOST_FILES), os.path.dirname(path)  # noqa: PTH120 - a text
        for each, is_file in all_below(path):
            name = os.path.basename(each)  # noqa: PTH119 - a text
            is_named = each == path and not (name.startswith(".") and above in self._roots)
            is_aside = SET_ASIDE.search(name) and not is_named and not is_executable(each)
            # a hook may run all that is in a directory of its own, whatever that is called
            is_deeper = os.path.dirname(each) not in {path, above}  # noqa: PTH120 - a text
            is_sample = kind is Kind.HOOK and name.endswith(".sample")
            if not is_deeper and (is_aside or is_sample):
                continue
            if not left[is_file]:
                many = Held(stat.S_IFDIR, 0, b"more than are looked at", is_whole=False)
                found.items.setdefault(path, Watched(kind, many, top or path))
                found.crowded.add(path)
                break
            if time.monotonic() > found.give_up:
                found.is_cut = True
                break
            left[is_file] -= 1
            content = self._held(each, found) if is_file else None
            if (seen := found.items.get(each)) is None and content is not None:
                found.items[each] = Watched(kind, content, top or path)
            elif seen is not None and seen.kind is Kind.SCRIPT and kind is Kind.NAMED:
                found.items[each] = replace(seen, kind=kind)

    # --- what configuration names ----------------------------------------------------------

    def _named_by_configuration(self, found: Survey, script: Kind = Kind.SCRIPT) -> dict[str, Kind]:
        """Files and directories of the workspace that git's configuration has it use.

        So does a hook that is a link, or names one. ``script`` is what counts as run.
        """
        named: dict[str, Kind] = {}
        configs = configs_in(found.items)
        self._repositories = tuple(trees_of(found.trees, found.items, {}).values())
        trees = trees_of(found.trees, found.items, configs)
        every = found.tops(trees)
        running = [
            # what is pushed to a repository has its hooks start in its git directory
            (found.items[path].content.data, git, {git, *trees.get(git, every)})
            for path, settings in configs.items()
            if any(setting[:2] != WORKTREE for setting in settings)
            for git in [os.path.dirname(path)]  # noqa: PTH120 - a text
        ]
        users = ((each, held_at(real_text(str(each)))) for each in self._user_configs)
        running += [(held.data, str(each.parent), every) for each, held in users if held]
        running.append((settings_given(), "", every))
        for config, directory, starts in running:
            for tree in starts:
                for place, is_config in named_by(config, directory, tree):
                    named[place] = Kind.CONFIG if is_config else script
                    trees.setdefault(place, set()).add(tree)
        for place, is_config in (each for root in self._roots for each in run_around(root)):
            named[place] = Kind.CONFIG if is_config else script
        for root in filter(named.__contains__, self._roots):  # it is the directory of the hooks
            named |= {f"{root}/{name}": Kind.HOOK for name in AT_TOP}
        self._add_led_to(named, found, trees, script)
        anywhere = at_any_depth((*named, *self.named), found.directories)
        named |= dict.fromkeys(anywhere, script)
        return {
            place: kind
            for place, kind in named.items()
            if self.is_inside(place) and not any(lies_below(root, place) for root in self._roots)
        }

    def _add_led_to(
        self, named: dict[str, Kind], found: Survey, trees: Mapping[str, set[str]], script: Kind
    ) -> None:
        """Add where what counts leads that is a link, and what hooks name."""
        every = found.tops(trees)
        led_from_hooks = (
            real_text(path)
            for path, item in found.items.items()
            if stat.S_ISLNK(item.content.type)
            and (item.kind is Kind.HOOK or _RUNS_SCRIPTS.search(path))
        )
        by_git = frozenset((*named, *led_from_hooks)).difference(self._roots)
        for place in by_git:
            for tree in () if self.is_inside(place) else trees.get(place, ()):
                hooks = hooks_in(place)
                led_to = (*map(real_text, hooks), *run_by(hooks, tree))
                named |= dict.fromkeys(led_to, script)
        for path, item in found.items.items():
            is_run = item.kind is Kind.HOOK or item.kind in SCRIPTS
            above = (path, *parents_of(path))
            if stat.S_ISLNK(item.content.type):
                if is_run or item.kind in {Kind.CONFIG, Kind.ATTRIBUTES}:
                    named[real_text(path)] = script if is_run else item.kind
            elif is_run and (
                item.kind is Kind.HOOK or _RUNS_SCRIPTS.search(path) or not by_git.isdisjoint(above)
            ):
                nearest = {next((each for each in above if each in every), above[1])}
                nearest |= found.git_directories.keys() & set(above)
                for tree in nearest.union(*(trees.get(each, ()) for each in above)):
                    named |= dict.fromkeys(run_by([path], tree), script)

    def _without_new_repositories(self, found: Survey) -> Survey:
        """What nobody has opened yet runs nothing there but for the user, who goes there first."""
        new = [
            each
            for each in found.repositories
            if str(each) not in self.known.git_directories
            and each.is_dir()
            and not each.is_symlink()
            and self._is_new(str(each.parent))
        ]
        tops = tuple(f"{each.parent}/" for each in new)
        return replace(
            found,
            repositories=[each for each in found.repositories if each not in new],
            trees={git: trees for git, trees in found.trees.items() if not git.startswith(tops)},
            items={p: item for p, item in found.items.items() if not p.startswith(tops)},
        )

    # --- comparing -------------------------------------------------------------------------

    def _changed(self, now: Survey) -> dict[str, None]:
        known, items = self.known.items, now.items.items()
        return dict.fromkeys(
            path for path, item in items if not self._may_stay(path, item, known.get(path), now)
        )

    def _may_stay(self, path: str, now: Watched, before: Watched | None, found: Survey) -> bool:
        is_file = stat.S_ISREG(now.content.type)
        linked_before = replace(now.content, has_other_name=True)
        is_old = before is not None and before.content in (now.content, linked_before)
        is_old = is_old or (before is None and self._was_out_of_sight(path))
        is_old = is_old or self._is_shielded(path) or is_later(path, self.until)
        # under another name git may write there, as it writes a commit's message
        if is_old or now.content.has_other_name:
            return is_old
        match now.kind:
            case Kind.CONFIG | Kind.TODO | Kind.STRATEGY | Kind.REMOTE | Kind.RESUMED:
                return now.content.is_read and self._is_harmless(path, now, before, found)
            case Kind.LINK | Kind.COMMON | Kind.TREE:
                return is_file and self._leads_to_its_own(path, now, found)
            case Kind.INDEX | Kind.ATTRIBUTES:
                return is_file and not (
                    writes_elsewhere(os.path.dirname(path), self._roots)  # noqa: PTH120 - a text
                    if now.kind is Kind.INDEX
                    else b"=" in now.content.data
                )
            case _:
                comes = now.kind is Kind.SCRIPT and self._came_with_a_repository(now.top)
                came_along = before is None and (comes or self._is_in_another_tree(path, now))
                is_read = is_file and now.content.is_whole and path not in self.named
                return came_along or (is_read and is_plain(path, now))

    def _removed(self, now: Survey) -> list[tuple[str, Watched]]:
        """What git was told and runs in repositories that are still there, and no longer is."""
        return [
            (path, item)
            for path, item in self.known.items.items()
            if path not in now.items and item.content.is_whole and not self._is_shielded(path)
            if not is_later(os.path.dirname(path), self.until)  # noqa: PTH120 - a text
            if path in self._owed
            or any(
                now.git_directories.get(git, 0) == self.known.git_directories.get(git)
                for git in (path.removesuffix("/config"), path.rpartition(f"/{_HOOKS}/")[0])
            )
        ]

    def _is_shielded(self, path: str) -> bool:
        """Whether no command could have changed it: so the user has, at the same time."""
        places = (path, *parents_of(path)) if self.read_only else ()
        place = next(filter(self.read_only.__contains__, places), None)
        return place is not None and self.read_only[place].is_at(place)

    def _was_out_of_sight(self, path: str) -> bool:
        """Whether nobody had looked where it lies, beyond the bound, so that it may be old."""
        looked_at = self.known.directories
        above = next((each for each in parents_of(path) if each in looked_at), "")
        name, _, rest = path[len(above) :].lstrip("/").partition("/")
        was_there = not above or (rest and name in looked_at[above].directories)
        return self.known.is_cut and bool(was_there)

    def _is_harmless(self, path: str, now: Watched, before: Watched | None, found: Survey) -> bool:
        if now.kind is Kind.STRATEGY:
            return merges_by_itself(path, now.content.data)
        if now.kind is Kind.REMOTE:
            return names_no_helper(now.content.data)
        if now.kind in {Kind.TODO, Kind.RESUMED}:
            told = steps_that_run if now.kind is Kind.TODO else resumed_in
            return told(now.content.data) <= told(before.content.data if before else b"")
        programs = programs_of(now.content.data)
        git = os.path.dirname(path)  # noqa: PTH120 - a text
        old = set(programs_of(before.content.data) or ()) if before is not None else set()
        if programs is None or (old and moves_remotes(old, programs)):
            return False
        for setting in programs:
            is_tree = setting[:2] == WORKTREE and _PLAIN.fullmatch(setting[2])
            if is_tree and self._may_be_tree(joined(git, setting[2]), found):
                continue
            remote = places_of_remote(git, setting)
            if remote and not any(map(self._is_untrusted, remote)):
                continue
            if setting not in old:
                return False
        return True

    def _leads_to_its_own(self, path: str, now: Watched, found: Survey) -> bool:
        above = os.path.dirname(path)  # noqa: PTH120 - a text
        if now.kind is Kind.LINK:
            return target_of(path) in found.git_directories and self._may_be_tree(above, found)
        if now.kind is Kind.COMMON:
            main, name = os.path.split(os.path.dirname(above))  # noqa: PTH120 - texts
            return name == "worktrees" and linked(above, now.content.data) == main
        # "git worktree repair" writes there, and "remove" deletes all of it
        tree = tree_of(path, now)
        is_one = not os.path.lexists(tree) or self._may_be_tree(real_text(tree), found)
        return bool(tree) and is_one

    def _may_be_tree(self, place: str, found: Survey) -> bool:
        """Whether git may check out there: in a git directory it would write hooks."""
        is_gits = any(is_of_git(place, git) for git in found.git_directories)
        return self.is_inside(place) and not is_gits

    def _came_with_a_repository(self, top: str) -> bool:
        """Whether it is what a new repository, such as a clone, has brought in its own directory.

        Nobody has opened that yet; what is new in a directory that was there is another thing.
        """
        place = os.path.dirname(top)  # noqa: PTH120 - a text
        while self.is_inside(place) and self._is_new(place):
            if os.path.lexists(f"{place}/.git"):
                return True
            place = os.path.dirname(place)  # noqa: PTH120 - a text
        return False

    def _is_new(self, directory: str) -> bool:
        """Whether it was not there, or is that of a submodule that was not fetched yet."""
        before = [each.directories.get(directory) for each in (self.known, self.users)]
        return not any(each and (directory in self._roots or not each.is_empty) for each in before)

    def _is_in_another_tree(self, path: str, item: Watched) -> bool:
        """Whether it is what git runs already: "git worktree add" brings its own copy of that."""
        copies = (
            self.known.items.get(other + path[len(tree) :])
            for trees in self._repositories
            for tree in trees
            if lies_below(path, tree)
            for other in trees
        )
        is_copy = (each.content == item.content for each in copies if each)
        return item.top in self.named and any(is_copy)
