# SPDX-License-Identifier: Apache-2.0
"""Does a figure grow? A line through its floors, and what slope is none.

A figure goes up and down: garbage waits to be collected, logs to be shortened. What leaks does not
come down again, and so raises the *floor*, the least of a window. The first part of a run counts for
nothing: pools fill, code is compiled, Spark keeps the logs of a hundred micro-batches. Caches may fill for longer, by
less and less; what leaks does so in the second half as well. So a figure that is not flat without its first quarter
is judged again without its first half.

The floor of some figures is uncertain: how many files Spark has left depends on how long ago it has tidied up. What
leaks raises the *mean* of a window as well, so a figure that is not flat by its floors is judged by its means. Spark tidies
up by the clock, so both depend on the *pace* of the micro-batches, which other work of the machine changes: the line has
a term for it, and its slope is that at an equal pace.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from endurance.sampling import SAMPLES, WORKERS

WARM_UPS = (0.25, 0.5)
"""This share of a run counts for nothing: the second one, if a figure is not flat with the first one."""
WINDOWS = 10
_FLOOR, _MEAN = "floor", "mean"
_STATISTICS: Mapping[str, Callable[[Any], Any]] = {_FLOOR: np.min, _MEAN: np.mean}
_STEADY = 0.02
"""By how much of their mean the paces of the windows may differ without a term for it."""
_STUDENT = {2: 2.31, 3: 2.36}
"""The two-sided 95% quantile of Student's t for as many windows, less the terms of the line."""

LIMITS = {
    # An object in every 50 micro-batches: 4,000 objects in 200,000, less than a megabyte.
    "blocks": 0.02,
    # No entry of a map takes less, so nothing is kept for each micro-batch; 20 MB in 200,000.
    "heap": 100.0,
    "metaspace": 100.0,
    # One in 100 micro-batches, such as one that is made anew with a plan.
    "classes": 0.01,
    # Memory that allocators hold as well: 40 MB in 200,000.
    "resident": 200.0,
    # What is in use of it, without what is free between.
    "allocated": 100.0,
    # One in 10,000 micro-batches: 20 in 200,000.
    "threads": 1e-4,
    # Spark's pools have ten threads more or less: one in 5,000.
    "jvm threads": 2e-4,
    "descriptors": 1e-4,
    # Logs of Spark and of the wheel come and go by the hundred; nothing is kept in every thousandth.
    "files": 1e-3,
    "old": 1e-3,
    "addresses": 1e-3,
    # Less than a number for each micro-batch.
    "bytes": 5.0,
    # Less than an entry for each micro-batch: numbers in states get more digits.
    "checkpoint/state bytes": 50.0,
}
"""By how much a figure, or the figure of one thing, may grow with each micro-batch: the least that could leak regularly."""
_COME_AND_GO = {"checkpoint/state files"}
"""Figures that are drawn in no line: there are as many as micro-batches in a minute, and those that stay are the old ones."""


@attrs.frozen
class Series:
    """A figure over micro-batches."""

    name: str
    limit: float
    batches: Sequence[float]
    values: Sequence[float]


@attrs.frozen
class Verdict:
    """Whether a figure grows."""

    series: Series
    points: Sequence[tuple[float, float]]
    """The micro-batch and the value of each window's floor or mean."""
    slope: float
    """For each micro-batch."""
    error: float
    """The slope is as near as this, in 19 of 20 runs."""
    start: float
    """Where the line begins, at micro-batch 0."""
    warm_up: float
    """This share of the run counted for nothing."""
    statistic: str = _FLOOR
    """What each window stands for."""

    @property
    def word(self) -> str:
        """What is known."""
        if self.slope - self.error > self.series.limit:
            return "grows"
        return "flat" if self.slope + self.error < self.series.limit else "undecided"

    def __str__(self) -> str:
        limit = self.series.limit
        return (
            f"{self.series.name:<24} {self.word:<9} {1000 * self.slope:+12,.2f} "
            f"± {1000 * self.error:,.2f} in 1,000 micro-batches, of {1000 * limit:,.2f}"
            f"{' in the second half' if self.warm_up > WARM_UPS[0] else ''}"
            f"{' (means)' if self.statistic == _MEAN else ''}"
        )


def series_of(folder: Path) -> list[Series]:
    """Return all figures that were sampled."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in _lines(folder / SAMPLES):
        for who, figures in sample.items():
            if isinstance(figures, Mapping):
                for what, value in figures.items():
                    found[f"{who} {what}"].append((sample["batch"], value))
    for sample in _lines(folder / WORKERS):
        for what, value in sample.items():
            if what in LIMITS:
                found[f"worker {what}"].append((sample["number"], value))
    return [
        Series(name, LIMITS.get(name, LIMITS[what]), *map(list, zip(*points, strict=True)))
        for name, points in found.items()
        if (what := name.rpartition(" ")[2]) in LIMITS and name not in _COME_AND_GO
    ]


def verdict(series: Series) -> Verdict | None:
    """Judge a figure; None if there are too few samples."""
    floors = [each for warm_up in WARM_UPS if (each := _fit(series, warm_up, _FLOOR))]
    if not floors:
        return None
    found = [*floors]
    if "flat" not in {each.word for each in floors}:
        found += [each for warm_up in WARM_UPS if (each := _fit(series, warm_up, _MEAN))]
    words = [each.word for each in found]
    return next((found[words.index(word)] for word in ("flat", "grows") if word in words), found[0])


def _fit(series: Series, warm_up: float, statistic: str) -> Verdict | None:
    """Fit a line through the floors or means of a figure; None if there are too few samples."""
    batches, values = np.asarray(series.batches, float), np.asarray(series.values, float)
    warm = batches >= warm_up * batches.max()
    batches, values = batches[warm], values[warm]
    if len(batches) < 2 * WINDOWS:
        return None
    windows = np.array_split(np.argsort(batches, kind="stable"), WINDOWS)
    points = [
        (float(batches[window].mean()), float(_STATISTICS[statistic](values[window])))
        for window in windows
    ]
    x, y = np.asarray(points).T
    terms = [np.ones(WINDOWS), x - x.mean()]
    # All windows have as many samples, so they take as long.
    pace = np.asarray([np.ptp(batches[window]) / len(window) for window in windows])
    if pace.std() > _STEADY * pace.mean():
        terms.append(pace - pace.mean())
    line = np.stack(terms, axis=1)
    found = np.linalg.lstsq(line, y, rcond=None)[0]
    level, slope = found[:2]
    rest = y - line @ found
    variance = (rest**2).sum() / (WINDOWS - len(terms)) * np.linalg.inv(line.T @ line)[1, 1]
    error = _STUDENT[len(terms)] * float(np.sqrt(variance))
    start = float(level - slope * x.mean())
    return Verdict(series, points, float(slope), error, start, warm_up, statistic)


def verdicts(folder: Path) -> list[Verdict]:
    """Return what is known of each figure."""
    return [found for series in series_of(folder) if (found := verdict(series))]


def draw(found: Sequence[Verdict], path: Path) -> None:
    """Draw all figures, with the floors or means of their windows, and lines."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, which tests go without

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - as above

    columns = 4
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 2.6 * rows), squeeze=False)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, each in zip(axes.flat, found, strict=False):
        series = each.series
        axis.plot(series.batches, series.values, ".", markersize=2, color="0.7")
        x, y = zip(*each.points, strict=True)
        axis.plot(x, y, "o", markersize=4, color="tab:blue")
        line = [each.start + each.slope * at for at in x]
        color = {"flat": "tab:green", "grows": "tab:red"}.get(each.word, "tab:orange")
        axis.plot(x, line, "-", color=color)
        axis.set_title(f"{series.name}: {each.word}", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
    figure.supxlabel("micro-batch")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)
