"""The environment of the commands that tools run (SEC-8).

Law: a command never sees a key of a model provider, nor a variable that would make its shell
or its loader run something else; it has no pager, no editor, no colour and asks nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from agentcli.domain.files import read_start, real_text
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.sandbox import ENTERED
from agentcli.domain.secrecy import is_credential, is_secret
from agentcli.domain.worktrees import filled_by_others, lies_in, may_be_chosen_there

_PROVIDERS = (
    "ANTHROPIC|CLAUDE|OPENAI|AZURE_OPENAI|AZURE_AI|AZURE_INFERENCE|CODEX|GEMINI|GOOGLE_AI|VERTEX"
    "|GOOGLE_GENERATIVE_AI|OLLAMA|LLAMA|LMSTUDIO|LM_STUDIO|VLLM|LITELLM|OPENROUTER|MISTRAL|GROQ"
    "|XAI|GROK|DEEPSEEK|MOONSHOT|KIMI|DASHSCOPE|QWEN|ZHIPU|ZAI|GLM|MINIMAX|TOGETHER|TOGETHERAI"
    "|FIREWORKS|COHERE|CO|PERPLEXITY|PPLX|CEREBRAS|SAMBANOVA|NVIDIA|REPLICATE|VOYAGE|AI21|HF"
    "|HUGGINGFACE|HUGGING_FACE|HUGGINGFACEHUB|AWS_BEARER|BEDROCK|AGENTCLI"
)
_SECRET = LazyPattern(
    rf"(?:.+_)?API_?KEYS?(?:_\w+)?|(?:{_PROVIDERS})(?:_\w+)?_(?:KEYS?|TOKENS?|SECRETS?|PASSWORD)"
    r"(?:_\w+)?",
    re.IGNORECASE,
)
_UNSAFE = LazyPattern(
    r"BASH_ENV|ENV|BASH_FUNC_.*|LD_.*|DYLD_.*|SHELLOPTS|BASHOPTS|BASH_XTRACEFD|PS4|PROMPT_COMMAND"
    r"|IFS|CDPATH|GLOBIGNORE|FORCE_COLOR|CLICOLOR_FORCE|COLORTERM|LESS|LESSOPEN|LESSCLOSE"
    r"|RIPGREP_CONFIG_PATH|SSH_ASKPASS|SUDO_ASKPASS|GCONV_PATH|LOCPATH|NLSPATH"
    r"|POSIXLY_CORRECT|BASH_COMPAT|EXECIGNORE|GREP_OPTIONS|MALLOC_TRACE|GIT_TRACE.*"
    r"|PS_PERSONALITY|PS_FORMAT|CMD_ENV|I_WANT_A_BROKEN_PS"  # "ps -ef" may show variables: ps(1)
)
# in these a backslash or a bar may be the second half of a character: the shell would not run
# what was judged
_LOCALE = frozenset({"LC_ALL", "LC_CTYPE", "LANG"})
_SPLIT_CHARACTERS = LazyPattern(
    r"gbk|gb18030|big5|hkscs|s(?:hift_?)?jis|johab|uhc|cp9\d\d", re.IGNORECASE
)
_NAME = LazyPattern(r"[A-Za-z_][A-Za-z0-9_]*")
_FIXED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
}
_PROXY = LazyPattern(r"(?i)(?:https?|ftp|all)_proxy")
# git-config(1): GIT_CONFIG_COUNT; git stops where one of these is missing
_GIT_SETTING = LazyPattern(r"GIT_CONFIG_(KEY|VALUE)_\d+")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SYSTEM = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
# what each environment has of its own, and who enters it wants
_OF_ENVIRONMENTS = LazyPattern(r"(?:python|pypy|pip|pydoc|idle|wheel|activate|node|npm|npx)[\w.-]*")
# https://direnv.net/man/direnv-stdlib.1.html: what of it puts directories first in PATH, and which
_PUTS_FIRST = LazyPattern(
    rb"(?m)^[ \t]*(PATH_add|path_add[ \t]+PATH|load_prefix|layout)[ \t]+([^\n;&|#]+)"
    rb"|\bPATH=([^\n;&|#]{1,300}?):[\"']?\$\{?PATH\b"
)
_FIRST_BY_MISE = LazyPattern(rb"\b(?:_|mise)\.path[ \t]*=[ \t]*(\[[^]]{0,2000}\]|[^\n#]+)")
_ROOT_OF_MISE = LazyPattern(rb"\{\{[ \t-]*config_root[ \t-]*\}\}")
_BETWEEN = LazyPattern(rb"[\[\]{},\n]+|\b(?:path|tools)[ \t]*=")
_FROM_HERE = LazyPattern(r"(?:\$PWD|\$\{PWD\}|\$\(pwd\)|\.)/")
_LAYOUTS = {
    "node": "node_modules/.bin",
    "php": "vendor/bin",
    "go": ".direnv/go/bin",
    "python": ".direnv/*/bin",
    "ruby": ".direnv/ruby/bin",
}
_MOST_FIRST = 50
_MOST_BYTES = 64 * 1024
_UPWARDS = LazyPattern(r"\A(?:\.{0,2}/)+")
_hidden: set[str] = set()
_stored: set[str] = set()


def hide_variables(names: Iterable[str]) -> None:
    """Keep these variables, too, from every command: the key names of configured providers."""
    _hidden.update(names)


def hide_keys(keys: Iterable[str]) -> None:
    """Keep these keys from every command, whatever variable they stand in: what logins hold."""
    _stored.update(filter(is_secret, keys))


def may_pass(name: str, value: str = "") -> bool:
    """Whether a command may see the variable at all; none sees a key of a model provider."""
    if name in _LOCALE and _SPLIT_CHARACTERS.search(value):
        return False
    if name in _hidden or _SECRET.fullmatch(name):
        return False
    return bool(_NAME.fullmatch(name)) and not _UNSAFE.fullmatch(name)


def base_environment(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that every command starts from; ``source`` is ours by default.

    A key that is withheld is so under every name.
    """
    origin = os.environ if source is None else source
    keys = provider_keys(origin)
    kept = {n: v for n, v in origin.items() if n not in keys and may_pass(n, v)}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept | _FIXED


def provider_keys(env: Mapping[str, str], named: Iterable[str] = ()) -> frozenset[str]:
    """The variables of ``env`` that hold a key of a model's provider, and all ``named`` ones."""
    known = {*named, *_hidden, *(name for name in env if _SECRET.fullmatch(name))}
    keys = {*_stored, *(env[name] for name in known & env.keys() if is_secret(env[name]))}
    return frozenset(known | {name for name in env if any(key in env[name] for key in keys)})


def without_provider_keys(env: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """``env`` for a program of the user's own choice, an editor or a browser (SEC-8)."""
    keys = provider_keys(env, named)
    return {name: value for name, value in env.items() if name not in keys}


def without_credentials(
    env: Mapping[str, str], given: Collection[str] = (), *, network: bool = False
) -> dict[str, str]:
    """``env`` for what nobody was asked about: without keys, tokens and passwords (SEC-8).

    ``given`` are variables that it gets all the same; with ``network`` also the way to it.
    """
    kept = {}
    for name, value in env.items():
        setting = _GIT_SETTING.fullmatch(name)
        if name in given or not is_credential("" if setting else name, value):
            kept[name] = value
        elif setting:
            kept[name] = "agentcli.withheld" if setting[1] == "KEY" else ""
        elif network and _PROXY.fullmatch(name):
            kept[name] = value
    return kept


def hides(path: str, searched: Iterable[str] = ()) -> str:
    """The system's program in whose place a shell would run ``path``; empty: none (SEC-17).

    ``searched`` is where shells look beside our own PATH, each as a ``PATH`` of its own.
    """
    directory, name = os.path.split(path)
    place = real_text(directory)
    paths = (os.environ.get("PATH", _DEFAULT_PATH), *searched)
    return next(filter(None, (_hides(name, _later(place, _path(each))) for each in paths)), "")


def hiding_below(
    roots: Collection[str], directories: Iterable[str] = (), *searched: str | None
) -> Iterator[str]:
    """The files below ``roots``, real paths, that hide a program of the system's.

    ``directories`` are those in which relative entries of PATH may end. ``searched``: where shells
    look; ``None``, which is the default, along our own PATH.
    """
    for each in searched or (None,):
        path = os.environ.get("PATH", _DEFAULT_PATH) if each is None else each
        yield from _hiding_along(_path(path), roots, directories)


def searched_by_each(files: Iterable[str]) -> Iterator[str]:
    """What each of ``ENTERED`` among ``files`` puts first in ``PATH``."""
    yield from filter(None, map(searched_by, (file for file in files if file.endswith(ENTERED))))


def searched_by(envrc: str) -> str:
    """The ``PATH`` that direnv or mise makes of an ``.envrc`` or a ``mise.toml``; empty: none."""
    places, own = list[Path](), Path(envrc).parent
    text = read_start(envrc, _MOST_BYTES).replace(b"\0", b"")
    if envrc.endswith(".toml"):
        said = b"PATH_add ".join((b"", *_FIRST_BY_MISE.findall(text)))
        text = _BETWEEN.sub(b" ", _ROOT_OF_MISE.sub(b".", said)).replace(b"PATH_add", b"\nPATH_add")
    for found in islice(_PUTS_FIRST.finditer(text), _MOST_FIRST):
        way, words, entries = found.groups()
        for word in os.fsdecode(entries).split(":") if entries else os.fsdecode(words).split():
            name = _FROM_HERE.sub("", word.strip("\"'"), count=1).strip("\"'")
            if way == b"layout":
                name = _LAYOUTS.get(name.rstrip("23"), "")
            place = own / name / ("bin" if way == b"load_prefix" else "")
            places += own.glob(name) if way == b"layout" and "*" in name else [place]
    return ":".join((*map(str, places), *_SYSTEM)) if places else ""


def _hiding_along(
    path: Mapping[str, tuple[str, ...]], roots: Collection[str], directories: Iterable[str]
) -> Iterator[str]:
    has_relative = not all(entry.startswith("/") for entry in path)
    for directory in dict.fromkeys((*path, *(directories if has_relative else ()))):
        systems = _later(directory, path)
        if not any(_is_in(directory, root) for root in roots) or not systems:
            continue
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            yield from (each.path for each in entries if _hides(each.name, systems))


def _path(search_path: str) -> dict[str, tuple[str, ...]]:
    """Its directories, each with those of the system that come after it.

    Real paths; of relative ones, which may be anywhere, the end.
    """
    entries = search_path.split(os.pathsep)
    found: dict[str, tuple[str, ...]] = {}
    for at, entry in enumerate(entries):
        later = entries[at + 1 :]
        end = os.path.normpath(_UPWARDS.sub("", f"{entry}/"))
        place = real_text(entry) if entry.startswith("/") else end
        found.setdefault(place, tuple(x for x in _SYSTEM if x in later))
    return found


def _later(directory: str, path: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The system's directories that a shell looks into after that one, if it does at all."""
    ends = (each for each in path if each == "." or f"{directory}/".endswith(f"/{each}/"))
    return path.get(directory) or next(filter(None, map(path.__getitem__, ends)), ())


def _hides(name: str, systems: Iterable[str]) -> str:
    if _OF_ENVIRONMENTS.fullmatch(name):
        return ""
    return next((f"{each}/{name}" for each in systems if os.path.lexists(f"{each}/{name}")), "")


def own_program(roots: Iterable[Path]) -> Iterator[Path]:
    """What this program is made of, in the workspace ``roots``: its virtual environment (SEC-7).

    It runs outside of every sandbox. Of one that the workspace itself is, or lies in, its parts; of
    one that a link leads to the link.
    """
    places = [real_text(str(root)) for root in roots]
    named = (sys.prefix, sys.base_prefix)
    for prefix in dict.fromkeys((*named, *map(os.path.realpath, named))):
        parts = (f"{prefix}/{name}" for name in ("bin", "lib", "lib64", "pyvenv.cfg"))
        for part in parts if any(_is_in(root, prefix) for root in places) else (prefix,):
            if any(_is_in(part, root) for root in places):
                yield Path(part)


def _is_in(path: str, place: str) -> bool:
    return f"{path}/".startswith(f"{place.rstrip('/')}/")


def find_program(name: str, outside: Iterable[Path], *, is_theirs: bool = False) -> str | None:
    """The absolute path of a program on PATH, never one of a repository that ``outside`` lie in.

    Relative and empty entries of PATH are skipped, as is a link into such a one, and what a version
    manager has in its place, which may run one of the repository: but for a program that the user
    has named (``is_theirs``) (SEC-2).
    """
    barred = [each for directory in outside for each in filled_by_others(directory)]
    for entry in os.environ.get("PATH", _DEFAULT_PATH).split(os.pathsep):
        directory = Path(entry)
        if not entry or not directory.is_absolute():
            continue
        candidate = directory / name
        # pathlib raises where a directory of PATH may not be looked into
        if not os.path.isfile(candidate) or not os.access(candidate, os.X_OK):  # noqa: PTH113
            continue
        if not lies_in(candidate, barred) and (
            is_theirs or not may_be_chosen_there(str(candidate))
        ):
            return str(candidate)
    return None
