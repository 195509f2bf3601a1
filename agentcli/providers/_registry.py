"""Which providers there are, as data, and how one is made ready.

Law: only the chosen provider's module is imported; a key comes from the environment, the
user's configuration or what they have stored, in this order, and goes nowhere else. To add a
provider: one file ``<name>.py`` here that exports ``PROVIDER`` (a function from
``ProviderConfig`` to ``Provider``); it is found by its name (``-`` for ``_``). It may also export
``SPEC`` (a ``ProviderSpec``: address, key, default model) and ``list_models``, as in
``models/ask.py``, to take part in ``agent models``. A server that speaks a known protocol needs no
code: one row below, or ``[providers.NAME]`` in the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import Provider, ProviderConfig
from agentcli.domain.values import frozen

OFFLINE_MODEL = "offline/assistant"
_HERE = Path(__file__).parent
_OLLAMA_PORT = 11434
# The value of ``api`` -> the kind that speaks it.
_API_KINDS = {"chat": "openai", "responses": "openai-responses"}
_OVER_HTTP = frozenset({"anthropic", "gemini", "bedrock", *_API_KINDS.values()})
COMMAND = "api_key_command"
# a part of an address that the environment says: the first of the variables that is set
_BLANK = r"\{([A-Z_|]+)(?:=([a-z0-9-]*))?\}"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# headers by which a request shows who sends it
_AUTH_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


@frozen
class ProviderSpec:
    """A provider that needs no configuration. ``kind`` names the module that speaks to it.

    ``key_envs``: the first that is set wins. An empty ``default_model`` means that one has to be
    named. ``base_env`` may replace ``base_url``, in which ``{ONE|OTHER}`` stands for the first of
    these variables that is set, and ``{ONE=text}`` has a default. ``own_api`` is the form of the
    protocol that is spoken at the provider's own address, when another is usual elsewhere.
    ``login_url`` and ``login_auth`` hold for a key that a command prints: a token of a login.
    """

    kind: str
    base_url: str = ""
    key_envs: tuple[str, ...] = ()
    base_env: str = ""
    default_model: str = ""
    needs_key: bool = True
    is_local: bool = False
    own_api: str = ""
    login_url: str = ""
    login_auth: str = ""


def _local(base_url: str, base_env: str, key_env: str) -> ProviderSpec:
    return ProviderSpec("openai", base_url, (key_env,), base_env, needs_key=False, is_local=True)


# In the order in which a default is looked for.
BUILT_IN: dict[str, ProviderSpec] = {
    "anthropic": ProviderSpec(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        "ANTHROPIC_BASE_URL",
        "claude-sonnet-5-5",
    ),
    "openai": ProviderSpec(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        "gpt-6-sol",
        own_api="responses",
    ),
    "openai-responses": ProviderSpec(
        "openai-responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
    ),
    "gemini": ProviderSpec(
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "GEMINI_BASE_URL",
        "gemini-3.6-flash",
    ),
    "openrouter": ProviderSpec(
        "openai",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        "OPENROUTER_BASE_URL",
        "anthropic/claude-sonnet-5.5",
    ),
    "mistral": ProviderSpec(
        "openai",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        "MISTRAL_BASE_URL",
        "mistral-medium-latest",
    ),
    "deepseek": ProviderSpec(
        "openai",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        "DEEPSEEK_BASE_URL",
        "deepseek-v4-pro",
    ),
    "xai": ProviderSpec(
        "openai", "https://api.x.ai/v1", ("XAI_API_KEY",), "XAI_BASE_URL", "grok-4.6"
    ),
    "groq": ProviderSpec(
        "openai",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        "GROQ_BASE_URL",
        "openai/gpt-oss-120b",
    ),
    "moonshot": ProviderSpec(
        "openai", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",), "MOONSHOT_BASE_URL"
    ),
    "together": ProviderSpec(
        "openai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), "TOGETHER_BASE_URL"
    ),
    "cerebras": ProviderSpec(
        "openai", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), "CEREBRAS_BASE_URL"
    ),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/endpoints.html
    "bedrock": ProviderSpec(
        "bedrock",
        "https://bedrock-mantle.{AWS_REGION|AWS_DEFAULT_REGION}.api.aws",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "BEDROCK_BASE_URL",
    ),
    # https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle
    "azure": ProviderSpec(
        "openai",
        "https://{AZURE_RESOURCE_NAME}.openai.azure.com/openai/v1",
        ("AZURE_OPENAI_API_KEY",),
        "AZURE_OPENAI_BASE_URL",
        own_api="responses",
    ),
    # https://cloud.google.com/vertex-ai/generative-ai/docs/start/express-mode/overview
    "vertex": ProviderSpec(
        "gemini",
        "https://aiplatform.googleapis.com/v1/publishers/google",
        ("VERTEX_API_KEY", "GOOGLE_VERTEX_API_KEY"),
        "VERTEX_BASE_URL",
        login_url=(
            "https://aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/"
            "{GOOGLE_CLOUD_LOCATION=global}/publishers/google"
        ),
        login_auth="bearer",
    ),
    "ollama": _local(f"http://127.0.0.1:{_OLLAMA_PORT}/v1", "OLLAMA_HOST", "OLLAMA_API_KEY"),
    "lmstudio": _local("http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL", "LMSTUDIO_API_KEY"),
    "vllm": _local("http://127.0.0.1:8000/v1", "VLLM_BASE_URL", "VLLM_API_KEY"),
    "llamacpp": _local("http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL", "LLAMACPP_API_KEY"),
    "scripted": ProviderSpec(
        "scripted",
        base_env="AGENTCLI_SCRIPT",
        default_model="script",
        needs_key=False,
        is_local=True,
    ),
    "offline": ProviderSpec("offline", default_model="assistant", needs_key=False, is_local=True),
}


_KINDS = frozenset(map(attrgetter("kind"), BUILT_IN.values()))


def module_names() -> frozenset[str]:
    """The provider modules in this package, by name, without importing any."""
    stems = (path.stem for path in _HERE.glob("*.py"))
    return frozenset(stem.replace("_", "-") for stem in stems if not stem.startswith("_"))


def provider_names(custom: Iterable[str] = ()) -> tuple[str, ...]:
    """Every provider that can be named: built in, found as a module, or configured."""
    known = dict.fromkeys(BUILT_IN)
    known.update(dict.fromkeys(sorted(module_names())))
    known.update(dict.fromkeys(custom))
    return tuple(known)


def is_provider(name: str, custom: Iterable[str] = ()) -> bool:
    """Whether ``name`` can be named as a provider."""
    return name in BUILT_IN or name in custom or name in module_names()


def spec_of(name: str) -> ProviderSpec | None:
    """The row of a provider that needs no configuration, or ``None``."""
    row = BUILT_IN.get(name)
    if row is None and name in module_names():
        found = getattr(_module(name), "SPEC", None)
        row = found if isinstance(found, ProviderSpec) else ProviderSpec(name, needs_key=False)
    return row


def provider_config(
    name: str, env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> ProviderConfig:
    """How to reach provider ``name``: configuration first, then environment, then the built-in row.

    Raises ``ConfigError`` for an unknown provider, an unknown kind or an unusable address. A
    missing key is not an error here; it is one when a request is made.
    """
    spec = spec_of(name)
    own = custom.get(name)
    if own is None and spec is None:
        raise unknown_provider(name, custom)
    row = spec or ProviderSpec(own.kind if own else name)
    config = own or ProviderConfig(name, row.kind, needs_key=row.needs_key)
    kind = config.kind or row.kind
    if kind not in _KINDS and kind not in module_names():
        kinds = ", ".join(sorted(module_names()))
        raise ConfigError(
            f"provider {name!r} has the unknown kind {kind!r}", f"use one of: {kinds}"
        )
    prints_key = config.stored is not None and config.stored.place == COMMAND
    base_url = config.base_url or env.get(row.base_env, "").strip()
    if base_url and not config.base_url and row.base_env == "OLLAMA_HOST":
        base_url = ollama_url(base_url)
    if not base_url:
        own_url = row.login_url if prints_key and row.login_url else row.base_url
        base_url = _with_variables(name, own_url, env) if "{" in own_url else own_url
    if kind in _OVER_HTTP:
        _check_url(name, base_url, row.base_env)
    kind = _kind_for(kind, config, row, base_url)
    key_env, api_key = _key_from(config, row, env)
    stored = None if api_key else config.stored
    if stored is not None and stored.at_hand:
        api_key = stored.get()
    if spec is None:
        needs_key = config.needs_key and bool(key_env or api_key or stored)
    else:
        needs_key = config.needs_key and (prints_key or _asks_for_key(row, base_url))
    if config.auth == "none" or _AUTH_HEADERS & config.headers.keys():
        needs_key = False
    return replace(
        config,
        name=name,
        kind=kind,
        base_url=base_url,
        key_env=key_env,
        api_key=api_key,
        needs_key=needs_key,
        stored=stored,
        auth=config.auth or (row.login_auth if prints_key else ""),
    )


def with_stored_key(config: ProviderConfig) -> ProviderConfig:
    """``config`` with its stored key fetched, if that is the one to use.

    May wait for the keyring: not for an event loop. Raises ``ConfigError``.
    """
    if config.stored is None or config.api_key:
        return config
    return replace(config, api_key=config.stored.get())


def _kind_for(kind: str, config: ProviderConfig, row: ProviderSpec, base_url: str) -> str:
    """The module that speaks ``config.api``, or what the provider's own address speaks."""
    if config.api:
        if kind not in _API_KINDS.values():
            raise ConfigError(
                f"provider {config.name!r} has an api, but its kind is {kind!r}",
                'leave api out; it chooses between the forms of kind = "openai"',
            )
        return _API_KINDS[config.api]
    if row.own_api and kind == row.kind and _is_own_host(base_url, row.base_url):
        return _API_KINDS[row.own_api]
    return kind


def _is_own_host(base_url: str, own_url: str) -> bool:
    """Also a region of it: ``eu.api.openai.com``, and anyone's resource."""
    host = urlsplit(base_url).hostname or ""
    own = urlsplit(re.sub(_BLANK, "", own_url)).hostname or ""
    return f".{host}".endswith(f".{own.removeprefix('.')}")


def _with_variables(name: str, url: str, env: Mapping[str, str]) -> str:
    """``url`` with its variables filled in; raises ``ConfigError`` for one that is not usable."""

    def value(found: re.Match[str]) -> str:
        names = found[1].split("|")
        given = next((text for each in names if (text := env.get(each, "").strip())), found[2])
        how = f"set {names[0]}, or base_url of [providers.{name}]"
        if not given:
            raise ConfigError(f"provider {name!r} has no address: {names[0]} is not set", how)
        if not re.fullmatch(_LABEL, given):
            raise ConfigError(f"{names[0]} cannot be a part of the address of {name!r}", how)
        return given

    return re.sub(_BLANK, value, url)


def _key_from(config: ProviderConfig, row: ProviderSpec, env: Mapping[str, str]) -> tuple[str, str]:
    if config.api_key.strip():
        return config.key_env, config.api_key.strip()
    names = key_variables(config, row)
    for name in names:
        if value := env.get(name, "").strip():
            return name, value
    return (names[0] if names else ""), ""


def key_variables(own: ProviderConfig | None, row: ProviderSpec | None) -> tuple[str, ...]:
    """The environment variables that may hold the key; one that a command prints has none."""
    if own is not None and own.key_env:
        return (own.key_env,)
    if row is None or (own and own.stored and own.stored.place == COMMAND):
        return ()
    return row.key_envs


def _asks_for_key(row: ProviderSpec, base_url: str) -> bool:
    """A server at another address than the provider's own may need no key."""
    if row.kind not in _OVER_HTTP - {"anthropic"} or not row.base_url:
        return row.needs_key
    if re.search(_BLANK, row.base_url):
        return row.needs_key and _is_own_host(base_url, row.base_url)
    return row.needs_key and urlsplit(base_url).hostname == urlsplit(row.base_url).hostname


def ollama_url(value: str) -> str:
    """The URL that ``OLLAMA_HOST`` means: scheme, host and port are each optional.

    A value that makes no address is returned as it is, to be refused as such. An address that a
    server listens at everywhere (``0.0.0.0``) is reached on this machine.
    """
    has_scheme = "://" in value
    try:
        parts = urlsplit(value if has_scheme else f"http://{value}")
        port = parts.port
    except ValueError:
        return value
    host = parts.hostname or "127.0.0.1"
    host = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    host = f"[{host}]" if ":" in host else host
    if port is None and not has_scheme:
        port = _OLLAMA_PORT
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"


def _check_url(name: str, base_url: str, base_env: str) -> None:
    where = f"set base_url of [providers.{name}]" + (f" or {base_env}" if base_env else "")
    if not base_url:
        raise ConfigError(f"provider {name!r} has no base_url", where)
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"the base URL of provider {name!r} is not an http or https address",
            f"{where}, for example to https://host.example/v1",
        )


def unknown_provider(name: str, custom: Iterable[str] = ()) -> ConfigError:
    """The error for a provider that does not exist; names the ones that are spelled alike."""
    from difflib import get_close_matches

    names = [known for known in provider_names(custom) if known != "scripted"]  # for tests
    near = get_close_matches(name, names, n=3, cutoff=0.65)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return ConfigError(f"there is no provider {name!r}", hint)


def create(config: ProviderConfig) -> Provider:
    """The provider that ``config`` describes; imports its module."""
    factory: Callable[[ProviderConfig], Provider] = _module(config.kind).PROVIDER
    return factory(config)


def _module(kind: str) -> ModuleType:
    return import_module(f"{__package__}.{kind.replace('-', '_')}")


def has_key(name: str, env: Mapping[str, str], custom: Mapping[str, ProviderConfig]) -> bool:
    """Whether there is a key for the provider."""
    row = spec_of(name) or ProviderSpec(name)
    own = custom.get(name)
    config = own or ProviderConfig(name, row.kind)
    return config.stored is not None or bool(_key_from(config, row, env)[1])


def login_names(custom: Mapping[str, ProviderConfig]) -> list[str]:
    """The providers that a key can be stored for; of those that share one only the first."""
    by_key = {row.key_envs: name for name, row in reversed(BUILT_IN.items()) if row.needs_key}
    return [*reversed(by_key.values()), *(name for name in custom if name not in BUILT_IN)]


def default_model(env: Mapping[str, str], custom: Mapping[str, ProviderConfig]) -> str:
    """``provider/model`` of the first provider with a key, else the offline assistant (CLI-10).

    Servers on this machine are not looked for here: that takes a network request.
    """
    if env.get("AGENTCLI_SCRIPT", "").strip():
        return "scripted/script"
    for name, row in BUILT_IN.items():
        if row.default_model and row.needs_key and has_key(name, env, custom):
            return f"{name}/{row.default_model}"
    return OFFLINE_MODEL
