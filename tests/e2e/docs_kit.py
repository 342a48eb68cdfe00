"""The pages of the repository and the code blocks in them, for the tests that hold them to what is true."""

import dataclasses
import re

from conftest import SOURCE

PAGES = sorted([*SOURCE.glob("*.md"), *(folder_page for folder in ("docs", "examples", "tutorials")
                                        for folder_page in (SOURCE / folder).rglob("*.md"))])


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code."""
    page: str
    line: int       # of its first line of code
    language: str
    text: str
    said: dict      # what comments on the lines before the fence say: <!-- WORD: VALUE --> or <!-- WORD -->

    def __str__(self):
        return f"{self.page}:{self.line}"


def fences(lines):
    """(first line, last line, its language) of every fenced block, by index. A fence is closed by one as long and bare, so
    a longer one holds others."""
    opened = None
    for number, line in enumerate(lines):
        fence = re.match(r"[\s>]*(`{3,})([^\s`]*)[^`]*$", line)
        if fence and opened is None:
            opened = number, len(fence[1]), fence[2]
        elif fence and not fence[2] and len(fence[1]) >= opened[1]:
            yield opened[0], number, opened[2]
            opened = None
    assert opened is None, f"line {opened[0] + 1}: a fence is never closed"


def prose(page):
    """A page without its code blocks."""
    lines = page.read_text().splitlines()
    for first, last, _ in reversed(list(fences(lines))):
        del lines[first:last + 1]
    return "\n".join(lines) + "\n"


def said_before(lines, first):
    """What the comments right above a fence say."""
    said = {}
    while first and (comment := re.match(r"[\s>]*<!-- ([a-z ]+?)(?:: *(.*?))? *-->$", lines[first - 1])):
        said[comment[1]] = comment[2] or ""
        first -= 1
    return said


def blocks_of(page):
    """Every fenced block of a page, in its order; one in a quote or a list without what stands before its lines."""
    lines = page.read_text().splitlines()
    name = str(page.relative_to(SOURCE)) if page.is_relative_to(SOURCE) else page.name
    for first, last, language in fences(lines):
        before = re.match(r"([\s>]*)", lines[first])[0]
        margin = rf"\s{{0,{len(before)}}}(> ?){{0,{before.count('>')}}}"
        inside = [re.sub(f"^{margin}", "", line) for line in lines[first + 1:last]]
        yield Block(name, first + 2, language, "\n".join(inside) + "\n", said_before(lines, first))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(*languages):
    """Those of a language that are to be checked by themselves: others say why not, or stand for a file."""
    return [block for block in BLOCKS if block.language in languages and not {"not checked", "file", "from"} & set(block.said)]
