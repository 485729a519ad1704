"""The report in a real browser: quiet, offline, harmless, and usable by everybody.

Skipped, with the reason, where no Chromium is on the machine.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
import records

from helpers.results import report

DESK, PHONE = (1280, 900), (390, 844)
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.tab(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of six demo records, one of which failed its fairness check."""
    batch = tmp_path_factory.mktemp("batch")
    folder = records.six(batch)[-1]
    content = json.loads((folder / "record.json").read_text())
    bad = {"check": "gradients", "difference": 0.4, "threshold": 0.05, "verdict": "fail"}
    odd = {"check": "pixels", "difference": None, "threshold": None, "verdict": "not checked"}
    content["fairness"]["comparable"] = False
    content["fairness"]["checks"] += [bad | {"reason": "summed"}, odd | {"reason": "no time"}]
    (folder / "record.json").write_text(json.dumps(content))
    return report.write(batch).as_uri()


def test_it_opens_without_a_word_and_without_a_request(tab: browser.Page, address: str) -> None:
    for width, height in (DESK, PHONE):
        tab.size(width, height)
        tab.open(address)
        assert tab.said == []
        assert [asked for asked in tab.asked if asked != address and asked != "data:,"] == []
        assert tab.run("document.querySelectorAll('figure svg').length") >= 4
        drawn = "[...document.querySelectorAll('canvas')].every(c => c.height > 50)"
        assert tab.run(drawn) and tab.run("document.querySelectorAll('canvas').length") > 1


def test_on_a_phone_only_tables_scroll_sideways(tab: browser.Page, address: str) -> None:
    tab.size(*PHONE)
    tab.open(address)
    assert tab.run("document.documentElement.scrollWidth") <= PHONE[0]
    for width in (500, 700, 800, 900):
        tab.size(width, 900)
        assert tab.run("document.documentElement.scrollWidth") <= width
    tab.size(*PHONE)
    wide = "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth)"
    assert tab.run(f"{wide}.length") > 0
    assert tab.run(f"{wide}.every(b => getComputedStyle(b).overflowX === 'auto')")


def test_all_runs_can_be_sorted_filtered_and_copied(tab: browser.Page, tmp_path: Path) -> None:
    for devices in (1, 2, 4):
        for framework, notebook, speed in records.SIX:
            content = records.make(framework, devices, notebook=notebook, speed=speed * devices)
            records.save(tmp_path, content)
    tab.size(1440, 900)
    tab.open(report.write(tmp_path).as_uri())
    tab.run(UNFOLD)
    assert tab.run(STRUCTURE) == []
    shown = "[...document.querySelectorAll('.all tbody tr')].filter(r => r.getClientRects().length)"
    assert len(tab.run(f"{shown}.map(r => r.rowIndex)")) == 6  # of 18, until one asks for them
    rates = f"{shown}.map(r => Number(r.cells[1].dataset.value))"
    for factor in (1, -1):
        tab.run("document.querySelectorAll('.all .sort')[1].click()")
        found = [factor * rate for rate in tab.run(rates)]
        assert len(found) == 18 and found == sorted(found)
    tab.run(
        "(f => { f.value = 'keras 2'; f.dispatchEvent(new Event('input')); })"
        "(document.querySelector('.tools input'))"
    )
    assert tab.run(f"{shown}.map(r => r.cells[0].textContent)") == ["Keras, 2 devices"]
    tab.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    for number, start in enumerate(
        ("| on 4 devices | training (s) |", "on 4 devices,training (s),")
    ):
        tab.run(
            f"document.querySelectorAll('.tools')[0].querySelectorAll('.copy')[{number}].click()"
        )
        lines = tab.run("window.copied").splitlines()
        assert lines[0].startswith(start) and "Keras, 2 devices" in lines[-1]
    assert tab.said == []


PAPER = (718, 1000)
"""A4 between its margins, in CSS pixels."""
BEYOND = """
[...document.querySelectorAll('main *, header *')].filter(e => e.getClientRects().length
  && !e.closest('.unseen') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => `${e.tagName} ${e.textContent.trim().slice(0, 40)}`)
"""
HIDDEN = """
[...document.querySelectorAll('table, canvas, figure, .gpumon-legend i')].filter(e => {
  for (let p = e; p; p = p.parentElement) if (p.tagName === 'DETAILS' && !p.open) return true;
  const clips = getComputedStyle(e.closest('.scroll') || e).overflowX === 'auto';
  return clips || !e.getClientRects().length || getComputedStyle(e).printColorAdjust !== 'exact';
}).map(e => e.outerHTML.slice(0, 80))
"""


def test_nothing_is_lost_on_paper(tab: browser.Page, address: str) -> None:
    try:
        tab.size(*PAPER)
        tab.call("Emulation.setEmulatedMedia", media="print")
        tab.open(address)
        tab.run("dispatchEvent(new Event('beforeprint'))")
        assert tab.run(BEYOND) == []
        assert tab.run(HIDDEN) == []
        assert tab.run("document.querySelectorAll('table.all tbody tr').length") == 6
        controls = "[...document.querySelectorAll('nav, button:not(.sort), input, .skip')]"
        assert tab.run(f"{controls}.filter(e => e.getClientRects().length).length") == 0
        shown = "[...document.querySelectorAll('.wide')].every(e => e.getClientRects().length)"
        assert tab.run(shown)
        swatches = "[...document.querySelectorAll('.gpumon-legend i')].map(e => e.style.background)"
        assert len(tab.run(swatches)) == len(set(tab.run(swatches))) >= 3
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")


STRUCTURE = """
(() => {
  const bad = [], all = (q, f, what) => document.querySelectorAll(q).forEach(e => {
    if (!f(e)) bad.push(`${what}: ${e.outerHTML.slice(0, 120)}`); });
  const named = e => (e.getAttribute('aria-label') || '').trim().length > 10;
  if (!document.documentElement.lang || !document.title) bad.push('language or title');
  all('[role=img]', named, 'image without a text');
  all('figure svg', e => e.closest('[role=img]') && e.getAttribute('aria-hidden') === 'true', 'bare svg');
  all('.gpumon-lanes', e => named(e) && e.tabIndex === 0, 'chart');
  all('img', e => e.hasAttribute('alt'), 'image');
  all('table', e => e.caption && e.caption.textContent.trim(), 'table without caption');
  all('th', e => e.scope, 'heading cell without scope');
  all('.scroll', e => e.tabIndex === 0 && e.getAttribute('role') === 'region' && e.getAttribute('aria-label'), 'scrolling box');
  all('input', e => e.labels.length && e.labels[0].textContent.trim(), 'field without label');
  all('button', e => e.textContent.trim(), 'button without text');
  all('a', e => e.textContent.trim() && e.getAttribute('href'), 'link');
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach(id => bad.push('twice the id ' + id));
  let level = 0;
  for (const h of document.querySelectorAll('h1, h2, h3, h4')) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) bad.push('heading skips a level: ' + h.textContent);
    level = now;
  }
  if (document.querySelectorAll('h1').length !== 1 || !document.querySelector('main')) bad.push('no main or h1');
  const regions = [...document.querySelectorAll('[role=region]')].map(e => e.getAttribute('aria-label'));
  if (new Set(regions).size !== regions.length) bad.push('two regions of one name');
  return bad;
})()
"""  # noqa: E501


def test_everything_has_a_name_for_those_who_listen(tab: browser.Page, address: str) -> None:
    tab.size(*DESK)
    tab.open(address)
    assert tab.run(STRUCTURE) == []


TO_CHART = "document.querySelector('canvas').scrollIntoView({block: 'center', behavior: 'instant'})"
BOX = "(b => [b.x, b.y, b.width])(document.querySelector('.u-over').getBoundingClientRect())"
PICTURE = "[...document.querySelectorAll('canvas')].map(e => e.toDataURL()).join()"


def test_the_chart_zooms_and_tells(tab: browser.Page, address: str) -> None:
    tab.size(*DESK)
    tab.open(address)
    tab.run(TO_CHART)
    first = tab.run(PICTURE)
    tab.run("document.querySelector('.gpumon-lanes').focus()")
    tab.press("+")
    zoomed = tab.run(PICTURE)
    tab.press("ArrowRight", 39)
    moved = tab.run(PICTURE)
    tab.press("Escape", 27)
    assert len({first, zoomed, moved}) == 3 and tab.run(PICTURE) == first

    box = tab.run(BOX)
    x, y = box[0] + box[2] * 0.4, box[1] + 30
    mouse: dict[str, Any] = {"button": "left", "clickCount": 1}
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    told = tab.run("document.querySelector('.gpumon').innerText")
    assert re.search(r"utilisation (20 \(10 to 30\)|60 \(30 to 90\)) %", told)
    assert "PyTorch" in told and "s · train" in told
    tab.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **mouse)
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 150, y=y, buttons=1)
    tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + 150, y=y, **mouse)
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert tab.run(PICTURE) != first
    tab.run("document.querySelector('[data-do=Escape]').click()")
    assert tab.run(PICTURE) == first
    assert tab.said == []
