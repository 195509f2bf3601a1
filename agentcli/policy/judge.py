"""May this call run, has the user to be asked, or is it refused? Pure (SEC-3, SEC-4).

Order: deny rules, plan mode, protected places and destructive commands, ask rules, what a hook
allows, what leaves the sandbox, ``yolo``, allow rules and grants of this session, what the mode
makes free; everything else asks. Law: every
decision names the rule or the reason that made it, and of a command the part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.ports import PermissionMode
from agentcli.domain.sandbox import Access, plain_name, says_only_versions, says_versions
from agentcli.domain.tools import PREFIX, Asks, real_path
from agentcli.domain.values import frozen
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.bash_wrappers import OTHER_SHELLS
from agentcli.policy.decision import (
    Answer,
    CallFacts,
    CallPlace,
    Decision,
    Effect,
    Policy,
    Rule,
)
from agentcli.policy.places import (
    credential_place,
    moves,
    protected_place,
)
from agentcli.policy.rules import (
    Subject,
    covering,
    first,
    free_part,
    host_of,
    might_touch,
    touches,
)
from agentcli.policy.strict_reads import is_strict_read

if TYPE_CHECKING:
    from agentcli.policy.destructive import Danger

_SHELL = "bash"
_WRITES_WHOLE = "write_file"
_LONGEST_PART = 200
_LONGEST_VERSIONS = 4_096
_MAKES_NAMES = re.compile(r"[][(){}<^~#*?$`]")  # in one shell or another
_ACCESS = {Access.NETWORK: "with network", Access.OUTSIDE: "outside the sandbox"}


def judge(call: CallFacts, place: CallPlace) -> Decision:
    """The decision on one call: the first of the checks below that has an opinion."""
    subject, secret = subject_of(call, place), None
    if call.definition.name == _SHELL and subject.text is not None:
        from agentcli.policy.credentials import credentials_read

        secret = next(credentials_read(subject.text, place), None)
    effect = effect_of(call, place)
    judged = _Judged(call, place, subject, effect, secret, _dangers(call, place, effect))
    decision = next(filter(None, (check(judged) for check in _CHECKS)), None)
    if decision is None and judged.effect is not Effect.EXEC:
        is_inside = all(map(place.workspace.contains, (*call.paths, *subject.paths)))
        where = "" if is_inside else " outside the workspace"
        decision = judged.because(Answer.ASK, f"it changes files{where}")
    decision = decision or _asks_to_run(judged)
    if decision.answer is Answer.DENY:
        return decision
    return replace(decision, access=judged.access)


def effect_of(call: CallFacts, place: CallPlace) -> Effect:
    """The effect of this very call: a command known to be read-only is a READ (LOOP-4)."""
    command = call.arguments.get("command")
    if call.definition.name == _SHELL and isinstance(command, str):
        contained = place.policy.has_boundary and str(call.arguments.get("access")) not in _ACCESS
        if contained:
            from agentcli.policy.read_only import is_read_only

            known = is_read_only(command, place.workspace)
        else:
            known = is_strict_read(command, place.workspace, place.trusted_path)
        return Effect.READ if known else Effect.EXEC
    if call.definition.only_reads:
        return Effect.READ
    return Effect.WRITE if call.definition.asks is Asks.EDIT else Effect.EXEC


def moves_shell(call: CallFacts) -> bool:
    """Whether the command may leave the shell in another directory (LOOP-4)."""
    return moves(parse_bash(str(call.arguments.get("command"))).commands)


def subject_of(call: CallFacts, place: CallPlace) -> Subject:
    """What rules are matched with."""
    command, url = call.arguments.get("command"), call.arguments.get("url")
    if call.definition.name.startswith(PREFIX):  # what their arguments mean they alone know
        command = url = None
    return Subject(
        tool=call.definition.name,
        paths=tuple(map(real_path, call.paths)),
        text=command if isinstance(command, str) else None,
        host=host_of(url) if isinstance(url, str) else None,
        root=place.workspace.real_root,
        more_roots=tuple(base for _, base in place.workspace.led[1:]),
        cwd=real_path(place.workspace.cwd),
        edits=call.definition.asks is Asks.EDIT,
        whole_tool=call.definition.whole_name,
    )


def kept_back(call: CallFacts, place: CallPlace) -> Callable[[Path], bool] | None:
    """Which files below those that the call names a deny or ask rule is about; ``None``: none is.

    A rule about what is named itself has been judged.
    """
    subject, policy = subject_of(call, place), place.policy
    rules = [
        rule
        for rule in (*policy.deny, *policy.ask)
        if rule.pattern is not None and subject.is_of(rule) and not touches(rule, subject)
    ]
    return (lambda path: bool(first(rules, replace(subject, paths=(path,))))) if rules else None


def why_not_written(path: Path, place: CallPlace) -> str:
    """Why a file must not be written where nobody can be asked; empty when it may be."""
    protected = _protected((path,), place.policy)
    if protected:
        return f"{protected} is protected"
    return "" if place.workspace.contains(path) else "it lies outside the workspace"


@frozen
class _Judged:
    """``secret`` is what to say of a credential that a command names, and the part that does.

    ``dangers`` are what a command would destroy, and what protected places it would write.
    """

    call: CallFacts
    place: CallPlace
    subject: Subject
    effect: Effect
    secret: tuple[str, str] | None
    dangers: Sequence[Danger]

    @property
    def kept(self) -> Danger | None:
        """What of it the sandbox would not let happen: once it is allowed, it runs outside."""
        return next((danger for danger in self.dangers if danger.is_kept), None)

    @property
    def is_command(self) -> bool:
        return self.call.definition.name == _SHELL and self.subject.text is not None

    @property
    def asks_for(self) -> Access | None:
        """What the call asks for beyond the sandbox, where there is one."""
        asked = str(self.call.arguments.get("access"))
        if not self.is_command or asked not in _ACCESS:
            return None
        policy = self.place.policy
        has_it = asked == Access.NETWORK and policy.network and policy.has_boundary
        return None if has_it else Access(asked)

    @property
    def access(self) -> Access | None:
        """Where the command runs once it is allowed; ``None``: nothing is promised."""
        policy = self.place.policy
        if not self.is_command:
            return None
        if not policy.wants_boundary:
            return Access.OUTSIDE
        if not policy.contained:
            return None
        return Access.OUTSIDE if self.kept else self.asks_for or self._contained()

    def _contained(self) -> Access:
        reads = self.effect is Effect.READ
        if self.secret is not None:  # it is to be seen: the user was asked about it
            return Access.READ_ONLY if reads else Access.INSIDE
        if self.searches:
            return Access.SEARCH if reads else Access.INSIDE_SEARCH
        if reads:  # which of its words are files is a matter of tables, and those may be wrong
            from agentcli.policy.credentials import shows_no_file

            return Access.READ_ONLY if shows_no_file(self.subject.text or "") else Access.SEARCH
        return Access.INSIDE

    @property
    def searches(self) -> bool:
        """Whether the command may show what is in files that it does not name."""
        from agentcli.policy.credentials import may_search

        text = self.subject.text or ""
        return may_search(text, self.place.workspace.cwd) or self._lets_shell_search(text)

    def _lets_shell_search(self, text: str) -> bool:
        """Whether another shell than bash finds files by what is no pattern to bash."""
        commands = self.subject.parsed.commands
        is_other = any(command.program in OTHER_SHELLS for command in commands)
        return is_other and _MAKES_NAMES.search(text) is not None

    def because(self, answer: Answer, reason: str, rule: Rule | None = None) -> Decision:
        return Decision(answer, reason, rule, self.effect)

    def touched(self, rules: Sequence[Rule]) -> Rule | None:
        """The first rule that covers a part of the call, or the tool that it came by."""
        via = self.call.via
        return first(rules, self.subject) or (first(rules, Subject(via)) if via else None)


def _by_deny_rule(judged: _Judged) -> Decision | None:
    rule = judged.touched(judged.place.policy.deny)
    return judged.because(Answer.DENY, f"denied by the rule {rule}", rule) if rule else None


def _by_ask_rule(judged: _Judged) -> Decision | None:
    """Asks whatever the mode and the other rules allow, until this session was granted it."""
    policy, subject = judged.place.policy, judged.subject
    rule = judged.touched(policy.ask)
    unsure = None
    if judged.effect is not Effect.READ:
        rules = (*policy.deny, *policy.ask)
        unsure = next((each for each in rules if might_touch(each, subject)), None)
    if (rule is None and unsure is None) or covering(policy.granted_here, subject)[0]:
        return None
    if rule is not None:
        return judged.because(Answer.ASK, f"asked for by the rule {rule}", rule)
    reason = f"the rule {unsure} may cover it"
    return judged.because(Answer.ASK, reason, unsure)


def _by_plan_mode(judged: _Judged) -> Decision | None:
    if judged.place.policy.mode is PermissionMode.PLAN and judged.effect is not Effect.READ:
        return judged.because(Answer.DENY, "plan mode allows reads only")
    return None


def _by_protection(judged: _Judged) -> Decision | None:
    """What asks every time: no rule, no grant and no mode but a second ``--yolo`` frees it."""
    if judged.call.definition.always_ask:
        return replace(judged.because(Answer.ASK, "this tool always asks"), lasts=False)
    paths = (*judged.call.paths, *judged.subject.paths)
    if judged.kept:
        return _leaving(judged, judged.kept)
    if secret := _secret_read(judged, paths):
        return secret
    if judged.effect is Effect.READ:
        return None
    is_asked = judged.effect is Effect.WRITE and not _writes_versions(judged, paths)
    if is_asked and (place := _protected(paths, judged.place.policy)):
        return replace(judged.because(Answer.ASK, f"{place} is protected"), lasts=False)
    return _by_danger(judged) if judged.is_command else None


def _secret_read(judged: _Judged, paths: Sequence[Path]) -> Decision | None:
    """Reading a credential asks, whichever tool would; in yolo mode not about the project's own."""
    place, part = judged.place, ""
    free = place.workspace if place.policy.mode is PermissionMode.YOLO else None
    if judged.is_command:
        read = judged.secret
        if read is not None and free is not None:
            from agentcli.policy.credentials import credentials_read

            read = next(credentials_read(judged.subject.text or "", place, free), None)
        found, part = read or (_not_hidden(judged), "")
        if not found:
            return None
    elif judged.effect is Effect.READ and (name := credential_place(paths, free)):
        found = f"{name} holds credentials"
    else:
        return None
    decision = judged.because(Answer.ASK, found)
    return replace(decision, part=_part_of(part, judged.subject), lasts=False)


def _not_hidden(judged: _Judged) -> str:
    """What to say of a contained command that may find what its sandbox cannot hide."""
    policy = judged.place.policy
    if not policy.contained or judged.secret or judged.asks_for:
        return ""
    from agentcli.policy.credentials import may_stay_open, roots_with_homes

    roots = roots_with_homes(judged.place.workspace)
    if not (roots and judged.searches and may_stay_open(roots)):
        return ""
    return "it looks into files of a home directory, which has too many to hide all credentials"


def _protected(paths: Sequence[Path], policy: Policy) -> str:
    if place := protected_place(paths, policy.own_directories):
        return place
    runs = ((path, policy.run_by_others(path)) for path in paths)
    return next((f"{path.name} ({why})" for path, why in runs if why), "")


def _writes_versions(judged: _Judged, paths: Sequence[Path]) -> bool:
    """Whether a file of a version manager is written that names versions alone (SEC-17)."""
    text = judged.call.arguments.get("content")
    is_whole = judged.call.definition.name == _WRITES_WHOLE and isinstance(text, str)
    if not is_whole or not all(says_versions(plain_name(path.name)) for path in paths):
        return False
    is_short = len(str(text)) <= _LONGEST_VERSIONS
    beside = [path.with_name("version") for path in paths]
    return (
        is_short
        and says_only_versions(str(text).encode(errors="surrogatepass"))
        and not _protected(beside, judged.place.policy)
        and not any(map(judged.place.policy.run_by_others, paths))
    )


def _dangers(call: CallFacts, place: CallPlace, effect: Effect) -> Sequence[Danger]:
    command, policy = call.arguments.get("command"), place.policy
    is_command = call.definition.name == _SHELL and isinstance(command, str)
    if not is_command or effect is Effect.READ:
        return ()
    from agentcli.policy.destructive import dangers_of

    contained = policy.has_boundary and call.arguments.get("access") != Access.OUTSIDE
    found = dangers_of(str(command), place, contained=contained)
    is_free = policy.yolo_twice and policy.mode is PermissionMode.YOLO
    return [danger for danger in found if not (is_free and danger.is_destructive)]


def _by_danger(judged: _Judged) -> Decision | None:
    if not judged.dangers:
        return None
    if judged.asks_for is Access.OUTSIDE and judged.place.policy.is_held:
        return _by_access(judged)
    danger = judged.dangers[0]
    decision = judged.because(Answer.ASK, danger.what)
    return replace(decision, part=_part_of(danger.part, judged.subject), lasts=False)


def _leaving(judged: _Judged, danger: Danger) -> Decision:
    """One question about what the sandbox would not let happen: it runs outside (SEC-3, SEC-7)."""
    from agentcli.policy.destructive import dangers_of

    policy, outside = judged.place.policy, judged.place.outside
    there = dangers_of(judged.subject.text or "", judged.place)
    lost = next((each.what for each in there if each.is_destructive), "")
    told = (judged.secret[0] if judged.secret else "", lost, danger.what)
    part = _part_of(danger.part, judged.subject)
    kept = (
        f"{'; '.join(filter(None, dict.fromkeys(told)))}{part and f' ({part})'}: the sandbox keeps"
    )
    if policy.mode is PermissionMode.YOLO:
        why = f"{kept} it as it is, and stays in yolo mode where it is named"
        return judged.because(Answer.DENY, why)
    if outside not in {None, judged.place.workspace.cwd}:
        how = f'the shell outside is in {outside}: use access "outside", with a cd'
        return judged.because(Answer.DENY, f"{kept} it as it is, and {how}")
    why = f"{kept} it as it is, so this runs OUTSIDE the sandbox"
    return replace(judged.because(Answer.ASK, why), lasts=False)


def _by_vouching(judged: _Judged) -> Decision | None:
    if judged.place.is_vouched_for:
        return judged.because(Answer.ALLOW, "a hook allows it")
    return None


def _by_access(judged: _Judged) -> Decision | None:
    """What asks for more than the sandbox gives asks each time: no rule says how much (SEC-7)."""
    policy, asked = judged.place.policy, judged.asks_for
    if asked is None or not policy.has_boundary:
        return None
    how = _ACCESS[asked]
    if policy.mode is PermissionMode.YOLO:
        reason = f"it asks to run {how}, and the sandbox that was asked for stays in yolo mode"
        return judged.because(Answer.DENY, reason)
    return replace(judged.because(Answer.ASK, f"it asks to run {how}"), lasts=False)


def _by_yolo(judged: _Judged) -> Decision | None:
    policy = judged.place.policy
    if policy.mode is not PermissionMode.YOLO:
        return None
    if policy.has_boundary and (what := _crossing(judged)) and _by_allow_rule(judged) is None:
        return judged.because(
            Answer.DENY, f"{what}: the sandbox stays in yolo mode where it is named"
        )
    return judged.because(Answer.ALLOW, "everything is allowed in yolo mode")


def _crossing(judged: _Judged) -> str:
    """What of a call that is no command would lead out of the sandbox; empty: nothing."""
    if judged.is_command:
        return ""
    if judged.call.definition.asks is Asks.ANYTHING:
        name = judged.call.definition.name
        return f"what {name} does is not contained (an allow rule for {name} frees it)"
    if _reaches_out(judged) and not judged.place.policy.network:
        return "it reaches the network"
    outside = next((path for path in judged.call.paths if not _is_free(judged, path)), None)
    return f"{outside} is outside the workspace" if outside else ""


def _reaches_out(judged: _Judged) -> bool:
    definition = judged.call.definition
    elsewhere = {Asks.HOST, Asks.SESSION}
    return definition.asks in elsewhere or (definition.only_reads and definition.hints.open_world)


def _is_free(judged: _Judged, path: Path) -> bool:
    """Whether a file there may be read, or edited, as one of the workspace."""
    free, more = judged.place.workspace, judged.place.policy.free_to_read
    if judged.effect is Effect.READ and more:
        led = (*free.led, *zip(more, more, strict=True))  # a link in their place leads nowhere
        free = replace(free, extra=(*free.extra, *more), led=led)
    return free.contains(path)


def _by_allow_rule(judged: _Judged) -> Decision | None:
    rules = judged.place.allowing
    found, _ = covering(rules, judged.subject, free_part(judged.subject, judged.place))
    if not found:
        return None
    named = ", ".join(map(str, found))
    reason = f"allowed by the rule{'s' if len(found) > 1 else ''} {named}"
    return judged.because(Answer.ALLOW, reason, found[0])


def _by_mode(judged: _Judged) -> Decision | None:
    call, policy = judged.call, judged.place.policy
    if _reaches_out(judged):
        host = judged.subject.host
        reason = f"it fetches from {host}" if host else "it reaches beyond this machine"
        if call.definition.name.startswith(PREFIX):
            reason = "an MCP server does it, and says that it only reads"
        return judged.because(Answer.ASK, reason)
    is_auto = policy.mode is PermissionMode.AUTO
    is_contained = judged.is_command and policy.contained and judged.effect is Effect.EXEC
    if is_auto and is_contained:
        return judged.because(Answer.ALLOW, "the sandbox contains it")
    edits_are_free = bool(call.paths) and (is_auto or policy.mode is PermissionMode.ACCEPT_EDITS)
    if judged.effect is Effect.EXEC or (judged.effect is Effect.WRITE and not edits_are_free):
        return None
    for path in call.paths:
        if not _is_free(judged, path):
            return judged.because(Answer.ASK, f"{path} is outside the workspace")
    what = "reads" if judged.effect is Effect.READ else "edits"
    return judged.because(Answer.ALLOW, f"{what} inside the workspace are free")


def _asks_to_run(judged: _Judged) -> Decision:
    name = judged.call.definition.name
    is_served = name.startswith(PREFIX)
    reason = "an MCP server does it: it may change anything" if is_served else "it runs a command"
    decision = judged.because(Answer.ASK, reason)
    if not judged.is_command:
        return decision
    decision = replace(decision, auto_frees=judged.place.policy.contained)
    parsed = judged.subject.parsed
    if not parsed.understood:
        return replace(
            decision, reason=f"it runs a command that is not understood: {parsed.why_not}"
        )
    rules, is_bound = judged.place.allowing, judged.place.policy.has_boundary
    if is_bound:
        from agentcli.policy.read_only import is_read_only

        anywhere = replace(judged.place.workspace, extra=(Path("/"),))
        if judged.asks_for is None and is_read_only(judged.subject.text or "", anywhere):
            decision = replace(decision, reason="it reads what lies outside the workspace")
    is_free = free_part(judged.subject, judged.place, contained=is_bound)
    found, part = covering(rules, judged.subject, is_free)
    if found:  # it runs with what a rule allows, which may write: there less is free
        _, part = covering(rules, judged.subject, free_part(judged.subject, judged.place))
    return replace(decision, part=_part_of(part, judged.subject))


def _part_of(part: str, subject: Subject) -> str:
    """``part`` where it is not the whole anyway."""
    if len(subject.parsed.commands) == 1 or part.strip() == (subject.text or "").strip():
        return ""
    return part if len(part) <= _LONGEST_PART else f"{part[:_LONGEST_PART]}…"


_CHECKS = (
    _by_deny_rule,
    _by_plan_mode,
    _by_protection,
    _by_ask_rule,
    _by_vouching,
    _by_access,
    _by_yolo,
    _by_allow_rule,
    _by_mode,
)
