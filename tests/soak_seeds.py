# SPDX-License-Identifier: Apache-2.0
"""The seeds of a soak, side by side, and their end: by themselves, or by a signal.

The processes of a seed have sessions of their own, so that no signal of a terminal or of ``make`` reaches them. So
SIGTERM and Ctrl-C raise an exception in the main thread, which closes the seeds that run in other threads.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import attrs
from soak_run import Soak

from statefun.dev.progress import ProgressLine

_Soak = TypeVar("_Soak", bound=Soak)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@attrs.frozen
class Result:
    """How a seed went."""

    seed: int
    done: Counter[str]
    wrong: str
    """Empty if nothing is."""


class Seeds:
    """The applications of the seeds that run."""

    def __init__(self) -> None:
        self._running: list[Soak] = []
        self._are_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def running(self, soak: Soak) -> Iterator[None]:
        """Let a seed run in this thread during the block.

        Raises:
            InterruptedError: if the seeds are closed.
        """
        with self._lock:
            if self._are_closed:
                raise InterruptedError("no seed begins any more")
            self._running.append(soak)
        try:
            yield
        finally:
            with self._lock:
                self._running = [each for each in self._running if each is not soak]

    def close(self) -> None:
        """Close the applications that run, so that the threads of their seeds end, and let no other one begin."""
        with self._lock:
            self._are_closed = True
            for soak in self._running:
                soak.close()


def exit_at_signals() -> None:
    """Leave the program through all its ``with`` blocks at SIGTERM and Ctrl-C, once, with the exit code of a shell.

    A signal may come twice, as ``timeout make soak`` sends it to ``make`` and its children, and ``make``
    passes it on: the second one must not interrupt what the first one began.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        print(f"ended by {signal.Signals(number).name}", file=sys.stderr, flush=True)  # noqa: T201 - a program
        sys.exit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, leave)


def judged(
    name: str,
    seed: int,
    seeds: Seeds,
    make: Callable[[Path], AbstractContextManager[_Soak]],
    troubles: Callable[[_Soak], None],
) -> Result:
    """Make an application in a temporary folder with such a name, trouble it, and judge it; after a failure, the files stay."""
    folder = Path(tempfile.mkdtemp(prefix=f"statefun-{name}-{seed}-"))
    with (
        make(folder) as soak,
        seeds.running(soak),
        ProgressLine(f"seed {seed}, in {folder}"),
    ):
        try:
            troubles(soak)
            wrong = soak.finish()
        except Exception as error:  # noqa: BLE001 - other seeds go on
            wrong = f"{type(error).__name__}: {error}"
    if not wrong:
        shutil.rmtree(folder)
    return Result(seed, Counter(seeds=1, messages=soak.sent) + soak.done, wrong)


def soak_all(soak: Callable[[int, Seeds], Result], arguments: argparse.Namespace) -> int:
    """Soak all seeds that a command line asks for, and print how it went; return the exit code."""
    total: Counter[str] = Counter()
    failed = []
    with closing(_results(soak, arguments)) as results:
        for result in results:
            total += result.done
            print(f"seed {result.seed}:", _listed(result.done), flush=True)  # noqa: T201 - a program
            if result.wrong:
                failed.append(result.seed)
                print(f"seed {result.seed}: {result.wrong}", file=sys.stderr)  # noqa: T201 - as above
    print("\n".join(f"{count:>10,} {what}" for what, count in sorted(total.items())))  # noqa: T201 - as above
    if failed:
        print(f"failed: seeds {failed}", file=sys.stderr)  # noqa: T201 - as above
    return bool(failed)


def _results(
    soak: Callable[[int, Seeds], Result], arguments: argparse.Namespace
) -> Generator[Result, None, None]:
    seeds = Seeds()
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        numbers = range(arguments.seed, arguments.seed + arguments.seeds)
        for asked in [pool.submit(soak, number, seeds) for number in numbers]:
            yield asked.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        seeds.close()
        pool.shutdown()


def _listed(done: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in done.items())
