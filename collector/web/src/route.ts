// The address is the state: what is shown can be linked, reloaded and gone back to.
import { Cell } from "./cell";

export type Route =
  | { page: "list" }
  | { page: "story"; id: string }
  | { page: "topology" }
  | { page: "sizing" }
  | { page: "silences" }
  | { page: "hosts" }
  | { page: "host"; host: string }
  | { page: "nowhere" };

export interface Place { route: Route; query: URLSearchParams; path: string }

export function routeOf(path: string): Route {
  const [first, second, third] = path.split("/").filter(Boolean).map(decode);
  if (third !== undefined) return { page: "nowhere" };
  if (first === undefined) return { page: "list" };
  if (first === "incidents" && second) return { page: "story", id: second };
  if (first === "incidents") return { page: "list" };
  if (first === "topology" && !second) return { page: "topology" };
  if (first === "sizing" && !second) return { page: "sizing" };
  if (first === "silences" && !second) return { page: "silences" };
  if (first === "hosts") return second ? { page: "host", host: second } : { page: "hosts" };
  return { page: "nowhere" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const here = (): Place => ({
  route: routeOf(location.pathname),
  query: new URLSearchParams(location.search),
  path: location.pathname,
});

export const place = new Cell<Place>(here());
addEventListener("popstate", () => place.set(here()));

export function go(to: string, how: "push" | "replace" = "push"): void {
  const url = new URL(to, location.href);
  const samePage = url.pathname === location.pathname;
  if (how === "push" && url.href !== location.href) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
  place.set(here());
  if (!samePage) scrollTo(0, 0);
}

/** The same page with these parameters changed; `null` takes one away. */
export function withQuery(changes: Record<string, string | null>): string {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

export const storyAddress = (id: string): string => `/incidents/${encodeURIComponent(id)}`;
export function hostAddress(host: string, parameters: Record<string, string | undefined> = {}): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) text.set(name, value);
  return `/hosts/${encodeURIComponent(host)}${text.size > 0 ? `?${text}` : ""}`;
}

/** Links of this page stay in this page. */
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (routeOf(link.pathname).page === "nowhere") return;
  event.preventDefault();
  go(link.href);
});
