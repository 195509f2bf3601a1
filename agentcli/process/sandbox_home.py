"""What of the home directory a command inside sees (SEC-18): a list of what it may, not of secrets.

Laws: paths are real ones, links followed. Listed are toolchains, package caches, git's and the
formatters' configuration, what the user's start-up environment and PATH name, and what the settings
add; never a whole home directory, nor what may hold a credential. Nothing that a repository holds
adds to it: only the environment that the program was started with is looked at, and what lies in
the workspace leads to nothing elsewhere, but to the Python of a virtual environment.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agentcli.domain.files import homes_of_users, read_start, real_text
from agentcli.domain.patterns import LazyPattern
from agentcli.process.directories import parents_of

_TOOLCHAINS = (
    ".rustup", ".cargo/bin", ".cargo/env", ".cargo/.crates.toml", ".cargo/.crates2.json", ".pyenv",
    ".nvm", "go/bin", "go/pkg", ".sdkman/bin", ".sdkman/candidates", ".sdkman/etc",
    ".sdkman/libexec", ".sdkman/src", ".asdf", ".volta", ".fnm", ".local/share/fnm",
    ".local/share/mise", ".local/share/rtx", ".local/state/mise/trusted-configs",
    ".local/state/mise/tracked-configs", ".bun/bin",
    ".bun/install", ".deno/bin", ".rbenv", ".rvm", ".nodenv", ".nodebrew", "n/bin", "n/lib", "n/n",
    ".n", ".goenv", ".jenv", ".jdks", ".phpenv", ".plenv", ".tfenv", ".proto", ".pixi", ".juliaup",
    ".elan", ".ghcup", ".cabal/bin", ".cabal/packages", ".cabal/store", ".opam",
    ".nix-profile", ".nix-defexpr", ".local/state/nix", ".krew", ".foundry/bin",
    ".wasmtime", ".wasmer/bin", ".linuxbrew", "linuxbrew/.linuxbrew", "miniconda3", "anaconda3",
    "miniforge3", "mambaforge", "micromamba", ".conda/envs", ".conda/pkgs", "flutter",
    "Android/Sdk", ".local/bin", ".local/lib", ".local/include", ".local/pipx",
    ".local/share/uv/python",
    ".local/share/pipx", ".local/share/pnpm", ".local/share/virtualenvs", ".virtualenvs",
    ".local/share/pypoetry", ".local/share/gem/ruby", ".local/share/coursier",
    ".local/share/swiftly", ".local/share/zig", ".gem/ruby", ".gem/specs", ".npm-global",
    ".npm-packages", ".yarn/bin", ".yarn/berry", ".config/yarn/global", ".config/composer/vendor",
    ".composer/vendor", ".pub-cache/bin", ".pub-cache/hosted", ".pub-cache/global_packages",
    ".julia/juliaup", ".julia/packages", ".julia/artifacts", ".julia/compiled",
    ".julia/registries", ".terminfo", ".gvm", ".local/share/hatch", ".local/share/pdm", ".rye/py",
    ".rye/shims", ".rye/self", ".rye/uv", ".rye/tools", ".swiftenv", ".local/share/nvim/mason",
    ".platformio/packages", ".espressif", ".local/share/man", ".local/share/uv/tools",
    ".local/share/gem/specs", ".stack/programs", ".stack/snapshots", ".stack/pantry",
    ".stack/global-project", ".stack/setup-exe-cache", ".stack/setup-exe-src",
    ".stack/stack.sqlite3",
)  # fmt: skip
_CACHES = (
    ".cargo/registry", ".cargo/git", ".npm/_cacache", ".npm/_npx", ".m2/repository", ".m2/wrapper",
    ".gradle/caches", ".gradle/wrapper", ".gradle/jdks", ".gradle/native", ".ivy2/cache",
    ".sbt/boot", ".nuget/packages", ".cache/pip", ".cache/pdm", ".cache/bazel", ".cache/zig",
    ".terraform.d/plugin-cache", ".cache/uv", ".cache/go-build", ".cache/yarn", ".cache/pnpm",
    ".cache/node-gyp", ".cache/node", ".cache/pypoetry", ".cache/pipenv", ".cache/pre-commit",
    ".cache/ms-playwright", ".cache/Cypress", ".cache/puppeteer", ".cache/electron",
    ".cache/electron-builder", ".cache/bazelisk", ".cache/deno", ".cache/ccache", ".cache/sccache",
    ".cache/coursier", ".cache/composer", ".cache/huggingface/hub", ".cache/torch",
    ".cache/nvim-treesitter", ".ccache", ".bundle/cache", ".hex/packages", ".mix",
    ".local/share/pnpm/store", ".pnpm-store", ".yarn/cache",
)  # fmt: skip
# of no use to a command that only reads, and each costs the time of a mount
_FOR_BUILDS = frozenset(
    {
        ".cache/pip", ".cache/pdm", ".cache/yarn", ".cache/electron", ".cache/electron-builder",
        ".cache/ccache", ".cache/sccache", ".cache/composer", ".cache/huggingface/hub",
        ".cache/torch", ".ccache", ".npm/_cacache", ".m2/repository", ".gradle/caches",
        ".ivy2/cache", ".yarn/cache", ".cargo/env", ".config/pip/pip.conf", ".pip/pip.conf",
    }
)  # fmt: skip
_CONFIGURATION = (
    ".cargo/config", ".cargo/config.toml", ".gitconfig", ".config/git/config",
    ".config/git/ignore", ".config/git/attributes", ".gitignore", ".gitignore_global",
    ".gitattributes", ".config/jj/config.toml", ".tool-versions", ".python-version",
    ".node-version", ".nvmrc", ".ruby-version", ".java-version", ".go-version", ".editorconfig",
    ".clang-format", ".clang-tidy", ".config/rustfmt", ".rustfmt.toml", ".config/ruff",
    ".config/black", ".config/flake8", ".config/pycodestyle", ".pylintrc", ".config/pylintrc",
    ".prettierrc", ".config/nextest.toml", ".config/go/env", ".config/pip/pip.conf",
    ".pip/pip.conf", ".condarc", ".yarnrc", ".config/uv/uv.toml", ".config/go/telemetry", ".digrc",
    ".rspec", ".gemrc", ".irbrc", ".config/mise/config.toml", ".config/mise/settings.toml",
    ".stack/config.yaml",
)  # fmt: skip
# of these only what belongs to Go's toolchains and R's packages
_GROUPS, _IN_GROUP = ("sdk", "R"), re.compile(r"^go\d|-library$")
# variables that name a toolchain's directory; one that may also hold credentials is in no row
_NAMED = (
    "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "GOROOT", "VOLTA_HOME", "BUN_INSTALL", "PNPM_HOME",
    "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "FNM_DIR",
    "FNM_MULTISHELL_PATH", "RBENV_ROOT", "NODENV_ROOT", "GOENV_ROOT", "JENV_ROOT", "JAVA_HOME",
    "SDKMAN_CANDIDATES_DIR", "ANDROID_HOME", "ANDROID_SDK_ROOT", "ANDROID_NDK_HOME",
    "CONDA_PREFIX", "PIPX_HOME", "PIPX_BIN_DIR", "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR", "OPAMROOT", "HOMEBREW_PREFIX", "FLUTTER_ROOT", "M2_HOME",
    "MAVEN_HOME", "GRADLE_HOME", "SDKROOT", "GOMODCACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR",
    "PLAYWRIGHT_BROWSERS_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT",
    "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO",
)  # fmt: skip
_OF_DOTNET = (
    "dotnet", "host", "sdk", "shared", "packs", "tools", "templates", "sdk-manifests", "metadata",
)  # fmt: skip
_LISTED = (*_TOOLCHAINS, *_CACHES, *(f".dotnet/{part}" for part in _OF_DOTNET))
_PARTS_OF_NAMED = {
    "CARGO_HOME": ("bin", "config", "config.toml", "registry", "git", "env"),
    "GOPATH": ("bin", "pkg"),
    "DENO_INSTALL": ("bin",),
    "GRADLE_USER_HOME": ("caches", "wrapper", "jdks"),
    "GEM_HOME": ("bin", "gems", "specifications", "extensions", "cache", "plugins", "bundler"),
    "DOTNET_ROOT": _OF_DOTNET,
    # it may have been made in the directory of a project
    "VIRTUAL_ENV": ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg"),
}
# what stands beside a directory of programs and belongs to them
_BESIDE_PROGRAMS = (
    "lib", "lib64", "libexec", "share", "include", "conf", "jmods", "release", "pyvenv.cfg", "pkg",
    "versions", "sdk", "shared", "host", "Cellar", "opt",
)  # fmt: skip
# of a repository they may be what it is deployed with: settings, keys, packages of its own
_OF_PROJECTS = frozenset({"conf", "shared", "pkg", "versions", "sdk"})
_PROGRAM_DIRECTORIES = frozenset({"bin", "sbin", "shims"})
_SYSTEM_PROGRAMS = frozenset({"/usr/bin", "/usr/sbin", "/bin", "/sbin"})  # none leads to a home
_MOST_PROGRAMS = 1000
_MOST_STEPS = 1000  # parts of a path, with those of the links on its way
_GIT_FILES = LazyPattern(
    rb"^[ \t]*(path|excludesfile|attributesfile|hookspath)"
    rb"[ \t]*=[ \t]*\"?([^\"\n]+?)\"?[ \t\r]*$\n?",
    re.IGNORECASE | re.MULTILINE,
)
_MOST_NESTED = 10  # git-config(1): "include.path"; git itself goes no further
# of git's rules for names: the words in them are no credentials
_GIT_RULES = ("ignore", "ignore_global", "attributes")
_CREDENTIAL = LazyPattern(
    rb"^[^\n]*(?:(?:extra|custom)header|password|passwd|sshpass|token|secret|api_?key|authorization"
    rb"|(?:pass|auth)[ \t]*=|:_auth\b|gh[pousr]_\w{20}|github_pat_|glpat-|/t/[\w-]{8,}"
    rb"|_(?:key|pat|jwt|pw|pwd|sas|cookie|creds)['\"]?[ \t]*=|\b[sr]k_(?:live|test)_\w{10}"
    rb"|\b(?:AIza|[sr]k-)[\w-]{20}|\b(?:gsk|hf|npm)_\w{20}|\bxox[abeprs]-[\w-]{10}"
    rb"|\bA(?:KI|SI)A[0-9A-Z]{16}"
    rb"|://[^/\s@\"][^/\s@\":]*+:[^/\s@\"]++@|://[^/\s@\"]{20,}+@)(?:[^\n]*\\\n)*[^\n]*\n?",
    re.IGNORECASE | re.MULTILINE,
)
# in a listed directory: settings of its tools, and what git keeps of where a copy came from
_MAY_HOLD = tuple(
    f"{place}{name}"
    for place, names in (
        ("", (".npmrc", ".yarnrc.yml", ".netrc", ".pypirc", ".env", ".git-credentials")),
        ("", (".condarc",)),  # of an installation of conda
        ("corefx/", ("cryptography",)),  # certificates of .NET
        ("etc/", ("npmrc", "pip.conf")),
        ("versions/node/*/etc/", ("npmrc",)),
        ("tools/image/node/*/etc/", ("npmrc",)),
        ("installs/node*/*/etc/", ("npmrc",)),
        ("node-versions/*/installation/etc/", ("npmrc",)),
        ("versions/*/etc/", ("npmrc",)),
        ("node/*/etc/", ("npmrc",)),
        ("global/*/", (".npmrc",)),
        # of a virtual environment, and of what holds many
        *((f"{place}", ("pip.conf",)) for place in (
            "", "*/", "envs/*/", "venvs/*/", "versions/*/", "versions/*/envs/*/",
        )),
        *((f"{place}", ("settings.xml",)) for place in (
            "", "conf/", "maven/*/conf/", "installs/maven/*/conf/",
        )),
        *((f"{place}", ("gradle.properties",)) for place in (
            "", "gradle/*/", "installs/gradle/*/",
        )),
        ("venvs/*/", ("pipx_metadata.json",)),
        ("*/", ("uv-receipt.toml",)),
        *((f"{git}", ("config", "FETCH_HEAD")) for git in (
            ".git/", "*/.git/", "plugins/*/.git/", "index/*/.git/", "db/*/", "git-v0/db/*/",
            "mod/cache/vcs/*/",
        )),
    )
    for name in names
)  # fmt: skip
_ALWAYS = ("/.env", "/cryptography")
_COMMENT = LazyPattern(rb"<!--.*?-->", re.DOTALL)  # Maven's own settings show a password in one
_ESCAPED = LazyPattern(rb"\\([0-7]{3})")
# hier(7), and where packages of Nix, Guix and Snap are
_OF_SYSTEM = LazyPattern(
    r"bin|boot|dev|etc|gnu|lib.*|lost\+found|nix|opt|proc|run|sbin|snap|sys|tmp|usr|var"
)


def homes(home: Path, writable: Iterable[Path]) -> tuple[Path, ...]:
    """The home directories of which only a list is seen: ``$HOME``, and the account's own.

    Root, whom no rights keep out, has all of ``/home``. Each counts wherever it is mounted.
    One that commands work in as a whole is none: there secrets are hidden by name. Neither is one
    that is, or holds, what the system itself is made of.
    """
    named = [*homes_of_users(str(home))]
    if not os.getuid():
        with contextlib.suppress(OSError), os.scandir("/home") as entries:
            named += [entry.path for entry in entries]
    named = [*map(os.path.realpath, named)]
    return outermost(map(Path, _shut((*named, *_also_at(named)), writable)))


def _also_at(places: Iterable[str]) -> Iterator[str]:
    """Where else those directories are seen: by another mount of what they lie in, or a bound one.

    ``/home`` is one on many machines: what is in it also lies in ``/data``, or ``/sysroot``.
    """
    mounts = _mounts()
    for place in places:
        for device, root, point in mounts:
            if not is_below(place, (point,)):
                continue
            inner = root.rstrip("/") + place[len(point.rstrip("/")) :]
            for other, top, at in mounts:
                if other == device and is_below(inner, (top,)):
                    also = at.rstrip("/") + inner[len(top.rstrip("/")) :]
                    with contextlib.suppress(OSError):
                        if also != place and Path(also).samefile(place):
                            yield also


def _mounts() -> list[tuple[str, str, str]]:
    """Of each mount its file system, the directory of that, and where it is seen.

    See proc_pid_mountinfo(5).
    """
    with contextlib.suppress(OSError):
        return _mounts_in(Path("/proc/self/mountinfo").read_bytes())
    return []


@functools.lru_cache(maxsize=1)
def _mounts_in(text: bytes) -> list[tuple[str, str, str]]:
    found = []
    for line in text.splitlines():
        device, root, point = (
            os.fsdecode(_ESCAPED.sub(lambda code: bytes((int(code[1], 8),)), field))
            for field in line.split(b" ", 5)[2:5]
        )
        found.append((device, root, point))
    return found


def of_users(home: Path) -> tuple[Path, ...]:
    """The home directories whose secrets and start-up files are known by name, real paths.

    Worked in or not.
    """
    return tuple(map(Path, dict.fromkeys(map(os.path.realpath, homes_of_users(str(home))))))


def elsewhere(writable: Iterable[Path]) -> tuple[Path, ...]:
    """What lies beside the system at the top of the file system, such as ``/mnt`` and ``/srv``.

    A command that is known to only read sees no more of it than of a home directory: the shell may
    make names there that nobody was asked about (SEC-3, SEC-4).
    """
    with contextlib.suppress(OSError):
        named = [each.path for each in os.scandir("/") if not _OF_SYSTEM.fullmatch(each.name)]
        return tuple(map(Path, _shut(named, writable)))
    return ()


def _shut(named: Iterable[str], writable: Iterable[Path]) -> Iterator[str]:
    """Those directories that are not the work itself, and hold nothing of the system."""
    for real in dict.fromkeys(map(os.path.realpath, named)):
        is_work = is_below(real, writable)
        if not is_work and real not in _system() and os.path.isdir(real):  # noqa: PTH112 - see ``_exists``
            yield real


def outermost(places: Iterable[Path]) -> tuple[Path, ...]:
    """Those of ``places`` that lie in no other one."""
    found = tuple(dict.fromkeys(places))
    return tuple(
        place for place in found if not is_below(place, (each for each in found if each != place))
    )


@functools.cache
def _system() -> frozenset[str]:
    """What the system is made of, and what that lies in."""
    names = ("/usr/bin", "/bin", "/lib", "/etc", "/opt", "/dev", "/proc", "/sys", "/run", "/tmp")  # noqa: S108 - named, not used
    real = [Path(os.path.realpath(name)) for name in names]
    return frozenset(str(place) for each in real for place in (each, *each.parents))


def is_for_builds(path: Path, homes: Iterable[Path]) -> bool:
    """Whether nothing but a build needs to see it."""
    return any(str(path).removeprefix(f"{home}/") in _FOR_BUILDS for home in homes)


def is_below(path: str | Path, places: Iterable[str | Path]) -> bool:
    """Whether it is one of the ``places``, or in one; texts alone, nothing is looked up."""
    return f"{path}/".startswith(tuple([f"{str(place).rstrip('/')}/" for place in places]))


class Links:
    """``real``: ``real_text`` of many paths at one time: each directory is looked at once."""

    def __init__(self) -> None:
        self._known = {"": ""}

    def real(self, path: str) -> str:
        """The real path of an absolute one."""
        known = self._known.get(path)
        if known is not None:
            return known
        place, slash, name = path.rpartition("/")
        if not slash or name in {"", ".", ".."}:
            return real_text(path)
        real = f"{self.real(place)}/{name}".replace("//", "/")
        known = self._known[path] = real_text(real) if os.path.islink(real) else real  # noqa: PTH114 - a text
        return known


def seen(
    home: Path,
    where: Iterable[Path],
    env: Mapping[str, str],
    added: Iterable[Path] = (),
    writable: Iterable[Path] = (),
    on_the_way: dict[str, str] | None = None,
) -> tuple[Path, ...]:
    """The real paths in the homes ``where`` that commands may read; looks at the disk.

    ``on_the_way`` is filled with the links in those homes that the listed names lead through (as
    those that ``stow`` and its kind make), and what each says: what is seen is looked for there.

    ``home`` is ``$HOME``, which may lie within another one; ``env`` is the environment that the
    program was started with, ``added`` what the settings and the program itself add. What lies
    below another is left out, and what is in ``writable``, where commands make links, or led to
    from there.
    """
    where, writable = tuple(where), tuple(writable)
    links = Links()
    listed = dict.fromkeys((*where, Path(os.path.realpath(home))))
    more = (os.path.expanduser(path) for path in added)  # noqa: PTH111 - never raises
    named = dict.fromkeys((*_candidates(tuple(listed), env, writable), *more))
    there = set()
    for path in filter(_exists, named):
        if not _leads_through(path, real := links.real(path), writable):
            there.add(real)
        if on_the_way is not None and path != real:
            steps = (step for step in _way_of(path) if step[1] and _is_in(step[0], where))
            on_the_way.update(step for step in steps if not is_below(step[0], writable))
    kept: list[str] = []
    for path in sorted(there):
        if _is_in(path, where) and not is_below(path, kept) and _is_reached(path):
            kept.append(path)
    return tuple(map(Path, kept))


def links_to(
    places: Iterable[Path], where: tuple[Path, ...], writable: tuple[Path, ...]
) -> dict[str, str]:
    """The links in the homes ``where`` that ``places`` are named by, and what each says."""
    steps = (step for place in places for step in _way_of(str(place)) if step[1])
    return {at: says for at, says in steps if _is_in(at, where) and not is_below(at, writable)}


def _is_reached(path: str) -> bool:
    """Whether a command gets there: root in bubblewrap does not pass over others' rights."""
    if os.getuid():
        return True
    try:
        on_the_way = [*map(os.stat, parents_of(path))]
    except OSError:
        return False
    return all(not each.st_uid or each.st_mode & stat.S_IXOTH for each in on_the_way)


def _leads_through(path: str, real: str, places: tuple[Path, ...]) -> bool:
    """Whether ``path``, which is ``real``, is in one of ``places``, or a link on its way is."""
    if path == real or not places:
        return is_below(real, places)
    return any(not at or is_below(at, places) for at, _ in _way_of(path))


def _way_of(path: str) -> Iterator[tuple[str, str]]:
    """What ``path`` leads through, and what that says if it is a link; empty: there is no end."""
    at, left, steps = "", path.split("/")[::-1], 0
    while left and steps < _MOST_STEPS:
        steps, name = steps + 1, left.pop()
        if name in {"", ".", ".."}:
            at = at.rpartition("/")[0] if name == ".." else at
            continue
        at = f"{at}/{name}"
        target = os.readlink(at) if os.path.islink(at) else ""  # noqa: PTH114, PTH115 - texts
        yield at, target
        if target:
            left += target.split("/")[::-1]
            at = "" if target.startswith("/") else at.rpartition("/")[0]
    if left:
        yield "", ""


def _candidates(
    where: tuple[Path, ...], env: Mapping[str, str], writable: tuple[Path, ...]
) -> Iterator[str]:
    for home in where:
        there = _names_in(home)
        yield from _existing(home, _LISTED, there)
        for group in _existing(home, _GROUPS, there):
            with contextlib.suppress(OSError):
                entries = os.listdir(group)  # noqa: PTH208 - names are enough
                yield from (f"{group}/{name}" for name in entries if _IN_GROUP.search(name))
        for path in _existing(home, _CONFIGURATION, there):
            yield from _configuration(path, home)
    yield from _paths(env, _NAMED)
    for variable, parts in _PARTS_OF_NAMED.items():
        for path in _paths(env, (variable,)):
            yield from (f"{path}/{part}" for part in parts)
    for entry in dict.fromkeys(_paths(env, ("PATH",))):
        yield from _programs(entry, where, writable)


def existing(home: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The paths of those ``names`` in ``home`` that may be there; it is listed but once."""
    return _existing(home, names, _names_in(home))


def _existing(home: Path, names: tuple[str, ...], there: frozenset[str] | None) -> Iterator[str]:
    for first, below in _by_first(names).items():
        if there is None or first in there:
            yield from (f"{home}/{name}" for name in below)


def _names_in(home: Path) -> frozenset[str] | None:
    """``None`` where it cannot be told."""
    with contextlib.suppress(OSError):
        return frozenset(os.listdir(home))  # noqa: PTH208 - names are enough
    return None


@functools.cache
def _by_first(names: tuple[str, ...]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition("/")[0], []).append(name)
    return found


def _paths(env: Mapping[str, str], variables: Iterable[str]) -> Iterator[str]:
    for variable in variables:
        for value in env.get(variable, "").split(os.pathsep):
            if value.startswith("/"):
                yield value


def _programs(directory: str, where: tuple[Path, ...], writable: tuple[Path, ...]) -> Iterator[str]:
    """A directory of PATH, what belongs to its programs, and what its links lead to."""
    real = real_text(directory)
    if real in _SYSTEM_PROGRAMS:
        return
    if _leads_through(directory, real, writable):
        for base in _pythons(real.rpartition("/")[0]):  # anyone may say so: there must be one
            if glob.glob(f"{glob.escape(base)}/lib/python3*/os.py"):  # noqa: PTH207 - texts
                yield from (f"{base}/bin", f"{base}/lib")
        return
    yield real
    yield from _beside(real, where)
    with contextlib.suppress(OSError):
        changed = os.stat(real).st_mtime_ns  # noqa: PTH116 - a text
        targets = {target for target in _linked(real, changed, writable) if _is_in(target, where)}
        yield from targets
        for programs in {target.rpartition("/")[0] for target in targets}:
            yield from _beside(programs, where)


@functools.lru_cache(maxsize=64)
def _linked(directory: str, _changed: int, writable: tuple[Path, ...]) -> frozenset[str]:
    """Where the links in it lead, but through ``writable``; remembered until it changes."""
    with os.scandir(directory) as entries:
        links = (entry.path for entry in entries if entry.is_symlink())
        found = ((path, real_text(path)) for path in itertools.islice(links, _MOST_PROGRAMS))
        return frozenset(real for path, real in found if not _leads_through(path, real, writable))


def _beside(programs: str, where: tuple[Path, ...]) -> Iterator[str]:
    """What belongs to a directory of programs; a home's own ``share`` is not only theirs.

    Whose home it is does not matter: ``$HOME`` may be what other homes lie in.
    """
    place, _, name = programs.rpartition("/")
    its_home = place.endswith("/.local") or any(place == str(home) for home in where)
    if name not in _PROGRAM_DIRECTORIES or its_home or not _is_in(place, where):
        return
    left_out = _OF_PROJECTS if os.path.lexists(f"{place}/.git") else ()
    yield from (f"{place}/{name}" for name in _BESIDE_PROGRAMS if name not in left_out)
    for base in _pythons(place):
        yield from (f"{base}/{name}" for name in ("bin", *_BESIDE_PROGRAMS))


def _pythons(place: str) -> Iterator[str]:
    """Where the Python is that the virtual environment ``place`` was made with."""
    for line in read_start(f"{place}/pyvenv.cfg").splitlines():
        key, _, value = line.partition(b"=")
        if key.strip() == b"home" and b"\0" not in value:
            yield real_text(os.fsdecode(value.strip()) + "/..")


def _configuration(path: str, home: Path) -> Iterator[str]:
    """The file, unless it holds a credential, and the files that git's names; or the directory."""
    if not _exists(path):
        return
    text = read_start(path)
    if path.endswith(_GIT_RULES) or not _CREDENTIAL.search(text):
        yield path
    if path.endswith(("/.gitconfig", "/git/config")):
        for named in _GIT_FILES.finditer(text):
            yield from _seen_of_git(named, path, home) or ()


def _seen_of_git(
    named: re.Match[bytes], config: str, home: Path, depth: int = 0
) -> list[str] | None:
    """The file that a line of git's ``config`` names, and what that includes; or the user's hooks.

    Hooks that git does not see are none to it, and it goes on. ``None`` where one of the files
    holds a credential: git fails where a file is there and cannot be read, so what names it is not
    seen either.
    """
    is_config, name = named[1].lower() == b"path", os.fsdecode(named[2])
    if name.startswith("~/"):
        name = f"{home}/{name[2:]}"
    path = os.path.join(os.path.dirname(config), name)  # noqa: PTH118, PTH120 - texts
    there = os.path.isdir if named[1].lower() == b"hookspath" else os.path.isfile
    if not there(path) or not (is_config or name.startswith("/")):
        return []
    if not is_config:
        return [path]
    text, found = read_start(path), [path]
    if depth > _MOST_NESTED or _CREDENTIAL.search(text):
        return None
    for inner in _GIT_FILES.finditer(text):
        included = _seen_of_git(inner, path, home, depth + 1)
        if included is None:
            return None
        found += included
    return found


def git_configuration(home: Path) -> bytes | None:
    """The user's configuration of git without credentials; ``None`` where it holds none.

    Of it a command inside gets a copy, as ``GIT_CONFIG_GLOBAL`` (git-config(1)).
    """
    files = (".config/git/config", ".gitconfig")
    copies, had_some = zip(*(_copy_of_git(f"{home}/{name}", home) for name in files), strict=True)
    return b"\n".join(copies) if any(had_some) else None


def _copy_of_git(config: str, home: Path) -> tuple[bytes, bool]:
    """What git's ``config`` says without credentials, wherever it lies, and whether it had some."""
    text, hidden = read_start(config), list[str]()

    def kept(named: re.Match[bytes]) -> bytes:
        if (found := _seen_of_git(named, config, home)) is None:
            hidden.append(config)
            return b""
        if not found:
            return named[0]
        return b'%b = "%b"\n' % (named[1], re.sub(rb'["\\]', rb"\\\g<0>", os.fsencode(found[0])))

    plain = _CREDENTIAL.sub(_without, text)
    return _GIT_FILES.sub(kept, plain), bool(hidden) or plain != text


def _without(credential: re.Match[bytes]) -> bytes:
    """What stands in its place: rows below the head of a section belong to no other one."""
    return b"[withheld]\n" if credential[0].lstrip().startswith(b"[") else b""


def credentials_in(places: Iterable[Path]) -> Iterator[Path]:
    """Files in listed directories that tools keep credentials in, where they hold one."""
    for place in places:
        with contextlib.suppress(OSError):
            changed = os.stat(place).st_mtime_ns  # noqa: PTH116 - in one step
            yield from map(Path, _credentials_in(str(place), changed))


@functools.lru_cache(maxsize=256)
def _credentials_in(place: str, _changed: int) -> tuple[str, ...]:
    found = (
        path
        for pattern in _MAY_HOLD
        for path in glob.iglob(f"{glob.escape(place)}/{pattern}")  # noqa: PTH207 - texts
    )
    return tuple(path for path in found if path.endswith(_ALWAYS) or _holds_credential(path))


def _holds_credential(path: str) -> bool:
    text = read_start(path)
    plain = _COMMENT.sub(b"", text) if path.endswith(".xml") else text
    return _CREDENTIAL.search(plain) is not None


def _is_in(path: str, where: tuple[Path, ...]) -> bool:
    """Strictly below one of them: no row means a whole home."""
    return path.startswith(tuple(f"{home}/" for home in where))


def _exists(path: str) -> bool:
    """False where it may not be looked at, which ``pathlib`` raises for."""
    return os.path.exists(path)  # noqa: PTH110 - see above
