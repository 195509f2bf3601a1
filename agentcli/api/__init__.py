"""The agent as a library: ``from agentcli import Agent``. What is exported is pinned by a test."""

from agentcli.api.agent import Agent, AgentResult
from agentcli.api.function_tool import tool

__all__ = ["Agent", "AgentResult", "tool"]
