"""Checks what each chapter of the course says of itself in its title and its Overview (CONTRIBUTING.md)."""

import re

from modules import ROOT

FOLDER = ROOT / "tutorials"


def read(text):
    """(number, title, minutes, what it is about) of a chapter; what it does not say is empty."""
    title = re.search(r"^# (\d+)\. (.+)$", text, re.M)
    overview = re.search(r"^> \*\*Overview\.?\*\*.*(?:\n>.*)*", text, re.M)
    inside = overview[0] if overview else ""
    minutes = re.search(r"(\d+) min", inside)
    first = re.search(r"^> [-*] (.+(?:\n> {3,}\S.*)*)", inside, re.M)
    about = re.sub(r"\s*\n> *", " ", first[1]).rstrip(".") if first else ""
    return (title[1], title[2]) if title else ("", ""), minutes[1] if minutes else "", about


def unsaid():
    """Chapters that do not say all of it."""
    for chapter in sorted(FOLDER.glob("[0-9][0-9]-*.md")):
        (number, title), minutes, about = read(chapter.read_text())
        said = {"a title `# N. TITLE`": title, "minutes in its Overview": minutes, "a point in its Overview": about}
        yield from (f"tutorials/{chapter.name}: no {wanted}" for wanted, value in said.items() if not value)
        if number and int(number) != int(chapter.name[:2]):
            yield f"tutorials/{chapter.name}: its title says {number}"
