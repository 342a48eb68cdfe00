"""A comparison as one HTML file that opens from a disk: nothing in it comes from elsewhere, light and dark."""

import html
import math

import show

STYLE = """
:root{--paper:#fff;--ink:#1b1f24;--soft:#57606a;--line:#dde1e6;--card:#f6f8fa;--peer:#6b6b6b;--ours:#0d56a1;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#e8eaed;--soft:#a3adb8;--line:#343b45;--card:#1c2027;
--peer:#808080;--ours:#42b5ff;--bad:#ff8b80}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1320px;margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2.5rem)}
h1{font-size:1.8rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid var(--line)}
.scroll{overflow-x:auto;--ground:var(--paper);--edge:2.2rem 100% no-repeat local;--shade:.9rem 100% no-repeat scroll;background:
linear-gradient(to right,var(--ground) 40%,transparent) left/var(--edge),
linear-gradient(to left,var(--ground) 40%,transparent) right/var(--edge),
linear-gradient(to right,var(--soft),transparent) left/var(--shade),
linear-gradient(to left,var(--soft),transparent) right/var(--shade),var(--ground)}
.scroll:has(svg){--ground:var(--card);border-radius:10px;max-width:980px;margin:1rem 0}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.28rem .8rem .28rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft)}.wrong{color:var(--bad);font-weight:600}
svg{display:block;width:100%;min-width:800px;height:auto}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft)}svg .name{fill:var(--ink)}
svg .grid{stroke:var(--line)}svg .peer{fill:var(--peer);stroke:var(--peer)}svg .ours{fill:var(--ours);stroke:var(--ours)}
svg circle.busy{fill:var(--card)}svg .want{stroke:var(--ink);stroke-width:2}svg .more{stroke-dasharray:3 3}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WIDTH, LEFT, RIGHT, ROW = 940, 340, 90, 30


def table(rows):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
    return f'<div class="scroll"><table>{line(rows[0], "th")}{"".join(line(row, "td") for row in rows[1:])}</table></div>'


def bullets(texts, kind=""):
    return "<ul>" + "".join(f'<li class="{kind}">{html.escape(text)}</li>' for text in texts) + "</ul>"


class LogAxis:
    """From values to places between LEFT and the right edge, with marks at 1, 2 and 5."""

    def __init__(self, values):
        low, high = math.log10(min(values)), math.log10(max(values))
        self.low, self.high = low - 0.08, max(high, low + 0.3) + 0.08

    def at(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(value) - self.low) / (self.high - self.low)

    def marks(self):
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        return [m * 10**d for d in decades for m in (1, 2, 5) if self.low <= math.log10(m * 10**d) <= self.high]

    def grid(self, height):
        return "".join(f'<path class="grid" d="M{self.at(mark):.1f} 30V{height - 26}"/><text x="{self.at(mark):.1f}" '
                       f'y="{height - 10}" text-anchor="middle">{show.number(mark)}</text>' for mark in self.marks())


def picture(title, height, inside):
    return (f'<div class="scroll"><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{html.escape(title)}"><text class="name" x="12" y="20">{html.escape(title)}</text>'
            f'{inside}</svg></div>')


def measured(y, value):
    return f'<text class="name" x="{WIDTH - 12}" y="{y + 4}" text-anchor="end">{show.number(value)}</text>'


def strip(axis, y, name, kind, found):
    """A name, a line from the least to the greatest, a dot at the median, and its number."""
    low, middle, high = (axis.at(found[key]) for key in ("min", "median", "max"))
    return (f'<text class="name" x="12" y="{y + 4}">{html.escape(name)}</text>'
            f'<path class="{kind}" stroke-width="2" d="M{low:.1f} {y}H{high:.1f}"/>'
            f'<circle class="{kind}" cx="{middle:.1f}" cy="{y}" r="5"/>' + measured(y, found["median"]))


def strips(title, entries):
    """entries: (name, peer or ours, {min, median, max})"""
    axis, height = LogAxis([found[key] for *_, found in entries for key in ("min", "max")]), 60 + ROW * len(entries)
    return picture(title, height, axis.grid(height) + "".join(
        strip(axis, 45 + ROW * i, name, kind, found) for i, (name, kind, found) in enumerate(entries)))


TASKS = {"cnn": "MNIST CNN, images", "mlp": "Pima MLP, samples", "images": "resnet18, images", "texts": "BERT-small, texts"}


def speeds(record, task):
    entries = [(who["title"], "ours" if who["ours"] else "peer", who["figures"])
               for who in record["contestants"] if who["task"] == task]
    title = f"{TASKS[task]} a second, all ranks: median, least and greatest; Python grey, lockstep in colour"
    return strips(title, entries) if entries else ""


def ratios(record):
    """Each target's ratio as a dot, with what is wanted: a line for firm, a dashed one for stretch."""
    found = [row for row in record["rows"] if "ratio" in row and row["peer"] and row["ratio"] > 0]
    if not found:
        return ""
    wants = [row[key] for row in found for key in ("firm", "stretch") if row[key]]
    axis, height = LogAxis([row["ratio"] for row in found] + wants), 60 + ROW * len(found)
    inside = axis.grid(height)
    for i, row in enumerate(found):
        y, x = 45 + ROW * i, axis.at(row["ratio"])
        for key, kind in (("firm", "want"), ("stretch", "want more")):
            if row[key]:
                inside += f'<path class="{kind}" d="M{axis.at(row[key]):.1f} {y - 9}v18"/>'
        name = f"{row['target']}  {row['what']} / {show.peer_of(row)}"
        inside += (f'<text class="name" x="12" y="{y + 4}">{html.escape(name if len(name) < 52 else name[:51] + "…")}</text>'
                   f'<circle class="ours{" busy" if row["busy"] else ""}" cx="{x:.1f}" cy="{y}" r="5" stroke-width="2"/>'
                   + measured(y, row["ratio"]))
    title = "Ratios. A dot: measured (hollow: too busy for a verdict); a line: wanted; dashed: the stretch"
    return picture(title, height, inside)


def page(title, sections):
    body = "".join(f"<section><h2>{html.escape(heading)}</h2>{inside}</section>" for heading, inside in sections if inside)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{html.escape(title)}</h1>"
            f"{body}</main></body></html>\n")


def comparison(record):
    wrong = record["wrong"] + [f"{job} failed: {why}" for job, why in record["failed"].items()]
    busy = [f"{row['target']} {row['ours']}: {row['busy']}" for row in record["rows"] if row.get("busy")]
    return page(f"lockstep beside its peers, {record['when']}", [
        ("Wrong", wrong and bullets(wrong, "wrong")),
        ("Targets", table([show.HEAD, *map(show.cells, record["rows"])]) + ratios(record)),
        ("Speed", "".join(speeds(record, task) for task in TASKS)),
        ("Too busy for a verdict", busy and bullets(busy)),
        ("Verified", record["right"] and bullets(record["right"])),
        ("Machine", table([("what", "found"), *record["facts"].items()]))])
