"""What the search shows of a page: a browser that opened the site from a folder may not fetch its pages, so their words lie
in a script beside the index."""

import html
import json
import pathlib

from docutils import nodes

ANSWER = """
if (location.protocol === "file:")
  window.fetch = (page) => Promise.resolve(new Response(texts[page.replace(/^\\.\\//, "")] ?? ""));
"""


def words(node):
    """A page's words, in sections that have the anchors of the page's own."""
    if isinstance(node, nodes.section):
        return f'<section id="{node["ids"][0]}">{"".join(map(words, node.children))}</section>'
    return html.escape(node.astext()) + "\n"


def write(app, failure):
    if failure:
        return
    texts = {f"{name}.html": f'<div role="main">{"".join(map(words, app.env.get_doctree(name).children))}</div>'
             for name in sorted(app.env.found_docs)}
    path = pathlib.Path(app.outdir, "_static/texts.js")
    path.write_text(f"const texts = {json.dumps(texts, indent=0)};\n{ANSWER}")


def load(app, page, template, context, doctree):
    if page == "search":
        app.add_js_file("texts.js", priority=100)


def setup(app):
    app.connect("html-page-context", load)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
