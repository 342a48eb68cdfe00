"""Draws a flowchart of boxes and arrows, written in Mermaid as GitHub reads it: layer by layer, without a browser's help."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

HIGH, GAP, STEP = 30, 22, 62  # a box's height, the room between two, from one layer to the next
LETTER, PAD, BEND = 8, 24, 10  # a letter's width, a box's ends, what an arrow that passes a layer takes of it


def read(text):
    """({mark: label}, [(from, to)])"""
    labels = dict(re.findall(r"^ *(\w+)\[([^\]]+)\]", text, re.M))
    arrows = re.findall(r"^ *(\w+) --> (\w+)", text, re.M)
    return {**{mark: mark for arrow in arrows for mark in arrow}, **labels}, arrows


def layers_of(labels, arrows):
    """mark -> how many arrows lie under it, along the longest way."""
    def depth(mark):
        if mark not in known:
            known[mark] = max((depth(below) + 1 for above, below in arrows if above == mark), default=0)
        return known[mark]
    known = {}
    return {mark: depth(mark) for mark in labels}


class Layout:
    """Where every box stands, and the bends of arrows between layers that are no neighbours."""

    def __init__(self, labels, arrows):
        self.labels = labels
        self.layer = layers_of(labels, arrows)
        self.ways = [self.way(*arrow) for arrow in arrows]
        self.rows = [[spot for spot in self.layer if self.layer[spot] == row] for row in range(max(self.layer.values()) + 1)]
        self.x = {}
        for row in self.rows:
            self.settle(row, {spot: 0 for spot in row})
        for sweep in range(24):
            for row in self.rows if sweep % 2 else self.rows[::-1]:
                self.settle(row, {spot: self.pull(spot) for spot in row})
        left = min(self.x[spot] - self.width(spot) / 2 for spot in self.x)
        self.x = {spot: x - left + 2 for spot, x in self.x.items()}

    def way(self, above, below):
        """The spots of an arrow, one a layer."""
        bends = [(above, below, row) for row in range(self.layer[above] - 1, self.layer[below], -1)]
        self.layer.update({bend: bend[2] for bend in bends})
        return [above, *bends, below]

    def width(self, spot):
        return LETTER * len(self.labels[spot]) + PAD if spot in self.labels else BEND

    def pull(self, spot):
        """The mean of where its neighbours are."""
        pairs = [pair for way in self.ways for pair in zip(way, way[1:]) if spot in pair]
        near = [self.x[other] for pair in pairs for other in pair if other != spot]
        return sum(near) / len(near) if near else self.x[spot]

    def settle(self, row, wish):
        """Sets a row in the order of its wishes, nobody over another, and its middle where the wishes' middle is."""
        row.sort(key=lambda spot: wish[spot])
        at = None
        for spot in row:
            half = self.width(spot) / 2
            at = wish[spot] if at is None else max(wish[spot], at + half + GAP)
            self.x[spot], at = at, at + half
        shift = sum(wish[spot] - self.x[spot] for spot in row) / len(row)
        for spot in row:
            self.x[spot] += shift

    def y(self, spot):
        return (len(self.rows) - 1 - self.layer[spot]) * STEP + HIGH / 2 + 2

    def size(self):
        return max(self.x[s] + self.width(s) / 2 for s in self.x) + 2, (len(self.rows) - 1) * STEP + HIGH + 4

    def curve(self, way):
        points = [(self.x[spot], self.y(spot)) for spot in way]
        points[0] = points[0][0], points[0][1] + HIGH / 2
        points[-1] = points[-1][0], points[-1][1] - HIGH / 2 - 5  # for the arrow's head
        path = "M{:.0f},{:.0f}".format(*points[0])
        for (x0, y0), (x1, y1) in zip(points, points[1:]):
            path += f" C{x0:.0f},{(y0 + y1) / 2:.0f} {x1:.0f},{(y0 + y1) / 2:.0f} {x1:.0f},{y1:.0f}"
        return path


def draw(text):
    """The picture as SVG, in the page's own colours."""
    labels, arrows = read(text)
    layout = Layout(labels, arrows)
    wide, high = layout.size()
    lines = [f'<div class="strip"><svg class="arrows" viewBox="0 0 {wide:.0f} {high:.0f}" style="width:{wide:.0f}px" role="img">',
             '<defs><marker id="head" viewBox="0 0 6 6" refX="1" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
             '<path d="M0,0 L6,3 L0,6 z"/></marker></defs>']
    lines += [f'<path class="arrow" marker-end="url(#head)" d="{layout.curve(way)}"/>' for way in layout.ways]
    for mark, label in labels.items():
        x, y, width = layout.x[mark], layout.y(mark), layout.width(mark)
        lines += [f'<rect x="{x - width / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{width}" height="{HIGH}" rx="6"/>',
                  f'<text x="{x:.0f}" y="{y + 5:.0f}">{label}</text>']
    return "\n".join(lines + ["</svg></div>"])


class Arrows(SphinxTransform):
    default_priority = 500

    def apply(self):
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                block.replace_self(nodes.raw("", draw(block.astext()), format="html"))


def setup(app):
    app.add_transform(Arrows)
    return {"parallel_read_safe": True}
