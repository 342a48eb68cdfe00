"""The static site is whole: built without a warning, and complete in itself."""

import re
import shutil
import sys

import pytest

from conftest import SOURCE, run_process

pytestmark = pytest.mark.about("scripts", "docs")

PACKAGES = SOURCE / ".deps/site"


def build(root, out, check=True):
    return run_process([sys.executable, "-B", root / "scripts/site", "--out", out], check=check)


@pytest.fixture
def tree(tmp_path):
    """A repository of three pages."""
    if not (PACKAGES / "sphinx").exists():
        pytest.skip("the packages that make the site are not there: scripts/bootstrap --tests")
    root = tmp_path / "tree"
    shutil.copytree(SOURCE / "scripts/site", root / "scripts/site", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".deps").symlink_to(SOURCE / ".deps")
    (root / "README.md").write_text("# home\n\n[a](docs/a.md#far-below), [code](src/code.h)\n")
    (root / "docs").mkdir()
    (root / "docs/a.md").write_text("# A\n\n## Far below\n")
    (root / "src").mkdir()
    (root / "src/code.h").write_text("int  a;  // <b>\n")
    return root


@pytest.mark.full  # half a minute
def test_the_whole_site_has_each_page_and_takes_nothing_from_elsewhere(tmp_path):
    if not (PACKAGES / "sphinx").exists():
        pytest.skip("the packages that make the site are not there: scripts/bootstrap --tests")
    site = tmp_path / "out"
    build(SOURCE, site)
    wanted = [page.relative_to(SOURCE).with_suffix(".html") for folder in ("docs", "tutorials")
              for page in (SOURCE / folder).rglob("*.md")]
    assert [name for name in [*wanted, "README.html", "index.html"] if not (site / name).exists()] == []
    # plain links may lead to another host
    fetched = {f"{page.name}: {tag}" for page in site.rglob("*.html")
               for tag in re.findall(r"<(?!a\b)\w+[^>]*\s(?:href|src)=\"(?:\w+:)?//[^>]*>", page.read_text())}
    assert not fetched
    # a namespace is a name; what a style imports or loads is url(...)
    assert not [sheet for sheet in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(\w+:)?//", sheet.read_text())]


def test_what_leads_nowhere_fails(tree):
    gone = ("[gone](gone.md)", "[gone](a.md#gone)", "![gone](gone.svg)", "[gone](../src/gone.h)")
    (tree / "docs/b.md").write_text("# B\n\n" + "\n\n".join(gone) + "\n")
    built = build(tree, tree / "site", check=False)
    said = re.findall(r"docs/b\.md:(\d+): WARNING", built.stderr)
    assert built.returncode == 1 and sorted(said) == ["3", "5", "7", "9"], built.stderr


def test_what_github_shows_is_shown(tree):
    (tree / "docs/a.md").write_text(
        "# A\n\n## Far below\n\n> **Exercise `a.1`.** Do it.\n\n> **Bold** words of nobody's.\n\nA list:\n- one\n  - two\n\n"
        "```mermaid\nflowchart BT\n  a[one]\n  b[two/b]\n  a --> b\n```\n\n```console\n$ ls\nfile\n```\n")
    (tree / "tutorials").mkdir()
    for name in ("02-b", "10-j", "01-a"):
        (tree / f"tutorials/{name}.md").write_text(f"# {name}\n")
    build(tree, tree / "site")
    page = (tree / "site/docs/a.html").read_text()
    assert re.findall(r'<blockquote class="([^"]*)"', page) == ["box exercise"] and page.count("<blockquote") == 2
    assert re.search(r"<li><p>one</p>\s*<ul>\s*<li><p>two</p>", page)
    assert re.findall(r"<text [^>]*>(.*?)</text>", page) == ["one", "two/b"] and page.count('class="arrow"') == 1
    home = (tree / "site/README.html").read_text()
    order = list(dict.fromkeys(re.findall(r'href="(tutorials/[^"]+)', home)))
    assert order == [f"tutorials/{name}.html" for name in ("01-a", "02-b", "10-j")]
    assert 'href="files/src/code.h.html"' in home
    shown = (tree / "site/files/src/code.h.html").read_text()
    assert "&lt;b&gt;" in shown and "<b>" not in shown
