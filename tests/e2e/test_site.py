"""The static site builds without a warning, has every page, and loads nothing from elsewhere."""

import re
import shutil
import sys

import pytest

from conftest import SOURCE, run_process

NO_SPHINX = not (SOURCE / ".deps/site/sphinx").exists()
pytestmark = [pytest.mark.about("scripts", "docs"),
              pytest.mark.skipif(NO_SPHINX, reason="scripts/bootstrap --tests installs Sphinx")]


def build(root, out, check=True):
    return run_process([sys.executable, "-B", root / "scripts/site", "--out", out], check=check)


def tree(root, **pages):
    """A repository of a few pages of docs."""
    shutil.copytree(SOURCE / "scripts/site", root / "scripts/site", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".deps").symlink_to(SOURCE / ".deps")
    files = {"README.md": "# home\n\n[a](docs/a.md#far-below), [code](src/code.h)\n", "src/code.h": "int  a;  // <b>\n",
             "docs/a.md": "# A\n\n## Far below\n", **{f"docs/{name}.md": text for name, text in pages.items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.full  # half a minute
def test_the_whole_site_has_each_page_and_takes_nothing_from_elsewhere(tmp_path):
    build(SOURCE, tmp_path)
    wanted = [page.relative_to(SOURCE).with_suffix(".html") for folder in ("docs", "tutorials")
              for page in (SOURCE / folder).rglob("*.md")]
    assert [name for name in [*wanted, "README.html", "index.html"] if not (tmp_path / name).exists()] == []
    assert not {f"{page.name}: {tag}" for page in tmp_path.rglob("*.html")  # plain links may lead to another host
                for tag in re.findall(r"<(?!a\b)\w+[^>]*\s(?:href|src)=\"(?:\w+:)?//[^>]*>", page.read_text())}
    assert not [sheet for sheet in tmp_path.rglob("*.css")
                if re.search(r"(url\(|@import)\s*['\"]?(\w+:)?//", sheet.read_text())]


def test_what_leads_nowhere_fails(tmp_path):
    gone = ("[gone](gone.md)", "[gone](a.md#gone)", "![gone](gone.svg)", "[gone](../src/gone.h)")
    built = build(tree(tmp_path / "tree", b="# B\n\n" + "\n\n".join(gone) + "\n"), tmp_path / "site", check=False)
    assert built.returncode == 1
    assert sorted(re.findall(r"docs/b\.md:(\d+): WARNING", built.stderr)) == ["3", "5", "7", "9"], built.stderr


def test_boxes_and_source_files_are_shown(tmp_path):
    text = "# A\n\n## Far below\n\n> **Exercise `a.1`.** Do it.\n\n> **Bold** words.\n"
    build(tree(tmp_path / "tree", a=text), tmp_path / "site")
    page = (tmp_path / "site/docs/a.html").read_text()
    assert re.findall(r'<blockquote class="([^"]*)"', page) == ["box exercise"] and page.count("<blockquote") == 2
    assert 'href="files/src/code.h.html"' in (tmp_path / "site/README.html").read_text()
    shown = (tmp_path / "site/files/src/code.h.html").read_text()
    assert "&lt;b&gt;" in shown and "<b>" not in shown
