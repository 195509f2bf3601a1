"""``/init``: the agent looks at the project and writes its AGENTS.md (CTX-1)."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand

_PROMPT = """\
Look at this project and write the file AGENTS.md in its root directory: what a coding agent has \
to know that it would not see at once. If the file exists, keep what is right in it and fix the \
rest; take over what README, CLAUDE.md, .cursorrules or CONTRIBUTING say to contributors.

Tell, as far as it applies and in at most 60 lines:
- what the project is, in one or two sentences, and which directories matter;
- the exact commands to build, to lint and to test, also for a single test (check that they exist);
- conventions that differ from what one would expect: names, errors, layers, generated files;
- pitfalls, and what must not be touched.

No general advice, nothing that a glance at the directory shows, nothing made up."""


async def _run(chat: Chat, arguments: str) -> None:
    more = f"\n\nMind this as well: {arguments}" if arguments else ""
    await chat.say(_PROMPT + more)


COMMAND = SlashCommand("init", "let the agent write AGENTS.md", _run, "[WHAT TO MIND]")
