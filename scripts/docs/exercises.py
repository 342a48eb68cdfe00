"""The exercises as learners find them, for who reads the chapters in the repository or on the site: made from their masters."""

from modules import ROOT

COURSE = ROOT / "tutorials"
MARKS = ("//@ ", "#@ ")


def learners_form(master):
    """A master's text without its marks, and with the todo of each hole (course/workshop/master.h)."""
    lines, kind = [], "todo"
    for line in master.splitlines(keepends=True):
        if line.strip().startswith(MARKS):
            word = line.split()[1]
            kind = "todo" if word in ("title", "hint", "unsolved", "end") else word
        elif kind == "todo" and (lines or line.strip()):
            lines.append(line)
    return "".join(lines)


def forms():
    """{its file: an exercise's text}"""
    return {COURSE / "exercises" / master.name: learners_form(master.read_text())
            for master in sorted((COURSE / "masters").glob("*"))}
