"""agentcli: a terminal coding agent that can be interrupted at any moment.

``from agentcli import Agent`` is the library; see ``agentcli.api``. Nothing of it is imported
before it is used: the command line starts faster for that.
"""

TYPE_CHECKING = False  # the real one costs an import that ``--version`` has no use for

if TYPE_CHECKING:
    from agentcli.api import Agent as Agent
    from agentcli.api import AgentResult as AgentResult
    from agentcli.api import tool as tool

__version__ = "0.1.0"
__all__ = ["Agent", "AgentResult", "__version__", "tool"]


def __getattr__(name: str) -> object:
    if name in {"Agent", "AgentResult", "tool"}:
        from agentcli import api

        found: object = getattr(api, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
