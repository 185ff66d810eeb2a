// An hour of one host: drawn at once, with extremes that a mean would hide, gaps that are no zeros; and what the page says when there is
// nothing to show. Usage: hour.mjs URL FOLDER START_MS
import { check, drawn, hostDrawn, open, same, say, tidy, values } from "./browser.mjs";

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
const counted = await drawn(page);
check(counted.filled >= 6 && counted.filled === counted.all, `all charts are drawn: ${JSON.stringify(counted)}`);
same((await values(page, "Drops"))["dropped packets"].max, 40, "one window's drops");
same((await values(page, "Queues"))["queued requests"].max, 279, "six windows' queue");
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

// Before what is kept; what is not kept; what nobody knows.
await page.goto(hour(start - 7_200_000, start - 3_600_000));
await page.waitForSelector("text=This time is not kept any more.");
forgiven.push("404 (Not Found)");
await page.goto(`${base}/incidents/01M7Z8QNKMQM8E9ZHQAHYW8000`);
await page.waitForSelector("text=This incident is not kept.");
await shot(page, "expired-light");
await page.goto(`${base}/hosts/nobody`);
await page.waitForSelector('text=no windows of host "nobody"');

// The collector goes, and comes back.
await page.goto(`${base}/`);
await page.waitForSelector(".connection.live");
forgiven.push("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET");
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
