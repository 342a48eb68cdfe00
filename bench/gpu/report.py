"""The report of a kit's run: JSON and Markdown, both written again whenever a part begins or ends."""

import json
import os
import time

FORMAT = 1


class Report:
    def __init__(self, folder, begun, facts, rows):
        self.folder, self.begin = folder, time.monotonic()
        self.record = {"format": FORMAT, "when": begun, "seconds": 0.0, "whole": False, "facts": facts,
                       "parts": [{"name": row.name, "what": row.what, "state": "not begun", "why": "", "seconds": 0.0, "found": {}}
                                 for row in rows]}

    def tell(self, name, **what):
        next(part for part in self.record["parts"] if part["name"] == name).update(what)
        self.write()

    def states(self):
        return [part["state"] for part in self.record["parts"]]

    def write(self, **what):
        self.record.update(what, seconds=time.monotonic() - self.begin)
        for name, text in (("report.json", json.dumps(self.record, indent=1) + "\n"), ("report.md", markdown(self.record))):
            half = self.folder / f".{name}"
            half.write_text(text)
            os.replace(half, self.folder / name)


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def details(part):
    lines = [f"- {name}: {cell(how)}" for name, how in part["found"].items() if name != "table"]
    if "table" in part["found"]:
        lines += ["", "```", part["found"]["table"], "```"]
    if part["why"] and "\n" in part["why"]:
        lines += ["", "```", part["why"], "```"]
    return "\n".join([f"## {part['name']}: {part['state']}", "", *lines, ""]) if lines else ""


def markdown(record):
    parts = record["parts"]
    first = [[part["name"], part["what"], part["state"], f"{part['seconds']:.0f} s" if part["seconds"] else "",
              part["why"].partition("\n")[0]] for part in parts]
    return "\n".join([
        "# lockstep on a GPU", "",
        f"Begun {record['when']}, {record['seconds']:.0f} s{'' if record['whole'] else ', not at its end'}. The programs' output: logs.txt",
        "", table(["fact", ""], record["facts"].items()), "", table(["part", "what", "state", "took", "why"], first), "",
        *filter(None, map(details, parts))])
