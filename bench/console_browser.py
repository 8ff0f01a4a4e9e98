"""Chromium on pages of the console: times, layout shifts, long tasks, and memory while following a log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final

from playwright.sync_api import Page, sync_playwright
from werkzeug.serving import make_server

from bench.console_site import ConsoleSite
from bench.figures import Figure, Figures

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
POLL_MS: Final = 300
POLLS_WAIT_MS: Final = 1_500
SHIFT_MAX: Final = 0.02
TASK_MS_MAX: Final = 100.0
BRUSH_MS_MAX: Final = 100.0
FOLLOWED_LINES: Final = 4_500
"""Lines between two updates: 900 a second at one update in five seconds."""
UPDATE_S: Final = 5.0
SETTLED: Final = 6
"""Updates after which the page has its largest size."""
CPU_SHARE_MAX: Final = 30.0
GROWTH_MIB_MAX: Final = 5.0
_OBSERVE: Final = f"""
window.shift = 0;
window.tasks = [0];
window.updates = 0;
new PerformanceObserver(list => list.getEntries().forEach(entry => {{ window.shift += entry.value; }}))
  .observe({{type: 'layout-shift', buffered: true}});
new PerformanceObserver(list => list.getEntries().forEach(entry => window.tasks.push(entry.duration)))
  .observe({{type: 'longtask', buffered: true}});
document.addEventListener('console:updated', () => {{ window.updates += 1; }});
const later = window.setTimeout;
window.setTimeout = (callback, ms, ...rest) => later(callback, Math.min(ms, {POLL_MS}), ...rest);
"""
"""Count shifts, tasks above 50 ms and updates, and let polls follow each other after 0.3 s."""
_PAINT: Final = """() => new Promise(done => new PerformanceObserver(list => {
const paint = list.getEntriesByName('first-contentful-paint')[0];
if (paint) requestAnimationFrame(() => setTimeout(() => done([paint.startTime, performance.now()]), 0));
}).observe({type: 'paint', buffered: true}))"""
"""First contentful paint, and the time until the browser is idle after it, in milliseconds since the navigation."""
_BRUSH: Final = """() => {
const area = document.querySelector('rect.brush-area');
area.scrollIntoView({behavior: 'instant', block: 'center'});
const box = area.getBoundingClientRect();
const send = (type, share) => area.dispatchEvent(new PointerEvent(type, {bubbles: true, pointerId: 1,
  clientX: box.x + box.width / 2, clientY: box.bottom - box.height * share}));
area.setPointerCapture = () => {};
const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
return (async () => {
  send('pointerdown', 0.2);
  const times = [];
  for (const share of [0.5, 0.6, 0.7, 0.8, 0.9]) {
    await frame();
    const began = performance.now();
    send('pointermove', share);
    await frame();
    times.push(performance.now() - began);
  }
  const dimmed = document.querySelectorAll('.dimmed').length;
  send('pointercancel', 0.9);
  return [Math.max(...times), dimmed];
})(); }"""
"""Drag over an axis: the longest time from a movement to the frame that shows it, and the number of dimmed lines."""


def measure(site: ConsoleSite, pages: dict[str, str], updates: int) -> Iterator[Figures]:
    """Yield the figures of each page, of a range and of a followed log, if Chromium is installed."""
    with signed_in_page(site) as page:
        if page is None:
            return
        for name, path in pages.items():
            yield measure_page(page, name, path)
        yield measure_brush(page)
        yield measure_following(page, site, updates)


@contextmanager
def signed_in_page(site: ConsoleSite) -> Iterator[Page | None]:
    """Serve the site and yield a signed-in page; None if no Chromium is installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        yield None
        return
    server = make_server("127.0.0.1", 0, site.app, threaded=True)
    site.sign_in.hosts = (f"127.0.0.1:{server.server_port}",)
    site.restart()
    server.app = site.app
    Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, chromium_sandbox=os.getuid() != 0, args=["--no-proxy-server"]
        )
        page = browser.new_page(base_url=f"http://{site.sign_in.hosts[0]}")
        page.add_init_script(_OBSERVE)
        # Reuse the session of the application's own client, because the sign-in token works only once.
        cookie = site.client.get_cookie(site.sign_in.cookie, domain="127.0.0.1")
        if cookie is None:
            raise RuntimeError("the client is not signed in")
        page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "domain": "127.0.0.1", "path": "/"}])
        yield page
        browser.close()
    server.shutdown()


def measure_page(page: Page, name: str, path: str) -> Figures:
    """Return times, and the layout shift and the longest task of opening the page and of some polls."""
    page.goto(path)
    page.goto(path)
    paint, drawn = page.evaluate(_PAINT)
    page.wait_for_timeout(POLLS_WAIT_MS)
    shift, task = page.evaluate("[window.shift, Math.max(...window.tasks)]")
    return {
        f"console: first paint, {name}": Figure(paint, "ms", value_max=_paint_max(name)),
        f"console: drawn, {name}": Figure(drawn, "ms", value_max=_paint_max(name) + 700.0),
        f"console: layout shift, {name}": Figure(shift, "CLS", value_max=SHIFT_MAX),
        f"console: longest task, {name}": Figure(task, "ms", value_max=TASK_MS_MAX),
    }


def measure_brush(page: Page) -> Figures:
    """Return the time from a movement of the pointer to the frame that shows the range."""
    page.goto("/jobs/tuned")
    longest, dimmed = page.evaluate(_BRUSH)
    if not dimmed:
        raise RuntimeError("the range left out no trial")
    return {"console: range on an axis": Figure(longest, "ms", value_max=BRUSH_MS_MAX)}


def measure_following(page: Page, site: ConsoleSite, updates: int) -> Figures:
    """Return the cost of following a log that grows by `FOLLOWED_LINES` lines between two updates."""
    page.goto("/jobs/small/logs")
    page.get_by_role("button", name="Follow").click()
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")
    site.log.growth = FOLLOWED_LINES
    _wait_for_updates(page, SETTLED)
    first, busy_s = _heap_mib(client), _task_s(client)
    began = page.evaluate("window.updates")
    _wait_for_updates(page, updates)
    followed = page.evaluate("window.updates") - began
    busy_s = _task_s(client) - busy_s
    site.log.growth = 0
    last = _heap_mib(client)
    rows, gaps = page.evaluate(
        "[document.querySelectorAll('.log tbody tr').length, document.querySelectorAll('#gap').length]"
    )
    return {
        "console: following, main thread": Figure(
            100 * busy_s / (followed * UPDATE_S), "% of a core", value_max=CPU_SHARE_MAX
        ),
        "console: following, heap": Figure(last, "MiB"),
        "console: following, growth of the heap": Figure(last - first, "MiB", value_max=GROWTH_MIB_MAX),
        "console: following, lines on the page": Figure(rows, "lines", value_max=5_000.0),
        "console: following, gaps": Figure(gaps, "gaps", value_max=0.0),
    }


def _wait_for_updates(page: Page, count: int) -> None:
    page.wait_for_function("count => window.updates >= count", arg=count, timeout=600_000)


def _heap_mib(client: Any) -> float:
    client.send("HeapProfiler.collectGarbage")
    return float(client.send("Runtime.getHeapUsage")["usedSize"]) / 2**20


def _task_s(client: Any) -> float:
    metrics = {metric["name"]: metric["value"] for metric in client.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def _paint_max(name: str) -> float:
    return 800.0 if "50 jobs" in name or "of 3 replicas" in name else 1_500.0
