"""``/skills``: what the agent can go by, where it comes from; pick one to call it (EXT-1)."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import DIM

_WHERE = "Put a folder with a SKILL.md into ~/.agents/skills or .agents/skills, then /reload."
_SHOWN_COLUMNS = 100


async def _run(chat: Chat, arguments: str) -> None:
    skills = [each for each in chat.session.extensions.skills if arguments.lower() in each.name]
    paint = chat.theme.paint
    if not skills:
        chat.show(["There is no such skill." if arguments else "There are no skills.", _WHERE])
        return
    rows = []
    for skill in skills:
        kind = "" if skill.for_model else ", by you alone"
        kind = kind if skill.for_user else ", by the agent alone"
        note = f"{clean_line(skill.description)} ({skill.place.origin}{kind})"
        rows.append(PickRow(clean_line(skill.name), fit(note, _SHOWN_COLUMNS)))
    if not chat.theme.live:
        lines = [f"{row.text}  {row.note}" for row in rows]
        chat.show([*lines, paint(f"Call one with /NAME. {_WHERE}", DIM)])
        return

    def about() -> list[str]:
        return [paint("Skills: Enter puts one into the input.", DIM)]

    at = await chat.choose("Which skill?", rows, 0, lambda _: None, about)
    if at is not None:
        skill = skills[at]
        if skill.for_user:
            chat.put_in_input(f"/{skill.name} ")
        else:
            chat.show([f"{clean_line(skill.name)} is for the agent: {clean_line(str(skill.path))}"])


COMMAND = SlashCommand("skills", "what the agent can go by; call one", _run, "[PART OF A NAME]")
