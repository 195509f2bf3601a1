"""Judges bash by its syntax: which simple commands would a text run? (SEC-4)

Law: whatever bash would run is listed, or ``understood`` is false. ``parse_bash`` never raises
and answers within a second whatever the text.
"""

from __future__ import annotations

from agentcli.engine.bash_command import ParsedCommand, Redirection, SimpleCommand

__all__ = ["ParsedCommand", "Redirection", "SimpleCommand", "parse_bash"]


def parse_bash(text: str) -> ParsedCommand:
    """Every simple command of ``text``, wrappers such as ``sudo`` looked through."""
    from agentcli.engine.bash_tree import read_tree

    tree = read_tree(text)
    return ParsedCommand(tree.commands, not tree.why_not, tree.why_not, tree.plain)
