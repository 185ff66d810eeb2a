// A fleet of 100 hosts: its tiers as one box each, legible at every size, with what is red first, found by a search, and each host where it is asked for.
// Usage: fleet.mjs URL FOLDER
import { check, open, same, say, THEMES, tidy } from "./browser.mjs";

const [base, shots] = process.argv.slice(2);
const { browser, page: newPage, shot, wrong } = await open(base, shots);

/** Boxes that lie on each other, and text that is cut off or too small to read. */
const faults = (page) =>
  page.evaluate(() => {
    const boxes = [...document.querySelectorAll(".node")].map((e) => ({ name: e.textContent, of: e.getBoundingClientRect() }));
    const over = boxes.flatMap((a, n) => boxes.slice(n + 1).filter((b) => a.of.left < b.of.right && b.of.left < a.of.right && a.of.top < b.of.bottom && b.of.top < a.of.bottom).map((b) => `${a.name} on ${b.name}`));
    const texts = [...document.querySelectorAll(".node b, .node span, .node p")].filter((e) => e.textContent.trim());
    const cut = texts.filter((e) => e.getBoundingClientRect().right > e.closest(".node").getBoundingClientRect().right + 1).map((e) => e.textContent);
    const small = texts.filter((e) => parseFloat(getComputedStyle(e).fontSize) < 10).map((e) => e.textContent);
    const graph = document.querySelector(".graph").getBoundingClientRect();
    const outside = boxes.filter((b) => b.of.right > graph.right + 1 || b.of.bottom > graph.bottom + 1).map((b) => b.name);
    return { over, cut, small, outside };
  });
const legible = async (page, what) => same(await faults(page), { over: [], cut: [], small: [], outside: [] }, what);

const page = await newPage();
await page.goto(`${base}/topology`);
await page.waitForSelector(".node.small .meter-value");
await page.evaluate(() => document.fonts.ready);
same(await page.locator(".node.small:not(.ghost)").count(), 20, "tiers of 100 hosts");
same(await page.locator(".node.ghost b").allTextContents(), ["198.51.100.7:443"], "the address that nobody observes, though five hosts call it");
same(await page.locator(".spread").first().textContent(), "edge ×5", "a tier with its hosts");
same(await page.locator(".node.root").count(), 1, "the root");
check((await page.locator(".node.root").textContent()).includes("orders-db"), "the root is the database");
check((await page.locator(".node.drop").textContent()).includes("orders"), "who dropped");
same(await page.locator(".touched li").count(), 1, "what is red stands above the graph");
await legible(page, "20 tiers");
await tidy(page);
await shot(page, "fleet-light");

// Found by a part of a name, a host or an address.
const lit = () => page.locator(".node:not(.dim):not(.ghost)").allTextContents().then((all) => all.length);
await page.locator('input[type="search"]').fill("stock");
same(await lit(), 2, "tiers that are called so");
await page.locator('input[type="search"]').fill("payments-db-4");
same(await lit(), 1, "the tier of a host");
await page.locator('input[type="search"]').fill("10.1.16.");
same(await lit(), 1, "the tier of an address");
await page.locator('input[type="search"]').fill("");

// Each of its hosts, and back.
await page.locator(".spread", { hasText: "orders-db" }).click();
await page.waitForSelector(".node a >> text=@orders-db-3");
same(await page.locator(".node.small:not(.ghost)").count(), 24, "one tier's five hosts beside nineteen tiers");
check((await page.locator(".node.root").textContent()).includes("@orders-db-3"), "the host that is the root");
same(await page.locator(".node.root").count(), 1, "of five hosts one is the root");
await legible(page, "with five hosts apart");
await shot(page, "fleet-spread-light");
await page.locator(".chip", { hasText: "fold again" }).click();
await page.waitForFunction(() => document.querySelectorAll(".node.small:not(.ghost)").length === 20);

for (const theme of Object.keys(THEMES).filter((name) => name !== "light")) {
  const view = await newPage(theme);
  await view.goto(`${base}/topology`);
  await view.waitForSelector(".node.small .meter-value");
  await view.evaluate(() => document.fonts.ready);
  await legible(view, theme);
  await tidy(view);
  await shot(view, `fleet-${theme}`);
}

same(wrong, [], "what must not happen");
await browser.close();
say("done");
process.exit(0);
