"""The docs are true: generated parts are as the sources say, links lead somewhere, files and names exist."""

import re
import subprocess
import sys

import pytest
from conftest import SOURCE
from docs_kit import PAGES, prose

pytestmark = pytest.mark.about("docs", "scripts")

LIBRARY = SOURCE / "src/lockstep"
REFERENCE = SOURCE / "docs/reference"
TOP = {path.name for path in SOURCE.iterdir()} - {".deps", "build", "runs"}  # the build and the tests make these


def test_generated_parts_match_the_sources():
    """The API page, the tables and the picture; every public name has its `///` line, every chapter its minutes."""
    check = subprocess.run([sys.executable, "-B", SOURCE / "scripts/docs", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def anchors(page):
    """The fragments that its headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page, target):
    path, _, fragment = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    found = there.exists() and (not fragment or there.suffix != ".md" or fragment in anchors(there))
    return found or re.match(r"\w+:", path)


def test_links_lead_somewhere():
    lost = []
    for page in PAGES:
        targets = re.findall(r"\]\(([^)\s]+)\)|href=\"([^\"]+)\"", re.sub(r"`[^`\n]*`", "", prose(page)))
        lost += [f"{page.name}: {target}" for target in map("".join, targets) if not leads_somewhere(page, target)]
    assert not lost


def is_lost(word):
    """Whether this names a path of the repository where no file is."""
    inside, first = word.removeprefix("lockstep/"), word.split("/")[0]  # as an include names it
    places = [SOURCE / word] * (first in TOP) + [LIBRARY / inside] * (LIBRARY / inside.split("/")[0]).exists() + \
        [SOURCE / "src" / word] * (SOURCE / "src" / first).exists()
    return places and "NAME" not in word and not any(place.exists() for place in places)


def test_files_and_names_exist():
    """Paths in backticks that begin with a folder of the repository or a layer of src; names of `lockstep::`."""
    public = set(re.findall(r"\w+", (REFERENCE / "api.md").read_text())) | {"lockstep", "cuda", "course"}  # CMake's targets
    lost = [f"{page.name}: {word}" for page in PAGES if page.name not in ("CHANGELOG.md", "api.md")
            for word in re.findall(r"`((?!\./)[\w.]+/[\w./-]*)`", prose(page)) if is_lost(word)]
    lost += [f"{page.name}: lockstep::{word}" for page in PAGES for word in
             re.findall(r"\blockstep::([a-z_]\w*|[A-Z]\w*[a-z]\w*)", page.read_text()) if word not in public]
    assert not lost


def test_the_paths_through_the_code_name_files_and_functions_that_exist():
    text = (SOURCE / "docs/architecture.md").read_text().partition("## Paths through the code")[2]
    found = re.findall(r"^\| `([\w/.]+)` \| `([\w:]+)` \|", text, re.M)
    sources = {file: "".join(place.read_text() for place in (LIBRARY / file, SOURCE / "src" / file) if place.exists())
               for file, _ in found}
    assert len(found) > 20
    assert not [(file, name) for file, name in found if not re.search(rf"\b{name}(\(|::)", sources[file])]


def test_the_pages_have_every_error_code_and_every_check_of_the_doctor():
    names = (LIBRARY / "base/error.cpp").read_text().partition("kNames[] = {")[2].partition("};")[0]
    codes = re.findall(r'"([\w-]+)"', names)
    listed = re.findall(r"^\| `([\w-]+)` \|", (REFERENCE / "errors.md").read_text(), re.M)
    assert len(codes) > 10 and sorted(listed) == sorted(codes)
    doctor = "".join(file.read_text() for file in (SOURCE / "src/tools/doctor").glob("*.*"))
    rows = set(re.findall(r"^\| `(\w+)` \|", (REFERENCE / "doctor.md").read_text(), re.M))
    assert len(rows) > 20 and not [check for check in rows if f'"{check}"' not in doctor]
    hints = re.findall(r'\{Code::\w+, "(\w+)"\}', (LIBRARY / "launch/process/report.cpp").read_text())
    advice = re.findall(r"doctor's checks?([^;.)]*)", (SOURCE / "docs/how-to/error-messages.md").read_text())
    assert len(hints) > 5 and rows >= {*hints, *re.findall(r"`(\w+)`", "".join(advice))}
