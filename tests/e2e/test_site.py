"""The static site is whole: built without a warning, complete in itself, searched from a file, light and dark."""

import html.parser
import re
import shutil
import sys
import urllib.parse

import pytest

from browser_kit import chromium, measured  # noqa: F401
from conftest import SOURCE, run_process

pytestmark = pytest.mark.about("scripts", "docs")

PACKAGES = SOURCE / ".deps/site"


def build(root, out, check=True):
    return run_process([sys.executable, "-B", root / "scripts/site", "--out", out], check=check)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not (PACKAGES / "sphinx").exists():
        pytest.skip("the packages that make the site are not there: scripts/bootstrap --tests")
    out = tmp_path_factory.mktemp("site") / "out"
    build(SOURCE, out)
    return out


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


class Tags(html.parser.HTMLParser):
    """[(tag, attributes)] and the ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.found, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.ids.add(dict(attrs).get("id"))


@pytest.fixture(scope="module")
def pages(site):
    """path -> Tags of every page."""
    return {path: Tags(path.read_text()) for path in sorted(site.rglob("*.html"))}


def links(tags):
    for tag, attributes in tags.found:
        for target in (attributes.get("href"), attributes.get("src")):
            if target is not None:
                yield tag, target


def test_every_page_of_the_repository_is_there(pages, site):
    names = {str(path.relative_to(site)) for path in pages}
    wanted = [page.relative_to(SOURCE).with_suffix(".html") for folder in ("docs", "tutorials")
              for page in (SOURCE / folder).rglob("*.md")]
    assert {str(name) for name in wanted} | {"README.html", "index.html"} <= names


def test_nothing_comes_from_elsewhere(pages, site):
    """No script, style, font or picture of another host; plain links may lead there."""
    fetched = {f"{path.name}: {target}" for path, tags in pages.items() for tag, target in links(tags)
               if tag != "a" and re.match(r"(\w+:)?//", target)}
    assert not fetched
    # a namespace is a name; what a style imports or loads is url(...)
    assert not [sheet for sheet in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(\w+:)?//", sheet.read_text())]


def test_every_link_leads_somewhere(pages):
    lost = []
    for path, tags in pages.items():
        for _, target in links(tags):
            address = urllib.parse.urlsplit(target)
            if address.scheme or address.netloc:
                continue
            there = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            if not there.is_file() or (address.fragment and there in pages and
                                       urllib.parse.unquote(address.fragment) not in pages[there].ids):
                lost.append(f"{path.name}: {target}")
    assert not lost


def test_every_page_has_light_and_dark(pages, site):
    palettes = (site / "_static/styles/furo.css").read_text()
    assert "prefers-color-scheme:dark" in palettes and "data-theme=dark" in palettes
    without = [path.name for path, tags in pages.items() if path.name != "index.html" and not (
        any(a.get("href", "").partition("?")[0].endswith("styles/furo.css") for _, a in tags.found) and
        any("theme-toggle" in (a.get("class") or "").split() for _, a in tags.found))]
    assert not without


def test_the_search_works_from_a_file(site, chromium):
    page = chromium(f"file://{site}/search.html?q=bucket_cap_mb", "--dump-dom")
    found = re.findall(r'<li class="kind-\w+"><a href="([^"#?]+)[^>]*>.*?</a><p class="context">(.*?)</p>', page, re.S)
    assert "docs/overlap.html" in [where for where, _ in found]
    assert all("bucket_cap_mb" in re.sub("<.*?>", "", says) for _, says in found)


@pytest.mark.parametrize("scheme, light", [(1, True), (0, False)], ids=["light", "dark"])
def test_a_page_is_as_light_as_the_readers_system(scheme, light, site, chromium, tmp_path):
    image = pytest.importorskip("PIL.Image")
    shot = tmp_path / "page.png"
    chromium(f"file://{site}/docs/overlap.html", f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}",
             "--window-size=1200,900")
    middle = sorted(image.open(shot).convert("L").tobytes())[1200 * 900 // 2]
    assert (middle > 230) if light else (middle < 40)


@pytest.mark.parametrize("page, wide", [("tutorials/02-data-parallel", 700), ("docs/architecture", 800)], ids=["file", "arrows"])
def test_a_picture_can_be_read_on_a_phone(page, wide, site, chromium, tmp_path):  # noqa: F811
    seen = measured(chromium, site / f"{page}.html", 400, tmp_path)
    assert seen["width"] == 400 and seen["page"] <= 400, "the page itself does not scroll sideways"
    # drawn in text of 13 for its own width
    assert max(right - left for left, right in seen["pictures"]) >= 0.79 * wide
    desk = measured(chromium, site / f"{page}.html", 1400, tmp_path)
    assert all(right - left <= 1000 for left, right in desk["pictures"])


def contents_of(page):
    """[(caption, [page])] of the contents beside a page."""
    tree = page.read_text().partition('class="sidebar-tree"')[2].partition("</div>")[0]
    parts = re.split(r'class="caption"[^>]*><span class="caption-text">(.*?)</span>', tree)
    return [(caption, re.findall(r'class="toctree-l1[^"]*"><a class="[^"]*" href="([^"#]+)"', inside))
            for caption, inside in zip(parts[1::2], parts[2::2])]


def test_the_contents_are_in_parts_and_name_each_page(site):
    parts = contents_of(site / "README.html")
    assert [caption for caption, _ in parts][0] == "The course" and len(parts) > 6
    assert all(0 < len(pages) <= 10 for _, pages in parts[1:]), parts
    named = {page for _, pages in parts[:-1] for page in pages}
    project = {f"docs/{name}.html" for name in ("dependencies", "versions", "architecture")}
    docs = {f"docs/{page.stem}.html" for page in (SOURCE / "docs").glob("*.md")}
    assert docs - named == project, "scripts/site/contents.py has a part for each page"


# --- on a small tree ----------------------------------------------------------------------------------------------


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


def test_a_link_to_a_folder_leads_to_its_page_or_its_files(tree):
    (tree / "src/bare").mkdir()
    (tree / "src/bare/run.sh").write_text("echo 1\n")
    (tree / "docs/deep").mkdir()
    (tree / "docs/deep/README.md").write_text("# Deep\n\n[up](../../src/bare) and <a href=\"../../src/code.h\">code</a>\n")
    (tree / "src/bare/data.gz").write_bytes(b"\x1f\x8b\0\0")
    (tree / "docs/a.md").write_text("# A\n\n## Far below\n\n[deep](deep/), [bare](../src/bare/)\n")
    build(tree, tree / "site")
    assert 'href="deep/README.html"' in (tree / "site/docs/a.html").read_text()
    assert 'href="../files/src/bare/index.html"' in (tree / "site/docs/a.html").read_text()
    deep = (tree / "site/docs/deep/README.html").read_text()
    assert 'href="../../files/src/bare/index.html"' in deep and 'href="../../files/src/code.h.html"' in deep
    listed = re.findall(r'<li><a href="([^"]+)">', (tree / "site/files/src/bare/index.html").read_text())
    assert listed == ["run.sh.html"] and (tree / "site/files/src/bare/run.sh.html").exists()


def test_it_brings_what_is_missing(tree):
    packages = (tree / ".deps").resolve()
    (tree / ".deps").unlink()
    bootstrap = tree / "scripts/bootstrap"
    bootstrap.unlink(missing_ok=True)
    bootstrap.write_text(f'#!/bin/sh\n[ "$*" = --site ] && ln -s "{packages}" "{tree}/.deps"\n')
    bootstrap.chmod(0o755)
    build(tree, tree / "site")
    assert (tree / "site/index.html").exists()


def test_it_says_what_could_not_be_brought(tree):
    (tree / ".deps").unlink()
    bootstrap = tree / "scripts/bootstrap"
    bootstrap.unlink(missing_ok=True)
    bootstrap.write_text("#!/bin/sh\nexit 1\n")
    bootstrap.chmod(0o755)
    built = build(tree, tree / "site", check=False)
    assert built.returncode == 1 and "scripts/bootstrap --site --wheelhouse DIR" in built.stderr


def test_bootstrap_brings_the_sites_packages_alone(tmp_path):
    """Without a network, and from a folder that has none of them: it says so, and nothing else was looked for."""
    for path in ("bootstrap", "common.sh", "packages.tsv"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "scripts" / path, tmp_path / "scripts" / path)
    shutil.copytree(SOURCE / "scripts/requirements", tmp_path / "scripts/requirements")
    (tmp_path / "empty").mkdir()
    result = run_process([tmp_path / "scripts/bootstrap", "--site", "--wheelhouse", tmp_path / "empty"])
    assert result.returncode != 0 and "scripts/requirements/site.txt" in result.stderr
    assert not (tmp_path / ".deps/site/lockstep").exists() and not (tmp_path / "build/release").exists()
