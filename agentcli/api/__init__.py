"""The agent as a library: ``from agentcli import Agent``. What is exported is pinned by a test."""

import logging

from agentcli.api.agent import Agent, AgentResult, tool

__all__ = ["Agent", "AgentResult", "tool"]

# the program that embeds us decides where the log goes; without a handler it would go to stderr
logging.getLogger("agentcli").addHandler(logging.NullHandler())
