# SPDX-License-Identifier: Apache-2.0
"""Puts what the benchmarks have measured into the documentation: a table, a plot, and the figures.

It replaces the section "Measured" of ``docs/performance.md``, and the files that the section
shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from report import BUILD, figure

NAMES = (
    "kafka",
    "kafka_windows",
    "flink",
    "remote",
    "sdk",
    "typed",
    "hop",
    "latency",
    "dispatch",
    "growth",
    "timers",
    "async",
)
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "performance.md"
FIGURES = DOCS / "assets" / "measured.json"
PLOT = DOCS / "assets" / "measured.svg"
_RULE = """\
Both sides ran in turn in one run, several times, after one time that does not count. Ratios are
medians of those of the single turns, with the least and the greatest."""
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def section(results: dict[str, Any]) -> str:
    """Return the text between the marks."""
    lines = [
        "",
        _RULE,
        "",
        "![Ratios of what ours reaches to what others reach](assets/measured.svg)",
        "",
        "| benchmark | case | ours | other | ratio | spread | goal |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for name, result in results.items():
        for case in result["cases"]:
            low, high = case["spread"]
            cells = (
                name,
                case["name"],
                figure(case["ours"], case["unit"]),
                figure(case["other"], case["unit"]),
                f"{case['ratio']:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{case.get('goal') or ''}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Beside it:", ""]
    lines += [f"- {name}: {note}" for name, result in results.items() for note in result["notes"]]
    lines += ["", "Measured on:", ""]
    lines += [f"- {place}" for place in sorted({place_of(one) for one in results.values()})]
    return "\n".join([*lines, "", "[All figures](assets/measured.json)", ""])


def place_of(result: dict[str, Any]) -> str:
    """Return when and where something was measured."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{result['date']}, {machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory']}, Python {machine['python']}, {machine['java']}, {versions}"
    )


def plot(results: dict[str, Any]) -> None:
    """Draw the ratios of all comparisons with others."""
    cases = [
        case
        for name in ("flink", "remote", "kafka", "kafka_windows")
        for case in results.get(name, {}).get("cases", ())
        if case["unit"] == "1/s"
    ]
    cases.sort(key=lambda case: case["ratio"])
    mpl.rcParams["svg.hashsalt"] = "statefun"
    mpl.rcParams["svg.fonttype"] = "none"
    ink = "#808080"  # readable on white and on black
    figure_, axes = plt.subplots(figsize=(9, 0.42 * len(cases) + 0.8), layout="constrained")
    places = range(len(cases))
    ratios = [case["ratio"] for case in cases]
    spread = [
        [case["ratio"] - case["spread"][0] for case in cases],
        [case["spread"][1] - case["ratio"] for case in cases],
    ]
    colours = ["#2e8b7a" if ratio >= 1 else "#c08040" for ratio in ratios]
    axes.barh(places, ratios, xerr=spread, color=colours, ecolor=ink, height=0.7)
    axes.set_yticks(places, [case["name"] for case in cases])
    axes.axvline(1, color=ink, linewidth=0.8)
    axes.set_xlabel("records per second: ours / other")
    for place, case in zip(places, cases, strict=True):
        axes.annotate(
            f"{case['ratio']:.2f}",
            (case["spread"][1], place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=ink,
        )
    axes.margins(x=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=ink)
    axes.xaxis.label.set_color(ink)
    for spine in axes.spines.values():
        spine.set_color(ink)
    figure_.savefig(PLOT, transparent=True, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Publish what ``build/bench`` holds."""
    files = {name: BUILD / f"{name}.json" for name in NAMES}
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    FIGURES.write_text(json.dumps(results, indent=2) + "\n")
    plot(results)
    begun, rest = PAGE.read_text().split(BEGIN)
    _, ended = rest.split(END)
    text = re.sub(r"\n{3,}", "\n\n", f"{BEGIN}\n{section(results)}\n{END}")
    PAGE.write_text(f"{begun}{text}{ended}")


if __name__ == "__main__":
    main()
