"""Where a plot's labels go, in pixels: beside lines that end at the right, and beside points. Needs
no drawing, and nothing of it depends on colors: two themes share one layout."""

import functools


def spread_out(wanted, gap, low, high):
    """Places near the wanted ones, in the same order, `gap` apart and within low and high."""
    places = list(wanted)
    for i, y in enumerate(places):  # from below
        places[i] = max(y, low, places[i - 1] + gap if i else low)
    for i in reversed(range(len(places))):  # from above
        limit = high if i == len(places) - 1 else places[i + 1] - gap
        places[i] = min(places[i], limit)
    # Neighbors that were pushed go to the middle of what they wanted.
    blocks = []  # [places wanted, first of them]
    for y, place in zip(wanted, places):
        blocks.append([[y], place])
        while len(blocks) > 1 and _start(blocks[-1], gap) < _end(blocks[-2], gap) + gap - 1e-9:
            last = blocks.pop()
            blocks[-1][0] += last[0]
    result = []
    for block in blocks:
        start = min(max(_start(block, gap), low), max(low, high - gap * (len(block[0]) - 1)))
        result += [start + gap * i for i in range(len(block[0]))]
    return result


def _start(block, gap):
    wanted = block[0]
    return sum(wanted) / len(wanted) - gap * (len(wanted) - 1) / 2


def _end(block, gap):
    return _start(block, gap) + gap * (len(block[0]) - 1)


@functools.lru_cache(maxsize=None)
def beside_points(labels, height, frame, marks, covered, taken):
    """A box (x0, y0, x1, y1) for each label, ((width, x, y), ...), all of one height, inside the
    frame. Labels overlap neither each other nor the marks nor the boxes that are taken, and as few
    as possible of the points that lines cover. All arguments are tuples, so that the second theme
    finds the answer of the first."""
    import numpy as np

    marks, covered = _points(marks), _points(covered)
    taken = np.array(taken, dtype=float).reshape(-1, 4)
    options = []  # of each label: (costs, boxes, ties)
    for width, x, y in labels:
        point = np.array([x, y])
        boxes = _candidates(width, height, point, frame)
        # A tie is the line from the point to a box that is far from it, as five points.
        near = np.clip(point, boxes[:, :2], boxes[:, 2:])
        steps = np.array([0.35, 0.5, 0.65, 0.8, 0.95])[None, :, None]
        ties = (1 - steps) * point + steps * near[:, None, :]
        others = marks[(marks != point).any(axis=1)]
        away = _distance(boxes, point[None, :])
        cost = away[:, 0] / 3
        cost = cost + 300 * _inside(boxes, marks, 11).sum(axis=1)
        cost += 25 * _inside(boxes, covered, 4).sum(axis=1)
        cost += 2000 * _overlap(boxes, taken).sum(axis=1)
        cost += 30 * _close(ties, others, 14)
        cost += 4 * _close(ties, covered, 6)
        cost += 25 * (_distance(boxes, others) <= away).sum(axis=1)  # seems to name another mark
        order = np.argsort(cost, kind="stable")
        options.append((cost[order], boxes[order], ties[order]))

    best = [0] * len(options)
    for _ in range(6):  # each in turn looks for the best place beside the others
        before = list(best)
        for i, (cost, boxes, ties) in enumerate(options):
            rest = [j for j in range(len(options)) if j != i]
            if not rest:
                continue
            other_boxes = np.array([options[j][1][best[j]] for j in rest])
            other_ties = np.concatenate([options[j][2][best[j]] for j in rest])
            total = cost + 2000 * _overlap(boxes, other_boxes).sum(axis=1)
            total += 100 * _inside(boxes, other_ties, 2).sum(axis=1)
            for tie in range(ties.shape[1]):
                total += 100 * _inside(other_boxes, ties[:, tie], 2).sum(axis=0)
            best[i] = int(np.argmin(total))
        if best == before:
            break
    return tuple(tuple(boxes[i]) for (_, boxes, _), i in zip(options, best))


def _points(points):
    import numpy as np

    return np.array(points, dtype=float).reshape(-1, 2)


def _candidates(width, height, point, frame):
    """Boxes around a point: in 15 rows, to its left and right, near and far, or above and below."""
    import numpy as np

    shifts = [-width - far for far in (120, 60, 30, 15)] + [15, 30, 60, 120, 200]
    shifts = np.array(shifts + [-part / 8 * width for part in range(9)])
    bottoms = point[1] + (np.arange(-7, 8) * 0.9 - 0.5) * height
    left, bottom = (grid.ravel() for grid in np.meshgrid(point[0] + shifts, bottoms))
    left = np.clip(left, frame[0] + 4, max(frame[0], frame[2] - width) - 4)
    bottom = np.clip(bottom, frame[1] + 4, frame[3] - height - 4)
    return np.stack([left, bottom, left + width, bottom + height], axis=1)


# Each of these compares every box with every point, or with every other box.

def _inside(boxes, points, margin):
    (x0, y0, x1, y1), (x, y) = boxes.T[:, :, None], points.T
    return (x0 - margin < x) & (x < x1 + margin) & (y0 - margin < y) & (y < y1 + margin)


def _distance(boxes, points):
    import numpy as np

    (x0, y0, x1, y1), (x, y) = boxes.T[:, :, None], points.T
    return np.hypot(np.maximum(0, np.maximum(x0 - x, x - x1)),
                    np.maximum(0, np.maximum(y0 - y, y - y1)))


def _overlap(boxes, others):
    """Whether two boxes touch, or nearly so: names side by side need a gap."""
    (x0, y0, x1, y1), (a0, b0, a1, b1) = boxes.T[:, :, None], others.T
    return (x0 < a1 + 14) & (a0 < x1 + 14) & (y0 < b1) & (b0 < y1)


def _close(ties, points, distance):
    """How many pairs of a tie's points and of other points are this close."""
    near = abs(ties[:, :, None, :] - points) < distance
    return near.all(axis=3).sum(axis=(1, 2))
