"""The table of choices that exclude each other, as src/trainer/config/rules.cpp has it."""

import re

from modules import ROOT

SOURCE = ROOT / "src/trainer/config/rules.cpp"
TEXT = r'"((?:[^"\\]|\\.)*)"'


def parts(text):
    """What stands between the commas of the outermost braces; strings joined as C++ joins them."""
    found, depth, word, quoted = [], 0, "", False
    for at, letter in enumerate(text):
        quoted ^= letter == '"' and text[at - 1] != "\\"
        depth += 0 if quoted else (letter in "{([") - (letter in "})]")
        if letter == "," and depth == 0 and not quoted:
            found, word = [*found, word.strip()], ""
        else:
            word += letter
    return [*found, word.strip()] if word.strip() else found


def named(source):
    """{kName: what it stands for}"""
    choices = dict(re.findall(r"const Choice (k\w+) =\s*(\{.*?\});\n", source, re.S))
    return choices | dict(re.findall(r"const char\* (k\w+) =\s*(\".*?\");", source, re.S))


def choice(text):
    key, value = re.findall(TEXT, text)[:2]
    return f"`{key}`{' ' if value else ''}{value}"


def rows():
    """[(choice, choice, why)]"""
    source = SOURCE.read_text()
    names = named(source)
    table = re.search(r"> all = \{\n(.*?)\n  \};", source, re.S)[1]
    for row in parts(table):
        one, other, why, _ = (names.get(part, part) for part in parts(row[1:-1]))
        yield choice(one), choice(other), "".join(re.findall(TEXT, why))


def table():
    return "\n".join(["| setting | cannot be combined with | reason |", "|---|---|---|", *(f"| {one} | {other} | {why} |" for one, other, why in rows())])
