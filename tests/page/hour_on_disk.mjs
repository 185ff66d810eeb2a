// The hour of one host again, by a collector that has it on disk only. Usage: hour_on_disk.mjs URL FOLDER START_MS
import { check, hostDrawn, open, same, say, tidy, values } from "./browser.mjs";

const [base, shots, begin] = process.argv.slice(2);
const [from, to] = [Number(begin), Number(begin) + 3_600_000].map((ms) => new Date(ms).toISOString());
const { browser, page: newPage, shot, wrong } = await open(base, shots);
const page = await newPage();
await page.goto(`${base}/`);
await page.waitForSelector("text=No incidents yet.");
await page.evaluate(() => document.fonts.ready);
for (const what of ["cold", "again"]) {
  if (what === "again") await page.goto(`${base}/`);
  await page.waitForSelector("main h1");
  say("measured", { what: `an hour of 50 ms windows of one host from disk, ${what}`, ...(await hostDrawn(page, "link", `/hosts/web-1?from=${from}&to=${to}`)) });
}
same(await page.locator(".panels").getAttribute("data-step-ms"), "4000", "windows of a point");
same((await values(page, "Drops"))["dropped packets"].max, 40, "one window's drops");
same((await values(page, "Queues"))["queued requests"].max, 279, "six windows' queue");
await page.waitForSelector("text=it is not in memory any more");

// A host that is gone: still listed, with its workloads and what they did.
const at = (ms) => new Date(Number(begin) + ms).toISOString();
await page.goto(`${base}/hosts`);
await page.waitForSelector(".card.gone");
same(await page.locator(".card.gone .card-name").allTextContents(), ["gone-1"], "hosts without an agent");
check((await page.locator(".card.gone").textContent()).includes("not connected, last seen"), "how it is called");
await tidy(page);
await shot(page, "hosts-gone-light");
await page.locator(".card.gone a").click();
await page.waitForSelector(".panels figure.chart");
await page.waitForSelector("text=not connected, last seen");
const row = page.locator("tr", { hasText: "mariadb.service" });
same((await row.locator("td").allTextContents()).map((text) => text.trim()), ["mariadb.service", "10.0.0.9:3306", "unknown", "unknown"], "its workload");
await shot(page, "host-gone-light");

// What each tier did at a moment that only the disk holds, as the API tells it of the windows.
const until = 50_008 * 50;
await page.goto(`${base}/topology?at=${at(until)}`);
const node = page.locator(".node", { hasText: "apache2.service@web-1" });
await node.locator(".meter-value").waitFor();
same(await node.locator(".meter-value").textContent(), "129/128", "its accept queue then");
same(await node.locator(".numbers b").allTextContents(), ["279", "150", "27 %", "1,000", "3"], "its numbers then");
check((await node.textContent()).includes("40 packets dropped"), "its drops then");
same(await page.locator(".node", { hasText: "gone-1" }).count(), 0, "a host that was gone by then");
await shot(page, "topology-then-light");
await page.goto(`${base}/topology?at=${at(30_000)}`);
await page.locator(".node", { hasText: "mariadb.service@gone-1" }).locator(".meter-value").waitFor();
await page.goto(`${base}/topology?at=${at(36_100 * 50)}`);
await page.waitForSelector("text=No windows of these 5 s are kept.");
same(wrong, [], "console errors and foreign requests");
await browser.close();
say("done");
process.exit(0);
