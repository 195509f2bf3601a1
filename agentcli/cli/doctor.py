"""``agent doctor``: everything that can be checked, and how to mend it (OPS-3)."""

from __future__ import annotations

import os
import time

from agentcli.cli.checks import (
    Finding,
    Status,
    check_configuration,
    check_endpoint,
    check_home,
    check_keys,
    check_other_agents,
    check_programs,
    check_python,
    check_sandbox,
    check_terminal,
)
from agentcli.cli.commands import Spec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json
from agentcli.cli.redacting import know_secrets, shown
from agentcli.cli.streams import write_out
from agentcli.config.paths import Paths
from agentcli.domain.errors import AgentError
from agentcli.ui.sanitize import clean_line

SESSIONS_S = 10.0
_MARKS = {Status.OK: "[ok]  ", Status.WARN: "[warn]", Status.FAIL: "[FAIL]"}


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
            write_out(f"{_MARKS[finding.status]} {finding.name}: {clean_line(finding.detail)}\n")
            if finding.advice and finding.status is not Status.OK:
                write_out(f"       -> {clean_line(finding.advice)}\n")
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
        *check_home(paths),
        *of_settings,
        *check_keys(settings),
        *check_endpoint(settings, env),
        *check_programs(),
        *check_sandbox(settings),
        *check_sessions(paths),
        *check_other_agents(env),
    ]


def check_sessions(paths: Paths) -> list[Finding]:
    """The integrity of every session file, the newest first, for ``SESSIONS_S`` at most."""
    from agentcli.store.check import check

    try:
        files = sorted(
            paths.sessions_dir.glob("*.db"), key=lambda file: file.stat().st_mtime, reverse=True
        )
    except OSError as error:
        detail = f"{paths.sessions_dir} cannot be read: {error.strerror}"
        return [Finding("sessions", Status.FAIL, detail, "check its permissions")]
    until = time.monotonic() + SESSIONS_S
    findings = []
    checked = 0
    for file in files:
        if time.monotonic() > until:
            break
        checked += 1
        if problems := check(file):
            advice = f"agent sessions repair {file.stem}"
            detail = f"{file}: {problems[0]}"
            findings.append(Finding("session", Status.FAIL, detail, advice))
    rest = f", {len(files) - checked} not looked at" if checked < len(files) else ""
    detail = f"{checked - len(findings)} of {checked} sound{rest}"
    return [Finding("sessions", Status.FAIL if findings else Status.OK, detail), *findings]


APP = new_app("")
add_command(
    APP,
    Spec("doctor", "Check the installation and say how to mend it; exit code 1 if it must be."),
    FormatOption,
    doctor,
)
