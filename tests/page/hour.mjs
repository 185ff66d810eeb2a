// An hour of one host: drawn at once, with extremes that a mean would hide, gaps that are no zeros; and what the page says when there is
// nothing to show. Usage: hour.mjs URL FOLDER START_MS
import { check, CUT_OFF, drawn, goTo, hostDrawn, open, same, say, tidy, values } from "./browser.mjs";

const [base, shots, begin] = process.argv.slice(2);
const start = Number(begin);
const { browser, page: newPage, shot, wrong, forgiven } = await open(base, shots);
const iso = (ms) => new Date(ms).toISOString();
const hour = (from, to) => `${base}/hosts/web-1?from=${iso(from)}&to=${iso(to)}`;
const page = await newPage();

// No incident yet.
await page.goto(`${base}/`);
await page.waitForSelector("text=No incidents yet.");
await page.waitForSelector("text=no queue came near its limit on web-1");
await shot(page, "empty-light");

// The hour, from an empty browser to the last pixel, and again from within the page.
const full = (how) => hostDrawn(page, how, hour(start, start + 3_600_000).slice(base.length));
await page.evaluate(() => document.fonts.ready);
say("measured", { what: "an hour of 50 ms windows of one host, opened from the list", ...(await full("link")) });
await page.reload({ waitUntil: "commit" });
say("measured", { what: "the same, as a reload of the page", ...(await full("load")) });
same(await page.locator(".panels").getAttribute("data-step-ms"), "4000", "windows of a point");
await drawn(page, ({ filled, all }) => filled >= 6 && filled === all, "the hour");
same((await values(page, "Drops"))["dropped packets"].max, 40, "one window's drops");
same((await values(page, "Queues"))["queued requests"].max, 279, "six windows' queue");
const shares = await values(page, "Response time, by share of answers");
const [half, most] = [shares["half within"].max, shares["99 % within"].max];
check(half > 2.04 && half < 4.1 && most > 16.3 && most < 32.8, `quantiles lie in their buckets: ${JSON.stringify(shares)}`);
same((await values(page, "Answers in time: within 500 ms"))["surely within"].max, 1, "answers that were surely in time");
await page.waitForSelector("text=Not covered on web-1: this kernel has no block_io_start.");
await page.waitForSelector("text=No windows of web-1 for 10 s of this time");
await tidy(page);
await shot(page, "hour-light");
const dark = await newPage("dark");
await dark.goto(hour(start, start + 3_600_000));
await dark.waitForSelector(".panels figure.chart");
await shot(dark, "hour-dark");

// Half an hour in, ten seconds are missing: said, and not drawn as zero.
await page.goto(hour(start + 1_795_000, start + 1_815_000));
await page.waitForSelector("text=No windows of web-1 for 10 s of this time");
await shot(page, "gap-light");
// A stretch drawn over with the mouse is what is shown next.
const plot = page.locator("figure.chart .u-over").first();
const box = await plot.boundingBox();
await page.mouse.move(box.x + box.width * 0.25, box.y + 40);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.75, box.y + 40, { steps: 8 });
await page.mouse.up();
await page.waitForFunction((to) => {
  const query = new URLSearchParams(location.search);
  return Math.abs(Date.parse(query.get("to")) - to) < 500;
}, start + 1_810_000);
// A time written by hand.
await page.locator("#from").fill(iso(start + 2_500_000).replace("T", " ").replace("Z", ""));
await page.keyboard.press("Enter");
await page.waitForFunction((from) => new URLSearchParams(location.search).get("from") === from, iso(start + 2_500_000));
await page.waitForSelector(".panels figure.chart");

// One answer of 50 took 8.4 s or more: of the 99th of 100 no more is known than that.
await page.goto(hour(start + 49_990 * 50, start + 50_020 * 50));
await page.waitForSelector(".panels figure.chart");
same((await values(page, "Response time, by share of answers"))["99 % within this or more"].max, 8388.608, "a bound and no number");
await shot(page, "quantiles-light");

// Before what is kept; what is not kept; what nobody knows.
await page.goto(hour(start - 7_200_000, start - 3_600_000));
await page.waitForSelector("text=This time is not kept any more.");
forgiven.push("404 (Not Found)");
await page.goto(`${base}/incidents/01M7Z8QNKMQM8E9ZHQAHYW8000`);
await page.waitForSelector("text=This incident is not kept.");
await shot(page, "expired-light");
await page.goto(`${base}/hosts/nobody`);
await page.waitForSelector('text=no windows of host "nobody"');

// Incidents: two that dropped, and since then more small ones than the page's list holds.
const DROPPED = "01MA000000000000000000000A";
const UNSEEN = "01MA000000000000000000000B";
const SMALL = 1001;
const ids = () => page.locator("li.row").evaluateAll((rows) => rows.map((r) => r.dataset.id));
const label = () => page.locator("ol.rows").getAttribute("aria-label");
const listed = (text) => page.waitForFunction((text) => document.querySelector("ol.rows")?.getAttribute("aria-label") === text, text);
say("happen");
for (let all = []; all.length < SMALL + 2; ) {
  all = (await (await fetch(`${base}/api/v1/incidents?limit=10000`)).json()).incidents;
  await new Promise((next) => setTimeout(next, 100));
}
await page.goto(`${base}/`);
await listed("1,000 incidents");
check(!(await page.locator("main").textContent()).includes("40 connections"), "the newest thousand are small ones");
await page.waitForSelector("text=The newest 1,000. Choose a time to see older ones.");
await page.locator("#search").fill(DROPPED);
await page.waitForSelector("text=Only the newest 1,000 were looked through");
await page.locator("#search").fill("");

// What is older is found by its time, by the fields and by a span; and told apart from what is not there.
const toField = (ms) => iso(ms).replace("T", " ").replace("Z", "");
const dropped_at = start + 50_003 * 50;
await page.locator("details.between summary").click();
await page.locator("details.between input").first().fill(toField(dropped_at - 10_000));
await page.keyboard.press("Enter");
await page.locator("details.between input").last().fill(toField(dropped_at + 10_000));
await page.keyboard.press("Enter");
await listed("1 incident");
same(await ids(), [DROPPED], "the incident of that time");
await tidy(page);
await shot(page, "between-light");
await page.getByRole("button", { name: "24 hours" }).click();
await listed(`${(SMALL + 2).toLocaleString("en-US")} incidents`);
await page.locator("#search").fill("no such thing");
await page.waitForSelector(`text=${(SMALL + 2).toLocaleString("en-US")} incidents in all.`);
await page.locator("#search").fill("");

// Severity, kind and state, alone and together; the address keeps them.
const severity = (name) => page.getByRole("group", { name: "Severity" }).getByRole("button", { name });
const tenths = Math.ceil(SMALL / 10);
await severity("info").click();
await listed(`${tenths + 2} incidents`);
same(await page.locator("li.row.info").count(), 0, "rows of a severity that is off");
await severity("warning").click();
await listed("2 incidents");
same(await ids(), [UNSEEN, DROPPED], "critical ones, newest first");
same(new URL(page.url()).searchParams.get("severity"), "critical", "the severities in the address");
await page.reload();
await listed("2 incidents");
await severity("info").click();
await severity("warning").click();
await page.locator("select[aria-label=Kind]").selectOption("millibottleneck");
await listed(`${Math.ceil(SMALL / 7)} incidents`);
await severity("info").click();
await listed(`${Math.ceil(SMALL / 70)} incidents`);
await severity("info").click();
await page.locator("select[aria-label=Kind]").selectOption("");
await page.locator("select[aria-label=State]").selectOption("open");
await listed("1 incident");
same(await ids(), [`01MB${String(SMALL - 1).padStart(22, "0")}`], "the open one");
await page.locator("select[aria-label=State]").selectOption("closed");
await listed(`${(SMALL + 1).toLocaleString("en-US")} incidents`);
await page.locator("select[aria-label=State]").selectOption("");

// By what was short and where; the address keeps it, and what it names can be chosen though nothing is of it.
await page.locator("details.further summary").click();
await page.locator("select[aria-label=Service]").selectOption("web");
await listed("2 incidents");
await page.locator("select[aria-label=Root]").selectOption("db");
await listed("2 incidents");
await shot(page, "place-light");
await page.locator("select[aria-label=Resource]").selectOption("io");
await page.waitForSelector("text=No incident fits.");
await page.goto(`${base}/?last=24h&service=apache2&root=10.0.0.7`);
await listed("2 incidents");
same(await page.locator("select[aria-label=Root]").inputValue(), "10.0.0.7", "the root of the address");
await page.locator("select[aria-label=Service]").selectOption("");
await listed(`${(SMALL + 2).toLocaleString("en-US")} incidents`);

// The keyboard: rows, pages, a moment, the theme.
await page.goto(`${base}/?severity=critical&last=24h`);
await listed("2 incidents");
const focused = () => page.evaluate(() => document.activeElement.closest("li.row")?.dataset.id ?? document.activeElement.textContent);
for (const [key, id] of [["j", UNSEEN], ["j", DROPPED], ["j", DROPPED], ["k", UNSEEN]]) {
  await page.keyboard.press(key);
  same(await focused(), id, `the row after ${key}`);
}
await page.keyboard.press("t");
same(await page.evaluate(() => document.activeElement.matches("details.between[open] input[data-moment]")), true, "t goes to a field for a moment");
await page.keyboard.press("Escape");
const themeIs = (name) => page.waitForFunction((name) => document.documentElement.dataset.theme === name, name);
await themeIs("light");
await page.keyboard.press("d");
await themeIs("dark");
await page.reload();
await themeIs("dark");
await page.keyboard.press("d");
await themeIs("light");
for (const [second, selector] of [["h", "main.hosts"], ["t", "main.topology"], ["i", "main.list"]]) {
  await goTo(page, second);
  await page.waitForSelector(selector);
}
await page.goto(`${base}/hosts`);
await page.waitForSelector(".card-name");
await page.keyboard.press("j");
same(await focused(), "web-1", "the first host after j");
await page.keyboard.press("Enter");
await page.waitForSelector("main.host");

// A tier without an agent is not one with an empty queue; where each is on its curve is said, and where the order is not known.
await page.goto(`${base}/incidents/${DROPPED}`);
await page.waitForSelector("section.timeline[data-marks]");
const unseen = page.locator("li.hop.unobserved");
same(await unseen.count(), 1, "tiers that nobody observes");
const said = await unseen.textContent();
check(said.includes("Unpaired: no agent sees its other end") && said.includes("37 calls to it in flight"), `what is known of it: ${said}`);
same(await unseen.locator(".meter, .queued").count(), 0, "numbers of a tier that nobody observes");
same(await unseen.locator("a").count(), 0, "links to a host that has no agent");
const web = page.locator("li.hop.drop");
same(await web.locator(".order").textContent(), "order to the root unknown", "the order");
same(await web.locator(".congestion").textContent(), "Congestion point N*120load 279, 3 answers in 50 ms where 50 are usual, stood still in 2 windows", "the congestion point");

// Very long requests where clients were seen to try again; where none is, only what is expected.
const marks = async () => JSON.parse(await page.locator("section.timeline").getAttribute("data-marks"));
const span = (kind, from, to) => ({ kind, from: start + from * 50, to: start + to * 50 });
await page.waitForSelector(".mark.vlrt");
same(await marks(), [span("root", 49_995, 50_004), span("drop", 50_003, 50_004), span("vlrt", 50_003, 50_005), span("vlrt", 50_006, 50_007)], "the marks");
same(await page.locator(".marks .vlrt").textContent(), "VLRT requests, where they began: 40 SYNs seen again", "the legend");
same((await values(page, "apache2@web-1 10.0.0.1:80 · VLRT requests by the window they began in"))["SYNs sent again"], { max: 30, sum: 40 }, "SYNs sent again");
await page.waitForFunction(() => document.querySelectorAll("section.timeline canvas").length >= 4);
await tidy(page);
await shot(page, "unobserved-light");
await dark.goto(page.url());
await dark.waitForSelector(".mark.vlrt");
await shot(dark, "unobserved-dark");
const phone = await newPage("phone");
await phone.goto(page.url());
await phone.waitForSelector(".mark.vlrt");
await tidy(phone);
await shot(phone, "unobserved-phone");
await phone.context().close();
await page.goto(`${base}/incidents/${UNSEEN}`);
await page.waitForSelector(".mark.expected");
same(await marks(), [span("root", 50_492, 50_501), span("drop", 50_500, 50_501), span("expected", 50_520, 50_521)], "the marks without a client");
check((await page.locator(".marks .expected").textContent()).startsWith("first retries expected"), "a guess is called one");

// The collector goes, and comes back.
await page.goto(`${base}/`);
await page.waitForSelector(".connection.live");
// Without a list there is nothing that the page could say is old.
await page.waitForSelector("main.list ol.rows");
forgiven.push(...CUT_OFF);
say("stop");
await page.waitForSelector(".lost-banner");
await page.waitForSelector("text=collector unreachable for");
await shot(page, "unreachable-light");
say("start");
await page.waitForSelector(".connection.live");
await page.waitForSelector(".lost-banner", { state: "detached" });

// It came back with a disk that takes nothing: said, on every page, until it does.
await page.waitForSelector(".disk-banner");
check((await page.locator(".disk-banner").textContent()).includes("in-the-way"), "the banner names what cannot be written");
await tidy(page);
await shot(page, "disk-light");
await dark.goto(`${base}/hosts`);
await dark.waitForSelector(".disk-banner");
await shot(dark, "disk-dark");
say("free");
await page.waitForSelector(".disk-banner", { state: "detached" });

same(wrong, [], "console errors and foreign requests");
await browser.close();
say("done");
process.exit(0);
