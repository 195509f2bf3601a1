"""Files of a project that other programs run or obey when it is entered or opened (SEC-17).

Shells, editors, version control and other agents take programs from them; git's own are told by its
configuration. Law: names are compared in lower case, and judged alike for all who write. What
compilers, test runners and package managers obey is the project itself, and is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

_FILES = frozenset(
    {
        # on entering it: direnv, mise, asdf ("path:" names a directory of programs), RVM
        "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".tool-versions",
        ".rvmrc", ".envrc",
        # editors
        ".exrc", ".vimrc", "_vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".lazy.lua",
        ".dir-locals.el", ".dir-locals-2.el", ".devcontainer.json",
        # interpreters and debuggers that are started in it
        ".rprofile", ".irbrc", ".pryrc", ".gdbinit", ".lldbinit",
        # other agents
        ".mcp.json", "opencode.json", "opencode.jsonc", ".aider.conf.yml", "crush.json",
        ".crush.json",
    }
)  # fmt: skip
_EXAMPLES = (".example", ".sample", ".template", ".dist")
IN_DIRECTORIES = {
    ".husky": ("",),
    ".vscode": (
        "tasks.json", "settings.json", "launch.json", "mcp.json", "c_cpp_properties.json",
        "cmake-kits.json",
    ),
    ".idea": (
        "runConfigurations", "workspace.xml", "externalDependencies.xml", "watcherTasks.xml",
        "startup.xml",
    ),
    ".run": ("",),
    ".devcontainer": ("",),  # "initializeCommand" is run on the host
    ".zed": ("tasks.json", "settings.json", "debug.json"),
    ".fleet": ("run.json", "settings.json"),
    ".helix": ("languages.toml", "config.toml"),
    ".vim": ("coc-settings.json",),
    ".mise": ("config.toml", "config.local.toml", "conf.d"),
    "mise": ("config.toml", "config.local.toml", "conf.d"),
    ".claude": ("settings.json", "settings.local.json", "hooks"),
    ".cursor": ("mcp.json", "hooks.json", "hooks", "environment.json", "worktrees.json"),
    ".gemini": ("settings.json",),
    ".qwen": ("settings.json",),
    ".codex": ("config.toml", "hooks.json"),
    ".opencode": ("plugin", "plugins", "tool", "tools"),
    ".kiro": ("settings/mcp.json", "hooks"),
    ".roo": ("mcp.json",),
    ".github": ("hooks",),
    ".hg": ("hgrc", "hgrc-not-shared", "sharedpath"),
    ".jj": ("repo/config.toml", "workspace-config.toml"),
}  # fmt: skip
"""What counts in a directory of that name, and all below it; ``""``: everything."""


def is_obeyed(name: str) -> bool:
    """Whether a file called ``name``, in lower case, is one of them wherever it lies."""
    if name in _FILES or name.endswith((".code-workspace", ".sublime-project")):
        return True
    if name.startswith((".mise.", "mise.")):  # of an environment
        return name.endswith(".toml")
    # what ".envrc" loads by "source_env" direnv does not ask about: https://direnv.net/man/direnv-stdlib.1.html
    return name.startswith(".envrc.") and not name.endswith(_EXAMPLES)


def has_obeyed(names: Sequence[str]) -> bool:
    """Whether a path of these ``names``, in lower case, is one of them, or lies in one."""
    if names and is_obeyed(names[-1]):
        return True
    for at, name in enumerate(names):
        rest = "/".join((*names[at + 1 :], ""))
        for inner in IN_DIRECTORIES.get(name, ()):
            if rest.startswith(f"{inner.lower()}/" if inner else ""):
                return True
    return False
