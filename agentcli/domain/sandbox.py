"""The port of what limits a command: its files, its network, its life (SEC-7).

And the files that it is not to write unasked, because programs outside obey them (SEC-17).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from socket import socket


MOST_SHUT = 100  # credentials of the workspace, the nearest


class SandboxKind(StrEnum):
    """What limits commands. ``OFF``: nothing does."""

    BWRAP = "bwrap"
    LANDLOCK = "landlock"
    OFF = "off"


class Access(StrEnum):
    """How much a command gets; what goes beyond ``INSIDE`` is asked for as an approval (SEC-7).

    ``READ_ONLY`` is for commands that are judged to change nothing (SEC-4); no model asks for it.
    ``SEARCH`` and ``INSIDE_SEARCH`` are for those that show files which their words do not name:
    the same, but the workspace's credentials cannot be read (SEC-3).
    """

    READ_ONLY = "read-only"
    SEARCH = "read-only search"
    INSIDE = "inside"
    INSIDE_SEARCH = "inside search"
    NETWORK = "network"
    OUTSIDE = "outside"

    @property
    def reads_only(self) -> bool:
        """Whether it can write nothing."""
        return self in {Access.READ_ONLY, Access.SEARCH}

    @property
    def hides(self) -> bool:
        """Whether the workspace's credentials cannot be read."""
        return self in {Access.SEARCH, Access.INSIDE_SEARCH}


@frozen
class SandboxState:
    """What is in force. ``wanted`` is the setting; ``problem`` is why there is not (more of) it.

    ``network``: commands have it without asking; ``hosts`` are those that they reach all the same
    where it is closed. ``known``: it was found out by a real run, which
    happens when the first command needs it. ``advice`` says how to fix ``problem``. ``writable``
    are the directories in which commands can write, ``readable`` what they see of the home
    directory, ``sockets`` which Unix sockets they reach, in words; ``withheld`` are the variables
    of the user's that they do not get, since they may be credentials.
    """

    kind: SandboxKind
    wanted: str = "auto"
    problem: str = ""
    network: bool = False
    hosts: tuple[str, ...] = ()
    known: bool = True
    advice: str = ""
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    sockets: str = ""
    withheld: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        """Whether anything limits commands."""
        return self.kind is not SandboxKind.OFF

    @property
    def lacks_it(self) -> bool:
        """Whether there is none although nobody has switched it off: the user is told."""
        return self.known and not self.is_on and self.wanted != "off"


@frozen
class Confined:
    """A command line as it runs inside.

    ``cwd`` is where it is started from. ``namespaces`` are open files of a user and a network
    namespace that the process joins before it becomes ``argv``, ``rules`` those that it takes
    upon itself: about files (``landlock``), about system calls (``calls``); ``opened`` are the
    places in ``argv`` of paths that it opens, following no link, to give the open file's number.
    """

    argv: tuple[str, ...]
    cwd: Path
    namespaces: tuple[int, ...] = ()
    rules: Mapping[str, object] = MappingProxyType({})


_HOST = LazyPattern(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
_WEB_PORTS = (80, 443)
_MAX_HOST_CHARS = 253
_MAX_PORT = 65_535
_IPV6 = 6


def plain_host(text: str) -> str | None:
    """``text`` as a host that the network may be allowed for; ``None``: it is none (SEC-18)."""
    plain = text.strip().lower().rstrip(".")
    found = _HOST.fullmatch(plain) if len(plain) <= _MAX_HOST_CHARS and ".." not in plain else None
    if found is None or not 0 < int(found["port"] or 1) <= _MAX_PORT:
        return None
    name = found["name"]
    from ipaddress import ip_address

    if name.startswith("[") or name.rpartition(".")[2].isdigit():  # an address, in its usual form
        try:
            address = ip_address(name.strip("[]"))
        except ValueError:
            return None
        name = f"[{address}]" if address.version == _IPV6 else str(address)
    return name + plain[found.end("name") :]


def is_named(names: Sequence[str], host: str, port: int) -> bool | None:
    """Whether one of ``names`` covers ``host``, and is that very host; ``None``: none does.

    ``npmjs.org`` covers itself and the hosts below it, at the ports of the web; ``npmjs.org:8443``
    at that port alone; a name of one label or an address only itself.
    """
    found = None
    for name in filter(None, map(_HOST.fullmatch, names)):
        known, wanted = name["name"].strip("[]"), name["port"]
        if port != int(wanted) if wanted else port not in _WEB_PORTS:
            continue
        if host == known:
            return True
        found = False if "." in known and host.endswith(f".{known}") else found
    return found


class HostGate(Protocol):
    """Lets connections from inside through to some hosts, and no other."""

    hosts: tuple[str, ...]

    def take_refused(self) -> tuple[str, ...]:
        """Which hosts that are not named were asked for since the last call."""

    def take_failed(self) -> tuple[tuple[str, str], ...]:
        """Which that are named could not be reached since then, and why."""

    async def serve(self, listener: socket) -> None:
        """Answer what connects to ``listener``, until this is cancelled."""


StillLives = Callable[[], int]
"""The pid that all of it is below while anything of a command is left, else 0."""


class Sandbox(Protocol):
    """Limits the commands of one session, whose workspace it knows."""

    @property
    def state(self) -> SandboxState:
        """What is in force, as far as it is known."""

    @property
    def namespaces(self) -> tuple[int, ...]:
        """Open files that a ``Confined`` may name: a command's guard inherits them."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that may write runs inside: it could put a link in a file's place."""

    async def begin(self) -> SandboxState:
        """Find out by a real run what works here; only the first call does anything.

        Never raises: what does not work is in the state.
        """

    def take_notice(self) -> str:
        """What the user is told once when there is none, and why; empty otherwise."""

    def environment(
        self, base: Mapping[str, str], access: Access = Access.INSIDE
    ) -> dict[str, str]:
        """``base`` as a command inside has it: nothing in it leads out or opens what is there.

        Blocks.
        """

    def read_only_environment(self, base: Mapping[str, str], command: str) -> dict[str, str]:
        """``base``, the whole of it, as ``command`` with ``Access.READ_ONLY`` has it.

        Git runs nothing that a repository names; what is temporary goes to a place of its own.
        """

    def on_machine(self, path: Path) -> Path:
        """Where what a command inside calls ``path`` lies on this machine."""

    async def confine(self, argv: Sequence[str], cwd: Path, access: Access) -> Confined:
        """The command line that runs ``argv`` in ``cwd`` with no more than ``access``.

        Raises ``OSError``.
        """

    async def settle(self, still_lives: StillLives | None = None) -> tuple[str, ...]:
        """After a command: put right what others would execute (SEC-17); one line about each.

        To be called once for each ``confine`` that may write. ``still_lives`` tells whether
        anything of the command is left.
        """

    async def step_outside(self) -> tuple[str, ...]:
        """Before the user's own change: as ``settle``, for what still runs inside."""

    async def search_along(self, path: str | None) -> None:
        """A shell of the session's outside has this ``PATH``, unless it is ``None``.

        What hides a program of the system's there is run by the user's next command (SEC-17).
        """

    async def accept(self, written: Mapping[Path, str] | None = None) -> None:
        """What is there now was made outside with the user's consent.

        With ``written`` these files alone: the ``FileLedger``'s word of each, or empty.
        """

    @property
    def switched(self) -> bool | None:
        """What the user has chosen since it began; ``None``: nothing, the settings hold."""

    def switch(self, *, on: bool) -> None:
        """Use it or do not, from the next command on."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """The hosts that the user has allowed since it began."""

    async def allow_host(self, host: str) -> str:
        """Let commands reach ``host``, as ``plain_host`` writes it; else why that cannot be."""

    def go_on_as(self, before: Sandbox) -> None:
        """Be switched as ``before`` is, and let commands reach what the user has allowed there."""

    async def aclose(self) -> None:
        """Remove the session's private temporary directory. May be called again."""


HOME_SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc",
    ".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".password-store", ".terraform.d", ".mozilla",
    ".thunderbird", ".bash_history", ".zsh_history", ".python_history", ".psql_history",
    ".config/gh", ".config/hub", ".config/gcloud", ".config/op", ".config/git/credentials",
    ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
    ".config/containers/auth.json", ".config/rclone", ".local/share/keyrings", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".claude/.credentials.json", ".codex/auth.json",
    ".gemini/oauth_creds.json", ".local/share/kwalletd", "snap/firefox", "snap/chromium",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".boto", ".s3cfg",
    ".claude.json", ".1password", ".config/1Password", ".composer/auth.json", ".hex/hex.config",
    ".config/composer/auth.json", ".nuget/NuGet/NuGet.Config", ".config/pypoetry/auth.toml",
    ".cache/huggingface/token", ".huggingface/token", ".kaggle", ".oci", ".config/doctl",
    ".config/heroku", ".config/netlify", ".config/fly", ".fly", ".wrangler", ".config/stripe",
    ".config/sops", ".age", ".passage", ".electrum", ".bitcoin", ".ethereum", ".putty", ".vnc",
    ".snowflake", ".gcloud", ".pki", ".databricks.cfg", ".mylogin.cnf", ".dockercfg",
    ".terraformrc", ".config/github-copilot", ".stack/upload", ".local/share/uv/credentials",
    ".local/share/gem/credentials", ".authinfo", ".databrickscfg", ".cloudflared", ".pulumi",
    ".config/glab-cli", ".sentryclirc", ".ngrok2", ".config/ngrok", ".wakatime.cfg",
    ".config/hcloud", ".config/scw", ".config/argocd", ".argocd", ".talos", ".config/configstore",
    ".supabase", ".railway", ".config/linode-cli",
    ".jfrog", ".mc", ".msmtprc", ".config/msmtp", ".mbsyncrc", ".fetchmailrc", ".offlineimaprc",
    ".smbcredentials", ".lpass", ".config/Bitwarden CLI", ".config/google-chrome-beta",
    ".config/vivaldi", ".config/Slack", ".config/discord", ".config/Signal", ".subversion/auth",
    ".mysql_history", ".node_repl_history", ".histfile", ".local/share/fish", ".sqlite_history",
    ".rediscli_history", ".irb_history", ".pry_history",
    ".config/Bitwarden", ".config/filezilla", ".filezilla", ".config/remmina", ".remmina",
    ".local/share/remmina", ".purple", ".weechat/sec.conf", ".config/weechat/sec.conf",
    ".config/solana", ".dbt/profiles.yml", ".snowsql", ".config/snowflake", ".aliyun", ".tccli",
    ".config/yandex-cloud", ".bluemix", ".linode-cli", ".config/tea", ".circleci/cli.yml",
    ".config/helm/registry", ".tsh", ".step", ".rclone.conf", ".config/syncthing",
    ".local/state/syncthing", ".config/.wrangler", ".config/dart/pub-credentials.json",
    ".expo/state.json", ".appstoreconnect", ".android/adbkey", ".erlang.cookie", ".Xauthority",
    ".ICEauthority", ".config/opera", ".librewolf", ".zen",
    ".yarnrc.yml", ".bunfig.toml", ".Renviron", ".sbt/.credentials", ".sbt/1.0/.credentials",
    ".ivy2/.credentials", ".config/helm/repositories.yaml", ".minikube", ".config/exoscale",
    ".travis", ".cvspass", ".hgrc", ".config/hg/hgrc", ".curlrc", ".config/curlrc", ".wgetrc",
    ".aider.conf.yml", ".continue", ".codeium", ".cursor/mcp.json", ".config/aichat",
    ".config/mods", ".local/share/crush", ".config/Cursor/User/globalStorage",
    ".config/Code/User/globalStorage", ".local/share/DBeaverData", ".jupyter",
    ".local/share/jupyter/runtime", ".muttrc", ".mutt", ".config/mutt", ".config/neomutt",
    ".config/aerc", ".config/himalaya", ".irssi", ".config/hexchat", ".config/keybase",
    ".config/borg", ".local/share/atuin", ".config/fish/fish_variables", ".vault_pass",
    ".vault_pass.txt", ".copilot/config.json", ".influxdbv2/configs", ".twilio-cli",
    ".config/weechat/irc.conf", ".config/rustdesk", ".config/exercism",
    ".cache/huggingface/stored_tokens", ".passwd-s3fs", ".bash_eternal_history", ".zhistory",
    ".local/state/zsh/history", ".local/share/zsh/history", ".augment/session.json",
    ".gitlab-runner/config.toml",
)  # fmt: skip
"""What in a home directory holds keys, passwords or what was typed, by the names that are known."""


# --- what others obey (SEC-17) -----------------------------------------------------------------

# Shells, editors, version control and other agents run or obey files of a project that is entered
# or opened; git's own are told by its configuration. Names are compared in lower case, and judged
# alike for all who write. What compilers, test runners and package managers obey is the project
# itself, and is not listed.

OBEYED = frozenset(
    {
        # on entering it: direnv, mise, asdf ("path:" names a directory of programs), RVM
        "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml",
        ".miserc.toml", "miserc.toml", ".rvmrc", ".envrc",
        # editors
        ".exrc", ".vimrc", "_vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".lazy.lua",
        ".dir-locals.el", ".dir-locals-2.el", ".devcontainer.json", ".ycm_extra_conf.py",
        ".lazygit.yml", "tasks.vs.json", "launch.vs.json", ".vimspector.json", ".kateproject",
        # interpreters and debuggers that are started in it
        ".rprofile", ".renviron", ".irbrc", ".pryrc", ".pdbrc", ".ghci", ".ocamlinit", ".iex.exs",
        ".octaverc", ".gdbinit", ".lldbinit", ".rdata", ".byebugrc", ".perldb", ".psysh.php",
        ".pdbrc.py",
        # other agents
        ".mcp.json", "opencode.json", "opencode.jsonc", "tui.json", "tui.jsonc", ".aider.conf.yml",
        "crush.json",
        ".crush.json", "kilo.json", "kilo.jsonc", "reasonix.toml", ".continuerc.json",
        "conductor.json", ".emdash.json",
        # where git-lfs sends what is pushed
        ".lfsconfig",
    }
)  # fmt: skip
"""Files of these names, wherever they lie; ``is_obeyed`` knows more."""
ENTERED = (".envrc", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml")
"""What direnv and mise read of a directory that a shell enters; ``OF_MISE`` knows more."""
OF_MISE = LazyPattern(
    r"/\.?mise(?:\.[\w-]+)*\.toml\Z|/\.?mise/(?:conf\.d/[^/]+|config(?:\.[\w-]+)*)\.toml\Z"
)
MANAGED = frozenset({"prek.toml", ".pre-commit-config.yaml", ".pre-commit-config.yml"})
"""What a manager of hooks looks for in each directory, where a hook names it."""
_VERSIONS = frozenset({".nvmrc", ".sdkmanrc", ".yvmrc"})
_COMMENTS = LazyPattern(rb"(?<!\S)#[^\n]*")
# no path, no "path:", and no UTF-16, which fnm reads, too
_ONLY_VERSIONS = LazyPattern(
    rb"(?!.*\.\.)(?:\s|=|(?<![^\s=])[\w+*][\w+*./@-]*)*", re.DOTALL | re.ASCII
)
# in a comment, too: mise fills a template in, and runs what it says; it and asdf took the words of
# a comment for versions in files of Ruby, Go and others: https://github.com/jdx/mise
_OBEYED_ANYWHERE = LazyPattern(rb"\{[{%#]|\bpath:|\.\./")
EXAMPLES = (".example", ".sample", ".template", ".dist")
# HFS+ ignores these in names, so that ".g\u200cit" is ".git"
_IGNORED = LazyPattern("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_OF_OPENCODE = ("plugin", "plugins", "tool", "tools", "mode", "modes", "package.json")
IN_DIRECTORIES = {
    ".husky": ("",),
    ".lefthook": ("",),
    ".lefthook-local": ("",),
    ".vscode": ("c_cpp_properties.json", "cmake-kits.json"),
    ".idea": (
        "runConfigurations", "workspace.xml", "externalDependencies.xml", "watcherTasks.xml",
        "startup.xml",
    ),
    ".run": ("",),
    ".devcontainer": ("",),  # "initializeCommand" is run on the host
    ".zed": ("debug.json",),
    ".fleet": ("run.json",),
    ".helix": ("languages.toml", "config.toml"),
    ".vim": ("coc-settings.json",),
    ".flox": ("env", "env.json"),
    ".mise": ("conf.d",),
    "mise": ("conf.d",),
    ".agents": ("",),  # those of the workspace itself are read-only
    ".agentcli": ("",),
    ".claude": ("scheduled_tasks.json", "routines", "workflows"),
    ".cursor": ("environment.json", "worktrees.json", "cli.json", "sandbox.json"),
    ".gemini": ("policies",),
    ".codex": ("config.toml", "rules"),
    ".opencode": _OF_OPENCODE,
    ".kiro": ("settings/mcp.json", "settings/lsp.json"),
    ".kilocode": _OF_OPENCODE,
    ".kilo": _OF_OPENCODE,
    ".amp": ("plugins",),
    ".devin": ("config.json",),
    ".vibe": ("config.toml", "tools"),
    ".grok": ("config.toml",),
    ".pi": ("npm", "git"),
    ".tabnine": ("agent/settings.json",),
    ".ai": ("mcp/mcp.json",),  # JetBrains
    ".rovodev": ("config.yml",),
    ".openhands": ("setup.sh", "pre-commit.sh"),
    ".superset": ("config.json",),
    ".agent": ("workflows",),  # Antigravity runs what it marks so
    ".mux": ("init", "tool_env", "tool_pre", "tool_post"),
    ".amazonq": ("default.json", "cli-agents"),
    ".junie": ("mcp",),
    ".continue": ("config.yaml", "config.json", "config.ts", "mcpServers"),
    ".github": ("copilot/settings.json", "copilot/settings.local.json"),
    ".ropeproject": ("config.py",),
    ".hg": ("hgrc", "hgrc-not-shared", "sharedpath"),
    ".sl": ("config", "sharedpath"),
    ".jj": ("repo/config.toml", "workspace-config.toml"),
}  # fmt: skip
"""What counts in a directory of that name, and all below it; ``""``: everything."""
_AGENTS = frozenset({
    ".aider", ".augment", ".cline", ".clinerules", ".codebuddy", ".codeium", ".copilot", ".crush",
    ".droid", ".factory", ".forge", ".goose", ".hermes", ".iflow", ".kimi", ".kimi-code", ".letta",
    ".openclaw", ".plandex", ".qoder", ".qwen", ".reasonix", ".roo", ".theia", ".trae", ".vs",
    ".void", ".warp", ".windsurf", ".zencoder",
})  # fmt: skip
# what hardly anything else is called
_OF_ANY = frozenset({
    *(
        f"{name}{part}.{end}"
        for name in ("mcp", "mcp_config", "hooks", "permissions")
        for part in ("", ".local")
        for end in ("json", "jsonc")
    ),
    "settings.local.json",
})  # fmt: skip
# commands and skills hold lines of a shell, and hooks in their front matter, as agents do
_OF_AGENTS = _OF_ANY | {
    *(
        f"{name}{part}.{end}"
        for name in ("settings", "mcp", "hooks", "permissions", "tasks", "launch", "lsp")
        for part in ("", ".local", ".v1", ".v2")
        for end in ("json", "jsonc", "toml")
    ),
    *(
        f"{name}{s}"
        for name in ("hook", "command", "skill", "agent", "extension")
        for s in ("", "s")
    ),
}


def forms_in(directory: str) -> frozenset[str]:
    """What other programs obey in a directory of that name, made plain, if it is there.

    Editors and agents keep it in a hidden directory of their own, and no list has all of these.
    """
    if directory in _AGENTS or directory in IN_DIRECTORIES:
        return _OF_AGENTS
    return _OF_ANY if directory.startswith(".") else frozenset()


def has_form(directory: str, name: str) -> bool:
    """Whether ``name`` in ``directory``, both made plain, is called as what others obey there."""
    if directory in {"mise", ".mise"}:  # "config.toml", and one for each of its environments
        return name.startswith("config.") and name.endswith(".toml")
    return name in forms_in(directory)


def plain_name(name: str) -> str:
    """``name`` as a file system would compare it that ignores case, and what cannot be seen."""
    plain = (name if name.isascii() else _IGNORED.sub("", name)).casefold()
    return plain.rstrip(". ") or plain


def says_versions(name: str) -> bool:
    """Whether a version manager reads a file called ``name`` where a shell goes: mise, fnm, asdf.

    In place of a version it may say a directory of programs, which comes first in PATH then:
    https://mise.jdx.dev/dev-tools/#tool-options, https://github.com/Schniz/fnm. And mise runs what
    a template says there: https://mise.jdx.dev/templates.html, without trust before 2026.3.10.
    """
    is_one = name.startswith(".") and name.endswith(("-version", "-versions"))
    return name in _VERSIONS or (is_one and not name.startswith(".envrc."))


def says_only_versions(text: bytes) -> bool:
    """Whether what such a file says is no more than that."""
    plain = _COMMENTS.sub(b"", text)
    return not _OBEYED_ANYWHERE.search(text) and _ONLY_VERSIONS.fullmatch(plain) is not None


def is_obeyed(name: str) -> bool:
    """Whether a file called ``name``, made plain, is one of them wherever it lies."""
    if says_versions(name):
        return True
    if name in OBEYED or name.endswith((".code-workspace", ".sublime-project")):
        return True
    if name.startswith((".mise.", "mise.")):  # of an environment
        return name.endswith(".toml")
    if name.startswith(("flake-profile", "nix-profile")):  # what "use flake" kept for direnv
        return name.endswith(".rc")
    # what ".envrc" loads by "source_env" direnv does not ask about: https://direnv.net/man/direnv-stdlib.1.html
    return name.startswith(".envrc.") and not name.endswith(EXAMPLES)


def has_obeyed(names: Sequence[str]) -> bool:
    """Whether a path of these ``names``, made plain, is one of them, or lies in one."""
    if names and is_obeyed(names[-1]):
        return True
    for at, name in enumerate(names):
        if at and has_form(names[at - 1], name):
            return True
        inside = IN_DIRECTORIES.get(name, ())
        rest = "/".join((*names[at + 1 :], "")) if inside else ""
        if any(rest.startswith(f"{each.lower()}/" if each else "") for each in inside):
            return True
    return False
