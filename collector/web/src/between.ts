// Incidents of a stretch of time: the list in memory ends at the newest ones, those before it are asked for. What to ask, and how
// the two become one list. Pure.
import { query, type Incident } from "./api";
import { msOf, nsOf } from "./time";

/** As many as the collector keeps in memory by default; its disk holds more. */
export const LIST_MAX = 1000;
/** A stretch that moves on with the clock is asked for again this often. */
const STEP_MS = 60_000;

/** Newest first. What came live is the newer version of what was asked for. */
export function merged(live: Incident[], asked: Incident[]): Incident[] {
  const byId = new Map(asked.map((i) => [i.id, i]));
  for (const i of live) byId.set(i.id, i);
  return [...byId.values()].sort((a, b) => b.start_unix_ns - a.start_unix_ns || (a.id < b.id ? 1 : -1));
}

/** What to ask for, if the newest incidents, which the page has, do not reach back to `from`; `null`: they do. */
export function beyond(newest: Incident[] | null, from: number | null, to: number | null): string | null {
  if (newest === null || newest.length < LIST_MAX || (from === null && to === null)) return null;
  const oldest = Math.min(...newest.map((i) => msOf(i.start_unix_ns)));
  if (from !== null && from > oldest) return null;
  // Not those that the page has: the answer's limit is for the others.
  const until = nsOf(Math.min(to ?? oldest, oldest));
  const since = from === null ? undefined : nsOf(Math.max(Math.floor(from / STEP_MS) * STEP_MS, 0));
  return query("/api/v1/incidents", { limit: LIST_MAX, since, until });
}
