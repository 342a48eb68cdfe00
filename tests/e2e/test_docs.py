"""The docs are true: generated parts are as the sources say, links lead somewhere, files and names exist."""

import re
import subprocess
import sys

import pytest
from conftest import SOURCE
from docs_kit import PAGES, prose

pytestmark = pytest.mark.about("docs", "scripts")

LOCKSTEP = SOURCE / "src/lockstep"
TOP = {path.name for path in SOURCE.iterdir()} - {".deps", "build", "runs"}  # what is made here
NAMES = [str(page.relative_to(SOURCE)) for page in PAGES]


def anchors(page):
    """The fragments that its headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_is_generated_is_as_the_sources_say():
    """docs/api.md, the tables and the picture of docs/architecture.md; and every public name has
    its `///` line, every chapter its minutes."""
    check = subprocess.run([sys.executable, "-B", SOURCE / "scripts/docs", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def test_links_lead_somewhere():
    lost = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", prose(page))
        for target in map("".join, re.findall(r"\]\(([^)\s]+)\)|href=\"([^\"]+)\"", text)):
            path, _, fragment = target.partition("#")
            if re.match(r"\w+:", path):
                continue
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (fragment and there.suffix == ".md" and fragment not in anchors(there)):
                lost.append(f"{page.name}: {target}")
    assert not lost


def is_lost(word):
    """Is this a path of ours, and of no file?"""
    inside = word.removeprefix("lockstep/")  # as an include names it
    places = [SOURCE / word] * (word.split("/")[0] in TOP) + \
        [LOCKSTEP / inside] * (LOCKSTEP / inside.split("/")[0]).exists() + \
        [SOURCE / "src" / word] * (SOURCE / "src" / word.split("/")[0]).exists()
    return places and "NAME" not in word and not any(place.exists() for place in places)


def test_files_that_are_named_exist():
    """Words in backticks that begin with a folder of the repository, a layer of src, or name a header of a module."""
    lost = [f"{name}: {word}" for name in NAMES if name not in ("CHANGELOG.md", "docs/api.md")
            for word in re.findall(r"`((?!\./)[\w.]+/[\w./-]*)`", prose(SOURCE / name)) if is_lost(word)]
    assert not lost


def test_names_that_the_docs_speak_of_are_public():
    public = set(re.findall(r"\w+", (SOURCE / "docs/api.md").read_text())) | {"lockstep", "cuda", "course"}  # CMake's targets
    lost = {f"{name}: lockstep::{word}" for name in NAMES for word in
            re.findall(r"\blockstep::([a-z_]\w*|[A-Z]\w*[a-z]\w*)", (SOURCE / name).read_text()) if word not in public}
    assert not lost


def stations():
    """(way, file, name) of every station in docs/architecture.md."""
    text = (SOURCE / "docs/architecture.md").read_text()
    ways = text.partition("## Paths through the code")[2].partition("\n## Glossary")[0]
    for way in re.split(r"^### ", ways, flags=re.M)[1:]:
        for file, name in re.findall(r"^\| `([\w/.]+)` \| `([\w:]+)` \|", way, re.M):
            yield way.splitlines()[0], file, name


def test_the_ways_through_the_code_pass_files_and_names_that_exist():
    found = list(stations())
    assert len({way for way, _, _ in found}) == 7 and len(found) > 40
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


TROUBLES = SOURCE / "docs/troubleshooting.md"


def troubles():
    """The rows of the page's first table: the words that are seen, and the doctor's checks."""
    text = TROUBLES.read_text().split("| you see |")[1].split("\n\n")[0]
    for cells in (line.strip("| ").split(" | ") for line in text.splitlines()[2:]):
        assert len(cells) in (3, 4), cells
        yield cells[0], re.findall(r"`(\w+)`", "".join(cells[3:]))


def test_the_doctor_has_the_checks_that_the_page_and_the_errors_name():
    names = ("rules_job.cpp", "rules_node.cpp", "session.h", "doctor.cpp")
    code = "".join((SOURCE / "src/tools/doctor" / name).read_text() for name in names)
    prose = " ".join(re.findall(r"\*\*The doctor\*\*(?:.+\n)+|check `\w+`", TROUBLES.read_text()))
    named = {check for _, checks in troubles() for check in checks} | set(re.findall(r"`(\w+)`", prose))
    assert len(named) > 10 and not [check for check in named if f'"{check}"' not in code], named
    code = (SOURCE / "src/lockstep/launch/process/report.cpp").read_text()
    checks = re.findall(r'\{Code::\w+, "(\w+)"\}', code)
    assert len(checks) > 5 and not [check for check in checks if f"| `{check}` |" not in (SOURCE / "docs/doctor.md").read_text()]
