// The slowest traces of an incident as somebody opens them: by service, three of each and the rest on demand, each with its link; and that the page goes on
// asking until all are there. Usage: traces.mjs URL FOLDER; the test makes the incident once the browser is there, because its page is only so long
// one to which more may come.
import { check, hear, open, same, say, tidy } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong } = await open(base, shots);
const page = await newPage("light");
say("ready");
const id = await hear();
await page.goto(`${base}/incidents/${id}`);
const section = page.locator("#traces");
await section.waitFor();
await page.evaluate(() => document.fonts.ready);
await section.getByText("More may come").waitFor();
say("gathering");
await hear();
// The last look comes 20 s after the incident's end; nobody reloads the page.
await section.getByText("More may come").waitFor({ state: "detached", timeout: 60_000 });
say("settled");
const told = await hear();
same(told.state, "settled", "what the collector says");

const rows = async () => page.$$eval("#traces tbody tr", (all) => all.map((row) => [row.cells[0].textContent.trim(), row.querySelector("a").href, row.querySelector("b") !== null]));
const expected = (most) => told.services.flatMap((of) => of.traces.slice(0, most).map((trace) => [`${of.service} ${trace.host}`, `https://jaeger.example/trace/${trace.trace_id}`, of.tier !== null]));
same(await rows(), expected(3), "rows");
check(expected(3).some(([, , on]) => on) && expected(3).some(([, , on]) => !on), "one service is of the chain, one is not");
await tidy(page);
await shot(page, "traces-light");
await section.getByRole("button").click();
same(await rows(), expected(undefined), "rows, all of them");
same(await section.getByRole("button").count(), 0, "buttons that show more, when all is shown");
for (const theme of ["dark", "phone"]) {
  const other = await newPage(theme);
  await other.goto(`${base}/incidents/${id}`);
  await other.locator("#traces table").waitFor();
  await tidy(other);
  await shot(other, `traces-${theme}`);
}
same(wrong, [], "complaints of the browser");
await browser.close();
say("done");
process.exit(0);
