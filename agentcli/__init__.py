"""agentcli: a terminal coding agent that can be interrupted at any moment.

``from agentcli import Agent`` is the library; see ``agentcli.api``. Nothing of it is imported
before it is used: the command line starts faster for that.
"""

TYPE_CHECKING = False  # the real one costs an import that ``--version`` has no use for

if TYPE_CHECKING:
    from agentcli.api import *  # noqa: F403 - all that it exports, and it says what

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # the rooms of the package are lower case: asking for one must not load the library
    if name[0].isupper() or name in {"__all__", "tool", "user_text"}:
        from agentcli import api

        if name == "__all__":
            return [*api.__all__, "__version__"]
        if name in api.__all__:
            found: object = getattr(api, name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
