"""Pictures in files are shown in their own size: no larger than the page, and on a phone, where that could not be read, in a
strip that scrolls."""

import pathlib
import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

ROOT = pathlib.Path(__file__).resolve().parents[2]


def width_of(path):
    """The width of an SVG's view box, or None."""
    if path.suffix != ".svg" or not path.is_file():
        return None
    box = re.search(r'viewBox="\S+ \S+ ([\d.]+) ', path.read_text())
    return box and round(float(box[1]))


class Pictures(SphinxTransform):
    default_priority = 500

    def apply(self):
        here = (ROOT / self.env.docname).parent
        for image in self.document.findall(nodes.image):
            if width := width_of(here / image["uri"]):
                image["width"] = f"{width}px"
                image["classes"].append("drawn")


def setup(app):
    app.add_transform(Pictures)
    return {"parallel_read_safe": True}
