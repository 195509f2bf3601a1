"""What skills cost a start: none, and twenty whose heads are known.

Run: python -m tests.bench.bench_skills [RUNS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.measure import Sample, environment, fresh_home, in_turn, run_once
from tests.bench.measure import service as model_service
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT

COUNT = 20
HEAD = "---\nname: {name}\ndescription: >\n  Does {name}: use it\n  for such a task.\n---\nDo it.\n"


def _add_skills(env: Mapping[str, str]) -> None:
    for number in range(COUNT):
        name = f"skill-{number}"
        directory = Path(env["HOME"], ".agents", "skills", name)
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(HEAD.format(name=name))


def _run(env: Mapping[str, str], port: int) -> Sample:
    return run_once([*AGENT, "run", "hi"], env, port=port)


def _best_ms(samples: Sequence[Sample]) -> float:
    """A median would say more of the machine than of some milliseconds."""
    return 1000 * min(sample.arrival_s or 0.0 for sample in samples)


def rows(runs: int) -> Iterator[Row]:
    """From exec to the first request: more than in an empty home. "empty": a directory for them."""
    with ExitStack() as stack:
        port = stack.enter_context(model_service(8))
        envs = {}
        for name in ("none", "empty", "twenty"):
            envs[name] = environment(stack.enter_context(fresh_home()), port)
        Path(envs["empty"]["HOME"], ".agents", "skills").mkdir(parents=True)
        _add_skills(envs["twenty"])
        samples = in_turn(  # the first turn, which parses and keeps the heads, does not count
            runs, **{name: partial(_run, env, port) for name, env in envs.items()}
        )
    none = _best_ms(samples["none"])
    for name, target in (("empty", 3.0), ("twenty", 15.0)):
        more = _best_ms(samples[name]) - none
        yield Row(f"{name} skills: request later than without", more, "ms", target=target)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
