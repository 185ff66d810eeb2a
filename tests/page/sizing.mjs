// Sizes of pools: what is awaited, what is advised and on what it rests, what has no size, and a collector that does not answer.
// Usage: sizing.mjs URL FOLDER
import { check, CUT_OFF, drawn, goTo, open, same, say, THEMES, tidy } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong, forgiven } = await open(base, shots);
const page = await newPage();
const has = async (where, text) => check((await page.locator(where).textContent()).includes(text), `${where} says "${text}": ${await page.locator(where).textContent()}`);
const card = (port) => `li[data-listener$=" ${port}"]`;

// Nothing was learnt: what is awaited, no number. By the keys, from the list.
await page.goto(`${base}/`);
await page.waitForSelector("main.list, main .note");
await goTo(page, "s");
await page.waitForSelector("text=No size is advised yet.");
await has("main", "Nothing was learnt so far.");
await has("main", "Now: no listener had a request whose windows and name are known.");
await tidy(page);
await page.evaluate(() => document.fonts.ready);
await shot(page, "sizing-empty-light");
say("learn");
await page.reload();
await page.waitForSelector("text=Learning since");
same(await page.locator("main time").getAttribute("datetime"), "2026-11-06T21:20:00.000Z", "since when");

// It comes by itself, without a reload, within the quarter of a minute.
say("advise");
await page.waitForSelector(card(8080));
same(await page.locator(".advice").count(), 3, "listeners with a size");
same(await page.locator(".refusal").count(), 2, "listeners without one");
await drawn(page, ({ filled }) => filled === 3, "three curves");
await has(`${card(8080)} .line`, "tomcat10@app:8080: 16 at a time are enough (13 to 22 cost ≤ 2 %)");
same(await page.locator(`${card(8080)} > :first-child`).getAttribute("class"), "line", "the line to act on comes first");
await has(`${card(8080)} .evidence-class`, "measured Loads on both sides of the best one were seen.");
check((await page.locator(`${card(8080)} .badge.class`).first().getAttribute("title")).includes("both sides"), "a class says what it means");
await has(`${card(8080)} .pairs`, "3 h 12 min of traffic");
await has(`${card(8080)} .pairs`, "6 min 52 s it waited for tiers below");
await has(`${card(8080)} .pairs`, "below 0.1 % of the best throughput");
// A change of sizes is held against what was before, and marked only where that is certain.
await has(`${card(8080)} .change`, "worse: a request takes 30.0 ms in place of 20.0 ms");
same(await page.locator(`${card(8080)} .change`).getAttribute("class"), "change bad", "what got worse is marked");
same(await page.locator(`${card(80)} .change`).getAttribute("class"), "change quiet", "what is not certain is not");
same(await page.locator(`${card(3306)} .change`).count(), 0, "what did not change has no line");
// Who takes CPU from whom stands before the sizes; what the rest of a tier bears, with them.
await has(".system", "reports.service@db takes CPU from mariadb.service");
await has(`${card(8080)} .pairs`, "CPU of the 1 server that is left: 116 % in the busiest minute of 7 days (940 requests/s)");
// What is not known is said, and is nowhere a zero.
await has(`${card(3306)} .pairs`, "15 or more; no upper end was seen up to 240 in flight");
await has(`${card(3306)} .pairs`, "limit unknown");
await has(`${card(3306)} .pairs`, "unknown: throughput is not seen to fall with more in flight");
await has(`${card(3306)} .pairs`, "does not hold");
await has(`${card(80)} .pairs`, "at least 40; no upper end was seen up to 12 in flight");
await has(`${card(80)} figure.curve`, "the best lies here or beyond");
await has(`${card(6379)} .why-not`, "No size: no hardware was full (0.31 of its quota at the most)");
await has(`${card(6379)} .pairs`, "1 min 15 s not everything was measured");
await has("main", "3 listeners more are not learnt");
check(!/null|NaN|undefined|Infinity/.test(await page.locator("main").textContent()), "no word of the program");
// The curve is what the API says, and its open end has no edge.
const curve = async (port) => JSON.parse(await page.locator(`${card(port)} figure.curve`).getAttribute("data-curve"));
const [tomcat, mariadb] = [await curve(8080), await curve(3306)];
same([tomcat.from, tomcat.advised, tomcat.to, tomcat.open, tomcat.log], [13, 16, 22, false, false], "a curve with two ends");
same([mariadb.from, mariadb.open, mariadb.log, mariadb.at.length], [15, true, true, 10], "one without an upper end");
await shot(page, "sizing-light");

// Keys: from listener to listener, and along a curve.
await page.keyboard.press("j");
await page.keyboard.press("j");
same(await page.evaluate(() => document.activeElement.textContent), "mariadb@db:3306", "the second listener");
await page.locator(`${card(8080)} figure.curve`).focus();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowRight");
await page.waitForFunction(() => document.querySelector("figure.curve .readout").textContent.startsWith("2 in flight"));
same(await page.locator('nav a[aria-current="page"]').textContent(), "Sizing", "where one is");
same(await page.locator("main [style]:not(.plot *)").count(), 0, "styles of elements");
await tidy(page);

for (const theme of Object.keys(THEMES).filter((name) => name !== "light")) {
  const view = await newPage(theme);
  await view.goto(`${base}/sizing`);
  await view.waitForSelector("figure.curve canvas");
  await view.evaluate(() => document.fonts.ready);
  await tidy(view);
  await shot(view, `sizing-${theme}`);
}

// Nobody answers: said, as on other pages.
forgiven.push(...CUT_OFF);
say("stop");
await page.waitForSelector('.note.bad[role="alert"] >> text=The advice cannot be read.');
await has(".note.bad", "the collector does not answer");
same(await page.locator(".advice").count(), 3, "what was advised before");
await shot(page, "sizing-unreachable-light");

same(wrong, [], "what must not happen");
await browser.close();
say("done");
process.exit(0);
