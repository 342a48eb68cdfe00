"""The pages and their order: the course, the docs folder by folder, then the project."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = ["*.md", "docs/**.md", "tutorials/**.md", "examples/**.md", "data/*.md"]
COURSE = "Tutorials"
DOCS = {"How to": "docs/how-to/", "Reference": "docs/reference/", "Explanation": "docs/explanation/"}  # caption -> folder
PROJECT = "The project"  # what no other caption has
FOLDERS = ["docs/decisions/", "tutorials/exercises/"]  # their pages stand under the folder's README.md, where there is one
INDEX = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=README.html">lockstep\n'


def under(folder, pages):
    """The pages of a folder, but its first one; none where it has no first one."""
    first = f"{folder}README"
    return sorted(page for page in pages if page.startswith(folder) and page != first) if first in pages else []


def sections(pages):
    """(caption, its pages) of the contents, each page once."""
    left = sorted(pages - {"README"} - {page for folder in FOLDERS for page in under(folder, pages)})
    course = [page for page in left if page.startswith("tutorials/")]
    course.sort(key=lambda page: (page != "tutorials/README", not re.match(r"tutorials/\d", page), page))
    inside = {caption: [page for page in left if page.startswith(folder)] for caption, folder in DOCS.items()}
    captions = [(COURSE, course), *inside.items()]
    known = {page for _, some in captions for page in some}
    return [*captions, (PROJECT, [page for page in left if page not in known])]


def toctree(pages, caption=""):
    return "\n".join(["", "```{toctree}", ":hidden:", *[f":caption: {caption}"] * bool(caption), "",
                      *(f"/{page}" for page in pages), "```", ""])


def add_contents(app, name, source):
    """Puts the contents under the first pages, where the theme looks for them: nothing of Sphinx is in the Markdown."""
    pages = app.env.found_docs
    if name == "README":
        source[0] += "".join(toctree(inside, caption) for caption, inside in sections(pages) if inside)
    for folder in FOLDERS:
        if name == f"{folder}README":
            source[0] += toctree(under(folder, pages))


def write_index(app, failure):
    if not failure:
        pathlib.Path(app.outdir, "index.html").write_text(INDEX)


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("env-get-outdated", lambda *_: ["README", *(f"{folder}README" for folder in FOLDERS
                                                            if f"{folder}README" in app.env.found_docs)])  # any page may be new
    app.connect("build-finished", write_index)
