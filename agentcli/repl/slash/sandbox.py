"""``/sandbox``: what limits commands, and why not more; switch it off or on (SEC-7)."""

from __future__ import annotations

from pathlib import Path

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.domain.sandbox import Sandbox, SandboxKind, SandboxState, plain_host
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import reveal
from agentcli.ui.theme import BOLD, DIM, WARNING

_NAMES = {
    SandboxKind.BWRAP: "bubblewrap",
    SandboxKind.LANDLOCK: "Landlock",
    SandboxKind.OFF: "none",
}


async def _run(chat: Chat, arguments: str) -> None:
    sandbox, paint = chat.session.sandbox, chat.theme.paint
    if sandbox is None:
        chat.show(["Commands of this session run without a sandbox."])
        return
    wanted = arguments.strip().lower()
    word, _, named = wanted.partition(" ")
    if word == "allow":
        await _allow(chat, sandbox, named)
        return
    if wanted not in {"", "on", "off"}:
        advice = "use /sandbox on|off or /sandbox allow HOST"
        raise UsageError(f"/sandbox {reveal(arguments)} is not valid", advice)
    if wanted:
        sandbox.switch(on=wanted == "on")
        chat.session.sandbox_changed()  # nothing is judged by what was in force before
    state = await sandbox.begin()
    chat.session.sandbox_changed()
    if wanted == "off":
        line = "Commands run without a sandbox from now on, in this session; /sandbox on: again."
        chat.show([paint(line, WARNING)])
        return
    policy = chat.session.policy
    is_held = policy.is_held or policy.mode is PermissionMode.PLAN
    limits = _limits(state, is_held=is_held)
    lines = [paint(f"Sandbox of commands: {_NAMES[state.kind]}", BOLD), *limits]
    if state.is_on and not policy.wants_boundary:
        # what is in force first: the rest holds once another mode is chosen
        unbound = "Not in use: mode yolo has no boundary, commands run with all of your rights."
        lines[1:1] = [paint(unbound, WARNING), "In the other modes:"]
    elif state.is_on and is_held:
        lines.insert(1, f"Mode {policy.mode}: what would leave it is refused, nobody is asked.")
    if state.problem:
        lines.append(paint(reveal(state.problem), 0 if state.is_on else WARNING))
    if state.advice:
        lines.append(f"To fix it: {reveal(state.advice)}")
    lines.append(paint("What you type after ! runs outside. /sandbox off|on: this session.", DIM))
    chat.show(lines)


async def _allow(chat: Chat, sandbox: Sandbox, named: str) -> None:
    host = plain_host(named)
    if host is None:
        advice = "write it as /sandbox allow npmjs.org, or with a port: example.com:8443"
        raise UsageError(f"{reveal(named) or 'nothing'!r} is no host", advice)
    if problem := await sandbox.allow_host(host):
        if not sandbox.state.is_on or sandbox.state.network:
            advice = "see what is in force: /sandbox"
            raise UsageError(f"{host} is reached as it is: {reveal(problem)}", advice)
        advice = 'a command that asks for "network" can be allowed by itself'
        raise UsageError(f"{host} cannot be allowed: {reveal(problem)}", advice)
    chat.session.sandbox_changed()
    line = f"Commands in the sandbox reach {', '.join(sandbox.state.hosts)}, in this session."
    chat.show([line, chat.theme.paint("For good: agent config set sandbox_hosts", DIM)])


def _limits(state: SandboxState, *, is_held: bool) -> list[str]:
    if not state.is_on:
        return ["Commands have all of your rights."]
    more = "" if is_held else "; for more the agent asks you"
    none = "none" if is_held else "none, but what the agent asks you for"
    closed = f"{', '.join(state.hosts)}{more}" if state.hosts else none
    network = "open" if state.network else closed
    leaving = "is refused" if is_held else "asks and runs outside"
    can_allow = state.kind is SandboxKind.BWRAP and not state.network
    home = str(Path.home())
    seen = [reveal(str(place)).replace(f"{home}/", "~/", 1) for place in state.readable]
    withheld = reveal(", ".join(state.withheld))
    return [
        "Commands can write in:",
        *(f"  {reveal(str(place))}" for place in state.writable),
        f"Of your home directory they read, too: {', '.join(seen) or 'nothing'}",
        "  more: sandbox_readable in the settings",
        f"Variables that may be credentials are not given to them: {withheld or 'you have none'}",
        "  all the same: sandbox_variables in the settings",
        f"Network: {network}",
        *(["  for single hosts: /sandbox allow HOST"] if can_allow else []),
        f"Unix sockets: {state.sockets}",
        "Commands that only read run with nothing to write to and no network.",
        f"What writes git's configuration, or what others obey (.envrc), {leaving}.",
    ]


COMMAND = SlashCommand(
    "sandbox",
    "what limits commands; switch it off or on, let them reach a host",
    _run,
    "[off|on|allow HOST]",
    while_working=True,
)
