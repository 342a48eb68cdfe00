"""What a browser sees of a page: tests import the fixture `chromium`."""

import html
import json
import re
import shutil

import pytest

from conftest import run_process


@pytest.fixture
def chromium(tmp_path):
    """chromium(page, FLAG...) -> its output, with no network at all."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("there is no chromium to look at the page with")

    def look(page, *flags):
        return run_process([program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/browser",
                            "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000", "--hide-scrollbars",
                            *flags, page], check=True).stdout
    return look


LOOK = """
<script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("*")].filter((one) => one.getClientRects().length);
  const cut = seen.filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX != "visible");
  const pictures = seen.filter((one) => one.matches("svg.ls, img[src$='.svg']")).map((one) => one.getBoundingClientRect());
  const texts = seen.filter((one) => one.matches("svg text")).map((one) => [
    parseFloat(getComputedStyle(one).fontSize) * one.ownerSVGElement.getScreenCTM().a,
    one.getBoundingClientRect().left, one.getBoundingClientRect().right]);
  parent.postMessage(JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, cut: cut.map((one) => one.className || one.tagName),
    pictures: pictures.map((one) => [one.left, one.right]), texts}), "*");
});
</script>
"""

# a window itself is never narrower than 500
AROUND = """<!doctype html><html><body>
<script>addEventListener("message", (told) => {{ document.documentElement.dataset.look = told.data; }});</script>
<iframe style="width:{width}px;height:2000px;border:0" src="file://{copy}"></iframe></body></html>
"""


def measured(chromium, page, width, scratch):
    """How a page lies in a window so wide: {width, page, cut, pictures: [[left, right]], texts: [[size, left, right]]}."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy, around = page.with_name(f"{page.stem}-copy.html"), scratch / f"around-{width}.html"
    copy.write_text(text.replace("</body>", LOOK + "</body>"))
    around.write_text(AROUND.format(width=width, copy=copy))
    dom = chromium(f"file://{around}", "--window-size=1600,2000", "--dump-dom")
    copy.unlink()
    return json.loads(html.unescape(re.search(r'data-look="([^"]*)"', dom)[1]))
