"""Links to what is no page: a source file gets a page with its text, a folder one with its files."""

import os
import pathlib
import re

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITH_NUMBERS = HtmlFormatter(linenos="inline", anchorlinenos=True, lineanchors="L")
LEXERS = {".pbs": "x.sh", ".slurm": "x.sh", ".in": "x.txt", ".tsv": "x.txt", ".yml": "x.yaml", ".h": "x.cpp"}


def page_of(path):
    """The name of the page that shows a file or a folder of the repository; a folder's README.md is a page by itself."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        return f"{name}/README" if (path / "README.md").is_file() else f"files/{name}/index"
    return str(name.with_suffix("")) if path.suffix == ".md" else f"files/{name}"


def find(docname, target):
    """The file or folder that a page's link means, or None."""
    path = (ROOT / docname).parent.joinpath(target.partition("#")[0]).resolve()
    return path if path.exists() and path.is_relative_to(ROOT) and path != ROOT else None


def address(docname, path):
    """What leads from a page to the one that shows a file."""
    return os.path.relpath(f"{page_of(path)}.html", pathlib.PurePath(docname).parent)


def lead_to_text(app, doctree):
    """Turns links to files and folders into links to the pages that show them; before Sphinx would copy them as downloads."""
    docname = app.env.docname
    shown = app.env.shown_files.setdefault(docname, set())

    def lead(target):
        path = find(docname, target)
        if path:
            shown.add(str(path))
        return path and address(docname, path)
    for link in list(doctree.findall(addnodes.download_reference)) + list(doctree.findall(addnodes.pending_xref)):
        if uri := lead(link["reftarget"]):
            link.replace_self(nodes.reference("", "", *link.children, refuri=uri))
    for raw in doctree.findall(nodes.raw):
        text = re.sub(r'href="([^":#]+)"', lambda match: f'href="{lead(match[1]) or match[1]}"', raw.astext())
        raw.children[:] = [nodes.Text(text)]


def lexer_for(path):
    try:
        return get_lexer_for_filename(LEXERS.get(path.suffix, path.name))
    except ClassNotFound:
        return TextLexer()


def inside(path):
    """The files of a folder that can be shown."""
    return [file for file in sorted(path.iterdir()) if file.is_file() and b"\0" not in file.read_bytes()[:4096]]


def body_of(path):
    if not path.is_dir():
        return highlight(path.read_text(), lexer_for(path), WITH_NUMBERS)
    lines = (f'<li><a href="{address(page_of(path), file)}">{file.name}</a></li>' for file in inside(path))
    return "<ul>" + "\n".join(lines) + "</ul>"


def pages(app):
    """A page for each file and folder that is linked to, and for those in such a folder."""
    linked = {pathlib.Path(name) for name in set().union(*app.env.shown_files.values())}
    all_of_them = linked | {file for folder in linked if folder.is_dir() for file in inside(folder)}
    for path in sorted(path for path in all_of_them if page_of(path).startswith("files/")):
        title = str(path.relative_to(ROOT))
        body = f'<div class="file"><h1>{title.replace("/", "/<wbr>")}</h1>\n{body_of(path)}</div>'
        yield page_of(path), {"title": title, "body": body, "display_toc": False}, "page.html"


def prepare(app):
    if not hasattr(app.env, "shown_files"):
        app.env.shown_files = {}


def forget(app, env, docname):
    env.shown_files.pop(docname, None)


def setup(app):
    app.connect("builder-inited", prepare)
    app.connect("env-purge-doc", forget)
    app.connect("doctree-read", lead_to_text, priority=100)
    app.connect("html-collect-pages", pages)
    return {"env_version": 2}
