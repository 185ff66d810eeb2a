// The keyboard: what each key does, in one table that the help shows.
import { go, place, routeOf, withQuery } from "./route";
import { Cell } from "./cell";
import { nextTheme, nextZone } from "./settings";

export const help = new Cell(false);

/** The next or previous link of a list, or the neighbouring incident of an open one. */
function step(by: 1 | -1): void {
  if (place.value.route.page === "story") {
    document.getElementById(by === 1 ? "older" : "newer")?.click();
    return;
  }
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row], .card-name, .node a")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[at < 0 ? (by === 1 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Search was asked for on a page that has no field for it: the keys until it is drawn are its. */
let awaited = false;

function search(): void {
  if (place.value.route.page !== "list") go("/");
  const field = document.getElementById("search");
  awaited = field === null;
  field?.focus();
}

/** The field for it is drawn. */
export function searchDrawn(field: HTMLInputElement | null): void {
  if (field === null || !awaited) return;
  awaited = false;
  field.focus();
}

function lookUp(): void {
  const picker = document.querySelector<HTMLInputElement>("input[data-moment]");
  picker?.closest("details")?.setAttribute("open", "");
  picker?.focus();
}

/** Opens the form, where this page has one and whoever looks may fill it in. */
function silence(): void {
  const button = document.getElementById("silence");
  // So that the form, once closed, gives the keyboard back to it.
  button?.focus();
  button?.click();
}

function back(): void {
  if (help.value) return help.set(false);
  if (document.activeElement instanceof HTMLInputElement) return document.activeElement.blur();
  if (routeOf(location.pathname).page !== "list") go("/");
}

export const KEYS: { keys: string[]; does: string; act: () => void }[] = [
  { keys: ["j", "ArrowDown"], does: "next incident, silence, host or tier", act: () => step(1) },
  { keys: ["k", "ArrowUp"], does: "previous one", act: () => step(-1) },
  { keys: ["/"], does: "search incidents", act: search },
  { keys: ["t"], does: "choose a time", act: lookUp },
  { keys: ["s"], does: "silence: what is like this incident, or something else", act: silence },
  { keys: ["g i"], does: "go to incidents", act: () => go("/") },
  { keys: ["g t"], does: "go to the topology", act: () => go("/topology") },
  { keys: ["g s"], does: "go to sizing", act: () => go("/sizing") },
  { keys: ["g q"], does: "go to silences", act: () => go("/silences") },
  { keys: ["g h"], does: "go to hosts", act: () => go("/hosts") },
  { keys: ["u"], does: "UTC or local time", act: nextZone },
  { keys: ["d"], does: "dark or light", act: nextTheme },
  { keys: ["Escape"], does: "back to the list", act: back },
  { keys: ["?"], does: "this help", act: () => help.set(!help.value) },
];

/** How long the first key of two is remembered. */
const SECOND_KEY_MS = 1200;
let first: { key: string; at: number } | null = null;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  // A form that is open has all keys to itself; the browser closes it with Escape.
  if (document.querySelector("dialog.form[open]")) return;
  const target = event.target;
  const typing = target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
  if (typing && event.key !== "Escape") return;
  if (awaited && event.key.length === 1) {
    event.preventDefault();
    return go(withQuery({ q: (place.value.query.get("q") ?? "") + event.key }), "replace");
  }
  awaited = false;
  // Arrows scroll a page that has no list.
  const arrow = event.key.startsWith("Arrow");
  if (arrow && place.value.route.page !== "list") return;
  const now = performance.now();
  const pair = first && now - first.at < SECOND_KEY_MS ? `${first.key} ${event.key}` : null;
  first = event.key === "g" ? { key: "g", at: now } : null;
  const found = KEYS.find((k) => pair !== null && k.keys.includes(pair)) ?? KEYS.find((k) => k.keys.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found.act();
});
