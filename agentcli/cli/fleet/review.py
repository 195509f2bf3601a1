"""``agent review``: what is wrong with a change, from a session that can only read (CLI-17).

Law: the model has tools that read and nothing else, and the repository takes part as text alone: it
is not trusted, whatever the user has decided, so that none of its settings, hooks, servers, skills
or commands takes effect.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agentcli.app.files.changes import find_changes
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.options import EFFORTS, RunOptions, choice, number
from agentcli.domain.errors import UsageError
from agentcli.domain.reports import FINDINGS_SCHEMA, SEVERITIES, Review, Severity
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import use_utf8, write_error_line, write_out

FORMATS = ("text", "json", "sarif")
_BY_SUFFIX = {".json": "json", ".sarif": "sarif"}


class ReviewOptions(OptionSet):
    """What to review, with which model, and what comes out."""

    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Only what changed in this file or directory."),
    ] = None
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="All since BRANCH was left, new files too."),
    ] = None
    staged: Annotated[bool, typer.Option("--staged", help="What is staged for a commit.")] = False
    commit: Annotated[
        str | None, typer.Option("--commit", metavar="COMMIT", help="What one commit changed.")
    ] = None
    focus: Annotated[
        str | None, typer.Option("--focus", metavar="TEXT", help="What to look at above all.")
    ] = None
    format: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="What goes to stdout.")
    ] = "text"
    output: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to FILE too, as its ending says: .json, .sarif, else text; repeatable.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="|".join(SEVERITIES),
            help="Exit with 1 if a finding is as severe as this, or more.",
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="PROVIDER/MODEL", help="Model to use.")
    ] = None
    effort: Annotated[
        str | None,
        typer.Option("--effort", metavar="|".join(EFFORTS), help="How much the model thinks."),
    ] = None
    max_turns: Annotated[
        str | None,
        typer.Option("--max-turns", metavar="N", help="Stop after N model requests."),
    ] = None
    max_budget_usd: Annotated[
        str | None,
        typer.Option("--max-budget-usd", metavar="X", help="Stop before costing more than X USD."),
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="SECONDS", help="Stop after this many seconds."),
    ] = None
    cd: Annotated[str | None, typer.Option("-C", "--cd", metavar="DIR", help="Work in DIR.")] = None
    no_session: Annotated[bool, typer.Option("--no-session", help="Do not save this session.")] = (
        False
    )
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no warnings on stderr.")
    ] = False
    debug: Annotated[
        str | None,
        typer.Option("--debug", metavar="FILE", help="Write a debug log with tracebacks to FILE."),
    ] = None

    def check(self) -> None:
        """Raise ``UsageError`` for values that are wrong or exclude each other."""
        ways = {"--base": self.base, "--staged": self.staged, "--commit": self.commit}
        given = [name for name, value in ways.items() if value not in (None, False)]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other", "give one of them")
        choice("--format", self.format, FORMATS)
        choice("--fail-on", self.fail_on, SEVERITIES)
        for name in self.output or ():
            path = Path(name).expanduser()
            if path.is_file() and not self.force:
                raise UsageError(f"{name} exists already", "name another file, or add --force")
            if path.is_dir() or not path.parent.is_dir():
                what = "is a directory" if path.is_dir() else "is in no directory that exists"
                raise UsageError(f"{name} {what}", "give --output another file")

    def writes_to(self, path: Path) -> bool:
        """Whether this review goes to that file: what an earlier one has left is no change."""
        outputs = [Path(name).expanduser().absolute() for name in self.output or ()]
        with suppress(OSError, ValueError):
            return path in outputs or os.path.samestat(path.stat(), os.fstat(1))
        return False

    def run_options(self, root: Path) -> RunOptions:
        """A run in ``root`` that can only read."""
        from agentcli.app.files.review import SYSTEM, TOOLS

        options = RunOptions(
            model=self.model,
            effort=self.effort,
            max_turns=self.max_turns,
            max_budget_usd=self.max_budget_usd,
            timeout=self.timeout,
            no_session=self.no_session,
            quiet=self.quiet,
            debug=self.debug,
            cd=str(root),
            plan=True,
            new=True,
            tools=",".join(TOOLS),
            append_system_prompt=SYSTEM,
            strict_mcp_config=True,
            json_schema=json.dumps(FINDINGS_SCHEMA),
        )
        options.check()
        return options


def review(options: ReviewOptions) -> int:
    """Review what has changed; the exit code."""
    from agentcli.cli.logging_setup import REDACTOR
    from agentcli.cli.run import prepare
    from agentcli.cli.session_request import working_directory
    from agentcli.headless.review import ReviewRequest, ReviewShot

    options.check()
    cwd = working_directory(options.cd)
    run = options.run_options(cwd)
    changes = find_changes(
        cwd,
        base=options.base,
        staged=options.staged,
        commit=options.commit,
        paths=options.paths or (),
    )
    for name in options.paths or ():
        place = (cwd / Path(name).expanduser()).absolute()
        changed = ((changes.root / each.path).resolve() for each in changes.files)
        if not os.path.lexists(place) and not any(
            each.is_relative_to(place.resolve()) for each in changed
        ):
            raise UsageError(
                f"{name}: there is no such file, nor was it deleted", "see: git status"
            )
    files = tuple(each for each in changes.files if not options.writes_to(changes.root / each.path))
    changes = replace(changes, files=files)
    write = partial(_write, options)
    if not changes.files:
        notes = ("nothing has changed: no model was asked", *changes.notes)
        write(Review(changes.what, 0, notes=notes))
        return ExitCode.OK
    if not options.quiet:
        count = len(changes.files)
        what = "1 file" if count == 1 else f"{count:,} files"
        write_error_line(f"reviewing {what}: {changes.what}")
    run.cd = str(changes.root)
    request = ReviewRequest(
        changes,
        partial(prepare, run, of_user_only=True),
        write,
        REDACTOR.redact,
        REDACTOR.redact_known,
        focus=options.focus or "",
        fail_on=Severity(options.fail_on) if options.fail_on else None,
        max_budget_usd=number("--max-budget-usd", options.max_budget_usd, float),
        timeout_s=run.timeout_s(),
        quiet=options.quiet,
        is_kept=not options.no_session,
    )
    return ReviewShot(request).run()


def _write(options: ReviewOptions, found: Review) -> None:
    """``found`` to stdout and to the files, without keys."""
    from agentcli.cli.redacting import write_named

    found = _without_keys(found)
    failures: list[UsageError] = []
    for name in options.output or ():
        text = _shaped(found, _BY_SUFFIX.get(Path(name).suffix.lower(), "text"))
        try:
            write_named(name, [text], replace=options.force, quiet=options.quiet)
        except UsageError as error:
            failures.append(error)
    if options.format != "text":
        use_utf8()
    write_out(_shaped(found, options.format, for_stdout=True))
    if failures:
        raise failures[0]


def _without_keys(found: Review) -> Review:
    from agentcli.cli.redacting import exported, know_secrets

    know_secrets()
    findings = (
        replace(
            each,
            title=exported(each.title),
            body=exported(each.body),
            suggestion=exported(each.suggestion),
        )
        for each in found.findings
    )
    return replace(
        found,
        findings=tuple(findings),
        summary=exported(found.summary),
        notes=tuple(exported(found.notes)),
    )


def _shaped(found: Review, shape: str, *, for_stdout: bool = False) -> str:
    from agentcli.ui import findings

    if shape == "json":
        return findings.review_json(found)
    if shape == "sarif":
        return findings.review_sarif(found)
    return findings.review_text(found, sys.stdout if for_stdout else None)


APP = new_app("")
add_command(
    APP,
    CommandSpec(
        "review",
        "Review what has changed in a git repository.\n\nBy default the working tree against the"
        " last commit, new files too; where nothing has changed there, against the default branch."
        " The model can read the project and nothing else.",
        tells_codes=True,
    ),
    ReviewOptions,
    review,
)
