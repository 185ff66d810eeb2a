// A person without a collector, who looks at a recording: what it is and of when is said, nothing looks stale, and the story is the
// command line's. Makes the picture of the page for the README as well. Usage: recording.mjs URL FOLDER START_MS
import { check, drawn, open, same, say, tidy, values } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong } = await open(base, shots);
const ask = async (path) => (await fetch(base + path)).json();
const { recording } = await ask("/api/v1/status");
const { incidents } = await ask("/api/v1/incidents?limit=1000");
const ms = (ns) => Math.round(ns / 1e6);
const clock = (ns) => new Date(ms(ns)).toISOString().slice(11, 23);

const page = await newPage();
await page.goto(`${base}/`);
await page.waitForSelector("li.row");
const banner = await page.locator(".recording-banner").textContent();
for (const part of ["A recording", recording.file, clock(recording.start_unix_ns), clock(recording.end_unix_ns)]) {
  check(banner.includes(part), `${part} in the banner: ${banner}`);
}
// It does once the stream of events is open, which comes last.
await page.waitForSelector(".connection.live");
check((await page.locator(".connection").textContent()).startsWith("recording"), "the bar says that it is a recording");
same(await page.locator("li.row").evaluateAll((rows) => rows.map((r) => r.dataset.id)), [...incidents].sort((a, b) => b.start_unix_ns - a.start_unix_ns).map((i) => i.id), "the incidents");
// "The last 15 minutes" end where the recording does.
await page.locator("button.chip", { hasText: "15 min" }).click();
await page.waitForFunction((n) => document.querySelectorAll("li.row").length === n, incidents.length);
await tidy(page);
await shot(page, "recording-list-light");

// The story, as the live page would have shown it.
const worst = incidents.filter((i) => i.drops.length > 0).sort((a, b) => b.hops.length - a.hops.length)[0];
await page.goto(`${base}/incidents/${worst.id}`);
await page.waitForSelector(`main.story[data-version="${worst.version}"]`);
same(await page.locator("h1.sentence").textContent(), worst.title, "the sentence");
await page.waitForSelector("section.timeline[data-marks] .mark");
await drawn(page, ({ filled, all }) => filled >= worst.hops.length + 1 && filled === all, "the story");
await tidy(page);
await page.evaluate(() => document.fonts.ready);
await shot(page, "recording-story-light");
// What the README shows: from the sentence to the timeline.
await page.mouse.move(0, 0);
const height = await page.evaluate(() => Math.ceil(document.querySelector("section.timeline").getBoundingClientRect().bottom + scrollY) + 16);
await page.screenshot({ path: `${shots}/page.png`, fullPage: true, clip: { x: 0, y: 0, width: 1280, height }, animations: "disabled" });

// The topology at its end: values, not gaps, and nobody away.
await page.goto(`${base}/topology`);
await page.waitForSelector(".node .meter-value");
for (const { workload, host } of worst.hops) {
  check((await page.locator(".node a", { hasText: `${workload}@${host}` }).count()) === 1, `${workload}@${host} in the topology`);
}
check(!(await page.locator("main").textContent()).includes("no agent connected"), "nobody is away");
await shot(page, "recording-topology-light");

// Hosts, and one of them with its charts over the whole recording, without being asked for a time.
await page.goto(`${base}/hosts`);
await page.waitForSelector(".recording-banner");
await page.waitForSelector(".card .trail");
same(await page.locator(".card .badge").allTextContents(), (await ask("/api/v1/agents")).agents.map(() => "recorded"), "the state of every host");
check(!(await page.locator("main").textContent()).includes("0 B"), "what a recording does not hold is not zero");
await tidy(page);
await shot(page, "recording-hosts-light");
const host = worst.drops[0].host;
await page.goto(`${base}/hosts/${host}`);
await page.waitForSelector(".panels figure.chart");
same((await values(page, "Drops"))["dropped packets"].max > 0, true, "the drops are in the charts");
await drawn(page, ({ filled }) => filled >= 6, "the signals");
check(!(await page.locator("main").textContent()).includes("not connected"), "it is not called away");
await shot(page, "recording-host-light");
for (const theme of ["dark", "phone"]) {
  const view = await newPage(theme);
  await view.goto(`${base}/`);
  await view.waitForSelector("li.row");
  await tidy(view);
  await shot(view, `recording-list-${theme}`);
  await view.context().close();
}

same(wrong, [], "console errors and foreign requests");
await browser.close();
say("done");
process.exit(0);
