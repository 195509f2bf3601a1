"""``agent doctor``: everything that can be checked, and how to fix it (OPS-3).

Laws: what takes time is checked side by side, and none of it is waited for beyond its bound; a
check that breaks is a finding, never the end of the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from agentcli.app.user_files import Finding, Status
from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json
from agentcli.cli.redacting import know_secrets, shown
from agentcli.cli.setup.checks import (
    REACH_S,
    check_configuration,
    check_endpoint,
    check_home,
    check_keys,
    check_leftovers,
    check_other_agents,
    check_privacy,
    check_programs,
    check_python,
    check_sandbox,
    check_sessions,
    check_terminal,
    check_trust,
    reach,
)
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings
from agentcli.domain.errors import AgentError
from agentcli.domain.extensions.extras import EXTRAS, has_extra, install_command
from agentcli.headless.streams import write_line
from agentcli.ui.sanitize import clean_line

BOUND_S = 5.0
KEYRING_S = 2.0
_MARKS = {Status.OK: "[ok]  ", Status.WARN: "[warn]", Status.FAIL: "[FAIL]"}
_Checks = Sequence[tuple[str, Callable[[], Sequence[Finding]]]]


def doctor(options: FormatOption) -> int:
    """Check everything; exit code 1 when something fails."""
    as_json = options.as_json
    know_secrets()
    findings = [
        finding._replace(detail=shown(finding.detail), advice=shown(finding.advice))
        for finding in all_findings()
    ]
    failed = any(finding.status is Status.FAIL for finding in findings)
    if as_json:
        print_json(
            {
                "ok": not failed,
                "checks": [
                    {"name": f.name, "status": str(f.status), "detail": f.detail, "fix": f.advice}
                    for f in findings
                ],
            }
        )
    else:
        for finding in findings:
            write_line(f"{_MARKS[finding.status]} {finding.name}: {clean_line(finding.detail)}")
            if finding.advice and finding.status is not Status.OK:
                write_line(f"       -> {clean_line(finding.advice)}")
    return 1 if failed else 0


def all_findings() -> list[Finding]:
    """Every check, in the order in which things are needed."""
    env = os.environ
    findings = [*check_python(), *check_terminal(env)]
    try:
        paths = Paths.from_env(env)
    except AgentError as error:
        return [*findings, Finding("home", Status.FAIL, error.message, error.advice)]
    settings, of_settings = check_configuration(paths, env)
    return [
        *findings,
        *side_by_side(
            [
                ("home", partial(check_home, paths)),
                ("private", partial(check_privacy, paths)),
                ("settings", lambda: of_settings),
                ("trust", partial(check_trust, paths, env)),
                ("keys", partial(check_keys, settings)),
                ("keyring", partial(check_keyring, settings)),
                ("endpoint", partial(check_endpoint, settings, env)),
                ("programs", check_programs),
                ("extras", check_extras),
                ("sandbox", partial(check_sandbox, settings)),
                ("checks", partial(check_edit_checks, settings)),
                ("sessions", partial(check_sessions, paths)),
                ("telemetry", partial(check_telemetry, settings, env)),
                ("leftovers", partial(check_leftovers, paths)),
                ("agent", partial(check_other_agents, env)),
            ],
            BOUND_S,
        ),
    ]


def check_keyring(settings: Settings) -> list[Finding]:
    """Whether this system can keep keys, and whether those that it should keep can be read."""
    from importlib.util import find_spec

    from agentcli.config.credentials import KEYRING, KeyringCall, KeyringError

    entries = settings.stored.entries if settings.stored is not None else {}
    kept = [name for name, entry in entries.items() if entry.place == KEYRING]
    file = settings.paths.credentials_file
    place = why = ""
    try:
        if find_spec("keyring") is None:
            why = "the package keyring is not installed"
        else:
            place = KeyringCall({"do": "look", "service": "", "user": ""}, KEYRING_S).result()
    except (KeyringError, ImportError, ValueError) as error:
        why = str(error)
    if not why:
        return [Finding("keyring", Status.OK, place)]
    if kept:
        detail = f"the keys of {', '.join(kept)} are in a keyring, but {why}"
        advice = (
            f"agent auth login {kept[0]}" if "installed" not in why else install_command("keyring")
        )
        return [Finding("keyring", Status.WARN, detail, advice)]
    return [Finding("keyring", Status.OK, f"not used ({why}): keys would be kept in {file}, 0600")]


def check_extras() -> list[Finding]:
    """What this installation can do beyond the least, and the command that adds the rest."""
    missing = [name for name in EXTRAS if not has_extra(name)]
    if not missing:
        return [Finding("extras", Status.OK, ", ".join(EXTRAS))]
    what = "; ".join(f"{name} ({EXTRAS[name][1]})" for name in missing)
    detail = f"without {what} - for all: {install_command(','.join(missing))}"
    return [Finding("extras", Status.OK, detail)]


def check_edit_checks(settings: Settings) -> list[Finding]:
    """What formats and checks files after edits here (EXT-6); nothing where there is nothing."""
    from agentcli.app.extensions.edit_checks import checks_found_in, offer_line

    own = settings.own_checks
    found = () if own or not Path.cwd().is_dir() else checks_found_in(Path.cwd())
    names = ", ".join(check.name for check in own or found)
    if not names:
        return []
    off = not own and settings.checks == "off"
    detail = offer_line(found) if off else f"after edits: {names}"
    return [Finding("checks", Status.OK, detail)]


def check_telemetry(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    """Whether what the user wants reported can be (SCALE-7); nothing where it is off."""
    if not settings.telemetry:
        return []
    from agentcli.telemetry.observer import collector, obstacle

    if (problem := obstacle(env)) is not None:
        what, _, advice = problem.partition(": ")
        return [Finding("telemetry", Status.WARN if problem else Status.OK, what or "off", advice)]
    address = urlsplit(collector(env))
    what = f"to {address.hostname}, {'with' if settings.telemetry_content else 'without'} content"
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        reach(address.hostname or "", port, REACH_S)
    except (OSError, ValueError) as error:
        advice = "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT"
        return [Finding("telemetry", Status.WARN, f"{what}: it cannot be reached: {error}", advice)]
    return [Finding("telemetry", Status.OK, what)]


def side_by_side(checks: _Checks, bound_s: float) -> list[Finding]:
    """What all ``checks`` find, in order; one that takes longer than ``bound_s`` is one too."""
    found: dict[str, Sequence[Finding]] = {}

    def run(name: str, check: Callable[[], Sequence[Finding]]) -> None:
        try:
            found[name] = check()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a finding as well
            detail = f"it cannot be checked: {type(error).__name__}: {error}"
            advice = "please report it; --debug FILE tells more"
            found[name] = [Finding(name, Status.WARN, detail, advice)]

    until = time.monotonic() + bound_s
    # daemons: a check that hangs must not keep the program from ending
    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in checks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    late = f"it did not come to an end within {bound_s:g} s"
    advice = "something it looks at hangs: a disk, the network or another program"
    return [
        finding
        for name, _ in checks
        for finding in found.get(name, [Finding(name, Status.WARN, late, advice)])
    ]


APP = new_app("")
add_command(
    APP,
    CommandSpec(
        "doctor", "Check the installation and say how to fix it; exit code 1 when a check fails."
    ),
    FormatOption,
    doctor,
)
