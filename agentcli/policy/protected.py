"""Places that no tool writes without asking, whatever the mode and the rules (SEC-3).

They are git's own directories, shell start-up files, credentials and what is agentcli's own.
Law: a place is known by every name that leads to it: ``..``, links, ``/proc/self/root``, another
case, trailing dots and invisible characters, as file systems that ignore these would take them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from agentcli.domain.tools import Workspace, real_path

_FILES = frozenset(
    {
        # what shells and logins read when they start
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc",
        ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
        ".bash_aliases", ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".inputrc",
        "config.fish", "bash.bashrc", ".envrc", ".bash_history", ".zsh_history",
        # what git reads
        ".gitconfig", ".gitmodules",
        # credentials
        ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf",
        ".vault-token", ".dockercfg", ".htpasswd", ".terraformrc", ".env", "authorized_keys",
        "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
    }
)  # fmt: skip
_DIRECTORIES = frozenset(
    {
        ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".agentcli",
        ".agents",
    }
)  # fmt: skip
# directories that are known by two names in a row
_PAIRS = frozenset(
    {
        (".config", "fish"), (".config", "git"), (".config", "gh"), (".config", "gcloud"),
        (".config", "autostart"), (".config", "systemd"), (".config", "environment.d"),
        (".cargo", "credentials"), (".cargo", "credentials.toml"), (".gem", "credentials"),
        ("etc", "profile"), ("etc", "profile.d"), ("etc", "environment"), ("etc", "zsh"),
        ("share", "keyrings"),
    }
)  # fmt: skip
_GIT = frozenset({".git", "git~1"})
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")
# HFS+ ignores these in names, so that ".g\u200cit" is ".git"
_IGNORED = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_OTHER_ROOT = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:root|cwd)(?=/|$)")


def protected_place(paths: Sequence[Path], own_directories: Sequence[Path]) -> str | None:
    """What of ``paths`` is protected, in words; ``None`` when nothing is.

    ``paths`` are absolute; each is judged as it is written and where it really leads.
    """
    own = [_names(real_path(directory)) for directory in own_directories]
    for path in _all_names(paths):
        if place := _place(path, own):
            return place
    return None


def is_git_directory(path: Path) -> bool:
    """Whether ``path`` looks like a repository's own directory, whatever it is called."""
    return (
        os.path.isfile(path / "HEAD")  # noqa: PTH113 - unlike pathlib's, it never raises
        and os.path.isdir(path / "objects")  # noqa: PTH112
        and os.path.isdir(path / "refs")  # noqa: PTH112
    )


def has_own_repository(directory: Path, workspace: Workspace) -> bool:
    """Whether git would take ``directory`` for a part of another repository than the workspace's.

    Its configuration could have git run programs: going there is no small step.
    """
    real, root = real_path(directory), real_path(workspace.root)
    for place in (real, *real.parents):
        if place == root or not place.is_relative_to(root):
            return False
        if is_git_directory(place) or os.path.lexists(place / ".git"):
            return True
    return False


def plain_name(name: str) -> str:
    """``name`` as a file system would compare it that ignores case, and what cannot be seen."""
    plain = _IGNORED.sub("", name).casefold()
    return plain.rstrip(". ") or plain


def _all_names(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        lexical = Path(os.path.normpath(path))
        yield from dict.fromkeys((lexical, real_path(path)))
        elsewhere = _OTHER_ROOT.sub("", str(lexical), count=1)
        if elsewhere != str(lexical):
            yield Path(elsewhere or "/")


def _names(path: Path) -> tuple[str, ...]:
    return tuple(map(plain_name, path.parts))


def _place(path: Path, own: Sequence[tuple[str, ...]]) -> str | None:
    names = _names(path)
    if not _GIT.isdisjoint(names):
        return "git's own directory"
    name = names[-1] if names else ""
    is_secret = name.startswith(".env.") and not name.endswith(_EXAMPLES)
    if name in _FILES or is_secret or not _DIRECTORIES.isdisjoint(names):
        return path.name
    if any(pair in _PAIRS for pair in pairwise(names)):
        return path.name
    if any(names[: len(directory)] == directory for directory in own):
        return "agentcli's own directory"
    if any(is_git_directory(parent) for parent in (path, *path.parents)):
        return "git's own directory"
    return None
