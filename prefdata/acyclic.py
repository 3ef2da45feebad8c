"""The cheapest edges to take out of a directed graph so that no cycle is left (minimum feedback arc set)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

Edge = tuple[int, int]
EXACT = 11  # nodes of a component up to which the answer is the best there is: 2 ** EXACT sets of nodes
_ROUNDS = 8  # of moving every node to its best place, in larger components


def feedback(edges: Mapping[Edge, int]) -> dict[Edge, list[Edge]]:
    """Edges to remove, each with a path of edges that stay and that it would close to a cycle.

    ``edges`` maps (from, to) to the cost of removal. Nodes are numbers; among equal costs their order decides, so
    a caller who numbers nodes by content gets an answer that does not depend on the order of the edges.
    """
    out: dict[Edge, list[Edge]] = {}
    if not edges:
        return out
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(sorted(edges), np.int64)
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(ends.max() + 1,) * 2)
    _, label = connected_components(graph.tocsr(), directed=True, connection="strong")
    components: defaultdict[int, dict[Edge, int]] = defaultdict(dict)
    for tail, head in ends[label[ends[:, 0]] == label[ends[:, 1]]].tolist():
        components[int(label[tail])][tail, head] = edges[tail, head]
    for part in components.values():
        out |= _broken(part)
    return out


def _broken(edges: dict[Edge, int]) -> dict[Edge, list[Edge]]:
    nodes = sorted({n for e in edges for n in e})
    order = _best_order(nodes, edges) if len(nodes) <= EXACT else _good_order(nodes, edges)
    place = {n: i for i, n in enumerate(order)}
    onward: defaultdict[int, list[int]] = defaultdict(list)
    against = []
    for tail, head in edges:
        if place[tail] < place[head]:
            onward[tail].append(head)
        else:
            against.append((tail, head))
    out = {}
    for tail, head in sorted(against, key=lambda e: (-edges[e], e)):
        path = _path(onward, head, tail)
        if path:
            out[tail, head] = path
        else:  # closes no cycle after all
            onward[tail].append(head)
    return out


def _path(onward: Mapping[int, list[int]], start: int, goal: int) -> list[Edge]:
    came, wave = {start: start}, [start]
    while wave and goal not in came:
        ahead = []
        for node in wave:
            for then in onward.get(node, ()):
                if then not in came:
                    came[then] = node
                    ahead.append(then)
        wave = ahead
    path: list[Edge] = []
    while goal in came and goal != start:
        path.append((came[goal], goal))
        goal = came[goal]
    return path[::-1]


def _best_order(nodes: list[int], edges: dict[Edge, int]) -> list[int]:
    """One of the orders in which edges that run backwards cost least, from the best order of each set of nodes."""
    n = len(nodes)
    weight = [[edges.get((v, u), 0) for u in nodes] for v in nodes]
    back = []  # back[v][s]: cost of the edges from v to the nodes of the set s
    for v in range(n):
        costs = [0] * (1 << n)
        for s in range(1, 1 << n):
            low = s & -s
            costs[s] = costs[s ^ low] + weight[v][low.bit_length() - 1]
        back.append(costs)
    cost, last = [0] * (1 << n), [0] * (1 << n)
    for s in range(1, 1 << n):
        cost[s], last[s] = min((cost[s ^ 1 << v] + back[v][s ^ 1 << v], v) for v in range(n) if s >> v & 1)
    order, s = [], (1 << n) - 1
    while s:
        order.append(nodes[last[s]])
        s ^= 1 << last[s]
    return order[::-1]


def _good_order(nodes: list[int], edges: dict[Edge, int]) -> list[int]:
    """Begin with the nodes that win most, then move single nodes to where they cost least while that helps."""
    ties: defaultdict[int, dict[int, int]] = defaultdict(dict)  # node -> other: won minus lost
    for (tail, head), cost in edges.items():
        ties[tail][head] = ties[tail].get(head, 0) + cost
        ties[head][tail] = ties[head].get(tail, 0) - cost
    order = np.array(sorted(nodes, key=lambda n: (-sum(ties[n].values()), n)), np.int64)
    number = {n: i for i, n in enumerate(order.tolist())}
    order = np.arange(len(nodes))
    names = sorted(number, key=number.__getitem__)
    others = [np.array([number[o] for o in ties[n]], np.int64) for n in names]
    gains = [np.array(list(ties[n].values()), np.int64) for n in names]
    place = order.copy()
    for _ in range(_ROUNDS):
        moved = False
        for node in range(len(nodes)):
            at, where = int(place[node]), place[others[node]]
            by_place = np.argsort(where)
            where, gain = where[by_place], gains[node][by_place]
            # Behind another node this one costs what it wins over it: the cost of each gap between the others.
            costs = np.concatenate([[0], gain.cumsum()])
            gap, now = int(costs.argmin()), int(np.searchsorted(where, at))
            if costs[gap] >= costs[now]:
                continue
            target = int(where[gap - 1]) + (at > where[gap - 1]) if gap else int(where[0]) - (at < where[0])
            if target < at:
                order[target + 1 : at + 1] = order[target:at].copy()
            else:
                order[at:target] = order[at + 1 : target + 1].copy()
            order[target] = node
            low, high = min(at, target), max(at, target) + 1
            place[order[low:high]] = np.arange(low, high)
            moved = True
        if not moved:
            break
    return [names[i] for i in order.tolist()]
