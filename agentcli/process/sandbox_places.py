"""Which places a command may write, only read, or not see at all (SEC-7).

Law: paths are real ones, links followed; a place is judged against directories, not prefixes.
What lies in the workspace and takes effect outside of the sandbox is read-only: git's hooks and
configuration, our project directory, the start-up files of shells. What would take effect once it
came into being is named too; ``sandbox_watch`` sets it aside as soon as a command has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path

from agentcli.domain.files import real_text
from agentcli.domain.sandbox import HOME_SECRETS, MOST_SHUT
from agentcli.domain.tools import real_path
from agentcli.domain.worktrees import common_of_worktree, is_of_submodule, named_by, working_tree_of
from agentcli.process.directories import (
    Listing,
    directories_in,
    followed,
    git_directories_below,
    is_directory,
    listing_of,
)
from agentcli.process.git_index import index_of, tracked_in
from agentcli.process.sandbox_home import (
    Links,
    credentials_in,
    elsewhere,
    existing,
    homes,
    is_below,
    is_for_builds,
    links_to,
    of_users,
    outermost,
    seen,
)

_START_UP = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc",
    ".login", ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".inputrc", ".gitconfig",
    ".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d",
    ".local/bin",
)  # fmt: skip
PROJECT = (".agents", ".agentcli")
# of a repository: where its own working tree stands, what is staged there, what is under way
_OF_MAIN_TREE = ("HEAD", "index", "logs/HEAD", "rebase-merge", "rebase-apply", "sequencer")
# where links stand in a home directory whose files are kept elsewhere, as stow makes them
_LINKED_IN = (
    "", ".config", ".local", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".config/git",
    ".config/fish", ".config/fish/conf.d", ".config/fish/functions", ".config/autostart",
    ".config/environment.d", ".config/systemd/user",
    ".config/nvim", ".config/nvim/lua", ".vim", ".emacs.d", ".config/emacs", ".config/doom",
    ".config/helix", ".config/zsh", ".zsh", ".bashrc.d", ".config/nushell", ".config/direnv",
    ".config/tmux", ".config/kitty", ".config/hypr", ".config/sway", ".config/i3",
)  # fmt: skip
_MOST_NAMES = 2_000
_MOST_LINKS = 20_000
_MOST_MOUNTED = 40
_MOST_PINNED = 100
_MOST_HIDDEN = 100
_REST = 100
_MOST_LOOKED_AT = 20_000
_MOST_S = 0.5


def start_up_places(home: Path) -> list[Path]:
    """What shells, logins and git read in the home directories; real paths, there or not."""
    return [real_path(each / name) for each in of_users(home) for name in (*_START_UP, ".ssh")]


def names_at_home(home: Path, roots: Iterable[Path]) -> list[tuple[str, str]]:
    """What of ``roots``, which are real, has a name in the home directories, too, and that name.

    By links there: a repository of the user's settings is worked in, and they take effect at once.
    """
    return other_names((f"{each}/{name}" for each in of_users(home) for name in _LINKED_IN), roots)


def is_setting(real: str, link: str, home: Path, roots: Iterable[Path]) -> bool:
    """Whether ``link``, of ``names_at_home``, gives a part of ``roots`` a hidden name there.

    What has one is the user's settings, of which shells, editors and terminals run what they say.
    A working directory as a whole is what somebody chose to work in, whatever leads there.
    """
    if Path(real) in roots:
        return False
    return any(link.startswith(f"{each}/.") for each in of_users(home))


def other_names(
    directories: Iterable[str], roots: Iterable[Path], more: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """What of ``roots``, which are real, links in ``directories`` lead to, and these links.

    ``more`` are others, which come first.
    """
    roots, links = tuple(roots), islice(chain(more, _links_in(directories)), _MOST_LINKS)
    named = ((real_text(link), link) for link in links)
    return [each for each in named if is_below(each[0], roots)]


def _links_in(directories: Iterable[str]) -> Iterator[str]:
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in islice(entries, _MOST_NAMES):
                if entry.is_symlink():
                    yield os.path.normpath(entry.path)


# shadow(5): what root alone reads, and a command that root runs
_OF_ROOT = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute real paths. Of ``homes`` no more is seen than the rest, ``seen`` to begin with.

    ``pinned`` are writable directories that cannot be moved away; ``reopened`` are writable ones
    in what is read-only, in which more may be read-only again.
    ``empty`` are directories that are to be seen as empty and read-only, whether they exist or
    not; ``hidden`` what exists and is not to be read; ``unborn`` what must not come into being.
    Of ``elsewhere``, too, what only reads sees no more than ``all_seen``. ``shut`` are credentials
    of the workspace for a command that searches it: there, and not to be read. ``links`` are those
    by which what is seen has another name in ``homes`` or ``elsewhere``, and what each says. Of
    ``listed`` all names are seen, for git to tell what is new, also where something is ``hidden``.
    """

    writable: tuple[Path, ...]
    pinned: tuple[Path, ...]
    read_only: tuple[Path, ...]
    empty: tuple[Path, ...]
    hidden: tuple[Path, ...]
    unborn: tuple[Path, ...]
    homes: tuple[Path, ...] = ()
    seen: tuple[Path, ...] = ()
    reopened: tuple[Path, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    all_seen: tuple[Path, ...] = ()
    shut: tuple[Path, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    listed: tuple[Path, ...] = ()

    def frozen(self) -> Places:
        """The same with nothing to write to."""
        needed = (path for path in self.all_seen if not is_for_builds(path, self.homes))
        seen = (*needed, *self.writable)
        homes = outermost((*self.homes, *self.elsewhere))
        hidden = tuple(
            path for path in self.hidden if is_below(path, seen) or not is_below(path, homes)
        )
        return replace(
            self,
            hidden=hidden,
            writable=(),
            pinned=(),
            read_only=(),
            empty=(),
            homes=homes,
            seen=seen,
            reopened=(),
        )

    def holds_reopened(self, path: Path) -> bool:
        """Whether something in the read-only ``path`` is writable."""
        return any(place.is_relative_to(path) for place in self.reopened)

    def stays_where_it_is(self, path: Path) -> bool:
        """Whether no command can move a directory that ``path`` lies in."""
        place = path.parent
        while place in self.pinned or (
            place in self.writable and is_below(place.parent, self.writable)
        ):
            place = place.parent
        return place in self.writable

    def without(
        self, credentials: Iterable[Path], roots: Sequence[Path], indexes: Sequence[bytes]
    ) -> Places:
        """The same where the nearest ``credentials`` below ``roots`` are shut.

        Not what git tracks as ``indexes``, one of each of ``roots``, say: it shows the changes of
        that anyway, and would take it for changed.
        """
        real = dict.fromkeys(real_path(each) for each in islice(credentials, MOST_SHUT))
        # what is not there would be made, to be mounted on
        shut = [each for each in real if is_below(each, roots) and os.path.exists(each)]  # noqa: PTH110 - it never raises
        for root, index in zip(roots, indexes, strict=False):
            below = {
                os.fsencode(each.relative_to(root)): each for each in shut if root in each.parents
            }
            tracked = {below[name] for name in tracked_in(index, below)} if below else ()
            shut = [each for each in shut if each not in tracked]
        of_root = [] if os.getuid() else [each for each in map(Path, _OF_ROOT) if each.exists()]
        listed = (*self.listed, *dict.fromkeys(each.parent for each in of_root))
        return replace(self, shut=(*outermost(shut), *of_root), listed=listed)


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """Our files: what no command writes, and what no command reads.

    ``seen`` is what they may read in the home directory beside toolchains; ``scripts`` are what
    the user's hooks run: none changes those in the workspace. ``credentials`` finds those below a
    directory. In ``unsettled`` is kept what was known before a command (``process.unsettled``).
    """

    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    seen: tuple[Path, ...] = ()
    scripts: tuple[Path, ...] = ()
    credentials: Callable[[Path], Iterable[Path]] = lambda _: ()
    unsettled: Path | None = None


class _Collector:
    def __init__(self, roots: Iterable[Path]) -> None:
        self.writable = list(dict.fromkeys(map(real_path, roots)))
        self.pinned: list[Path] = []
        self.read_only: list[Path] = []
        self.empty: list[Path] = []
        self.hidden: list[Path] = []
        self.unborn: list[Path] = []
        self.reopened: list[Path] = []
        self._shared: list[Path] = []
        self.homes: tuple[Path, ...] = ()
        self.seen: tuple[Path, ...] = ()
        self.elsewhere: tuple[Path, ...] = ()
        self.all_seen: tuple[Path, ...] = ()
        self.links: dict[str, str] = {}
        self.listed: tuple[Path, ...] = ()
        self._links = Links()

    def is_writable(self, path: str | Path) -> bool:
        return is_below(path, self.writable)

    def is_seen(self, path: str | Path) -> bool:
        """Whether a command could read it; of a home directory it sees a list alone."""
        return not is_below(path, self.homes) or is_below(path, (*self.writable, *self.seen))

    def keep(self, path: str | Path, *, may_be_born: bool = False) -> None:
        """No command changes ``path``; if it is not there, none makes it."""
        real = self._real(path)
        if not self.is_writable(real) or any(real == str(root) for root in self.writable):
            return
        if _exists(real):
            self.read_only.append(Path(real))
        elif not may_be_born:
            self.unborn.append(Path(self._real(Path(path).parent), Path(path).name))

    def hide(self, path: str | Path) -> None:
        """No command reads ``path``, unless the workspace is in it."""
        real = self._real(path)
        if any(is_below(root, (real,)) for root in self.writable) or not self.is_seen(real):
            return
        if _exists(real):
            self.hidden.append(Path(real))
        elif self.is_writable(real):
            self.unborn.append(Path(path))

    def pin_above(self, path: Path) -> None:
        """No command moves ``path``, which is not looked for elsewhere, with what it lies in."""
        for place in path.parents:
            if place in self.writable or not self.is_writable(place):
                break
            self.pinned.append(place)

    def _real(self, path: str | Path) -> str:
        return self._links.real(str(path))

    def home_directory(self, home: Path) -> None:
        """No command reads the secrets that are known there, or changes what shells run."""
        # what is not there matters only where it could be made
        may_be_born = self.is_writable(home)
        for names, done in ((HOME_SECRETS, self.hide), (_START_UP, self.keep)):
            all_names = (f"{home}/{name}" for name in names)
            for place in all_names if may_be_born else existing(home, names):
                done(place)

    # --- git -----------------------------------------------------------------------------

    def repository(self, entry: Path) -> None:
        """``entry`` is the ``.git`` of a working tree: a directory, or a file that names one."""
        if os.path.islink(entry) or is_directory(entry):  # noqa: PTH114 - never raises
            if is_directory(real := real_path(entry)) and self.is_writable(real):
                self.git_directory(real)
            return
        self.keep(entry)
        directory = named_by(entry)
        if directory is None:
            return
        is_shared = directory.parent.parent in self._shared
        if self.is_writable(directory) and not is_shared:
            self.git_directory(directory)
        elif (common := common_of_worktree(entry, directory)) is not None:
            self._linked(common, directory)
        elif not is_shared and is_of_submodule(entry, directory):
            self.writable.append(directory)
            self.git_directory(directory)

    def _linked(self, common: Path, own: Path) -> None:
        """What a working tree shares with others that lie outside, and its ``own`` part of it.

        It may add objects and move branches; where others stand, and what they have staged, is
        theirs (SCALE-1).
        """
        self.reopened.append(own)
        if common not in self._shared:
            self._shared.append(common)
            self.writable.append(common)
            self.git_directory(common)
            for name in ("worktrees", "modules", *_OF_MAIN_TREE):
                self.keep(common / name, may_be_born=True)
        self._keep_links(own)

    def _keep_links(self, tree: Path) -> None:
        for name in ("commondir", "gitdir", "config.worktree"):
            self.keep(tree / name, may_be_born=True)

    def git_directory(self, git: Path) -> None:
        """What is in ``git`` and decides which programs git runs is read-only."""
        if git in self.pinned:
            return
        self.pinned.append(git)
        hooks = git / "hooks"
        if is_directory(hooks) and followed(hooks) == hooks:
            self.read_only.append(hooks)
        elif not os.path.lexists(hooks):
            self.empty.append(hooks)
        for name in ("config", "commondir", "config.worktree", "info"):
            self.keep(git / name, may_be_born=True)
        trees = () if git in self._shared else directories_in(git / "worktrees")
        for number, tree in enumerate(trees):
            place = working_tree_of(tree)
            if place is not None and self.is_writable(place):
                self._keep_links(tree)
            elif number < _MOST_MOUNTED:  # another's, whose own part is not for commands here
                self.keep(tree)
        for module in git_directories_below(git / "modules", self.is_writable):
            if len(self.pinned) < _MOST_PINNED:
                self.git_directory(module)

    def places(self) -> Places:
        """All of it, without what is said twice."""
        return Places(
            writable=tuple(dict.fromkeys(self.writable)),
            pinned=tuple(dict.fromkeys(self.pinned)),
            read_only=tuple(dict.fromkeys(self.read_only)),
            empty=tuple(dict.fromkeys(self.empty)),
            hidden=tuple(dict.fromkeys(self.hidden)),
            unborn=tuple(p for p in dict.fromkeys(self.unborn) if not is_below(p, self.read_only)),
            homes=self.homes,
            seen=self.seen,
            elsewhere=self.elsewhere,
            all_seen=self.all_seen,
            links=tuple(self.links.items()),
            listed=self.listed,
            reopened=tuple(dict.fromkeys(self.reopened)),
        )


def find_places(
    roots: Iterable[Path],
    home: Path,
    own: OwnPlaces,
    repositories: Sequence[Path] = (),
    scripts: Sequence[Path] = (),
    around: Around | None = None,
) -> Places:
    """The places of a session that works in ``roots``; looks at the disk, changes nothing.

    ``around`` is what git reads there beside that, and what the user calls ``roots``.

    Of ``repositories``, each a ``.git``, and ``scripts`` the first ones are made read-only: every
    mount costs time. What happens to the others shows when the command has ended. What a hook runs
    meanwhile stays where it is, too.
    """
    found = _Collector(roots)
    tops = [root / ".git" for root in found.writable if os.path.lexists(root / ".git")]
    for entry in dict.fromkeys((*tops, *repositories[:_MOST_MOUNTED])):
        found.repository(entry)
    for script in (*own.scripts, *scripts[:_MOST_MOUNTED]):
        found.keep(script, may_be_born=True)
    for root in tuple(found.writable):
        for name in PROJECT:
            found.keep(root / name)
    of_project = len(found.read_only)
    found.homes = homes(home, found.writable)
    found.elsewhere = elsewhere(found.writable)
    where = (*found.homes, *found.elsewhere)
    in_any_case = partial(seen, home, where, os.environ, own.seen, found.writable)
    shown, not_shown = around.shown(own, in_any_case) if around is not None else ((), ())
    found.listed, added = tuple(shown), (*own.seen, *shown)
    found.all_seen = seen(home, where, os.environ, added, found.writable, found.links)
    names = around.names if around is not None else ()
    found.links |= links_to(names, where, tuple(found.writable))
    found.seen = tuple(path for path in found.all_seen if is_below(path, found.homes))
    of_others = (path for path in not_shown if not found.is_writable(path))
    listed = (place for place in found.seen if place not in shown)
    for path in (*own.hidden, *credentials_in(listed), *of_others):
        found.hide(path)
    for each in of_users(home):
        found.home_directory(each)
    for path in own.read_only:
        found.keep(path)
    ours = (path for path in map(real_path, own.scripts) if path in found.read_only)
    for path in (*found.hidden, *found.read_only[of_project:], *ours):
        found.pin_above(path)
    return found.places()


def _without(path: Path, kept: Iterable[Path]) -> Iterator[Path]:
    """``path``, or what of it is none of ``kept``, which commands see in any case.

    Such as programs of the user's that lie there. Of a crowd beside these no part is left.
    """
    if is_below(path, kept):
        return
    beside = list[str]()
    if any(is_below(each, (path,)) for each in kept):
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            some = islice(entries, _MOST_HIDDEN + 1)
            beside = [entry.path for entry in some if not entry.is_symlink()]
    if not 0 < len(beside) <= _MOST_HIDDEN:
        yield path
        return
    for each in beside:
        yield from _without(Path(each), kept)


def places_around(roots: Iterable[Path], home: Path) -> tuple[Path, ...]:
    """What git reads to work in ``roots``, real paths: the repositories around, and their own.

    To be asked before any command has run there. Not one around a home, nor one that does not know
    of the working tree.
    """
    roots = tuple(roots)
    shut = (*of_users(home), *homes(home, roots))
    return tuple(dict.fromkeys(each for root in roots for each in _around(root, shut)))


def _around(root: Path, shut: Iterable[Path]) -> Iterator[Path]:
    top = next((each for each in (root, *root.parents) if os.path.lexists(each / ".git")), root)
    if any(is_below(each, (top,)) for each in shut):
        return
    if top != root:
        yield top
    entry = top / ".git"
    if (own := named_by(entry)) is not None:
        common = common_of_worktree(entry, own)
        if common is not None or is_of_submodule(entry, own):
            yield common or own


class Around:
    """What git reads to work in ``roots`` and lies around them; made before a command has run.

    Not so what lies in there and git does not read: credentials that it does not track, and other
    repositories. A look for these takes its time where there is much. What it found holds as long
    as ``_REST`` such looks would take, so that commands in a row do not wait for one each.
    ``names`` are what the user calls ``roots``.
    """

    def __init__(self, roots: Iterable[Path], home: Path, names: Iterable[Path] = ()) -> None:
        self.names = tuple(names)
        self._places = places_around(roots, home)
        self._listings: dict[str, Listing] = {}
        self._shown: tuple[Sequence[Path], Sequence[Path]] = ((), ())
        self._holds_until = -math.inf

    def shown(
        self, own: OwnPlaces, in_any_case: Callable[[], Sequence[Path]] = tuple
    ) -> tuple[Sequence[Path], Sequence[Path]]:
        """Which of it is shown, and what of that is not, unless it is seen ``in_any_case``."""
        if self._places and (began := time.monotonic()) >= self._holds_until:
            shown, hidden = _shown_of(self._places, own, self._listings)
            seen_too = in_any_case() if any(map(is_directory, hidden)) else ()
            self._shown = shown, [each for path in hidden for each in _without(path, seen_too)]
            ended = time.monotonic()
            self._holds_until = ended + _REST * (ended - began)
        return self._shown


def _shown_of(
    around: Iterable[Path], own: OwnPlaces, listings: dict[str, Listing]
) -> tuple[list[Path], list[Path]]:
    """See ``Around``."""
    shown, hidden = list[Path](), list[Path]()
    for place in around:
        found = [*islice(own.credentials(place), _MOST_HIDDEN + 1)]
        others = [*islice(_others_in(place, listings), _MOST_HIDDEN + 1)]
        if max(len(found), len(others)) > _MOST_HIDDEN:
            continue  # too many to hide
        names = {os.fsencode(each.relative_to(place)): each for each in found}
        tracked = _tracked_in(place, frozenset(names)) if names else ()
        shown.append(place)
        hidden += others
        hidden += (each for name, each in names.items() if name not in tracked)
    return shown, hidden


def _others_in(place: Path, listings: dict[str, Listing]) -> Iterator[Path]:
    """The working trees of other repositories in ``place``, as far as a bounded look finds them.

    A submodule is none, nor a linked working tree: git reads these.
    """
    waiting, give_up = deque([str(place)]), time.monotonic() + _MOST_S
    for _ in range(_MOST_LOOKED_AT):
        if not waiting or time.monotonic() > give_up:
            return
        path = waiting.popleft()
        try:
            known = listing_of(path, listings.get(path), _MOST_LOOKED_AT, lambda _: False, give_up)
        except PermissionError:
            continue
        if known is None:
            continue
        listings[path] = known
        entry = Path(path, ".git")
        if ".git" in known.marks and entry.parent != place and not _belongs_to_one(entry):
            yield entry.parent
        else:
            waiting += [f"{path}/{name}" for name in known.directories if name != "node_modules"]


def _belongs_to_one(entry: Path) -> bool:
    """Whether ``entry``, a ``.git``, is that of a submodule or of a linked working tree."""
    own = named_by(entry)
    return own is not None and bool(common_of_worktree(entry, own) or is_of_submodule(entry, own))


def _tracked_in(tree: Path, names: frozenset[bytes]) -> frozenset[bytes]:
    entry = tree / ".git"
    try:
        changed = os.stat((named_by(entry) or entry) / "index").st_ctime_ns  # noqa: PTH116 - in one step
    except OSError:
        return frozenset()
    return _tracked_then(str(tree), changed, names)


@lru_cache(maxsize=16)
def _tracked_then(tree: str, _changed: int, names: frozenset[bytes]) -> frozenset[bytes]:
    """Remembered until the index changes."""
    return tracked_in(index_of(tree), names)


def _exists(path: str | Path) -> bool:
    """False where it may not be looked at, which ``pathlib`` raises for."""
    return os.path.exists(path)  # noqa: PTH110 - see above
