// A real browser on the page: starts Debian's Chromium without a way to any other host, and remembers whatever must not happen.
// Owns that, the screenshots, and the line protocol with the test that started the script.
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";

export const THEMES = { light: {}, dark: { colorScheme: "dark" }, phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true } };
/** What a browser complains of while nobody answers, or when whoever answers goes in the middle of it. */
export const CUT_OFF = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "ERR_CONTENT_LENGTH_MISMATCH"];
/** What a starved machine may take for one step. */
const STEP_MS = 30_000;

export function check(right, text) {
  if (!right) throw new Error(`not so: ${text}`);
}

export function same(found, expected, text) {
  check(JSON.stringify(found) === JSON.stringify(expected), `${text}: found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
}

/** Where something of an incident is, as the page tells it: without what systemd calls the workload's unit, and of a host that no agent observes
 * the host alone. Written once more by hand, because what is to be shown is not asked of what shows it. */
export function placeOf({ host, workload }) {
  const name = workload.replace(/\.(service|scope|slice)$/, "");
  return name === "" ? host : `${name}@${host}`;
}

/** Words to the test, one line each. */
export const say = (what, value = "") => process.stdout.write(`${what} ${JSON.stringify(value)}\n`);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
/** The test's next line, as JSON. */
export async function hear() {
  const { value, done } = await lines.next();
  check(!done, "the test goes on talking");
  return JSON.parse(value);
}

export async function open(base, shots) {
  mkdirSync(shots, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // As root there is no sandbox; no name but this machine's resolves, so that nothing can be fetched from elsewhere.
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"],
  });
  const wrong = [];
  // What a page waits for when a test gives up is half of the answer.
  const pending = new Set();
  process.on("uncaughtExceptionMonitor", () => console.error("not answered:", [...pending].map((request) => request.url())));
  // What a test provokes is expected: the browser itself complains of answers that are errors.
  const forgiven = [];
  async function page(theme = "light") {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: "Europe/Berlin", ...THEMES[theme] });
    const page = await context.newPage();
    page.setDefaultTimeout(STEP_MS);
    page.on("request", (request) => pending.add(request));
    page.on("requestfinished", (request) => pending.delete(request));
    page.on("requestfailed", (request) => pending.delete(request));
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !forgiven.some((f) => message.text().includes(f))) wrong.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => wrong.push(`error: ${error.stack}`));
    page.on("request", (request) => {
      if (!request.url().startsWith(`${base}/`)) wrong.push(`request to ${request.url()}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 500) wrong.push(`${response.status()} from ${response.url()}`);
    });
    return page;
  }
  const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
  return { browser, page, shot, wrong, forgiven };
}

/** Goes where "g" and this key lead: both at once, because the second one counts for a moment only. */
export const goTo = (page, key) =>
  page.evaluate((key) => {
    for (const next of ["g", key]) (document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent("keydown", { key: next, bubbles: true, cancelable: true }));
  }, key);

/** What a chart holds, by its name: `{ line: { max, sum } }`. */
export async function values(page, name) {
  const chart = page.locator(`figure.chart[aria-label^=${JSON.stringify(`${name}.`)}]`);
  return JSON.parse(await chart.getAttribute("data-values"));
}

/** Waits until every chart of a host's page is drawn, opened by a click on a link to `to` or ("load") as it loads; how long both took. */
export const hostDrawn = (page, how, to) =>
  page.evaluate(async ([how, to]) => {
    const begun = how === "load" ? 0 : performance.now();
    if (how === "link") {
      const link = document.createElement("a");
      link.href = to;
      document.querySelector("main").append(link);
      link.click();
    }
    for (;;) {
      const panels = document.querySelector(".panels");
      const charts = panels ? [...panels.querySelectorAll("canvas")] : [];
      if (charts.length >= 6 && charts.every((c) => c.width > 0)) break;
      await new Promise((next) => requestAnimationFrame(next));
    }
    await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
    return { ms: Math.round(performance.now() - begun), data_ms: Number(document.querySelector(".panels").dataset.tookMs) };
  }, [how, to]);

/** Charts that have something drawn in them, of how many. */
const counted = (page) =>
  page.evaluate(() => {
    const all = [...document.querySelectorAll("figure.chart canvas")];
    const filled = all.filter((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colours = new Set();
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
      return colours.size > 3;
    });
    return { filled: filled.length, all: all.length };
  });

/** Waits until so many charts are drawn that it is enough: they are some frames after what they show is in the page. */
export async function drawn(page, enough, text) {
  const end = Date.now() + STEP_MS;
  for (;;) {
    const found = await counted(page);
    if (enough(found)) return;
    check(Date.now() < end, `${text}: ${found.filled} of ${found.all} charts are drawn`);
    await page.waitForTimeout(20);
  }
}

/** Nothing sticks out to the right, and everything that can be used has a name. */
export async function tidy(page) {
  const found = await page.evaluate(() => {
    const nameless = [...document.querySelectorAll("a, button, input, select, [role=img], summary")].filter((e) => {
      const labels = e.labels ? [...e.labels].map((l) => l.textContent).join("") : "";
      return !(e.getAttribute("aria-label") || e.textContent.trim() || labels || e.getAttribute("title") || e.closest("[aria-hidden=true]"));
    });
    return { wide: document.documentElement.scrollWidth - innerWidth, nameless: nameless.map((e) => e.outerHTML.slice(0, 120)) };
  });
  check(found.wide <= 0, `the page fits the screen (${found.wide} px too wide)`);
  same(found.nameless, [], "elements without a name");
}
