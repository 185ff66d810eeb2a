// A collector that wants a token: the form in both themes and on a phone, a wrong token, a right one, what the browser keeps of it, and how a
// session ends. Usage: login.mjs URL FOLDER TOKEN
import { check, hear, open, same, say, tidy } from "./browser.mjs";

const [base, shots, token] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong, forgiven } = await open(base, shots);
// The browser itself complains of what is refused here on purpose.
forgiven.push("the server responded with a status of 401");

for (const theme of ["dark", "phone"]) {
  const page = await newPage(theme);
  await page.goto(`${base}/topology`);
  await page.waitForSelector("text=This collector wants a token.");
  await tidy(page);
  await shot(page, `login-${theme}`);
  await page.context().close();
}

const page = await newPage();
await page.goto(`${base}/topology`);
await page.waitForSelector("text=This collector wants a token.");
same(await page.locator("nav[aria-label=Pages]").count(), 0, "pages behind the form");
await tidy(page);
await page.evaluate(() => document.fonts.ready);
await shot(page, "login-light");
const field = page.getByLabel("Token");
check(await field.evaluate((input) => input === document.activeElement), "the field has the keyboard");
check(await page.getByRole("button", { name: "Open" }).isDisabled(), "nothing to send yet");
await field.fill("tailwater_wrong");
await field.press("Enter");
await page.waitForSelector("[role=alert]:has-text('none of this collector')");
await tidy(page);
await shot(page, "login-wrong-light");

await field.fill(token);
await page.getByRole("button", { name: "Open" }).click();
await page.waitForSelector("nav[aria-label=Pages]");
same(new URL(page.url()).pathname, "/topology", "the page that was asked for");
await page.waitForSelector(".connection.live");
const [cookie, ...more] = await page.context().cookies();
same([cookie.httpOnly, cookie.sameSite, more.length], [true, "Strict", 0], "the cookie");
check(!cookie.value.includes(token) && !token.includes(cookie.value), "the cookie is not the token");
same(await page.evaluate(() => document.cookie), "", "what a script sees of it");
const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
check(!kept.includes(token), `the browser keeps no token: ${kept}`);
await tidy(page);
await shot(page, "session-light");

await page.getByRole("button", { name: "Sign out" }).click();
await page.waitForSelector("text=This collector wants a token.");
same((await page.context().cookies()).length, 0, "cookies afterwards");

// A session that ends while somebody looks.
await page.getByLabel("Token").fill(token);
await page.getByLabel("Token").press("Enter");
await page.waitForSelector(".connection.live");
say("revoke");
same(await hear(), "revoked", "the test's word");
await page.waitForSelector("text=Your session is over.");
await shot(page, "session-over-light");
same(wrong, [], "what must not happen");
await browser.close();
say("done");
process.exit(0);
