"""What the policy would say of a call that nobody has made (SEC-3, ``/permissions explain``).

Law: nothing is run, written or asked; the answer is that of ``policy.judge`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentcli.domain.errors import InvalidArguments, UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.domain.reports import Explanation, InMode
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import ToolBox, Workspace
from agentcli.engine.jobs import ShellPlaces
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Decision, Policy
from agentcli.policy.grants import offers_of
from agentcli.policy.judge import judge

if TYPE_CHECKING:
    from agentcli.app.options import SessionOptions
    from agentcli.config.settings import Settings

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def policy_in_force(settings: Settings, options: SessionOptions) -> Policy:
    """That of a session which began here now, knowing what would limit its commands. Blocks."""
    from agentcli.app.boundary import policy_here
    from agentcli.app.extensions.servers import server_files

    obeyed = server_files(settings, (), (options.cwd,), is_strict=False)
    return policy_here(settings, options, obeyed)


def explain(
    toolbox: ToolBox,
    workspace: Workspace,
    policy: Policy,
    name: str,
    arguments: Mapping[str, Any],
    left: object = None,
) -> Explanation:
    """What would become of a call of the tool ``name``, after what the shells have ``left``.

    Raises ``UsageError`` for a tool that is not there and for arguments that it does not take.
    """
    tool = toolbox.get(name)
    if tool is None:
        near = toolbox.near(name)
        known = ", ".join(near or [each.name for each in toolbox.definitions])
        raise UsageError(f"there is no tool {name}", f"there is: {known}")
    try:
        args = tool.parse(arguments)
        paths = tool.paths(args, workspace)
    except InvalidArguments as error:
        raise UsageError(f"{name} does not take this: {error}", "give them as NAME=VALUE") from None
    call = CallFacts(tool.definition, arguments, paths)

    def place_in(mode: PermissionMode) -> CallPlace:
        shells = ShellPlaces.seen(left, workspace, replace(policy, mode=mode))
        place = shells.place(arguments)
        return place if name == "bash" else replace(place, workspace=workspace)

    place = place_in(policy.mode)
    decision = judge(call, place)
    asks = decision.answer is Answer.ASK
    offers = offers_of(call, place, decision) if asks else ()
    return Explanation(
        tool=name,
        answer=str(decision.answer),
        reason=decision.reason,
        part=decision.part,
        rule="" if decision.rule is None else str(decision.rule),
        source="" if decision.rule is None else decision.rule.source,
        effect=str(decision.effect),
        mode=str(policy.mode),
        offers=tuple(offer for offer, _ in offers),
        where=_where(call, decision, policy),
        modes=tuple(_in_mode(call, place_in(mode)) for mode in PermissionMode),
    )


def _in_mode(call: CallFacts, place: CallPlace) -> InMode:
    decision, policy = judge(call, place), place.policy
    return InMode(str(policy.mode), str(decision.answer), _where(call, decision, policy))


_WHERE = {
    Access.READ_ONLY: "in the read-only sandbox",
    Access.SEARCH: "in the read-only sandbox, credentials hidden",
    Access.INSIDE: "in the sandbox",
    Access.INSIDE_SEARCH: "in the sandbox, credentials hidden",
    Access.NETWORK: "in the sandbox, with network",
    Access.OUTSIDE: "outside the sandbox",
}


def _where(call: CallFacts, decision: Decision, policy: Policy) -> str:
    if "command" not in call.arguments or decision.answer is Answer.DENY:
        return ""
    access = decision.access
    if access is None or not policy.contained:
        return "without a sandbox"
    some = policy.hosts and f"network to {', '.join(policy.hosts)}"
    reached = "network" if policy.network else some
    is_inside = access in {Access.INSIDE, Access.INSIDE_SEARCH}
    return _WHERE[access] + (f", with {reached}" if is_inside and reached else "")


def read_call(toolbox: ToolBox, text: str) -> tuple[str, dict[str, Any]]:
    """The call that the user means: ``TOOL name=value ...`` where that is one, else a command."""
    words = text.split()
    pairs = [_PAIR.fullmatch(word) for word in words[1:]]
    if words and pairs and all(pairs) and toolbox.get(words[0]) is not None:
        return words[0], {pair[1]: pair[2] for pair in pairs if pair is not None}
    return "bash", {"command": text}
