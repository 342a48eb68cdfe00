"""A comparison as one HTML file, drawn by the template of lockstep's own reports."""

import html
import json
import re

import launch
import show

TEMPLATE = launch.ROOT / "src/tools/report/page.html"
TASKS = {"cnn": "MNIST CNN, images", "mlp": "Pima MLP, samples", "images": "resnet18, images", "texts": "BERT-small, texts"}


def page(title, sections, text):
    """sections: [(heading, [{kind: value}])], with kinds that the template draws; text: for a browser without JavaScript."""
    shown = [{"heading": heading, "items": items} for heading, items in sections if items]
    values = {"title": html.escape(title), "text": html.escape(text), "data": json.dumps({"sections": shown}).replace("<", "\\u003c")}
    return re.sub(r"\{\{(title|text|data)\}\}", lambda match: values[match[1]], TEMPLATE.read_text())


def speeds(record, task):
    found = [who for who in record["contestants"] if who["task"] == task]
    return [{"bars": {"title": f"{TASKS[task]} per second, all ranks: median", "y_label": "", "parts": ["median"],
                      "names": [who["title"] for who in found], "values": [[who["figures"]["median"]] for who in found]}}] if found else []


def lines(texts):
    return [{"list": texts}] if texts else []


def comparison(record):
    wrong = record["wrong"] + [f"{job} failed: {why}" for job, why in record["failed"].items()]
    busy = [f"{row['target']} {row['ours']}: {row['busy']}" for row in record["rows"] if row.get("busy")]
    return page(f"lockstep and its peers, {record['when']}", [
        ("Wrong", lines(wrong)),
        ("Targets", [{"table": [show.HEAD, *map(show.cells, record["rows"])]}]),
        ("Speed", [item for task in TASKS for item in speeds(record, task)]),
        ("Too busy for a verdict", lines(busy)),
        ("Verified", lines(record["right"])),
        ("Machine", [{"table": [("what", "found"), *record["facts"].items()]}])], show.text(record))
