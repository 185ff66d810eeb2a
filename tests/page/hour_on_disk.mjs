// The hour of one host again, by a collector that has it on disk only. Usage: hour_on_disk.mjs URL FOLDER START_MS
import { hostDrawn, open, same, say, values } from "./browser.mjs";

const [base, shots, begin] = process.argv.slice(2);
const [from, to] = [Number(begin), Number(begin) + 3_600_000].map((ms) => new Date(ms).toISOString());
const { browser, page: newPage, wrong } = await open(base, shots);
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
same(wrong, [], "console errors and foreign requests");
await browser.close();
say("done");
process.exit(0);
