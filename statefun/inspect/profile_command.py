# SPDX-License-Identifier: Apache-2.0
"""``statefun profile``: writes a flame graph of the functions of a running application.

The sampler is py-spy, which reads the stacks of other processes of this machine, and so costs them nothing but short
pauses.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from statefun.console.argument_types import argument
from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint, is_in_use, positive_number, usable
from statefun.module.yaml.durations import parse_duration
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import check_format
from statefun.runtime.checkpoint.lock import JVM_LOCK
from statefun.sdk.errors import CheckpointError, ConfigurationError, PlatformError

_PROCESSES = Path("/proc")
_SAMPLER = "py-spy"
_DAEMON = b"statefun.runtime.dispatch.daemon"
"""The module whose process starts the workers: it is an argument of the process."""


def add_arguments(profile: CommandParser) -> None:
    """Add the arguments of ``statefun profile`` to its parser."""
    add_checkpoint(profile)
    profile.add_argument(
        "--duration",
        type=argument(parse_duration),
        default=timedelta(seconds=30),
        help="how long to take samples, such as 5s or 2m (default: 30s)",
    )
    profile.add_argument(
        "--rate",
        type=positive_number,
        default=100,
        help="how many samples a second are taken of each process (default: 100)",
    )
    profile.add_argument(
        "--output",
        type=Path,
        default=Path("profile.svg"),
        help="the file to write, which browsers show (default: profile.svg)",
    )
    profile.add_json("print the file and the sampled processes as JSON")


def run_command(options: Namespace) -> None:
    """Run ``statefun profile``.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if the checkpoint is not in a folder of this machine, or the duration is below a second.
        CheckpointError: if no application runs with the checkpoint on this machine.
        PlatformError: if py-spy is missing or fails.
    """
    if options.duration < timedelta(seconds=1):
        raise ConfigurationError("--duration must be at least one second")
    sampler = _sampler()
    daemon = _daemon_of(Folder.at(options.checkpoint))
    seconds = options.duration.total_seconds()
    if not options.json:
        print(f"taking samples of the Python workers for {seconds:g} s ...", flush=True)
    _record(sampler, daemon, options)
    if options.json:
        print_json({"file": str(options.output), "daemon": daemon})
    else:
        print(f"{options.output} has the flame graph; open it in a browser")


def _sampler() -> str:
    """Return the path of py-spy.

    Raises:
        PlatformError: if it is not installed.
    """
    found = shutil.which(_SAMPLER, path=sysconfig.get_path("scripts")) or shutil.which(_SAMPLER)
    if found is None:
        raise PlatformError("profiles need py-spy; run: pip install 'statefun[profile]'")
    return found


def _daemon_of(checkpoint: Folder) -> int:
    """Return the process from which Spark forks the Python workers of an application.

    Raises:
        ConfigurationError: if the checkpoint is not in a folder of this machine.
        CheckpointError: if no application runs with the checkpoint, or it has no workers at present.
        PlatformError: if the system does not show its processes.
    """
    if not checkpoint.is_local:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} is not in a folder of this machine, so its processes are not found: run "
            f"'{_SAMPLER} record --subprocesses --pid PID' on a machine of the cluster, with the process there that "
            f"has {_DAEMON.decode()} in its command line"
        )
    with usable(checkpoint):
        check_format(checkpoint)
        if not (Path(checkpoint.location) / JVM_LOCK).exists() or is_in_use(checkpoint) is False:
            raise CheckpointError(f"no application runs with checkpoint {checkpoint.shown}")
        jvms = _holders(Path(checkpoint.location, JVM_LOCK))
    parents = _parents()
    children = Counter(parents.values())
    daemons = [pid for pid, parent in parents.items() if parent in jvms and _is_daemon(pid)]
    if not daemons:
        raise CheckpointError(
            f"the application with checkpoint {checkpoint.shown} has no Python workers on this machine at present; "
            "they are there while it has messages to handle"
        )
    return max(daemons, key=lambda pid: children[pid])


def _holders(file: Path) -> set[int]:
    """Return the processes that have a lock on a file, as ``/proc/locks`` shows them (man 5 proc_locks).

    Raises:
        PlatformError: if the system has no such file.
    """
    number = str(file.stat().st_ino)
    try:
        lines = (_PROCESSES / "locks").read_text().splitlines()
    except OSError as error:
        raise PlatformError(
            f"the processes of an application can only be found on Linux; run '{_SAMPLER} record' yourself"
        ) from error
    locks = [line.split() for line in lines if "->" not in line]
    return {int(words[4]) for words in locks if words[5].rpartition(":")[2] == number}


def _parents() -> Mapping[int, int]:
    """Return the parent of each process."""
    parents = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(words[1])
    return parents


def _is_daemon(pid: int) -> bool:
    with suppress(OSError):
        return _DAEMON in (_PROCESSES / str(pid) / "cmdline").read_bytes().split(b"\0")
    return False


def _record(sampler: str, daemon: int, options: Namespace) -> None:
    """Write a flame graph of a process and of the processes that it has forked.

    Raises:
        PlatformError: if the sampler fails, for example because it may not read other processes.
    """
    command = [sampler, "record", "--subprocesses", "--format", "flamegraph", "--pid", str(daemon)]
    seconds = max(round(options.duration.total_seconds()), 1)
    limits = ["--duration", str(seconds), "--rate", str(options.rate)]
    run = subprocess.run(
        [*command, *limits, "--output", str(options.output)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode or not options.output.exists():
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise PlatformError(
            f"{_SAMPLER} has failed: {lines[0]}; it must be allowed to read other processes: as the user root, or in a "
            "container with the capability SYS_PTRACE"
        )
