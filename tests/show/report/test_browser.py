"""The HTML report in a real Chromium, opened from a disk."""

from __future__ import annotations

import re

import pytest
from tests.browser import visiting

from neuraldbg.show.report.svg import THEMES

CONTRAST = """
() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own) continue;
    const drawn = element.closest("svg") !== null;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(drawn ? style.fill : style.color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([drawn ? "svg" : "page", ratio, element.textContent.trim().slice(0, 40)]);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def address(doomed, tmp_path_factory):
    path = tmp_path_factory.mktemp("a report") / "report <1>.html"
    path.write_text(doomed.html, encoding="utf-8")
    return path.as_uri()


def rgb(colour):
    return f"rgb({int(colour[1:3], 16)}, {int(colour[3:5], 16)}, {int(colour[5:7], 16)})"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_opens_without_a_network_and_without_an_error(browser, address, theme):
    with visiting(browser, offline=True, color_scheme=theme, viewport={"width": 1200, "height": 900}) as visit:
        alerts = []
        visit.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        visit.page.goto(address)
        for summary in visit.page.locator("summary").all():
            summary.click()
        assert visit.page.locator("svg").count() >= 10
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(THEMES[theme]["--ground"])
        assert visit.page.locator("body img, body script").count() == 0
        told = visit.page.evaluate(CONTRAST)
        assert len([one for one in told if one[0] == "svg"]) > 50
        # Type in pictures is a mark as well: the names of guilty layers are bold and in the colour of their line.
        assert [one for one in told if one[1] < (4.5 if one[0] == "page" else 3.0)] == []
        assert (alerts, visit.errors, visit.requests) == ([], [], [address])


def test_nothing_is_wider_than_a_phone(browser, address):
    with visiting(browser, viewport={"width": 360, "height": 700}) as visit:
        visit.page.goto(address)
        for summary in visit.page.locator("summary").all():
            summary.click()
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
        fits = "[...document.querySelectorAll('.both')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert visit.page.evaluate(fits) == 0
        over = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.drawing'))"
        over += ".filter(e => e.getBoundingClientRect().right > 360.5).map(e => e.outerHTML.slice(0, 80))"
        assert visit.page.evaluate(over) == []


def test_paper_shows_what_is_folded_and_cuts_no_picture(browser, address):
    with visiting(browser, color_scheme="dark") as visit:
        visit.page.goto(address)
        visit.page.emulate_media(media="print", color_scheme="dark")
        hidden = (
            "[...document.querySelectorAll('details:not([open]) svg')].filter(e => !e.getBoundingClientRect().height)"
        )
        assert visit.page.locator("details:not([open]) svg").count() >= 4
        assert visit.page.evaluate(f"{hidden}.length") == 0
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        paper = visit.page.pdf(prefer_css_page_size=True)
    assert paper.startswith(b"%PDF")
    sizes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", paper)
    assert {(round(float(wide)), round(float(high))) for wide, high in sizes} == {(595, 842)}
    assert 3 <= len(re.findall(rb"/Type /Page\b", paper)) <= 20


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_picture_is_cut_at_any_width_of_a_window(browser, address, theme):
    """Below the width of a tablet, pictures further down are moved under the finger."""
    cut = "[...document.querySelectorAll('.drawing')].filter(e => e.scrollWidth > e.clientWidth).length"
    with visiting(browser, color_scheme=theme) as visit:
        visit.page.goto(address)
        for summary in visit.page.locator("summary").all():
            summary.click()
        for width in (641, 800, 1100, 1199, 1200, 1260, 1280, 1295, 1600):
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert visit.page.evaluate(cut) == 0, width
            assert visit.page.evaluate("document.documentElement.scrollWidth") == width


def test_in_a_wide_window_the_chain_stands_beside_the_causes(browser, address):
    with visiting(browser, viewport={"width": 1600, "height": 900}) as visit:
        visit.page.goto(address)
        assert visit.page.locator(".note", has_text="median").count() >= 1
        boxes = [visit.page.locator(name).bounding_box() for name in ("#causes", "#chain")]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        assert visit.page.evaluate("[...document.querySelectorAll('main > :not(section)')].length") == 0
