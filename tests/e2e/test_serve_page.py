"""The playground in a real browser: every tab, by mouse and by keyboard, on a desk and on a phone."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import uvicorn

from comparisons import make_comparison
from documents import OUTSIDE, contrast
from elmokit.bilm.folder import save_bilm
from elmokit.comparison.report import write_report
from elmokit.serve.app import make_app
from elmokit.serve.registry import Registry, open_registry
from elmokit.serve.settings import ServeConfig
from elmokit.tasks.task import Labels
from elmokit.text.settings import PIPELINES
from odd_texts import make_model
from serving import CORPUS, save_models, save_report, untrained

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

SCREENS = {"desk": (1280, 900), "phone": (390, 844)}
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> <script>document.title='broken'</script> bank"
CLASSES = ["<b onclick=alert(1)>money</b>", "sport & <i>games</i>", "天气 " + "w" * 120]


@contextlib.contextmanager
def serving(registry: Registry, **settings: Any) -> Iterator[str]:
    """A server in a thread of its own, and its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(make_app(registry, ServeConfig(**settings)), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("served")
    found = save_models(home)
    encoder = open_registry([found["small"]], []).models["small"].elmo
    assert encoder is not None
    hostile = untrained(encoder)
    hostile = replace(hostile, labels=Labels(tuple(CLASSES)))
    hostile.save(home / "hostile")
    save_bilm(home / "lower", replace(make_model(), text=PIPELINES["classic"]))
    write_report(make_comparison(folder=home / "report"))
    script = "try { parent.document.title = 'broken' } catch { document.body.append('alone') }"
    save_report(home / "other", f"<p>other figures</p><script>{script}</script>")
    (home / "texts.tsv").write_text(
        f"text\ttopic\na river\t-\n{HOSTILE.replace(chr(34), '')}\t-\na bank\t-\n", "utf-8"
    )
    return {**found, **{name: home / name for name in ("hostile", "lower", "report", "other", "texts.tsv")}}


@pytest.fixture(scope="module")
def full(folders: dict[str, Path]) -> Iterator[str]:
    """A server with everything."""
    corpus = [*CORPUS, f"the bank {HOSTILE}", "bank <b>bold</b>"]
    places, texts = [folders[name] for name in folders if name != "texts.tsv"], folders["texts.tsv"]
    with serving(open_registry(places, corpus, corpus_name="texts", search=texts)) as address:
        yield address


@pytest.fixture(scope="module")
def bare(folders: dict[str, Path]) -> Registry:
    """A registry with a language model alone."""
    return open_registry([folders["small"]], CORPUS, corpus_name="texts")


class Visit:
    """A page, and all that it says and asks."""

    def __init__(self, browser: Browser, screen: str = "desk", scheme: Any = "light") -> None:
        width, height = SCREENS[screen]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = self.new_page()

    def new_page(self) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        return page

    def check_quiet(self, address: str, *, but: str = "\n") -> None:
        """Nothing went wrong, and nobody else was asked anything."""
        assert [line for line in self.said if but not in line] == []
        assert [url for url in self.asked if not url.startswith(f"{address}/")] == []


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    found = Visit(browser)
    yield found
    found.context.close()


def settled(page: Page) -> None:
    """Until nothing is being computed."""
    page.wait_for_function(
        "() => !document.querySelector('[aria-busy]') && !document.querySelector('#model').disabled"
    )


def opened(page: Page, address: str, rest: str = "") -> Page:
    page.goto(f"{address}/{rest}")
    settled(page)
    return page


def click(part: Locator) -> None:
    part.click()
    settled(part.page)


def push(page: Page, key: str) -> None:
    page.keyboard.press(key)
    settled(page)


def choose(page: Page, model: str) -> None:
    page.select_option("#model", model)
    settled(page)


def send(page: Page, view: str, text: str) -> None:
    page.fill(f"#{view} textarea", text)
    click(page.locator(f"#{view} .primary"))


def turn_to(page: Page, name: str) -> None:
    click(page.get_by_role("tab", name=name))


def problem(page: Page) -> str:
    page.wait_for_selector("#problem:not([hidden])")
    return page.locator("#problem").inner_text()


# -- every tab, on every screen ---------------------------------------------------------------


@pytest.mark.parametrize(("screen", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_every_tab(browser: Browser, full: str, screen: str, scheme: str) -> None:
    visit = Visit(browser, screen, scheme)
    page = opened(visit.page, full)

    def check_fits(*selectors: str) -> None:
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][0]
        wide = (
            "[...document.querySelectorAll('.scroll, pre')].some(part => part.scrollWidth > part.clientWidth)"
        )
        assert not page.evaluate(wide)
        for selector in selectors:
            assert contrast(page, selector, every=True) > 4.5, selector
        assert not page.locator("#problem").is_visible()

    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 100")
    assert dark == (scheme == "dark")
    assert page.locator("#chosen").inner_text() == "bank", "the word that stands in most sentences"
    assert page.locator("#neighbors li").count() == 10
    assert page.locator("#tokens [aria-pressed=true]").inner_text() == "bank"
    assert page.locator("#map circle.yours").count() == 4
    assert page.locator("#map circle.corpus").count() > 5
    assert page.locator("#siblings tbody tr").count() == 3
    check_fits(
        "h1", "#facts", "#tokens [aria-pressed=true]", "#neighbors mark", "#map-caption", "#siblings th"
    )
    click(page.get_by_role("button", name="strike"))
    assert page.locator("#chosen").inner_text() == "strike"
    click(page.locator("#tokens button", has_text="goal"))
    assert page.locator("#chosen").inner_text() == "goal"
    assert "three occurrences" in page.locator("#map-caption").inner_text()
    assert not page.locator("#siblings-block").is_visible()
    page.get_by_label("other words only").check()
    settled(page)
    send(page, "words", "The bank\na bank\n\n  \nBank of stone")
    assert page.locator("#tokens li").count() == 3
    words = page.locator("#neighbors mark").all_inner_texts()
    assert "bank" not in {word.lower() for word in words}
    page.locator("#map circle.corpus").first.hover(force=True)
    assert page.locator("#point mark").inner_text().lower() == "bank"
    page.locator("#map circle.yours").nth(1).click(force=True)
    settled(page)
    assert page.locator("#where").inner_text().startswith("as in sentence 2")

    turn_to(page, "Layers")
    assert page.locator("#layer-table tbody tr").count() == 3
    assert page.locator("#word-shares li").count() == 9
    assert "equal parts" in page.locator("#mix-kind").inner_text()
    check_fits("#layer-table th", "#layer-legend", "#word-shares li")
    choose(page, "topics")
    assert "learned" in page.locator("#mix-kind").inner_text()
    assert "without it" in page.locator("#layer-table thead").inner_text()
    check_fits()

    check_new_tabs(page, check_fits)
    turn_to(page, "Classify")
    assert page.locator("#label").inner_text() in ("money", "sport", "weather")
    assert page.locator("#by").inner_text() == "according to topics"
    assert page.locator("#bars .figure").count() == 3
    assert page.locator("#influence span").count() == 14
    assert page.locator("#movers li").count() == 5
    check_fits("#label", "#bars .figure", "#influence span", "#movers li")
    send(page, "classify", "the bank " * 120)
    assert "up to 200 words; this one has 240" in page.locator("#influence").inner_text()
    assert not page.locator("#influence-legend").is_visible()
    choose(page, "learned")
    assert "words over the limit" in page.locator("#classify-notes").inner_text()
    check_fits()

    turn_to(page, "Compare")
    frame = page.frame_locator("#report-frame")
    assert "ELMo, trainable mix" in frame.locator("#ranking").inner_text()
    check_fits("#report-link")
    page.select_option("#report", "1")
    assert frame.locator("p").first.inner_text() == "other figures"
    assert "alone" in frame.locator("body").inner_text(), "its scripts run, but reach nothing of the page"
    visit.check_quiet(full)
    visit.context.close()


def check_new_tabs(page: Page, check_fits: Callable[..., None]) -> None:
    """Search, senses, pairs and answers."""
    turn_to(page, "Search")
    assert page.locator("#search-hint").inner_text() == "Leave it empty for 3 texts (texts.tsv)."
    assert page.locator("#search-hits li").count() == 3
    check_fits("#search-hits li span", "#search-hint", "#search-where")
    page.fill("#search-query", "a river of stone")
    page.fill("#search-texts", "a bank\n\na river of stone\n" + "long" * 100)
    push(page, "Control+Enter")
    assert page.locator("#search-hits li").first.inner_text().split("\n")[-1] == "a river of stone"
    check_fits()

    turn_to(page, "Senses")
    page.select_option("#senses-k", "2")
    click(page.locator("#senses .primary"))
    assert page.locator("#senses-list > li").count() == 2
    assert page.locator("#senses-map circle").count() == 12
    assert "12 sentences of yours, compared by layer 1" in page.locator("#senses-of").inner_text()
    page.locator("#senses-map circle").first.hover(force=True)
    assert page.locator("#senses-point mark").inner_text() == "party"
    assert page.locator("#senses-point").inner_text().startswith("Sense ")
    for fold in page.locator("#senses-list summary").all():
        fold.click()
    assert page.locator("#senses-list ul li").count() == 12
    check_fits(
        "#senses-list h3", "#senses-list mark", "#senses-list summary", "#senses-caption", "#senses-of"
    )
    click(page.get_by_role("button", name="bank"))
    assert "of “bank”" in page.locator("#senses-of").inner_text()
    page.fill("#senses-word", "bank")
    page.fill("#senses-texts", "")
    push(page, "Control+Enter")
    assert "from texts" in page.locator("#senses-of").inner_text()

    turn_to(page, "Pairs")
    assert page.locator("#pairs-label").inner_text() in ("same", "different")
    assert page.locator("#pairs-by").inner_text() == "according to same"
    assert not page.locator("#no-pairs").is_visible()
    paired = page.locator("#pairs-first .paired")
    assert paired.count() == page.locator("#pairs-second .paired").count() > 0
    page.locator("#pairs-first .w").nth(1).click()
    assert page.locator("#pairs-first [aria-pressed=true]").inner_text().startswith("bank")
    assert page.locator("#pairs-detail").inner_text().startswith("“bank” is nearest to “")
    check_fits("#pairs-score", "#pairs-first .w", "#pairs-second .w", "#pairs-first sub", "#pairs-second sub")

    turn_to(page, "Answer")
    assert page.locator("#answer-by").inner_text() == "according to reader"
    parts = page.locator("#answered button")
    assert parts.count() >= page.locator("#answer-bars .figure").count() - 1 > 0
    parts.first.click()
    assert parts.first.get_attribute("aria-pressed") == "true"
    assert parts.first.inner_text() in page.locator("#answer-detail").inner_text()
    assert page.locator("#answered").text_content() == page.input_value("#answer-passage")
    check_fits("#answer-label", "#answer-bars .figure", "#answered button")


def test_a_word_far_into_a_long_sentence(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#words?texts=" + "a+river+" * 20 + "bank" + "+of+stone" * 20)
    assert page.locator("#chosen").inner_text() == "river"
    click(page.locator("#tokens button", has_text="bank"))
    dot = page.locator("#map circle.yours")
    dot.hover(force=True)
    assert page.locator("#point mark").inner_text() == "bank"
    said = page.locator("#point").inner_text()
    assert said.startswith("Your sentence 1: … a river")
    assert said.endswith("of stone …")
    assert dot.get_attribute("aria-label") == said
    for mark in page.locator("#neighbors mark").all_inner_texts():
        assert mark in " ".join([*CORPUS, HOSTILE])
    visit.check_quiet(full)


def test_the_api_page(visit: Visit, full: str) -> None:
    page = visit.page
    page.goto(f"{full}/docs")
    page.wait_for_selector("details")
    assert page.locator("details").count() == 10
    for fold in page.locator("summary").all():
        fold.click()
    assert "curl" in page.locator("details", has_text="/v1/embed").first.inner_text()
    assert page.evaluate(OUTSIDE) == []
    visit.check_quiet(full)
    for broken in (lambda route: route.abort(), lambda route: route.fulfill(status=500)):
        page.route("**/openapi.json", broken)
        page.reload()
        page.wait_for_selector("[role=alert]")
        assert "elmokit serve" in page.locator("[role=alert]").inner_text()


# -- by keyboard ------------------------------------------------------------------------------


def test_by_keyboard_alone(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)
    key = page.keyboard

    def focused() -> str:
        return str(page.evaluate("document.activeElement.id || document.activeElement.innerText"))

    def tab_to(name: str) -> None:
        for _ in range(60):
            key.press("Tab")
            if focused() == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    tab_to("tab-words")
    tab_to("words")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid", "one sees where one is"
    key.press("Shift+Tab")
    for press, tab in (("ArrowRight", "layers"), ("End", "compare"), ("ArrowRight", "words")):
        push(page, press)
        assert focused() == f"tab-{tab}"
        assert page.locator(f"#{tab}").is_visible()
        assert page.locator('[role="tab"][aria-selected=true]').count() == 1
    for press, tab in (("ArrowLeft", "compare"), ("Home", "words")):
        push(page, press)
        assert focused() == f"tab-{tab}"
    tab_to("sentences")
    key.press("Control+A")
    key.type("The bank raised its rates.")
    push(page, "Control+Enter")
    tab_to("rates")
    push(page, "Enter")
    assert page.locator("#chosen").inner_text() == "rates"
    assert focused() == "rates", "one can go on from there"
    tab_to("layer")
    for press, name, stop in (("ArrowLeft", "LSTM layer 2", "2"), ("Home", "layer 0: the word alone", "0")):
        push(page, press)
        assert page.locator("#layer-name").inner_text() == name
        assert page.get_attribute("#layer", "aria-valuetext") == name
        assert f"layer={stop}" in page.url
    push(page, "End")
    assert "layer=" not in page.url
    tab_to("different")
    push(page, "Space")
    assert "different=1" in page.url
    page.locator("#map circle").first.focus()
    assert page.locator("#point mark").inner_text()
    push(page, "Enter")
    visit.check_quiet(full)


def test_the_map_by_keyboard(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)
    key = page.keyboard
    place = "part => [Number(part.getAttribute('cx')), Number(part.getAttribute('cy'))]"

    def stop() -> str:
        """The one dot that the Tab key reaches, which has the focus."""
        dots = page.locator("#map circle[tabindex='0']")
        assert dots.count() == 1
        assert dots.evaluate("part => part === document.activeElement")
        assert page.locator("#point mark").inner_text().lower() == "bank"
        return str(dots.get_attribute("data-at"))

    assert page.locator("#map circle[tabindex='0']").get_attribute("class") == "dot yours current"
    page.locator("#different").focus()
    key.press("Tab")
    assert stop() == "yours.0.4"
    for axis, press, sign in (
        (0, "ArrowRight", 1),
        (0, "ArrowLeft", -1),
        (1, "ArrowDown", 1),
        (1, "ArrowUp", -1),
    ):
        before = page.locator("#map circle:focus").evaluate(place)[axis]
        key.press(press)
        assert sign * (page.locator("#map circle:focus").evaluate(place)[axis] - before) >= 0
        stop()
    for press, chosen in (("Enter", "yours.2.3"), ("Space", "yours.0.4")):
        page.locator(f'#map [data-at="{chosen}"]').focus()
        push(page, press)
        assert stop() == chosen, "one can go on from there"
        assert "current" in str(page.locator("#map circle:focus").get_attribute("class"))
    assert page.locator("#where").inner_text().startswith("as in sentence 1;")
    key.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "The same word elsewhere"
    visit.check_quiet(full)


def test_texts_and_senses_by_keyboard(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#search")
    key = page.keyboard
    page.locator("#search-query").focus()
    key.press("Control+A")
    key.type("a bank")
    push(page, "Enter")
    assert "query=a+bank" in page.url
    assert page.locator("#search-hits li").first.inner_text().endswith("a bank")
    turn_to(page, "Senses")
    page.locator("#senses-list summary").last.focus()
    key.press("Tab")
    dots = page.locator("#senses-map circle[tabindex='0']")
    for press in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        key.press(press)
        assert dots.count() == 1
        assert dots.evaluate("part => part === document.activeElement")
        assert str(dots.get_attribute("aria-label")) == page.locator("#senses-point").inner_text()
    key.press("Tab")
    assert page.evaluate("document.activeElement.closest('#senses')") is None, "one stop for the whole map"
    turn_to(page, "Pairs")
    page.locator("#pairs-first .w").first.focus()
    for place in range(2):
        key.press("Enter" if place else "Space")
        assert page.locator("#pairs-alignment [aria-pressed=true]").count() == 1
        assert page.locator("#pairs-status").inner_text() == page.locator("#pairs-detail").inner_text()
        key.press("Tab")
    visit.check_quiet(full)


def test_one_line_is_said_of_each_answer(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)
    assert page.locator("[aria-live]").count() == 0
    for view, said in (
        ("words", "10 words used like “bank” in sentence 1, by the mix of all layers."),
        ("layers", "3 layers of 9 words, mixed in equal parts"),
        ("search", "3 texts, the most similar one first."),
        ("senses", " of “party” in 12 sentences."),
        ("pairs", ", according to same. Similarity "),
        ("classify", ", according to topics."),
        ("tag", " marked, according to names."),
        ("answer", " certain, according to reader."),
    ):
        click(page.locator(f"#tab-{view}"))
        assert said in page.locator(f"#{view}-status[role=status]").inner_text()
        page.locator(f"#{view} :is(textarea, input)").first.fill("")
        page.locator(f"#{view} .primary").click()
        assert "yet" in problem(page)
        assert page.locator(f"#{view}-status").inner_text() == ""
    visit.check_quiet(full)


def test_skipping_to_the_content_changes_nothing(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#layers?model=topics&text=The+bank")
    before = page.url
    page.fill("#layers-text", "half a sent")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'main'")
    page.wait_for_function("address => location.href === address", arg=before)
    assert page.input_value("#layers-text") == "half a sent"
    assert page.input_value("#model") == "topics"
    visit.check_quiet(full)


# -- the address ------------------------------------------------------------------------------


def test_the_address_can_be_shared(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)

    def view(page: Page) -> tuple[str, str]:
        return page.input_value("#model"), page.locator("main").inner_text()

    def check_same() -> None:
        other = opened(visit.new_page(), full, page.url.removeprefix(f"{full}/"))
        assert view(other) == before
        other.close()

    choose(page, "topics")
    send(page, "words", 'a "bank" & <b>?#%\nThe river bank + 1=2\nBank 😀')
    click(page.locator('#tokens [data-at="1.2"]'))
    page.locator("#layer").fill("1")
    page.get_by_label("other words only").check()
    settled(page)
    before = view(page)
    check_same()
    page.reload()
    settled(page)
    assert view(page) == before
    assert (page.input_value("#layer"), page.is_checked("#different")) == ("1", True)
    assert page.locator("#tokens [aria-pressed=true]").get_attribute("data-at") == "1.2"
    for tab, field, button in (
        ("Layers", "#layers-text", "Look inside"),
        ("Classify", "#classify-text", "Classify"),
        ("Tag", "#tag-text", "Tag"),
        ("Search", "#search-query", "Search"),
        ("Senses", "#senses-texts", "Find senses"),
        ("Pairs", "#pairs-other", "Compare"),
        ("Answer", "#answer-passage", "Answer"),
    ):
        turn_to(page, tab)
        page.fill(field, "The party & its 100% <rates>?")
        click(page.get_by_role("button", name=button, exact=True))
        before = view(page)
        check_same()
    turn_to(page, "Compare")
    page.select_option("#report", "1")
    before = view(page)
    check_same()
    assert page.input_value("#report") == "1"
    visit.check_quiet(full)


def test_an_address_from_elsewhere(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#words?model=gone&texts=a+bank&word=9.9&layer=99&different=x&more=1")
    assert page.input_value("#model") == "small"
    assert page.locator("#chosen").inner_text() == "bank"
    assert page.locator("#layer-name").inner_text() == "the mix of all layers"
    for rest in ("#compare?report=77", "#compare?report=-1", "#compare?report=x"):
        opened(page, full, rest)
        page.frame_locator("#report-frame").locator("#ranking").wait_for()
    for rest in ("#nothing?x", "#words?texts=%E0%A4%A", "#words?texts=a&layer=-1", "#layers?text=%00"):
        opened(page, full, rest)
        assert not page.locator("#problem").is_visible()
    page.evaluate("location.hash = '#classify?model=tags&text=a+river'")
    page.wait_for_selector("#classify-result:not([hidden])")
    settled(page)
    assert page.locator("#by").inner_text() == "according to tags"
    assert page.input_value("#classify-text") == "a river"
    visit.check_quiet(full)


# -- when something is missing or wrong -------------------------------------------------------


def test_spans_are_marked_in_the_text_and_say_how_certain_they_are(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#tag?model=names")
    text = "The bank \U0001f600 of <b>Rome</b> raised rates."
    page.fill("#tag-text", text)
    click(page.locator("#tag-form button"))
    buttons = page.locator("#tagged button")
    assert buttons.count()
    labels = page.locator("#tagged small").all_inner_texts()
    assert set(labels) <= {"LOC", "PER"}
    page.evaluate("document.querySelectorAll('#tagged small').forEach((part) => part.remove())")
    assert page.locator("#tagged").text_content() == text
    buttons.first.focus()
    page.keyboard.press("Enter")
    assert buttons.first.get_attribute("aria-pressed") == "true"
    assert "% certain." in page.locator("#tag-detail").inner_text()
    assert "a tagger: LOC, PER" in page.locator("#facts").inner_text()
    page.reload()
    settled(page)
    assert page.input_value("#tag-text") == text
    visit.check_quiet(full)


def test_nothing_to_classify_with_nothing_to_compare_nothing_to_read(visit: Visit, bare: Registry) -> None:
    with serving(bare) as address:
        page = opened(visit.page, address)
        turn_to(page, "Classify")
        assert "elmokit fit" in page.locator("#no-classifier").inner_text()
        assert not page.locator("#has-classifier").is_visible()
        for tab, kind, task in (
            ("Tag", "tagger", "tag"),
            ("Answer", "reader", "answer"),
            ("Pairs", "pairs", "pair"),
        ):
            turn_to(page, tab)
            assert f"--task {task} --out {kind}" in page.locator(f"#no-{kind}").inner_text()
            assert page.locator(f"#{tab.lower()}-result").is_visible() == (tab == "Pairs")
        assert not page.locator("#pairs-prediction").is_visible()
        for tab in ("Search", "Senses"):  # with texts of the page
            turn_to(page, tab)
            assert page.locator(f"#{tab.lower()}-result").is_visible()
        page.fill("#senses-word", "pary")
        page.locator("#senses .primary").click()
        assert "Did you mean 'party'" in problem(page)
        turn_to(page, "Compare")
        assert "elmokit compare" in page.locator("#no-report").inner_text()
        assert not page.locator("#report-frame").is_visible()
        turn_to(page, "Words in context")
        page.fill("#sentences", " \n\n ")
        page.get_by_role("button", name="Read").click()
        assert "no sentence yet" in problem(page)
        assert not page.locator("#words-result").is_visible()
        page.reload()
        assert "no sentence yet" in problem(page)
        page.fill("#sentences", "\u200b")  # no word
        click(page.get_by_role("button", name="Read"))
        assert not page.locator("#words-result").is_visible()
        visit.check_quiet(address, but="400")


def test_what_is_shown_belongs_to_what_was_asked(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)
    for view in ("words", "layers"):
        page.locator(f"#tab-{view}").click()
        for model, there in (("small", True), ("table", False), ("topics", True)):
            choose(page, model)
            assert page.locator("#problem").is_visible() != there
            assert page.locator(f"#{view}-result").is_visible() == there
    visit.check_quiet(full, but="400")


def test_a_model_that_cuts_words_in_another_way(visit: Visit, full: str) -> None:
    page = opened(visit.page, full, "#words?texts=" + quote("Bank? Well, the bank, the river!\nA bank."))
    pressed = page.locator("#tokens [aria-pressed=true]")
    for word, places in (("bank", ("0.5", "0.3")), ("river", ("0.8", "0.5"))):
        click(page.locator(f'#tokens [data-at="{places[0]}"]'))
        for model, place in (("lower", places[1]), ("small", places[0])):
            choose(page, model)
            assert (pressed.inner_text(), pressed.get_attribute("data-at")) == (word, place)
            assert page.locator("#chosen").inner_text() == word
    click(page.locator('#tokens [data-at="0.9"]'))
    assert page.locator("#chosen").inner_text() == "!"
    turn_to(page, "Classify")
    page.select_option("#model", "lower")  # which has no such word
    turn_to(page, "Words in context")
    assert page.locator("#chosen").inner_text() == "bank"
    visit.check_quiet(full)


# -- answers that come late -------------------------------------------------------------------


class Held:
    """Requests that get no answer until they are let go."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.routes: list[Route] = []
        self.dropped: list[Request] = []
        page.route(f"**{address}", lambda route: self.routes.append(route))
        page.on("requestfailed", lambda request: self.dropped.append(request))

    def wait(self, number: int, dropped: int) -> None:
        """Until so many were asked, and so many of them dropped."""
        for _ in range(1000):
            if (len(self.routes), len(self.dropped)) == (number, dropped):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{len(self.routes)} were asked, {len(self.dropped)} dropped")

    def go(self) -> None:
        """Let the last one go."""
        self.routes[-1].continue_()
        settled(self.page)
        assert not self.page.locator("#problem").is_visible()
        assert self.dropped == [route.request for route in self.routes[:-1]]


@pytest.mark.parametrize(
    ("view", "address", "shown"),
    [
        ("search", "/v1/search", "#search-hits li:first-child > :last-child"),
        ("words", "/v1/tokens", "#tokens"),
        ("words", "/v1/similar", "#tokens"),
        ("layers", "/v1/layers", "#word-shares"),
        ("classify", "/v1/predict", "#influence"),
    ],
)
def test_the_last_question_is_answered(visit: Visit, full: str, view: str, address: str, shown: str) -> None:
    page = opened(visit.page, full, f"#{view}?text=a+bridge&texts=a+bridge")
    held = Held(page, address)
    for number, text in enumerate(("the bank", "of stone", "the river"), 1):
        page.fill(f"#{view} textarea", text)
        page.locator(f"#{view} .primary").click()
        held.wait(number, number - 1)
        assert page.locator(f"#{view}").get_attribute("aria-busy") == "true"
    held.go()
    assert page.locator(shown).inner_text().split() == ["the", "river"]
    assert "river" in page.url
    page.locator(f"#{view} .primary").click()
    held.wait(4, 2)
    turn_to(page, "Compare")
    held.wait(4, 3)  # nobody waits for it any more
    visit.check_quiet(full)


def test_a_word_of_other_sentences_cannot_be_chosen(visit: Visit, full: str) -> None:
    page = opened(visit.page, full)
    held = Held(page, "/v1/tokens")
    page.fill("#sentences", "a bridge of stone")
    page.get_by_role("button", name="Read").click()
    held.wait(1, 0)
    page.locator("#tokens button").last.dispatch_event("click")
    page.locator("#map circle.yours").last.dispatch_event("click")
    page.locator("#layer").fill("1", force=True)
    held.go()
    assert page.locator("#chosen").inner_text() == "bridge"
    assert page.locator("#words-status").inner_text().endswith("by LSTM layer 1.")
    assert page.url.endswith("texts=a+bridge+of+stone&word=0.1&layer=1")
    visit.check_quiet(full)


def test_errors_of_the_server_are_shown_and_go_away(
    visit: Visit, bare: Registry, folders: dict[str, Path]
) -> None:
    with serving(bare, max_characters=40) as address:
        page = opened(visit.page, address, "#words?texts=a+bank")
        page.fill("#sentences", "bank " * 9)
        page.get_by_role("button", name="Read").click()
        assert "Text 0 is too long." in problem(page)
        assert "40 characters" in problem(page)
        for part in ("#reading", "#words-result"):
            assert not page.locator(part).is_visible()
        send(page, "words", "bank")
        assert not page.locator("#problem").is_visible()
        visit.check_quiet(address, but="413")


def test_the_server_goes_away(visit: Visit, bare: Registry) -> None:
    with serving(bare) as address:
        page = opened(visit.page, address)
    page.locator("#map circle.yours").first.focus()
    page.keyboard.press("Enter")
    assert "does not answer" in problem(page)
    assert not page.locator("#words-result").is_visible()
    assert page.evaluate("document.activeElement.id") == "words", "where the map was"
    page.locator("#tokens button").first.click()
    assert "does not answer" in problem(page)
    turn_to(page, "Layers")
    assert "elmokit serve" in problem(page)
    visit.check_quiet(address, but="ERR_")


def test_a_token_is_asked_for(visit: Visit, folders: dict[str, Path]) -> None:
    registry = open_registry([folders["topics"], folders["report"]], CORPUS)
    with serving(registry, token="s3cret") as address:
        page = visit.page
        page.goto(f"{address}/#layers?text=a+bank")
        page.wait_for_selector("#token-form:not([hidden])")
        assert "requires a token" in problem(page)
        for token in ("wrong", "schlüssel", "нет"):
            page.fill("#token", token)
            page.get_by_role("button", name="Continue").click()
            page.wait_for_function("() => !document.querySelector('[aria-busy]')")
            assert "token" in problem(page)
            assert page.locator("#token-form").is_visible()
        page.fill("#token", "s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#layers-result:not([hidden])")
        assert not page.locator("#token-form").is_visible()
        assert not page.locator("#problem").is_visible()
        turn_to(page, "Compare")
        assert "ELMo" in page.frame_locator("#report-frame").locator("#ranking").inner_text()
        page.reload()
        settled(page)
        assert not page.locator("#token-form").is_visible(), "kept as long as the page is open"
        assert "s3cret" not in page.url
        visit.check_quiet(address, but="401")


# -- hostile ----------------------------------------------------------------------------------


def test_hostile_strings_are_shown_as_text(visit: Visit, full: str) -> None:
    page = opened(
        visit.page, full, f"#words?model=hostile&texts={quote(HOSTILE)}%0Aa+bank%0Abank+{quote(HOSTILE)}"
    )
    assert page.locator("#tokens button").all_inner_texts()[:3] == ["<", "img", "src"]
    page.locator("#layer").fill("0")
    settled(page)
    assert "bank < img src" in page.locator("#siblings").inner_text()
    assert "<b onclick=alert(1)>money</b>" in page.locator("#facts").inner_text()
    turn_to(page, "Layers")
    send(page, "layers", HOSTILE)
    assert page.locator("#word-shares img").count() == 0
    turn_to(page, "Search")
    assert "<script>" in page.locator("#search-hits").inner_text()
    for name, field in (
        ("Senses", "#senses-texts"),
        ("Pairs", "#pairs-other"),
        ("Answer", "#answer-passage"),
    ):
        turn_to(page, name)
        page.fill(field, f"the party {HOSTILE}\nthe party of {HOSTILE}")
        page.keyboard.press("Control+Enter")
        settled(page)
        assert not page.locator("#problem").is_visible()
    assert page.locator("#answered").text_content() == page.input_value("#answer-passage")
    turn_to(page, "Classify")
    send(page, "classify", HOSTILE + "\x07\u202e")
    assert set(page.locator("#bars > span:not(.meter):not(.figure)").all_inner_texts()) == set(CLASSES)
    assert page.locator("#label").inner_text() in CLASSES
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(OUTSIDE) == []
    turn_to(page, "Compare")
    assert page.locator("#report option").all_inner_texts() == ["report", "other"]
    page.select_option("#report", "1")
    ended = re.compile(r"alone\s*$")  # as the other report's script makes it, and the first report does not
    page.frame_locator("#report-frame").locator("body").filter(has_text=ended).wait_for()
    assert page.title() == "elmokit: words in context"
    for selector in ("main img", "main script", "main b[onclick]"):
        assert page.locator(selector).count() == 0, selector
    visit.check_quiet(full)
