"""The docs are true: generated parts are as the sources say, links lead somewhere, files and names exist."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from conftest import SOURCE
from docs_kit import PAGES, prose

pytestmark = pytest.mark.about("docs", "scripts")

LOCKSTEP = SOURCE / "src/lockstep"
TOP = {path.name for path in SOURCE.iterdir()} - {".", "build", "runs"}
NAMES = [str(page.relative_to(SOURCE)) for page in PAGES]


def anchors(page):
    """The fragments that its headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_is_generated_is_as_the_sources_say():
    """docs/api.md, the tables and the picture of docs/architecture.md, the tables of the chapters; and every public name has
    its `///` line, every chapter its minutes."""
    check = subprocess.run([sys.executable, "-B", SOURCE / "scripts/docs", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


HEADER = """#pragma once
// What it promises; at length. More.

namespace lockstep {

/// A class.
template <class T>
class Box : public Base {
 public:
  explicit Box(T value = {}) : value_{value}, other_(1) {}
  /// Said here,
  /// and here.
  int size() const { return "}"[0]; }
  int unsaid() const;
  void step() override;

 protected:
  /// For those who derive.
  virtual void update(const std::vector<int>& all = {1, 2}) = 0;

 private:
  /// Nobody's.
  T value_;
};

/// One of two.
int pair(int a);
int pair(double a);

namespace machinery {
int hidden();
}  // namespace machinery

/// A namespace for users.
namespace open {
struct Options {
  int count = 60'000;  // how many
  int other;           ///< how many
                       ///< others
};
}  // namespace open

}  // namespace lockstep

/// For a library's end.
#define LOCKSTEP_END(TYPE) \\
  int end() { return 1; }
#define LOCKSTEP_MACHINERY(TYPE) 1
"""


def test_a_headers_public_names_are_read():
    sys.path.insert(0, str(SOURCE / "scripts/docs"))
    import headers
    box, pair, other, opened, macro = headers.read(HEADER)
    assert (box.text, box.comment) == ("template <class T> class Box : public Base", "A class.")
    size, unsaid, update = [member for member in box.members if not headers.quiet(box, member)]
    assert (size.text, size.comment) == ("int size() const", "Said here, and here.")
    assert (unsaid.name, unsaid.comment) == ("unsaid", "")
    assert update.comment == "For those who derive."
    assert (pair.name, other.name, other.comment) == ("pair", "pair", "As the one before.")
    options, = opened.members
    assert options.members[0].text == "int count = 60'000" and options.members[0].comment == "how many"
    assert options.members[1].comment == "how many others"
    assert macro.text == "LOCKSTEP_END(TYPE)" and macro.comment == "For a library's end."
    assert headers.promise(HEADER) == "What it promises; at length. More."


def test_a_chapter_says_what_it_is():
    sys.path.insert(0, str(SOURCE / "scripts/docs"))
    import chapters
    text = "# 3. Groups\n\n> **Overview.** 25 minutes; after [2](02.md).\n>\n> - What a group\n>   is.\n> - More\n\n> - No more\n"
    assert chapters.read(text) == (("3", "Groups"), "25", "What a group is")
    assert chapters.read("# Groups\n\n> **Explanation.** 25 minutes\n>\n> - A point\n") == (("", ""), "", "")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    page, lost = SOURCE / name, []
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)|href=\"([^\"]+)\"", text):
        path, _, fragment = "".join(target).partition("#")
        if re.match(r"\w+:", path):
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (fragment and there.suffix == ".md" and fragment not in anchors(there)):
            lost.append("".join(target))
    assert not lost


def test_pictures_are_read_on_white_and_on_black():
    pictures = [picture for folder in ("docs", "tutorials") for picture in (SOURCE / folder).rglob("*.svg")]
    assert len(pictures) > 10
    for picture in pictures:
        text = picture.read_text()
        assert re.search(r"@media ?\(prefers-color-scheme: ?dark\)", text), picture
        root = ElementTree.fromstring(text)  # well-formed, and so shown at all
        assert root.get("viewBox"), picture
        assert not re.search(r"<script|(href|src)=[\"'](?!#)|url\((?!#)", text), f"{picture} takes something from elsewhere"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("CHANGELOG.md", "docs/api.md")])
def test_files_that_are_named_exist(name):
    """Words in backticks that begin with a folder of the repository, a layer of src, or name a header of a module."""
    lost = []
    for word in re.findall(r"`((?!\./)[\w.]+/[\w./-]*)`", prose(SOURCE / name)):
        inside = word.removeprefix("lockstep/")  # as an include names it
        places = [SOURCE / word] * (word.split("/")[0] in TOP) + \
            [LOCKSTEP / inside] * (LOCKSTEP / inside.split("/")[0]).exists() + \
            [SOURCE / "src" / word] * (SOURCE / "src" / word.split("/")[0]).exists()
        if not places or "NAME" in word:
            continue  # not a path of ours
        lost += [] if any(place.exists() for place in places) else [word]
    assert not lost


def test_names_that_the_docs_speak_of_are_public():
    public = set(re.findall(r"\w+", (SOURCE / "docs/api.md").read_text())) | {"lockstep", "cuda", "course"}  # CMake's targets
    lost = {f"{name}: lockstep::{word}" for name in NAMES for word in
            re.findall(r"\blockstep::([a-z_]\w*|[A-Z]\w*[a-z]\w*)", (SOURCE / name).read_text()) if word not in public}
    assert not lost


def stations():
    """(way, file, name) of every station in docs/architecture.md."""
    text = (SOURCE / "docs/architecture.md").read_text()
    ways = text.partition("## Six ways")[2].partition("\n## Ten words")[0]
    for way in re.split(r"^###? ", ways, flags=re.M)[1:]:
        for file, name in re.findall(r"^\| `([\w/.]+)` \| `([\w:]+)` \|", way, re.M):
            yield way.splitlines()[0], file, name


def test_the_ways_through_the_code_pass_files_and_names_that_exist():
    found = list(stations())
    assert len({way for way, _, _ in found}) == 7 and len(found) > 60
    lost = []
    for way, file, name in found:
        path = next((place for place in (LOCKSTEP / file, SOURCE / "src" / file) if place.exists()), None)
        if not path or not re.search(rf"\b{name}(\(|::)", path.read_text()):
            lost.append(f"{way}: {file} {name}")
    assert not lost


def test_the_page_of_errors_has_every_code():
    source = (LOCKSTEP / "base/error.cpp").read_text()
    codes = re.findall(r'"([\w-]+)"', source.partition("kNames[] = {")[2].partition("};")[0])
    assert len(codes) > 10
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", (SOURCE / "docs/errors.md").read_text(), re.M)) == sorted(codes)


def test_decisions_are_numbered_listed_and_say_why():
    folder = SOURCE / "docs/decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == [page.name for page in pages]
    for number, page in enumerate(pages, 1):
        assert page.name.startswith(f"{number:04}-")
        for heading in ("**What.**", "**Why.**", "**What else was weighed.**"):
            assert heading in page.read_text(), f"{page.name}: {heading}"


def test_the_changelog_ends_with_versions_that_were():
    """The newest release in CHANGELOG.md is the project's version, with what is unreleased above it."""
    headings = re.findall(r"^## (\S+)", (SOURCE / "CHANGELOG.md").read_text(), re.M)
    version = re.search(r"project\(lockstep VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    assert headings[0] == "Unreleased" and headings[1] == version
