// Silences as somebody uses them who was woken: from the incident, by the keys, with the collector's words where something is wrong; what they
// hold back, and their end. Who may only read sees them. Usage: silences.mjs URL FOLDER TOKENS
import { check, goTo, hear, open, same, say, tidy } from "./browser.mjs";

const [base, shots, tokens] = process.argv.slice(2);
const { ann, bob } = JSON.parse(tokens);
const { browser, page: newPage, shot, wrong, forgiven } = await open(base, shots);
// What is refused here is refused on purpose: without a token, what makes no sense, a silence that is gone.
forgiven.push("the server responded with a status of 401", "the server responded with a status of 400", "the server responded with a status of 404");

async function signedIn(token, path, theme = "light") {
  const page = await newPage(theme);
  await page.goto(`${base}${path}`);
  await page.getByLabel("Token").fill(token);
  await page.getByLabel("Token").press("Enter");
  await page.waitForSelector(".connection.live");
  await page.evaluate(() => document.fonts.ready);
  return page;
}
/** The page as it is, in the other theme, and back. */
async function inBoth(page, name) {
  for (const theme of ["light", "dark"]) {
    await page.evaluate((theme) => (document.documentElement.dataset.theme = theme), theme);
    await shot(page, `${name}-${theme}`);
  }
  await page.evaluate(() => (document.documentElement.dataset.theme = "light"));
}
const focused = (page) => page.evaluate(() => document.activeElement.name || document.activeElement.id || document.activeElement.className);
const text = (page, where) => page.locator(where).first().textContent();
const has = async (page, where, part) => check((await text(page, where)).includes(part), `${where} says "${part}": ${await text(page, where)}`);
const refusedWith = (page, part) => page.locator(".form [role=alert]", { hasText: part }).waitFor();

// Who may only read: there is none, and no button for one, also not by its key.
const reader = await signedIn(bob, "/silences");
await reader.waitForSelector("text=No silence: every incident is told to the hooks that want it.");
await reader.waitForSelector("text=Whoever has the role operate can make silences and end them.");
await reader.keyboard.press("s");
same(await reader.locator("#silence, dialog.form").count(), 0, "buttons and forms of a reader");
await tidy(reader);
await shot(reader, "silences-none-light");
await goTo(reader, "i");
await reader.waitForSelector("li.row");
await reader.locator("li.row a").first().click();
await reader.waitForSelector("main.story");
same(await reader.locator("#silence, .silenced-by").count(), 0, "buttons on the incident of a reader");

// Who may operate, from the list to a silence without a mouse.
const page = await signedIn(ann, "/");
await page.waitForSelector("li.row");
await page.keyboard.press("j");
await page.keyboard.press("Enter");
await page.waitForSelector("#silence");
const story = page.url();
const openForm = async () => {
  // Whoever types on at once loses no letter.
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("s");
  await page.waitForSelector("dialog.form[open]");
};
await openForm();
same(await focused(page), "comment", "what has the keyboard");
const field = (name) => page.locator(`.form [name=${name}]`);
const filled = async () => Object.fromEntries(await Promise.all(["host", "workload", "tier", "listener", "kind", "hooks", "end"].map(async (name) => [name, await field(name).inputValue()])));
same(await filled(), { host: "web-1", workload: "apache2.service", tier: "", listener: "", kind: "", hooks: "", end: "1h" }, "the form from the incident");
await has(page, ".form .summary", "Not told: host web-1, workload apache2.service");
await tidy(page);

// What is wrong is said in the collector's words, with what to do; what was written stays.
await page.keyboard.press("Enter");
await refusedWith(page, "a silence needs a comment: why nobody is told");
await refusedWith(page, "remedy: say it to whoever finds it");
await page.keyboard.type("a deploy of web");
await field("end").fill("tomorrow");
await page.keyboard.press("Enter");
await refusedWith(page, '"tomorrow" is not a moment of RFC 3339');
await field("end").fill("");
await page.keyboard.press("Enter");
await refusedWith(page, "it would last for more than 31 days");
await page.getByRole("button", { name: "2 hours" }).click();
same(await field("end").inputValue(), "2h", "the end by its button");
await field("hooks").fill("nobody");
await page.keyboard.press("Enter");
await refusedWith(page, "the hooks are: webhook");
await inBoth(page, "silence-refused");
await field("hooks").fill("");
for (const name of ["host", "workload"]) await field(name).fill("");
await has(page, ".form .summary", "Not told: everything");
await page.getByRole("button", { name: "dropped: apache2.service@web-1" }).click();
same(await field("host").inputValue(), "web-1", "the place by its button");

// Keys of the page are letters here, and Escape closes the form and nothing else.
await page.getByRole("button", { name: "Cancel" }).focus();
await page.keyboard.press("j");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog.form", { state: "detached" });
same([page.url(), await focused(page)], [story, "silence"], "after Escape: where one is, and what has the keyboard");

await openForm();
await page.keyboard.type("a deploy of web");
await page.locator(".form [name=end]").fill("2h");
await inBoth(page, "silence-form");
await page.keyboard.press("Enter");
await page.waitForSelector(".silenced-by[data-id=s1]");
await page.waitForSelector("dialog.form", { state: "detached" });
for (const part of ["not told now", "a deploy of web", "by ann", "left)"]) await has(page, ".silenced-by", part);
await has(page, ".silencing .done", "s1 holds.");
same(await focused(page), "silence", "what has the keyboard afterwards");
same(await text(page, "nav .n.holding"), "1", "silences that hold, on every page");
await tidy(page);

// An overflow under it: found and shown, marked, and told to nobody.
await page.goto(`${base}/`);
say("overflow");
same(await hear(), "over", "the test's word");
await page.waitForFunction(() => document.querySelectorAll("li.row").length === 2 && !document.querySelector("li.row .badge.open"));
await page.waitForSelector("li.row:first-child .badge.silenced");
same(await page.locator(".badge.silenced").count(), 1, "incidents that are marked");
say("told");
same(await hear(), 0, "messages under the silence");
await inBoth(page, "silenced-list");

// Listed, with what it held back; another one that is for another place.
await goTo(page, "q");
const card = (id) => `main.silences li[data-id=${id}]`;
await page.waitForSelector(card("s1"));
for (const part of ["a deploy of web", "holds", "host web-1, workload apache2.service", "by ann", "since the collector's start: 20", "s1"]) await has(page, card("s1"), part);
check(!(await text(page, card("s1"))).includes("nothing since"), "something was held back");
await page.keyboard.press("s");
await page.waitForSelector("dialog.form[open]");
same(await page.locator(".form .choices[aria-label^=Fill]").count(), 0, "no incident to fill in from");
await page.keyboard.type("a load test, all night");
await page.locator(".form [name=host]").fill("test-*");
await page.locator(".form [name=end]").fill("06:00");
await page.locator(".form [name=kind]").selectOption("near_overflow");
await page.getByRole("button", { name: "Silence", exact: true }).click();
await page.waitForSelector(card("s2"));
for (const part of ["a load test, all night", "host test-*, kind Near overflow", "nothing since"]) await has(page, card("s2"), part);
const until = await page.locator(`${card("s2")} time`).first().getAttribute("datetime");
same([until.slice(11), Date.parse(until) > Date.now(), Date.parse(until) - Date.now() <= 86_400_000], ["06:00:00.000Z", true, true], "the next time that it is six");
await tidy(page);
await inBoth(page, "silences");
same(await page.locator("main [style]").count(), 0, "styles of elements");

// The incident that was not told says so.
await page.locator(`${card("s1")} dd a`).first().click();
await page.waitForSelector("main.story .badges .badge.silenced");
await inBoth(page, "silenced-story");
await page.waitForSelector(".silenced-by");
same(await page.locator(".silenced-by").count(), 1, "only the silence that covers it");

// On a phone.
const phone = await signedIn(ann, new URL(page.url()).pathname, "phone");
await phone.waitForSelector(".silenced-by[data-id=s1]");
await tidy(phone);
await inBoth(phone, "silenced-story-phone");
await phone.locator("#silence").click();
await phone.waitForSelector("dialog.form[open]");
await tidy(phone);
const box = await phone.locator("dialog.form").boundingBox();
check(box.x >= 0 && box.x + box.width <= 390 && box.y >= 0 && box.y + box.height <= 844, `the form is on the screen: ${JSON.stringify(box)}`);
await inBoth(phone, "silence-form-phone");
const press = await phone.locator(".form .chip.main").boundingBox();
check(press.y + press.height <= 844, `the button is on the screen without scrolling: ${JSON.stringify(press)}`);
await phone.getByRole("button", { name: "Cancel" }).click();
await phone.goto(`${base}/silences`);
await phone.waitForSelector(card("s2"));
await tidy(phone);
await inBoth(phone, "silences-phone");

// The reader sees the same, and ends nothing.
await reader.waitForSelector(".silenced-by[data-id=s1]");
await reader.goto(`${base}/silences`);
await reader.waitForSelector(card("s1"));
same(await reader.locator("main button").count(), 0, "buttons of a reader");
await shot(reader, "silences-reader-light");

// Ended by the keys; the keyboard goes on from what is said of it. Somebody else is too late, and is told so.
await page.goto(`${base}/silences`);
await page.waitForSelector(card("s1"));
const stale = await page.evaluate(async () => (await fetch("/api/v1/silences")).json());
await phone.route((url) => url.pathname === "/api/v1/silences", (route) => route.fulfill({ json: stale }));
await page.keyboard.press("j");
check((await focused(page)).includes("card silence"), "j goes to the first silence");
await page.locator(`${card("s1")} .end`).focus();
await page.keyboard.press("Enter");
await page.waitForSelector(card("s1"), { state: "detached" });
await page.locator(".done", { hasText: "s1 has ended." }).waitFor();
await page.waitForFunction(() => document.activeElement?.classList.contains("done"));
await phone.locator(`${card("s1")} .end`).click();
await phone.locator(`${card("s1")} [role=alert]`, { hasText: 'no silence that was made is called "s1"' }).waitFor();
await shot(phone, "silence-gone-phone-light");
await page.getByRole("button", { name: "End s2: a load test, all night" }).click();
await page.waitForSelector("text=No silence: every incident is told to the hooks that want it.");
same(await page.locator("nav .n.holding").count(), 0, "silences that hold");

// After it everything is told again.
say("again");
same(await hear(), "told", "the test's word");
same(wrong, [], "what must not happen");
await browser.close();
say("done");
process.exit(0);
