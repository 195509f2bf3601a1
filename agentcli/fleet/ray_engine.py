"""Tasks on a Ray cluster: one remote call for each, of the process that runs it here (SCALE-3).

Ray is an extra and imported here alone, once the engine is asked for. It schedules and nothing
else: a task's session is known before it starts, so what a lost node leaves goes on elsewhere with
the same call, given that the nodes share the directories of tasks and sessions. Laws: no key is
handed to Ray, the nodes have their own; Ray tells nobody that it is used, and opens no dashboard;
its workers import nothing from the working directory, which belongs to others (SEC-19).

https://docs.ray.io/en/latest/ray-core/api/doc/ray.remote_function.RemoteFunction.options.html
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import UsageError
from agentcli.fleet.engine import LocalEngine, TaskCall, TaskResult
from agentcli.ui.sanitize import clean_line

CPUS_PER_TASK = 0.25
"""A task waits for its model most of the time; ``-j`` says how many there are at once."""
# where a node finds settings and sessions; addresses of services, never keys
_PLACES = ("AGENTCLI_HOME", "AGENTCLI_MODEL", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_LOOK_S = 0.2
REACH_S = 10.0
"""How long the address of a cluster is tried."""
# what answers there and is no cluster is tried once, and no longer than that
_PATIENCE = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_py_gcs_connect_timeout_s": f"{REACH_S:.0f}"}
_ADDRESSES = ("_BASE_URL", "OLLAMA_HOST")


class RayEngine:
    """Runs tasks on the cluster of ``RAY_ADDRESS``, or else on a Ray of this machine alone."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begin or find the cluster; blocks. Raises ``UsageError`` where that fails.

        ``say`` is told what is waited for.
        """
        address = os.environ.get("RAY_ADDRESS", "").strip()
        if address == "local":
            address = ""  # one of this machine alone, in Ray's words
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # would send the directory to the nodes
        if address:
            for name, value in _PATIENCE.items():
                os.environ.setdefault(name, value)
        else:  # what reaches its ports could have its workers run anything
            os.environ["RAY_AUTH_MODE"] = "token"
        try:
            import ray
        except ImportError:
            raise UsageError(
                "--engine ray needs Ray, which is not installed",
                f"{sys.executable} -m pip install 'agentcli[ray]'",
            ) from None
        self._ray: Any = ray
        alone = {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        say(f"waiting for the Ray cluster at {address}" if address else "starting a Ray")
        try:
            _look_for(address)
            with contextlib.chdir("/"):  # where it begins, its workers import from first
                ray.init(
                    address=address or "local",
                    log_to_driver=False,
                    logging_level="ERROR",
                    **({} if address else alone),
                )
        except UsageError:
            raise
        except Exception as error:
            what = " ".join(str(error).split())[:300]
            raise UsageError(
                f"Ray does not start: {what}", "see RAY_ADDRESS, or leave out --engine ray"
            ) from error
        self._remote = ray.remote(max_retries=0, num_cpus=CPUS_PER_TASK)(_run_here)

    async def run(self, call: TaskCall, cancel: CancelToken) -> TaskResult:
        """See ``Engine``. A forced cancel takes the worker's process with it."""
        reference = self._remote.remote(_as_plain(call), _environment())

        def stop() -> None:
            self._ray.cancel(reference, force=cancel.forced)

        forget = cancel.add_callback(stop)
        if cancel.cancelled:
            stop()
        try:
            return TaskResult(**await asyncio.wrap_future(reference.future()))
        except asyncio.CancelledError:
            self._ray.cancel(reference, force=True)
            raise
        except Exception as error:  # noqa: BLE001 - a lost node, a full store: Ray's own words
            if cancel.cancelled:
                return TaskResult(None, problem="stopped")
            what = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return TaskResult(None, problem=f"Ray: {what[:300]}")
        finally:
            forget()

    async def aclose(self) -> None:
        """See ``Engine``."""
        await asyncio.to_thread(self._ray.shutdown)


def _look_for(address: str) -> None:
    """Raise ``UsageError`` where nobody listens at ``address``: Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", "local"
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(
            f"there is no Ray cluster at {clean_line(address)}: {reason}",
            "start it, or correct RAY_ADDRESS; without it there is a Ray of this machine alone",
        ) from error


def _environment() -> Mapping[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PLACES or name.endswith(_ADDRESSES)
    }


def _as_plain(call: TaskCall) -> Mapping[str, Any]:
    return {**asdict(call), "cwd": str(call.cwd)}


def _run_here(plain: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    """On a node: run the task as a process of its own, and say how it ended."""
    os.environ.update(environment)
    result = asyncio.run(_until_told(_as_call(plain)))
    return {
        "exit_code": result.exit_code,
        "end": dict(result.end),
        "problem": result.problem,
        "duration_ms": result.duration_ms,
    }


def _as_call(plain: Mapping[str, Any]) -> TaskCall:
    arguments = tuple(plain["arguments"])
    return TaskCall(**{**plain, "cwd": Path(plain["cwd"]), "arguments": arguments})


async def _until_told(call: TaskCall) -> TaskResult:
    """The task; Ray's cancel, which is an interrupt here, stops it as Ctrl-C does.

    The interrupt wakes no event loop, so it is looked for.
    """
    token = CancelToken()
    running = asyncio.ensure_future(LocalEngine().run(call, token))
    while not running.done():
        try:
            await asyncio.wait({running}, timeout=_LOOK_S)
        except asyncio.CancelledError:
            token.cancel(CancelReason.USER)
    return running.result()
