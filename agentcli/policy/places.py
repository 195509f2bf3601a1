"""Places that no tool writes without asking, and where the operands of a command lead (SEC-3).

Protected are git's own directories, shell start-up files, credentials and what is agentcli's own,
whatever the mode and the rules. Laws: a place is known by every name that leads to it: ``..``,
links, ``/proc/self/root``, another case, trailing dots and invisible characters, as file systems
that ignore these would take them. Of a command what can be known without running anything is
known (``~``, ``$HOME``, ``$PWD``, ``cd``, braces, patterns); the rest is ``None``, which nobody
may take for harmless.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType

from agentcli.domain.files import homes_of_users
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.sandbox import HOME_SECRETS, has_obeyed, plain_name
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen, mutable
from agentcli.domain.worktrees import is_git_directory
from agentcli.policy.bash_command import Loop, SimpleCommand, unquote
from agentcli.policy.bash_syntax import unquoted, word_lists

# what holds keys, tokens and passwords: reading it asks as well as writing it (SEC-3)
CREDENTIAL_NAMES = frozenset(
    {
        ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf",
        ".vault-token", ".dockercfg", ".htpasswd", ".terraformrc", ".env", "id_rsa", "id_dsa",
        "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".boto", ".s3cfg", ".claude.json",
        ".credentials.json", ".mylogin.cnf", ".databricks.cfg", ".fly", ".netlify", ".dev.vars",
        ".env~", ".secrets.toml", ".sentryclirc",
    }
)  # fmt: skip
_SECRET_DIRECTORIES = frozenset(
    {
        ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".1password",
        ".terraform.d", ".oci", ".snowflake", ".gcloud", ".pki", ".electrum", ".bitcoin",
    }
)  # fmt: skip
# directories that are known by two names in a row
_SECRET_PAIRS = frozenset(
    {
        (".config", "gh"), (".config", "gcloud"), (".config", "op"), (".config", "hub"),
        (".config", "sops"), (".config", "rclone"), (".config", "doctl"),
        ("git", "credentials"), (".cargo", "credentials"), (".cargo", "credentials.toml"),
        (".gem", "credentials"), (".bundle", "config"), (".m2", "settings.xml"),
        (".m2", "settings-security.xml"), (".gradle", "gradle.properties"), ("share", "keyrings"),
        (".codex", "auth.json"), ("gem", "credentials"), ("uv", "credentials"),
        (".stack", "upload"), ("config", "master.key"), (".streamlit", "secrets.toml"),
        ("agentcli", "credentials.json"), ("agentcli", "seal.key"), ("agentcli", "mcp-logins"),
        ("agentcli", "mcp.json"),
        (".gemini", "oauth_creds.json"), (".config", "github-copilot"),
        (".mozilla", "firefox"), ("etc", "shadow"), ("etc", "gshadow"), ("etc", "sudoers"),
    }
)  # fmt: skip
# what only writing asks about
_FILES = frozenset(
    {
        # what shells and logins read when they start
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc",
        ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
        ".bash_aliases", ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".inputrc",
        "config.fish", "bash.bashrc", ".bash_history", ".zsh_history", "authorized_keys",
        # what git reads
        ".gitconfig", ".gitmodules",
    }
)  # fmt: skip
_DIRECTORIES = frozenset({".agentcli", ".agents"})
_PAIRS = frozenset(
    {
        (".config", "fish"), (".config", "git"), (".config", "autostart"), (".config", "systemd"),
        (".config", "environment.d"), ("etc", "profile"), ("etc", "profile.d"),
        ("etc", "environment"), ("etc", "zsh"), (".jj", "repo"),
    }
)  # fmt: skip
_OF_HOME = frozenset(
    tuple(name.casefold().split("/"))
    for name in (*HOME_SECRETS, ".config/agentcli/config.toml")  # a relative XDG path is ignored
)
# MCP servers in our settings may have keys
_OF_OURS = frozenset(
    {("config.toml",), *((name,) for place, name in _SECRET_PAIRS if place == "agentcli")}
)
_MAY_BE_SECRET = (
    CREDENTIAL_NAMES
    | _SECRET_DIRECTORIES
    | {last for _, last in _SECRET_PAIRS}
    | {names[-1] for names in (*_OF_HOME, *_OF_OURS)}
)
# what programs call their logins and keys in a hidden directory of the home directory
_HOLDS_KEYS = re.compile(
    r"(?:(?:o?auth|access|api|refresh)[-_.]?)?(?:auth|credentials?|creds|keys?|secrets?|tokens?)"
    r"(?:\.(?:json|ya?ml|toml|txt|ini|cfg|conf))?"
)
_DEEPEST_KEYS = 4  # ".local/share/opencode/auth.json"
_STORES = (".kdbx", ".ppk", ".p12", ".pfx")  # of keys and passwords, wherever they lie
_KEY_FILES = (*_STORES, ".pem", ".key", ".p8", ".jks")  # in a home directory, or one in it
_MAX_SEEN = 20_000
_LISTINGS: dict[str, _Listing] = {}
_MOST_LISTINGS = 20_000
SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system; inode(7): "ctime"
_SEEN_DEPTH = 8
_NOT_SEARCHED = frozenset({".git", "node_modules", "__pycache__", "target", ".venv", "venv"})
_GIT = frozenset({".git", "git~1"})
# git's own, and run by nobody
_HISTORY = frozenset(
    {
        "index", "index.lock", "objects", "refs", "head", "head.lock", "logs", "orig_head",
        "fetch_head", "merge_head", "merge_msg", "commit_editmsg", "packed-refs",
    }
)  # fmt: skip
_ENVIRONMENTS = (".env.", ".dev.vars.")
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")
_WORKTREES = "worktrees"  # config.paths.Paths.worktrees_dir
_ABOVE_A_FILE = 3  # that, the repository, the name
_MOST_PARENTS = 2_048  # more than a name that a kernel takes can have
_OTHER_ROOT = LazyPattern(r"/proc/[^/]+(?:/task/[^/]+)?/(?:root|cwd)(?=/|$)")


def protected_place(
    paths: Sequence[Path],
    own_directories: Sequence[Path],
    *,
    contained: bool = False,
    obeyed: bool = False,
) -> str | None:
    """What of ``paths`` is protected, in words; ``None`` when nothing is.

    ``paths`` are absolute; each is judged as it is written and where it really leads.
    ``contained``: by a command in a sandbox, which may change what git keeps its history in.
    ``obeyed``: only what others run or obey counts, wherever it lies.
    """
    own = names_of_own(own_directories)
    return protected_beside(paths, own, contained=contained, obeyed=obeyed)


def names_of_own(directories: Sequence[Path]) -> Sequence[tuple[str, ...]]:
    """Our own directories for ``protected_beside``, looked up once for many questions."""
    return [_names(real_path(directory)) for directory in directories]


def protected_beside(
    paths: Sequence[Path],
    own: Sequence[tuple[str, ...]],
    *,
    contained: bool = False,
    obeyed: bool = False,
) -> str | None:
    """As ``protected_place``."""
    named = tuple(_all_names(paths))
    born: dict[Path, set[str]] = {}
    for path in named:
        parents = path.parents[-_MOST_PARENTS:]
        for place, name in zip(parents, reversed(path.parts[1 : len(parents) + 1]), strict=True):
            born.setdefault(place, set()).add(plain_name(name))
    for path in named:
        found = _place(path, own, born, obeyed=obeyed)
        if found and not (contained and _is_history(_names(path))):
            return found
    return None


def credential_place(paths: Iterable[Path], free: Workspace | None = None) -> str:
    """Which of ``paths``, absolute, holds keys or passwords, by name; empty: none of them.

    The project's own ``.env`` counts as none where it lies in the workspace ``free`` (SEC-3).
    """
    held = (path for path in paths if free is None or not _is_own_environment(path, free))
    return next(filter(None, map(_credential, _all_names(held))), "")


def _is_own_environment(path: Path, workspace: Workspace) -> bool:
    real = real_path(path)
    named = all(each.name == ".env" or each.name.startswith(".env.") for each in (path, real))
    return named and workspace.contains(path) and not credential_place((real.parent,))


def credentials_below(path: Path) -> Generator[Path, None, bool]:
    """Those that lie at or below ``path``, as far as a bounded look finds them.

    A directory of credentials stands for what is in it, a link for what it leads to. Returned is
    whether there was no more to look at, but for what lies too deep.
    """
    if credential_place((path,)):
        yield path
        return True
    waiting, left = [(str(path), 0)], _MAX_SEEN
    for directory, depth in waiting:
        listing, found = _listing_of(directory, left), set[str]()
        for name, is_link in listing.maybe:
            entry = Path(directory, name)
            if _credential(entry) or (is_link and _credential(real_path(entry))):
                found.add(name)
                yield entry
        below = (name for name in listing.directories if depth < _SEEN_DEPTH and name not in found)
        waiting += [(os.path.join(directory, name), depth + 1) for name in below]  # noqa: PTH118 - texts
        left -= listing.size
        if left <= 0:
            return False
    return True


@frozen
class _Listing:
    """What may be a credential, with whether it is a link, of a directory's ``size`` names."""

    maybe: tuple[tuple[str, bool], ...] = ()
    directories: tuple[str, ...] = ()
    size: int = 0
    stamp: tuple[int, int, int] = (0, 0, 0)


def _listing_of(directory: str, most: int) -> _Listing:
    """What is in ``directory``, at most ``most`` names; it is read again when it has changed."""
    maybe, directories, size = list[tuple[str, bool]](), list[str](), 0
    try:
        status = os.stat(directory)  # noqa: PTH116 - a text
        stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
        known = _LISTINGS.get(directory)
        if known is not None and known.stamp == stamp and known.size <= most:
            return known
        is_settled = time.time_ns() - status.st_ctime_ns > SETTLED_NS
        with os.scandir(directory) as entries:
            for entry in islice(entries, most):
                size, lower, is_link = size + 1, plain_name(entry.name), entry.is_symlink()
                may_be = lower in _MAY_BE_SECRET or lower.startswith(_ENVIRONMENTS)
                may_be |= lower.endswith(_KEY_FILES)
                if may_be or is_link or _HOLDS_KEYS.fullmatch(lower):
                    maybe.append((entry.name, is_link))
                if entry.name not in _NOT_SEARCHED and entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
    except OSError:
        return _Listing(tuple(maybe), tuple(directories), size)
    listing = _Listing(tuple(maybe), tuple(directories), size, stamp)
    if is_settled and size < most:
        if len(_LISTINGS) >= _MOST_LISTINGS:
            _LISTINGS.clear()
        _LISTINGS[directory] = listing
    return listing


def _credential(path: Path) -> str:
    names = _names(path)
    return _shown(path) if _is_credential(names) or _is_secret_of_home(names) else ""


def _is_secret_of_home(names: tuple[str, ...]) -> bool:
    """Whether it is what no command in the sandbox sees of the home directory, or of our own."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    ours = os.environ.get("AGENTCLI_HOME") or f"{configuration}/agentcli"
    homes, own = homes_of_users(os.path.expanduser("~")), os.path.expanduser(ours)  # noqa: PTH111 - never raises
    for places, secret in ((homes, _OF_HOME), ((own,), _OF_OURS)):
        for place in _names_of(places):
            below = names[len(place) :]
            if names[: len(place)] != place:
                continue
            if any(below[:n] in secret for n in (1, 2, 3, 4)):
                return True
            is_near = secret is _OF_HOME and 1 < len(below) <= _DEEPEST_KEYS
            if is_near and below[0][0] == "." and _HOLDS_KEYS.fullmatch(below[-1]):
                return True
            if secret is _OF_HOME and len(below) in {1, 2} and below[-1].endswith(_KEY_FILES):
                return True
    return False


@lru_cache(maxsize=4)
def _names_of(directories: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    places = [Path(os.path.abspath(each)) for each in directories]  # noqa: PTH100 - no link is followed
    return frozenset(map(_names, (*places, *map(real_path, places))))


def _is_credential(names: Sequence[str]) -> bool:
    name = names[-1] if names else ""
    if name in CREDENTIAL_NAMES or not _SECRET_DIRECTORIES.isdisjoint(names):
        return True
    is_environment = name.startswith(_ENVIRONMENTS) and not name.endswith(_EXAMPLES)
    return (
        is_environment
        or name.endswith(_STORES)
        or any(pair in _SECRET_PAIRS for pair in pairwise(names))
    )


def has_own_repository(directory: Path, workspace: Workspace) -> bool:
    """Whether git would take ``directory`` for a part of another repository than the workspace's.

    Its configuration could have git run programs: going there is no small step.
    """
    real, root = real_path(directory), workspace.real_root
    for place in (real, *real.parents[-_MOST_PARENTS:]):
        if place == root or not place.is_relative_to(root):
            return False
        if is_git_directory(place) or os.path.lexists(place / ".git"):
            return True
    return False


def _all_names(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        lexical = Path(os.path.normpath(path))
        yield from dict.fromkeys((lexical, real_path(path)))
        elsewhere = _OTHER_ROOT.sub("", str(lexical), count=1)
        if elsewhere != str(lexical):
            yield Path(elsewhere or "/")


def _names(path: Path) -> tuple[str, ...]:
    return tuple(map(plain_name, path.parts))


def _is_history(names: Sequence[str]) -> bool:
    """Whether it is the index, the objects or the references of a repository."""
    at = max((at for at, name in enumerate(names) if name in _GIT), default=len(names))
    return names[at + 1 :][:1] in [(name,) for name in _HISTORY]


def _place(
    path: Path,
    own: Sequence[tuple[str, ...]],
    born: Mapping[Path, Collection[str]],
    *,
    obeyed: bool,
) -> str | None:
    names = _names(path)
    if not _GIT.isdisjoint(names):
        return "git's own directory"
    if has_obeyed(names) or not _DIRECTORIES.isdisjoint(names):
        return _shown(path)
    is_named = not obeyed and names[-1:] and (names[-1] in _FILES or _credential(path))
    if is_named or (not obeyed and any(pair in _PAIRS for pair in pairwise(names))):
        return _shown(path)
    inside = (names[len(each) :] for each in own if names[: len(each)] == each)
    if any(not _is_in_worktree(rest) for rest in inside):
        is_script = names in own and "." in names[-1] and not os.path.isdir(path)  # noqa: PTH112 - never raises
        return f"{path.name} (what it says is run)" if is_script else "agentcli's own directory"
    is_there = True
    for place in (*reversed(path.parents[-_MOST_PARENTS:]), path):
        names_born = born.get(place, ())
        is_there = is_there and os.path.lexists(place)
        if (is_there or len(names_born) > 1) and is_git_directory(place, names_born):
            return "git's own directory"
    return None


def _shown(path: Path) -> str:
    """Its name, and where that alone would say little its way from the hidden directory above."""
    hidden = (each for each in path.parents[:3] if each.name.startswith("."))
    return str(path.relative_to(next(hidden, path).parent))


def _is_in_worktree(names: Sequence[str]) -> bool:
    """Whether it lies in a worktree of an agent, which is in our directory, but not ours."""
    return names[:1] == (_WORKTREES,) and len(names) > _ABOVE_A_FILE


# --- where the operands of a shell command lead ---------------------------------------------

Words = tuple[str | None, ...]
_MAX_PLACES = 16
_MOST_LOOSE_WORDS = 500
LONGEST_LOOSE = 20_000
"""A text that is not understood is taken apart by its separators up to this length."""
_MAX_NAMES = 64
_HOME = LazyPattern(r"\$(?:HOME(?![A-Za-z0-9_])|\{HOME(?::?[-?=][^{}]*)?\})")
_HERE = LazyPattern(
    r"\$(?:PWD(?![A-Za-z0-9_])|\{PWD(?::?[-?=][^{}]*)?\}|\(pwd\))|`pwd`|^~\+(?=/|$)"
)
_GIT_DIRECTORY = LazyPattern(
    r"""(?:\$\(|`)git\ rev-parse\ --git-(?:(?:common-)?dir|path\ ([\w./-]+))[)`]""", re.VERBOSE
)
_ELSEWHERE_IN_TILDE = LazyPattern(r"~(?:[-+]?\d|-)")  # the directories of pushd, and the last
_BRACES = LazyPattern(r"\{([^{},]*,[^{}]*)\}")
_RANGE = LazyPattern(r"\{\w+\.\.[^{},]*\}")
_PATTERN = LazyPattern(r"[*?\[\]]")
_SET = LazyPattern(r"\[[!^]?\]?(?:\[:\w+:\]|[^]])*+\]")
_PROC_CWD = LazyPattern(r"^/+proc/[^/]+/cwd(?=/|$)")
_PROC_ROOT = LazyPattern(r"^/+proc/[^/]+/root(?=/)")
_MOVES = frozenset({"cd", "pushd", "popd"})
# they run another program in the directory that such an option names
_ELSEWHERE = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}


@frozen
class Starts:
    """Where relative names may start; ``is_sure`` is false when a directory could not be told."""

    directories: tuple[Path, ...]
    is_sure: bool = True


def starts_of(commands: Sequence[SimpleCommand], cwd: Path) -> Starts:
    """Every directory in which one of ``commands`` may be, as ``cd`` leads there."""
    found = [cwd]
    is_sure = True
    for command in commands:
        if not command.words:
            continue
        words = seen_words(command)
        if options := _ELSEWHERE.get((words[0] or "").rpartition("/")[2]):
            for name in values_of(words[1:], *options):
                is_sure = is_sure and name is not None
                found = list(dict.fromkeys((*found, *places_of(name or "", found))))
        if command.words[0] not in _MOVES:
            continue
        targets = [word for word in words[1:] if word is None or not re.match(r"[-+]\w|--\Z", word)]
        target = targets[0] if targets else "~"
        if command.words[0] == "popd" or target in {None, "-"}:
            is_sure = is_sure and command.words[0] == "popd"
            continue
        # the shell takes ".." off the name, the kernel off what a link leads to
        places = list(places_of(target or "", found))
        named = (Path(os.path.normpath(place)) for place in places)
        found = list(dict.fromkeys((*found, *places, *named)))
        if len(found) > _MAX_PLACES:
            return Starts(tuple(found[:_MAX_PLACES]), is_sure=False)
    return Starts(tuple(found), is_sure)


def loose_commands(text: str) -> Iterator[SimpleCommand]:
    """What may be commands where ``text`` is not understood."""
    for words in word_lists(text):
        some = words[:_MOST_LOOSE_WORDS]
        yield SimpleCommand(tuple(map(expanded, some)), " ".join(some))


def moves(commands: Sequence[SimpleCommand]) -> bool:
    """Whether one of ``commands`` changes the directory of those after it."""
    return any(command.words and command.words[0] in _MOVES for command in commands)


def seen_words(command: SimpleCommand) -> Words:
    """The words, and where bash would expand one, its source as far as a file can be told of it.

    What braces make of one word are several.
    """
    if None not in command.words or len(command.sources) != len(command.words):
        return command.words
    found: list[str | None] = []
    for word, source in zip(command.words, command.sources, strict=True):
        is_seen = word is None and "$'" not in source  # an escape that nobody knows
        seen = expanded(unquoted(source)) if is_seen else None
        found += [word] if seen is None else without_braces(_RANGE.sub("*", seen))
    return tuple(found)


@lru_cache(maxsize=4096)
def expanded(source: str) -> str | None:
    """``source`` with home and working directory put in; ``None`` when more is expanded."""
    text = _known_places(_HOME.sub("~", source))
    is_open = _ELSEWHERE_IN_TILDE.match(text) or re.search(r"[$`]|[<>?*+@!]\(", text)
    return None if is_open else text


def _known_places(source: str) -> str:
    """``source`` with the working directory and git's own put in."""
    named = _GIT_DIRECTORY.sub(lambda found: f".git/{found[1] or ''}", source)
    return _HERE.sub(".", named)


OPEN = "\0"
"""Of a word: what only the shell will know."""
_MOST_FORMS = 700
_LONGEST_PATTERN = 4_096
_OF_VARIABLE = r"""
    \$\((?:(?:[^()]|\((?:[^()]|\([^()]*\))*+\))*+)\) | `[^`]*` | \$\{
    (?P<name>\w++)(?:\[[^]{}]*\])?(?::?[-=+](?P<default>[^{}]*+))?(?P<change>[^{}]*)\}
    | \$(?P<plain>[A-Za-z_]\w*) | (?P<open>\$(?:[\d@*#?!$-]|\{[^{}]*\})"""
_BARE = LazyPattern(
    rf"""(?P<known>'[^']*'|\$'(?:\\.|[^'\\])*+'|\\.) | \$?(?P<mark>") | {_OF_VARIABLE}
    | [?*+@!]\([^()]*\) | \{{(?=[^{{}},]*\.\.)[^{{}},]*+\}} | [<>]\(.*)
    | (?P<text>[^$`'"\\?*+@!{{<>]++|[^$`'"\\])""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = LazyPattern(
    rf"""(?P<known>\\[$`"\\]) | (?P<mark>") | {_OF_VARIABLE}) | (?P<text>[^$`"\\]++|\\)""",
    re.DOTALL | re.VERBOSE,
)
_KNOWN_VARIABLES = {"HOME": ("~",), "PWD": (".",)}


def forms_of(
    source: str,
    values: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[str, ...]:
    """What the word written as ``source`` may be, ``OPEN`` for what is not known of it.

    ``values`` are those of variables. Patterns stay.
    """
    if _ELSEWHERE_IN_TILDE.match(source):
        return (OPEN,)
    forms, is_quoted, at = [""], False, 0
    source = _known_places(source)
    most = min(_MOST_FORMS, 2_000_000 // (len(source) or 1) ** 2)
    while at < len(source):
        found = (_QUOTED if is_quoted else _BARE).match(source, at)
        if found is None:
            return (OPEN,)
        at = found.end()
        part = found.groupdict()
        name = part["plain"] or part["name"]
        if part["mark"]:
            is_quoted = not is_quoted
            continue
        if part["text"]:
            choices: Sequence[str] = (part["text"],)
        elif known := part["known"]:
            choices = (known[1:] if is_quoted else unquote(known) or OPEN,)
        elif name and not part["change"]:
            choices = values.get(name) or _KNOWN_VARIABLES.get(name, (OPEN,))
            if part["default"] is not None:
                choices = (*choices, *forms_of(part["default"], values))
        else:
            choices = (OPEN,)
        if len(choices) > 1 and len(forms) * len(choices) > most:
            choices = (OPEN,)
        forms = [form + choice for form in forms for choice in choices]
    return tuple(dict.fromkeys(re.sub("\0+", OPEN, form) for form in forms))


@mutable
class Variables:
    """What the variables of a text may be, by its loops and assignments (flow is not followed)."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def learn(self, commands: Iterable[SimpleCommand], loops: Iterable[Loop]) -> None:
        """Take in what each of them sets, in its order."""
        both: list[SimpleCommand | Loop] = [*commands, *loops]
        for each in sorted(both, key=_position):
            if isinstance(each, Loop):
                forms = [form for source in each.sources for form in self.forms(source)]
                self._add(each.variable, forms)
            elif each.words[:1] in (("read",), ("mapfile",), ("readarray",), ("printf",)):
                for name in filter(None, each.words[1:]):
                    self._add(name, [OPEN])
            else:
                for setting in (*each.assignments, *each.sources[1:]):
                    self._set(setting)

    def _set(self, setting: str) -> None:
        if found := _SETTING.match(setting):
            is_told = found[3][:2] == "$(" or found[3][:1] == "`"  # one piece, whatever is in it
            pieces = (found[3], *(() if is_told else found[3].strip("()").split()))
            forms = [form for piece in pieces for form in self.forms(piece)]
            self._add(found[1], [OPEN] if found[2] or "]=" in found[3] else forms)

    def _add(self, name: str, forms: Iterable[str]) -> None:
        known = dict.fromkeys((*self.values.get(name, ()), *forms))
        self.values[name] = tuple(known) if len(known) <= _MOST_FORMS else (OPEN,)

    def forms(self, source: str) -> tuple[str, ...]:
        """What the word written as ``source`` may be."""
        return forms_of(source, self.values)

    def readings(self, command: SimpleCommand) -> Iterator[Words]:
        """The words, each that the shell expands in every form that it may have."""
        words = command.words
        if None not in words or len(command.sources) != len(words):
            yield words
            return
        both = zip(words, command.sources, strict=True)
        choices = [self.forms(source) if word is None else (word,) for word, source in both]
        for at in range(max(map(len, choices))):
            yield tuple(each[at % len(each)] if each else "" for each in choices)


_SETTING = LazyPattern(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)


def _position(each: SimpleCommand | Loop) -> int:
    return each.start if isinstance(each, Loop) else each.at


def places_of(name: str, directories: Sequence[Path]) -> Iterator[Path]:
    """The paths that ``name`` may stand for; patterns in it stay."""
    for each in without_braces(name):
        path = _from_home(each)
        plain = _PROC_ROOT.sub("", path)
        found = _PROC_CWD.match(plain)
        for directory in directories:
            yield directory / (f"{directory}{plain[found.end() :]}" if found else plain)


def without_sets(pattern: str) -> str:
    """``pattern`` with ``?`` for each set: shells know more kinds of them than Python."""
    return _SET.sub("?", closed(pattern))


def closed(pattern: str) -> str:
    """``pattern`` where a ``[`` that is never closed is one, for ``fnmatch``: no ``[^x]``."""
    pattern = pattern.replace("[^", "[!")
    last = pattern.rfind("]") + 1
    return pattern[:last] + pattern[last:].replace("[", "[[]")


def is_pattern(text: str) -> bool:
    """Whether the shell would look for files that fit ``text``."""
    return _PATTERN.search(text) is not None


@mutable
class GlobFinder:
    """Finds what globs stand for, as bash does; looks at ``left`` names in all (SEC-13).

    ``hidden``: ``*`` and ``?`` take a leading dot, too.
    """

    left: int = 20_000
    hidden: bool = False

    def matches(self, pattern: str, directory: Path = Path("/")) -> list[str] | None:
        """What ``pattern`` finds in ``directory``; ``None``: more than can be looked at."""
        if len(pattern) > _LONGEST_PATTERN:
            return None
        pattern = without_sets(pattern)
        found = ["/" if pattern.startswith("/") else ""]
        for part in filter(None, pattern.split("/")):
            more: list[str] = []
            for start in found:
                more += [f"{start}{name}/" for name in self._names(f"{directory}/{start}", part)]
                if self.left < 0:
                    return None
            found = more
        if pattern.endswith("/"):
            return [each for each in found if os.path.lexists(f"{directory}/{each}")]
        return [each.removesuffix("/") for each in found]

    def _names(self, place: str, part: str) -> list[str]:
        self.left -= 1
        if not is_pattern(part):
            return [part] if os.path.lexists(f"{place}{part}") else []
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            names = [each.name for each in islice(entries, self.left + 1)]
        self.left -= len(names)
        if part[0] != "." and not self.hidden:
            names = [each for each in names if each[0] != "."]
        return fnmatch.filter(names, part)


def found_by(path: Path, finder: GlobFinder) -> Sequence[Path] | None:
    """What the shell may find by ``path``, a pattern perhaps; ``None``: too much to tell."""
    if not is_pattern(str(path)):
        return (path,)
    matches = finder.matches(str(path))
    return None if matches is None else (path, *map(Path, matches))


def _from_home(name: str) -> str:
    if not name.startswith("~"):
        return name
    try:
        return os.path.expanduser(name)  # noqa: PTH111 - a user's home that is not there stays text
    except (RuntimeError, KeyError):
        return name


def without_braces(name: str) -> list[str]:
    """``a{b,c}`` as ``ab`` and ``ac``; beyond a bound, patterns that cover them."""
    names = [name]
    while any(_BRACES.search(each) for each in names):
        more: list[str] = []
        for each in names:
            found = _BRACES.search(each)
            if found is None:
                more.append(each)
                continue
            start, end = each[: found.start()], each[found.end() :]
            more += [f"{start}{choice}{end}" for choice in found[1].split(",")]
        names = more
        if len(names) > _MAX_NAMES:
            covering = _BRACES.sub("*", name)
            return [covering, re.sub(r"(^|/)\*", r"\1.*", covering)]  # "*" takes no leading dot
    return names


def values_of(words: Words, *options: str) -> Words:
    """The values of ``options``: ``-o x``, ``-ox``, ``--output x`` and ``--output=x``."""
    found: list[str | None] = []
    for at, word in enumerate(words):
        if word is None or not word.startswith("-"):
            continue
        if word in options:
            found += words[at + 1 : at + 2]
        for option in options:
            glue = f"{option}=" if option.startswith("--") else option
            if word.startswith(glue) and len(word) > len(glue) and word not in options:
                found.append(word[len(glue) :])
    return tuple(found)
