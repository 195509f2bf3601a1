"""What a hook has answered: exit code, standard error and JSON become a ``HookVerdict``. Pure.

Law: exit code 0 with a JSON object on standard output is an answer; 2 refuses, with standard
error as the reason; everything else is a warning and refuses nothing. An answer of a wrong shape
is a warning too, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentcli.domain.hooks import (
    SILENT,
    HookConfig,
    HookEvent,
    HookVerdict,
    Permission,
)
from agentcli.process.program import ProgramResult

MAX_CHARS = 10_000
_MAX_NOTICE = 500
_MAX_COMMAND = 60
_REFUSED = 2
# plain text on standard output is for the model
_TEXT_IS_CONTEXT = frozenset({HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT})
# there is nothing to refuse any more
_CANNOT_BLOCK = frozenset({HookEvent.SESSION_START, HookEvent.SESSION_END, HookEvent.NOTIFICATION})


def verdict_of(config: HookConfig, result: ProgramResult) -> HookVerdict:
    """What one hook has said."""
    if result.code is None:
        return _warning(config, result.problem or "did not run")
    error = _text(result.stderr)
    if result.code == _REFUSED:
        return _refusal(config, error)
    if result.code:
        first = error.splitlines()[0] if error else "no message"
        return _warning(config, f"failed with exit code {result.code}: {first}")
    return _from_stdout(config, _text(result.stdout, cut=False))


def merged(verdicts: Sequence[HookVerdict]) -> HookVerdict:
    """All verdicts as one: a refusal wins, then asking; the last changed arguments count."""
    if not verdicts:
        return SILENT
    asking = [v for v in verdicts if v.permission is Permission.ASK]
    allowing = [v for v in verdicts if v.permission is Permission.ALLOW]
    chosen = next(iter((*asking, *allowing)), SILENT)
    updates = [v.updated_input for v in verdicts if v.updated_input is not None]
    return HookVerdict(
        blocked="\n".join(v.blocked for v in verdicts if v.blocked),
        stopped=next((v.stopped for v in verdicts if v.stopped), ""),
        context=tuple(text for v in verdicts for text in v.context),
        notices=tuple(text for v in verdicts for text in v.notices),
        permission=chosen.permission,
        reason=chosen.reason,
        updated_input=updates[-1] if updates else None,
    )


def _from_stdout(config: HookConfig, text: str) -> HookVerdict:
    if not text:
        return SILENT
    answer = _object(text) if text.startswith("{") else None
    if answer is not None:
        return _from_answer(config, answer)
    if config.event in _TEXT_IS_CONTEXT:
        return HookVerdict(context=(_bounded(text),))
    return _warning(config, "its answer is not valid JSON") if text.startswith("{") else SILENT


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _from_answer(config: HookConfig, answer: Mapping[str, Any]) -> HookVerdict:
    """The fields that all events share, then those of this one."""
    said = [_decision(config, answer)]
    if answer.get("continue") is False:
        said.append(HookVerdict(stopped=_str(answer, "stopReason") or f"{_name(config)} said so"))
    if message := _str(answer, "systemMessage"):
        said.append(HookVerdict(notices=(message[:_MAX_NOTICE],)))
    own = answer.get("hookSpecificOutput")
    if isinstance(own, dict):
        named = own.get("hookEventName", str(config.event))
        if named == str(config.event):
            said.append(_own_output(config, own))
        else:
            said.append(_warning(config, f"answered for another event, {named}"))
    elif own is not None:
        said.append(_warning(config, "hookSpecificOutput is no object"))
    return merged(said)


def _decision(config: HookConfig, answer: Mapping[str, Any]) -> HookVerdict:
    match answer.get("decision"):
        case None:
            return SILENT
        case "block" | "deny":
            return _refusal(config, _str(answer, "reason"))
        case "approve" | "allow":
            return _granted(config, Permission.ALLOW, _str(answer, "reason"))
        case "ask":
            return _granted(config, Permission.ASK, _str(answer, "reason"))
        case other:
            return _warning(config, f"the decision {str(other)[:_MAX_COMMAND]!r} means nothing")


def _own_output(config: HookConfig, own: Mapping[str, Any]) -> HookVerdict:
    said = []
    if context := _str(own, "additionalContext"):
        said.append(HookVerdict(context=(_bounded(context),)))
    if config.event is not HookEvent.PRE_TOOL_USE:
        return merged(said)
    reason = _str(own, "permissionDecisionReason")
    match own.get("permissionDecision"):
        case None | "defer":
            pass
        case "deny":
            said.append(_refusal(config, reason))
        case "allow":
            said.append(_granted(config, Permission.ALLOW, reason))
        case "ask":
            said.append(_granted(config, Permission.ASK, reason))
        case other:
            # it meant to decide something: nobody knows what, so the user decides
            said.append(_granted(config, Permission.ASK, "its decision means nothing"))
            what = f"the permissionDecision {str(other)[:_MAX_COMMAND]!r} means nothing"
            said.append(_warning(config, f"{what}: allow, deny or ask"))
    updated = own.get("updatedInput")
    if isinstance(updated, dict):
        said.append(HookVerdict(updated_input=updated))
    elif updated is not None:
        said.append(_refusal(config, "its updatedInput is no object"))
    return merged(said)


def _granted(config: HookConfig, permission: Permission, reason: str) -> HookVerdict:
    """Only a call can be allowed or asked about; elsewhere it means "go on"."""
    if config.event is not HookEvent.PRE_TOOL_USE:
        return SILENT
    return HookVerdict(permission=permission, reason=_bounded(reason) or f"{_name(config)} said so")


def _refusal(config: HookConfig, reason: str) -> HookVerdict:
    text = _bounded(reason) or f"{_name(config)} gave no reason"
    if config.event in _CANNOT_BLOCK:
        return _warning(config, text)
    return HookVerdict(blocked=text)


def _warning(config: HookConfig, what: str) -> HookVerdict:
    return HookVerdict(notices=(f"{_name(config)}: {what}"[:_MAX_NOTICE],))


def _name(config: HookConfig) -> str:
    first = config.command.strip().splitlines()[0]
    shown = first if len(first) <= _MAX_COMMAND else f"{first[:_MAX_COMMAND]}…"
    return f"the {config.event} hook `{shown}`"


def _str(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value.strip() if isinstance(value, str) else ""


def _text(data: bytes, *, cut: bool = True) -> str:
    text = data.decode("utf-8", "replace").strip()
    return _bounded(text) if cut else text


def _bounded(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]}\n[cut: {len(text)} characters]"
