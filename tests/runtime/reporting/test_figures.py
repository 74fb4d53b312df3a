# SPDX-License-Identifier: Apache-2.0
"""The counts of functions whose names may be anything, and of partitions that come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from statefun.engine.tallies import BOUNDS
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.reporting import counted_names
from statefun.runtime.reporting.figures import Figures, PartitionFigures

DECLARED = ("t/declared", "n/declared", "n/*", "m/*")
TYPENAMES = st.one_of(
    st.sampled_from(DECLARED),
    st.builds("{}/{}".format, st.sampled_from("nm"), st.integers(0, 20)),
)
MOST_FUNCTIONS = 4
MOST_FLOWS = 2


def namespace_of(typename: str) -> str:
    """Return the namespace of a function."""
    return typename.partition("/")[0]


@given(st.lists(st.tuples(TYPENAMES, TYPENAMES)), st.lists(TYPENAMES))
def test_all_functions_are_counted_under_so_many_names(
    sent: Sequence[tuple[str, str]], failed: Sequence[str]
) -> None:
    """Nothing is missing in the counts of a namespace, and declared functions have their own counts."""
    figures = Figures(DECLARED)

    with (
        patch.object(counted_names, "_MOST_FUNCTIONS", MOST_FUNCTIONS),
        patch.object(counted_names, "_MOST_FLOWS", MOST_FLOWS),
    ):
        for name, target in sent:
            counts = Outcome.FunctionCounts(
                typename=name,
                invocations=1,
                durations=[1] * (len(BOUNDS) + 1),
                messages={target: 1},
            )
            figures.staged([Outcome(functions=[counts])])
        for name in failed:
            figures.staged([Outcome(failed=[Outcome.Failed(typename=name, code="SF301", count=1)])])

    assert len(figures.functions.keys() - {*DECLARED}) <= MOST_FUNCTIONS
    invoked = Counter({name: each.invocations for name, each in figures.functions.items()})
    failures = Counter({name: each.failures.total() for name, each in figures.functions.items()})
    flows = Counter(
        {
            (name, target): count
            for name, each in figures.functions.items()
            for target, count in each.messages.items()
        }
    )
    strange = [flow for flow in flows if not {*DECLARED}.issuperset(flow)]
    assert len([flow for flow in strange if not flow[1].endswith("/*")]) <= MOST_FLOWS
    for found, expected in ((invoked, [name for name, _ in sent]), (failures, failed)):
        by_namespace = Counter[str]()
        for name, count in found.items():
            by_namespace[namespace_of(name)] += count
        assert by_namespace == Counter(map(namespace_of, expected))
        for name in ("t/declared", "n/declared"):
            assert found[name] == expected.count(name)
    assert flows["t/declared", "n/declared"] == sent.count(("t/declared", "n/declared"))
    assert flows.total() == len(sent)


def test_names_that_clients_invent_are_counted_together_in_the_end() -> None:
    """Those that came first are counted as they are."""
    figures = Figures(["n/*"])

    for number in range(3000):
        counts = Outcome.FunctionCounts(
            typename=f"n/{number}", invocations=1, durations=[0] * (len(BOUNDS) + 1)
        )
        counts.messages[f"n/{number + 1}"] = 1
        figures.staged([Outcome(functions=[counts])])

    assert len(figures.functions) == 1001
    assert figures.functions["n/0"].messages == {"n/1": 1}
    assert figures.functions["n/*"].invocations == 2000
    assert figures.functions["n/*"].messages == {"n/*": 2000}


def test_rates_are_not_negative_when_a_partition_is_gone() -> None:
    """Its records are in the samples from before, and not in the newest one."""
    gone = PartitionFigures("t/in", "topic", "0", group="", read=20, lag=0, first=10)
    figures = Figures()
    for partitions in ([gone], []):
        figures.partitions = partitions
        figures.look()

    assert figures.rates() == (0, 0)
