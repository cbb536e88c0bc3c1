"""The page in a real browser, from the disk: no error, nothing from outside, sorting, filtering, playing an episode."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rao_leaderboard.site import build
from tests.leaderboard.samples import make_sample

REQUIRED = os.environ.get("RAO_REQUIRE_BROWSER") == "1"
CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None  # type: ignore[assignment]
if not REQUIRED and (CHROMIUM is None or sync_playwright is None):
    pytest.skip("there is no Chromium, or no playwright", allow_module_level=True)

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
OPEN = "RAO/Maze-5x5-v0"
PATIENCE = 60_000
"""Milliseconds: a busy machine is no fault of the page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submissions")
    tasks = (("standard", "RAO/Maze-20x20-v0", {"spawn": True}), ("open", OPEN, {"spawn": True}))
    make_sample(folder, "alpha", tasks=tasks, runs=5, training_steps=2_000, curve=((0, 0.0), (2_000, 0.97)))
    make_sample(folder, "beta", tasks=(("open", OPEN, {"spawn": False}),), kind="monolithic", runs=5, training_steps=700_000)
    make_sample(folder, "gamma", tasks=(("open", OPEN, {"spawn": True}),))
    return build(folder, tmp_path_factory.mktemp("site") / "out").parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert sync_playwright is not None and CHROMIUM is not None, "RAO_REQUIRE_BROWSER=1, but there is no Chromium or no playwright"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=PATIENCE)
        yield opened
        opened.close()


class Tab:
    """A page that notes what goes wrong in it, and whatever it asks others for."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.faults: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else self.faults.append(request.url))

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.faults == []


def rows(page: Any, board: str) -> list[str]:
    """The agents that a table shows, in order."""
    names: list[str] = page.locator(f"#{board} tbody tr:visible th a").all_inner_texts()
    return names


def open_index(page: Any, site: Path, fragment: str = "") -> None:
    page.goto(f"{(site / 'index.html').as_uri()}{fragment}")


def test_sorting_by_any_column_and_with_the_keyboard(browser: Any, site: Path) -> None:
    with Tab(browser) as page:
        open_index(page, site)
        board = "open-maze-5x5-v0"
        assert set(rows(page, board)) == {"Alpha", "Beta", "Gamma"}
        header = page.locator(f"#{board} thead th", has_text="Agent")
        header.get_by_role("button").click()
        assert (rows(page, board), header.get_attribute("aria-sort")) == (["Alpha", "Beta", "Gamma"], "ascending")
        header.get_by_role("button").press("Enter")
        assert (rows(page, board), header.get_attribute("aria-sort")) == (["Gamma", "Beta", "Alpha"], "descending")
        page.locator(f"#{board} thead th", has_text="Training steps").get_by_role("button").click()
        assert rows(page, board) == ["Gamma", "Alpha", "Beta"]
        assert header.get_attribute("aria-sort") is None


def test_filters_say_how_many_rows_are_left_and_can_be_linked_to(browser: Any, site: Path) -> None:
    with Tab(browser) as page:
        open_index(page, site)
        assert page.inner_text("#shown") == "4 rows"
        page.get_by_label("Kind").select_option("monolithic")
        assert page.inner_text("#shown") == "1 rows" and rows(page, "open-maze-5x5-v0") == ["Beta"]
        assert not page.locator("#standard-maze-20x20-v0").is_visible()
        assert page.url.endswith("#?kind=monolithic")
        page.get_by_label("Training steps").select_option("400000")
        assert page.inner_text("#shown") == "0 rows"
        page.get_by_role("button", name="Reset").click()
        page.locator("#shown", has_text="4 rows").wait_for()
        assert "#" not in page.url
    with Tab(browser) as page:
        open_index(page, site, "#?kind=recursive&budget=0")
        assert rows(page, "open-maze-5x5-v0") == ["Gamma"]
    with Tab(browser) as page:
        open_index(page, site, "#?kind=nonsense&unknown=1")
        assert page.inner_text("#shown") == "4 rows"
    with Tab(browser) as page:
        open_index(page, site, "#about-beta")
        assert page.locator("#about-beta").get_attribute("open") is not None


def test_an_episode_plays_by_buttons_and_by_keys(browser: Any, site: Path) -> None:
    with Tab(browser) as page:
        open_index(page, site)
        page.locator("#open-maze-5x5-v0 a", has_text="success").first.click()
        page.wait_for_selector("#stage:not([hidden])")
        last = int(page.locator("#slider").get_attribute("max"))
        status = page.locator("#status")
        assert status.inner_text().startswith(f"Step 0 of {last}")
        look = "document.getElementById('canvas').toDataURL()"
        before = page.evaluate(look)
        page.get_by_role("button", name="One step forward").click()
        assert status.inner_text().startswith(f"Step 1 of {last}")
        page.keyboard.press("Escape")
        page.locator("h1").click()
        page.keyboard.press("End")
        assert f"Step {last} of {last}" in status.inner_text() and "success" in status.inner_text()
        after = page.evaluate(look)
        assert after != before
        assert page.locator("#tree .ok").count() >= 1
        page.keyboard.press("Home")
        assert page.evaluate(look) == before
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        assert status.inner_text().startswith("Step 0 of")
        page.get_by_label("Speed").select_option("33")
        page.locator("h1").click()
        page.keyboard.press(" ")
        page.locator("#status", has_text=f"Step {last} of {last}").wait_for()
        assert page.locator("#play").get_attribute("aria-pressed") == "false"
        assert page.evaluate(look) == after
        page.locator("#tree button").first.click()  # back to where the root opened
        assert status.inner_text().startswith("Step 0 of")
        assert page.locator("#tree [aria-current=step]").count() == 1


@pytest.mark.parametrize("fragment", ["#000000000000", "#<img src=x>", "#../../page"])
def test_an_episode_that_is_not_there(browser: Any, site: Path, fragment: str) -> None:
    tab = Tab(browser)
    with tab as page:
        page.goto(f"{(site / 'watch.html').as_uri()}{fragment}")
        page.wait_for_selector("#problem:not([hidden])")
        assert page.inner_text("#problem") == "There is no such episode."
        tab.faults[:] = [fault for fault in tab.faults if "ERR_FILE_NOT_FOUND" not in fault]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_readable_on_a_phone_and_in_the_dark(browser: Any, site: Path, width: int, scheme: str) -> None:
    with Tab(browser, viewport={"width": width, "height": 844}, color_scheme=scheme) as page:
        for name in ("index.html", "watch.html"):
            page.goto((site / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CONTRAST) == []


CONTRAST = """() => {
  // Relative luminance and contrast as WCAG 2 defines them; texts that are not large need 4.5.
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if ((c[3] ?? 1) > 0) return c;
    }
    return [255, 255, 255];
  };
  const faults = [];
  for (const e of document.querySelectorAll("p, td, th, a, li, dt, dd, label, summary, caption, figcaption, h1, h2, select, button")) {
    if (!e.textContent.trim() || !e.getClientRects().length || e.closest(".later")) continue;
    const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`${e.tagName} ${e.textContent.trim().slice(0, 30)}`);
  }
  return faults;
}"""


def test_without_javascript_the_tables_are_all_there(browser: Any, site: Path) -> None:
    with Tab(browser, java_script_enabled=False) as page:
        open_index(page, site)
        assert page.locator("tbody tr:visible").count() >= 4
        assert not page.locator("#filters").is_visible()
        assert page.locator("#open-maze-5x5-v0 caption").inner_text() == OPEN
        page.goto((site / "watch.html").as_uri())
        assert "needs JavaScript" in page.inner_text("main")


def test_everything_has_a_name_for_a_screen_reader(browser: Any, site: Path) -> None:
    with Tab(browser) as page:
        for name in ("index.html", "watch.html"):
            page.goto((site / name).as_uri())
            nameless = page.evaluate(
                """() => [...document.querySelectorAll("button, a, select, input, [role=region], [role=img], table")]
                .filter((e) => !e.getAttribute("aria-label") && !e.labels?.length && !e.textContent.trim() && !e.querySelector("title"))
                .map((e) => e.outerHTML.slice(0, 80))"""
            )
            assert nameless == []
            assert page.locator("h1").count() == 1
            assert page.locator("html").get_attribute("lang") == "en"
        assert page.evaluate("[...document.querySelectorAll('th')].every((e) => e.scope)")
