// A person who has the page open while an incident happens: sees it come, opens it, compares it with what the command line says,
// follows links, reloads, uses the keyboard, at a desk and on a phone, in light and in dark.
// Usage: incident.mjs URL FOLDER; talks to the test that started it by lines.
import { check, drawn, goTo, hear, open, placeOf, same, say, tidy, values } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong } = await open(base, shots);
const page = await newPage();
const answer = await page.goto(`${base}/`);
const policy = answer.headers()["content-security-policy"] ?? "";
check(policy.includes("default-src 'none'") && !policy.includes("unsafe"), `a strict policy: ${policy}`);
await page.waitForSelector(".connection.live");
await page.waitForSelector("main.list");
await page.evaluate(() => (window.opened = "once"));
const before = await page.locator("li.row").evaluateAll((rows) => rows.map((r) => r.dataset.id));
say("ready");

// It arrives without a reload.
const row = page.locator("li.row.critical");
await page.waitForFunction((known) => [...document.querySelectorAll("li.row.critical")].some((r) => !known.includes(r.dataset.id)), before, { timeout: 300_000 });
same(await page.evaluate(() => window.opened), "once", "the list was not loaded again");
say("arrived", await row.first().getAttribute("data-id"));
await shot(page, "list-live");

// What the command line says of it, once it is closed.
const incident = await hear();
await page.waitForSelector(`li.row[data-id="${incident.id}"]`);
await page.locator(`li.row[data-id="${incident.id}"] a`).click();
await page.waitForSelector(`main.story[data-id="${incident.id}"][data-version="${incident.version}"]`);
same(new URL(page.url()).pathname, `/incidents/${incident.id}`, "the address");

async function isTheStory(page) {
  await page.waitForSelector(`main.story[data-version="${incident.version}"]`);
  same(await page.locator("h1.sentence").textContent(), incident.title, "the sentence");
  const root = await page.locator("li.hop.root .hop-name").textContent();
  same(root, placeOf(incident.root), "the root");
  const order = await page.locator("li.hop").evaluateAll((all) => all.map((h) => h.querySelector(".hop-name").textContent));
  const hops = incident.hops[0].role === "drop" && incident.hops.length > 1 ? [...incident.hops].reverse() : incident.hops;
  same(order, hops.map(placeOf), "the chain, from root to drop");
  for (const [n, hop] of hops.entries()) {
    const meter = async (name) => page.locator("li.hop").nth(n).locator(".meter", { hasText: name }).locator(".meter-value").textContent();
    const of = (value, limit) => (limit === null ? String(value) : `${value}/${limit}`);
    same(await meter("Accept queue"), of(hop.accept_queue_max, hop.accept_queue_limit), `accept queue of ${hop.host}`);
    same(await meter("Workers busy"), of(hop.workers_busy_max, hop.workers_limit), `workers of ${hop.host}`);
  }
  const facts = await page.locator(".facts-row").textContent();
  const lost = incident.drops.reduce((sum, d) => sum + d.connections, 0);
  check(facts.includes(`${lost.toLocaleString("en-US")} connection`), `${lost} connections in: ${facts}`);
  const percent = (ratio) => `${Math.round(ratio * 100)} %`;
  check(facts.includes(percent(incident.confidence)), `confidence in: ${facts}`);
  // How often the like was there before.
  const { incidents: listed } = await (await fetch(`${base}/api/v1/incidents?limit=1000`)).json();
  const way = (i) => JSON.stringify([i.root.resource, i.root.tier, ...i.hops.map((h) => h.tier)]);
  const hosts = new Set(incident.hops.map((h) => h.host));
  const like = listed.filter((i) => i.start_unix_ns < incident.start_unix_ns && way(i) === way(incident) && i.hops.some((h) => hosts.has(h.host)));
  if (like.length > 0) await page.waitForSelector("p.before"); // Once the list is here.
  const saidBefore = await page.locator("p.before").allTextContents();
  same(saidBefore.length, like.length > 0 ? 1 : 0, `the line of the ${like.length} before`);
  if (like.length > 0) check(saidBefore[0].includes(`${like.length} time`), `${like.length} before in: ${saidBefore[0]}`);
  // Who did it, and what else fits, each with its share.
  const shares = (section) => page.locator(`section[aria-labelledby=${section}] ul.shares > li`).evaluateAll((all) => all.map((li) => [li.querySelector(".who").textContent, li.querySelector(".share").textContent]));
  const culprits = await shares("culprits");
  same(culprits.map(([, share]) => share), incident.root.culprits.map((c) => percent(c.share)), "the culprits' shares");
  for (const [n, c] of incident.root.culprits.entries()) {
    const who = culprits[n][0];
    check(who.startsWith(c.comm || c.workload) && (c.pid === 0 || who.includes(`pid ${c.pid}`)) && who.includes(`in ${c.workload || "an unknown workload"}`), `${JSON.stringify(c)} is culprit ${n + 1}: ${who}`);
  }
  const roots = await shares("roots");
  same(roots.map(([, share]) => share), [incident, ...incident.alternatives].map((i) => percent(i.confidence)), "confidence, and that of the alternatives");
  for (const [n, { root }] of [incident, ...incident.alternatives].entries()) {
    const where = placeOf(root);
    check(roots[n][0].startsWith(`${where} `), `${where} is root ${n + 1}: ${roots[n][0]}`);
  }
  // What is marked in every chart: the millibottleneck, the drops, and the very long requests as far as clients were seen to try again.
  await page.waitForSelector(`section.timeline[data-marks] .mark`);
  const timeline = await (await fetch(`${base}/api/v1/incidents/${incident.id}/timeline`)).json();
  const ms = (ns) => Math.round(ns / 1e6);
  const began = new Set(timeline.tiers.flatMap((t) => (t.retried ?? []).flatMap((v, n) => (v > 0 ? [ms(timeline.start_unix_ns) + n * 50] : []))));
  if (began.size > 0) await page.waitForSelector(".mark.vlrt"); // Once the kept windows are here.
  const marks = JSON.parse(await page.locator("section.timeline").getAttribute("data-marks"));
  const of = (kind) => marks.filter((m) => m.kind === kind).map((m) => [m.from, m.to]);
  same(of("root"), [[ms(incident.root.start_unix_ns), ms(incident.root.end_unix_ns)]], "the mark of the millibottleneck");
  same(of("drop"), incident.drops.map((d) => [ms(d.first_unix_ns), ms(d.last_unix_ns)]), "the marks of the drops");
  same(of("vlrt").flatMap(([from, to]) => Array.from({ length: (to - from) / 50 }, (_, n) => from + n * 50)), [...began].sort(), "windows with VLRT requests");
  const guessed = began.size === 0 && incident.vlrt.expected > 0 ? incident.drops.map((d) => [ms(d.first_unix_ns) + 1000, ms(d.last_unix_ns) + 1000]) : [];
  same(of("expected"), guessed, "where retries are expected");
  // The chart of the listener that dropped adds up to the kernel's count, and its queue reached what the chain says.
  const d = incident.drops[0];
  const hop = incident.hops.find((h) => h.host === d.host && h.listener === d.listener);
  const label = `${placeOf(d)} ${d.listener}`;
  // What was kept with the incident is drawn first; what the collector holds of the time around it comes a moment later.
  await page.waitForSelector("section.timeline[aria-busy=false]");
  await page.waitForSelector(`figure.chart[aria-label^=${JSON.stringify(`${label} · dropped`)}]`);
  const drops = (await values(page, `${label} · dropped packets per window`))["dropped packets"];
  const depth = (await values(page, label))["accept queue"];
  // Windows that came too late for the analysis are in the charts all the same: the charts may know more, never less.
  check(drops.sum >= d.count, `${d.count} packets in the chart of drops: ${drops.sum}`);
  check(depth.max >= hop.accept_queue_max, `an accept queue of ${hop.accept_queue_max} in the chart: ${depth.max}`);
  const parameters = new URLSearchParams({ host: d.host, workload: d.workload, listener: d.listener, max_points: "5000" });
  const [from, to] = (await page.locator("section.timeline").getAttribute("data-range")).split(" ");
  for (const [metric, shown] of [["drops", drops], ["accept_queue_depth", depth]]) {
    const { points } = await (await fetch(`${base}/api/v1/series?${parameters}&metric=${metric}&start=${from}000000&end=${Number(to) - 50}000000`)).json();
    same(shown, { max: Math.max(...points.map((p) => p.max)), sum: points.reduce((sum, p) => sum + p.max, 0) }, `${metric} in the chart, as in the windows`);
  }
  await drawn(page, ({ filled }) => filled >= incident.hops.length + 1, "the story");
}
await isTheStory(page);
await tidy(page);
await shot(page, "story-light");

// A link to every signal of the tier that dropped, and back; then the address alone brings the story back.
const dropped = page.locator("li.hop.drop .hop-name, li.hop.lossy .hop-name").first();
await dropped.click();
await page.waitForSelector("main.host .panels figure.chart");
check(new URL(page.url()).searchParams.has("from"), "the link names its time");
const queues = await values(page, "Queues");
check(queues["accept queue"].max >= incident.hops.find((h) => h.host === incident.drops[0].host).accept_queue_max, `the accept queue of the workload: ${JSON.stringify(queues)}`);
await drawn(page, ({ filled }) => filled >= 6, "the signals of the workload");
await tidy(page);
await shot(page, "workload-light");
await page.goBack();
await isTheStory(page);
await page.reload();
await isTheStory(page);
const other = await newPage("dark");
// A collector that is slow with what it holds: what was kept with the incident is there before.
await other.route("**/api/v1/series?*", async (route) => {
  await new Promise((later) => setTimeout(later, 500));
  await route.continue();
});
await other.goto(page.url());
await isTheStory(other);
await shot(other, "story-dark");

// The keyboard. Whoever types on at once loses no letter: the field has the next key before any timer of the page has run.
const typesAtOnce = async (keys) => {
  await page.evaluate((keys) => {
    for (const key of keys) (document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    window.after = document.activeElement?.id;
  }, [...keys]);
  await page.waitForFunction(() => document.activeElement?.id === "search");
  return page.evaluate(() => ({ after: window.after, search: document.activeElement.value }));
};
// From a page without the field the letters are its before it is drawn.
same((await typesAtOnce("/tug")).search, "tug", "letters typed before the list is drawn");
await page.waitForSelector("main.list");
await page.goBack();
await page.waitForSelector(`main.story[data-id="${incident.id}"]`);
await page.keyboard.press("Escape");
await page.waitForSelector("main.list");
same((await typesAtOnce("/")).after, "search", "where the next key goes, from the list");
await page.keyboard.press("Escape");
await page.keyboard.press("/");
await page.keyboard.type(incident.root.host);
await page.waitForFunction((host) => new URLSearchParams(location.search).get("q") === host, incident.root.host);
await page.waitForSelector(`li.row[data-id="${incident.id}"]`);
await page.locator("#search").fill("no such workload anywhere");
await page.waitForSelector("text=No incident fits.");
await page.locator("#search").fill(incident.id);
await page.waitForFunction(() => document.querySelectorAll("li.row").length === 1);
await page.keyboard.press("Escape");
await page.keyboard.press("j");
await page.keyboard.press("Enter");
await page.waitForSelector(`main.story[data-id="${incident.id}"]`);
await page.keyboard.press("?");
await page.waitForSelector("dialog[open]");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog:not([open])", { state: "attached" });
await page.waitForSelector("section.timeline[data-marks] .mark"); // Its windows are here; more of them may come while it is read.
await page.locator("figure.chart").nth(1).locator("canvas").waitFor();
await page.locator("figure.chart").nth(1).focus();
await page.keyboard.press("ArrowRight");
await page.waitForFunction(() => document.querySelectorAll("figure.chart")[1].querySelector(".readout").textContent.includes("UTC"));
await page.keyboard.press("u");
await page.waitForFunction(() => document.querySelector(".badges time .zone").textContent.includes("local"));
await page.keyboard.press("u");
await goTo(page, "t");
await page.waitForSelector("main.topology .node");
for (const hop of incident.hops) {
  check((await page.locator(".node a", { hasText: `${hop.workload}@${hop.host}` }).count()) === 1, `${hop.workload}@${hop.host} in the topology`);
}
await page.waitForSelector(".node .meter-value");
await shot(page, "topology-light");

// The topology at the end of the incident: the numbers that the API has of those seconds, the root and who felt it in their colours.
await page.goto(`${base}/incidents/${incident.id}`);
await page.locator("footer.raw a", { hasText: "topology at its end" }).click();
await page.waitForSelector("main.topology .node .meter-value");
const end_ms = Date.parse(new URL(page.url()).searchParams.get("at"));
const then = await (await fetch(`${base}/api/v1/now?seconds=5&at=${end_ms}000000`)).json();
const near = (await (await fetch(`${base}/api/v1/incidents?limit=1000&until=${end_ms}000000&since=${end_ms - 15_000}000000`)).json()).incidents;
check(near.some((i) => i.id === incident.id), "the incident is among those of its end");
// What retries keep alive, or drop again, outlives its worst moment by more than these seconds; and a tier of the chain may be fuller than ever
// in the moments after the last drop, which are measured, too.
const lived = Math.ceil((incident.end_unix_ns - incident.start_unix_ns) / 1e9);
const all = await (await fetch(`${base}/api/v1/now?seconds=${lived + 9}&at=${end_ms + 4_000}000000`)).json();
const of = (answer, hop) => answer.workloads.find((w) => w.host === hop.host && w.workload === hop.workload).metrics;
const touched = near.filter((i) => i.severity !== "info" && i.version > 0);
// Its incidents may come after its numbers.
if (touched.length > 0) await page.waitForSelector("main.topology .node.root");
for (const hop of incident.hops) {
  const node = page.locator(".node", { has: page.locator("a", { hasText: `${hop.workload}@${hop.host}` }) });
  const metrics = of(then, hop);
  const worst = of(all, hop).queued_requests.max;
  check(worst >= hop.queued_max, `the worst of ${hop.host}, ${hop.queued_max}, is in the ${lived} s that it lived: ${worst}`);
  const limit = metrics.accept_queue_limit?.max;
  same(await node.locator(".meter-value").textContent(), `${metrics.accept_queue_depth.max}${limit ? `/${limit}` : ""}`, `accept queue of ${hop.host}`);
  same((await node.locator(".numbers b").allTextContents()).slice(0, 2), [metrics.queued_requests.max, metrics.workers_busy.max].map((n) => n.toLocaleString("en-US")), `queued and busy of ${hop.host}`);
  const isRoot = touched.some((i) => i.root.host === hop.host && i.root.workload === hop.workload);
  check(isRoot === (hop.role === "root") || touched.length > 1, `${hop.host} is the root of this incident only if it says so`);
  same(await node.evaluate((e) => ["root", "drop"].filter((tone) => e.classList.contains(tone))), [isRoot ? "root" : "drop"], `the colour of ${hop.host}`);
}
await shot(page, "topology-end-light");

// On a phone, and the rest in the dark.
for (const [theme, paths] of [
  ["phone", { list: "/", story: `/incidents/${incident.id}`, topology: "/topology", host: `/hosts/${incident.root.host}?last=1m`, hosts: "/hosts" }],
  ["dark", { list: "/", topology: "/topology", host: `/hosts/${incident.root.host}?last=1m`, hosts: "/hosts" }],
]) {
  const view = await newPage(theme);
  for (const [name, path] of Object.entries(paths)) {
    await view.goto(base + path);
    await view.waitForSelector({ list: "li.row", story: "figure.chart", topology: ".node .meter-value", host: ".panels figure.chart", hosts: ".card .trail" }[name]);
    await tidy(view);
    await shot(view, `${name}-${theme}`);
  }
  await view.context().close();
}

same(wrong, [], "console errors and foreign requests");
await browser.close();
say("done");
process.exit(0);
