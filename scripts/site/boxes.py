"""Blockquotes that open with one of the course's bold words become colored boxes (CONTRIBUTING.md, "How a chapter is
written")."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

WORDS = ("Overview", "Explanation", "Exercise", "Try it")


def word_of(quote):
    """The word that a blockquote opens with, or None."""
    first = quote.next_node(nodes.paragraph)
    inside = [child for child in first.children if child.astext()] if first else []
    if not inside or not isinstance(inside[0], nodes.strong):
        return None
    return next((word for word in WORDS if re.match(rf"{word}\b", inside[0].astext())), None)


class Boxes(SphinxTransform):
    default_priority = 500

    def apply(self):
        for quote in self.document.findall(nodes.block_quote):
            if word := word_of(quote):
                quote["classes"] += ["box", word.lower().replace(" ", "-")]


def setup(app):
    app.add_transform(Boxes)
