"""The interactive Figure 2 of the documentation: in a browser it draws, follows its controls, and computes as we do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sirgcn.ops.activation import ACTIVATIONS
from sirgcn.theory.hashes import MESSAGES, hash_surface
from tests.report.browser import CHROMIUM, Browser

PAGE = Path(__file__).parents[2] / "docs" / "_static" / "contours.html"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def show(browser: Browser, width: int = 1280, dark: bool = False) -> None:
    """Open the page and wait until its plots have found their width."""
    browser.open(PAGE, width, dark=dark)
    browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def picture(browser: Browser, panel: str) -> str:
    found: str = browser.evaluate(f"document.querySelectorAll('canvas')['abcd'.indexOf('{panel}')].toDataURL()")
    return found


def choose(browser: Browser, field: str, value: str) -> None:
    browser.evaluate(
        f"{{ const field = document.getElementById('{field}'); field.value = '{value}';"
        " field.dispatchEvent(new Event('input')) }"
    )


def press(browser: Browser, key: str, shift: bool = False) -> None:
    code = {"ArrowRight": 39, "ArrowUp": 38, "ArrowLeft": 37, "Tab": 9}[key]
    for event in ("keyDown", "keyUp"):
        parameters = {"type": event, "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        browser.call("Input.dispatchKeyEvent", **parameters)


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_draws_four_plots_fetches_nothing_and_fits_its_screen(
    browser: Browser, width: int, dark: bool
) -> None:
    show(browser, width, dark)
    assert browser.requests == [PAGE.as_uri()]
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert len({picture(browser, panel) for panel in "abcd"}) == 4
    titles = browser.evaluate("[...document.querySelectorAll('h2')].map(entry => entry.textContent)")
    assert titles == ["(a) g(h) = h", "(b) g(h) = MLP(h)", "(c) g(h) = MLP(h + 1)", "(d) g(h) = −h²"]
    # More than a few colours: the bands, not a blank square.
    colours = browser.evaluate(
        "(() => { const c = document.querySelector('canvas'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; const found = new Set();"
        " for (let i = 0; i < d.length; i += 4) found.add(d.slice(i, i + 3).join()); return found.size })()"
    )
    assert colours > 10
    sums = browser.evaluate(
        "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name].match(/\\d+/g)"
        ".map(Number).reduce((a, b) => a + b))"
    )
    assert (sums[0] > sums[1]) == dark


@needs_browser
def test_the_page_computes_what_the_function_does(browser: Browser) -> None:
    show(browser)
    messages, sigmas = browser.evaluate("[figure2.messages, figure2.sigmas]")
    assert messages == list(MESSAGES)
    # The exact gelu needs erf, which a browser does not have.
    assert sorted(sigmas) == sorted(set(ACTIVATIONS) - {"gelu"})
    grid = torch.linspace(-3, 3, 7, dtype=torch.float64)
    for message in messages:
        for sigma in sigmas:
            for bias in (-2.0, 0.0, 0.7):
                script = (
                    f"{json.dumps(grid.tolist())}.map((other, _, grid) => "
                    f"grid.map(one => figure2.hash({message!r}, one, other, {bias}, {sigma!r})))"
                )
                found = torch.tensor(browser.evaluate(script), dtype=torch.float64)
                expected = hash_surface(message, grid, bias, sigma)
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@needs_browser
def test_a_control_changes_its_plot_and_no_other(browser: Browser) -> None:
    show(browser)
    before = {panel: picture(browser, panel) for panel in "abcd"}
    for field, value in (("bias-b", "1"), ("sigma-b", "tanh"), ("message-b", "square")):
        last = picture(browser, "b")
        choose(browser, field, value)
        assert picture(browser, "b") != last, field
        assert all(picture(browser, panel) == before[panel] for panel in "acd")
    # Of a linear message sigma is no part.
    assert browser.evaluate("[...'abcd'].map(p => document.getElementById(`sigma-${p}`).disabled)") == [
        True,
        True,
        False,
        True,
    ]
    browser.evaluate("document.getElementById('reset').click()")
    assert {panel: picture(browser, panel) for panel in "abcd"} == before


@needs_browser
def test_the_third_plot_is_the_second_with_a_bias_of_1(browser: Browser) -> None:
    show(browser)
    choose(browser, "bias-b", "1")
    assert picture(browser, "b") == picture(browser, "c")


@needs_browser
def test_the_page_works_from_the_keyboard(browser: Browser) -> None:
    show(browser)
    before = picture(browser, "d")
    browser.evaluate("document.querySelectorAll('canvas')[3].focus()")
    press(browser, "ArrowRight", shift=True)
    press(browser, "ArrowUp")
    assert browser.evaluate("document.querySelectorAll('.value')[3].textContent") == "G(1.50, −0.90) = −3.06"
    assert picture(browser, "d") != before
    browser.evaluate("document.getElementById('bias-a').focus()")
    press(browser, "ArrowRight")
    assert browser.evaluate("document.querySelector('h2').textContent") == "(a) g(h) = h + 0.1"
    # Every control has a name, and Tab reaches it.
    assert browser.evaluate("[...document.querySelectorAll('select, input')].every(entry => entry.labels.length === 1)")
    assert browser.evaluate("[...document.querySelectorAll('canvas')].every(entry => entry.getAttribute('aria-label'))")
    press(browser, "Tab")
    assert browser.evaluate("document.activeElement.tagName") == "CANVAS"


@needs_browser
def test_the_mark_follows_the_pointer_and_its_line_has_one_hash(browser: Browser) -> None:
    show(browser)
    box = browser.evaluate("(b => [b.left, b.top, b.width])(document.querySelector('canvas').getBoundingClientRect())")
    left, top, width = box
    x, y = left + width / 2, top + width / 4
    for event in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
    values = browser.evaluate("[...document.querySelectorAll('.value')].map(entry => entry.textContent)")
    assert values[0] == "G(0.00, 1.50) = 1.50"
    assert values[3] == "G(0.00, 1.50) = −2.25"
    # Black marks the line h1 + h2 = 1.5 on the linear plot.
    shade = browser.evaluate(
        "(() => { const c = document.querySelector('canvas'), n = c.width;"
        " return [...c.getContext('2d').getImageData(Math.round((1.75 / 3 + 1) * n / 2),"
        " Math.round((1 + 0.25 / 3) * n / 2), 1, 1).data] })()"
    )
    assert sum(shade[:3]) < 60
