# SPDX-License-Identifier: Apache-2.0
"""The topology of an application, from what really flows between its ingresses, functions and egresses."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from statefun.module.topic_routes import route_of
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.ingress.declared import all_sources

Edge = tuple[str, str, str, str]
"""The kind and the name of an edge's origin, and those of its target."""


def topology(views: AdminViews, limit: int) -> dict[str, Any]:
    """Return the nodes and the busiest edges.

    Args:
        views: shows the application.
        limit: how many edges are returned at most.
    """
    found = flows(views)
    busiest = heapq.nlargest(limit, found.items(), key=lambda item: item[1])
    nodes = {(edge[0], edge[1]) for edge, _ in busiest} | {
        (edge[2], edge[3]) for edge, _ in busiest
    }
    nodes |= {("ingress", name) for name in views.parts.ingresses}
    nodes |= {("egress", name) for name in views.parts.egresses}
    if len(found) <= limit:
        nodes |= {("function", name) for name in views.function_names()}
    failures = _failures(views)
    return {
        "edges": [
            {
                "origin": {"kind": edge[0], "name": edge[1]},
                "target": {"kind": edge[2], "name": edge[3]},
                "count": count,
            }
            for edge, count in busiest
        ],
        "total_edges": len(found),
        "nodes": [
            {
                "kind": kind,
                "name": name,
                "failures": failures.get(name, 0) if kind == "function" else 0,
            }
            for kind, name in sorted(nodes)
        ],
    }


def flows(views: AdminViews) -> Mapping[Edge, int]:
    """Return how many records and messages have gone along each edge.

    Each record of an ingress goes to all targets of its topic.
    """
    figures, found = views.figures, dict[Edge, int]()
    read = _records_read(views)
    for source in all_sources(views.definition.module):
        ingress = str(source.id)
        targets = {str(target) for route in source.topics for target in route.targets}
        # Of a connector's records it is not known by which of its routes they came.
        counts = dict.fromkeys(targets, figures.connectors.get(ingress, 0))
        named = {route.topic: route for route in source.topics if not route.is_pattern}
        patterns = [route for route in source.topics if route.is_pattern]
        for topic, records in read.get(ingress, {}).items():
            route = named.get(topic) or route_of(patterns, topic)
            for target in {str(each) for each in route.targets} if route else ():
                counts[target] += records
        found |= {("ingress", ingress, "function", each): count for each, count in counts.items()}
    with figures.lock:
        for name, function in figures.functions.items():
            for target, count in function.messages.items():
                found["function", name, "function", target] = count
            for egress, count in function.records.items():
                found["function", name, "egress", egress] = count
    return found


def _records_read(views: AdminViews) -> Mapping[str, Mapping[str, int]]:
    """Return how many records of each topic were read, by the ingress."""
    read: dict[str, Counter[str]] = defaultdict(Counter)
    for each in views.figures.partitions:
        read[each.ingress][each.topic] += each.read - each.first
    return read


def _failures(views: AdminViews) -> Mapping[str, int]:
    with views.figures.lock:
        return {
            name: sum(function.failures.values())
            for name, function in views.figures.functions.items()
        }
