"""The pages of the repository and the code blocks in them, for the tests that hold them to what is true."""

import dataclasses
import re

from conftest import SOURCE

PAGES = sorted([*SOURCE.glob("*.md"), *(SOURCE / "docs").rglob("*.md"), *(SOURCE / "examples").rglob("*.md")])


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code."""
    page: str
    line: int      # of its first line of code
    language: str
    text: str
    left_out: str  # why it cannot be checked: a comment `<!-- not checked: WHY -->` on the line before the fence

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(page):
    """Every fenced block of a page, in its order."""
    lines = page.read_text().splitlines()
    begin = None
    for number, line in enumerate(lines):
        if not (fence := re.match(r"\s*```(\w*)", line)):
            continue
        if begin is None:
            begin, language = number + 1, fence[1]
            reason = re.match(r"<!-- not checked: (.+) -->", lines[number - 1] if number else "")
            continue
        yield Block(str(page.relative_to(SOURCE)), begin + 1, language, "\n".join(lines[begin:number]) + "\n",
                    reason[1] if reason else "")
        begin = None
    assert begin is None, f"{page}:{begin}: a fence is never closed"


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(*languages):
    """Those of a language that are to be checked."""
    return [block for block in BLOCKS if block.language in languages and not block.left_out]
