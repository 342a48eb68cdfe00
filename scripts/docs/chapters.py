"""Checks what each chapter of the course says of itself in its title and its Overview (CONTRIBUTING.md)."""

import re

from modules import ROOT


def unsaid():
    """Chapters that do not say all of it."""
    for chapter in sorted((ROOT / "tutorials").glob("[0-9][0-9]-*.md")):
        text = chapter.read_text()
        title = re.search(r"^# (\d+)\. .+$", text, re.M)
        overview = (re.findall(r"^> \*\*Overview\.?\*\*.*(?:\n>.*)*", text, re.M) or [""])[0]
        said = {"a title `# N. TITLE`": title, "minutes in its Overview": re.search(r"\d+ min", overview),
                "a point in its Overview": re.search(r"^> [-*] .", overview, re.M)}
        yield from (f"tutorials/{chapter.name}: no {wanted}" for wanted, value in said.items() if not value)
        if title and int(title[1]) != int(chapter.name[:2]):
            yield f"tutorials/{chapter.name}: its title says {title[1]}"
