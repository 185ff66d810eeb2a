// Silences in words, and one that somebody writes: what the API is asked for. Pure; whether something is covered, and whether what is asked
// for makes sense, the collector alone says.
import type { Incident, Silence, Silenced, Wanted } from "./api";
import { fromAddress, fromField, span, toAddress, type Zone } from "./time";
import { kindName, wholePlaceOf } from "./words";

/** What becomes of one: it holds, it has yet to begin, it waits for its hours, or its time is over. */
export type Stage = "holds" | "to come" | "not at this hour" | "over";

/** When it ends; `null`: never, or at a moment that this page cannot read. */
export const endOf = (s: Silence): number | null => fromAddress(s.until ?? null);
export const beginOf = (s: Silence): number | null => fromAddress(s.from ?? null);

export function stageOf(one: Silenced, now: number): Stage {
  if (one.now) return "holds";
  const [from, until] = [beginOf(one.silence), endOf(one.silence)];
  if (until !== null && until <= now) return "over";
  return from !== null && from > now ? "to come" : "not at this hour";
}

/** Those that hold, the next to end first, and those whose time comes, the next to begin first. */
export function sorted(all: Silenced[], now: number): { holding: Silenced[]; coming: Silenced[] } {
  const by = (of: (s: Silence) => number | null) => (a: Silenced, b: Silenced) => (of(a.silence) ?? Infinity) - (of(b.silence) ?? Infinity) || 0;
  return {
    holding: all.filter((one) => stageOf(one, now) === "holds").sort(by(endOf)),
    coming: all.filter((one) => ["to come", "not at this hour"].includes(stageOf(one, now))).sort(by(beginOf)),
  };
}

/** What it fits, by name; nothing: every incident. */
export function fitsOf(s: Silence): { name: string; value: string }[] {
  const list = (values: string[] | undefined) => (values && values.length > 0 ? values.join(", ") : undefined);
  const all = { host: s.host, workload: s.workload, tier: s.tier, listener: s.listener, kind: list(s.kinds?.map(kindName)), hook: list(s.hooks) };
  return Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [{ name, value }]));
}

/** At which hours only, UTC; `null`: at all. */
export function hoursOf(s: Silence): string | null {
  const parts = [s.daily, s.days?.join(", ")].filter(Boolean);
  return parts.length > 0 ? `${parts.join(", ")} UTC` : null;
}

/** Of each incident that a silence held something back of, the newest such silence. */
export const untoldBy = (all: Silenced[]): Map<string, Silenced> => new Map(all.flatMap((one) => one.incidents.map((id) => [id, one] as const)));

/** A form that is being filled in. */
export interface Draft { comment: string; end: string; host: string; workload: string; tier: string; listener: string; kind: string; hooks: string }

/** Ends that are a word: until then somebody has looked, has handed over, has slept. */
export const ENDS: [string, string][] = [["30m", "30 min"], ["1h", "1 hour"], ["2h", "2 hours"], ["8h", "8 hours"], ["1d", "1 day"]];

export const EMPTY: Draft = { comment: "", end: "1h", host: "", workload: "", tier: "", listener: "", kind: "", hooks: "" };

/** Somewhere that a silence may be about. */
export interface Place { what: "dropped" | "root"; name: string; host: string; workload: string }

/** Where an incident was: what dropped, then its root if that is known and somewhere else. What drops comes first, because a drop is told at
 * once and by its own tier alone: a silence of the root does not hold that message back. */
export function placesOf(i: Incident): Place[] {
  const places: Place[] = [];
  const add = (what: Place["what"], { host, workload }: { host: string; workload: string }): void => {
    if (!places.some((p) => p.host === host && p.workload === workload)) places.push({ what, name: wholePlaceOf({ host, workload }), host, workload });
  };
  for (const drop of i.drops) add("dropped", drop);
  if (i.version > 0 || places.length === 0) add("root", i.root);
  return places;
}

/** The same form about another place; what was narrower than that place goes. */
export const placed = (draft: Draft, place: Place): Draft => ({ ...draft, host: place.host, workload: place.workload, tier: "", listener: "" });

/** A form for what is like an incident. */
export function draftOf(i: Incident): Draft {
  const [first] = placesOf(i);
  return first ? placed(EMPTY, first) : EMPTY;
}

/** Which moment a person means by an end: `2h` from now, `06:00` the next time that it is so, or a whole moment. `null`: none. */
export function endMeant(text: string, zone: Zone, now: number): number | null {
  const long = span(text.trim());
  if (long !== null) return now + long;
  const today = fromField(text, zone, now);
  const hourAlone = /^\d{1,2}:/.test(text.trim());
  return today !== null && today <= now && hourAlone ? fromField(text, zone, now + 86_400_000) : today;
}

/** What the collector is asked for. An end that means nothing here goes as it is: the collector says what is wrong with it. */
export function wantedOf(draft: Draft, zone: Zone, now: number): Wanted {
  const silence: Silence = { comment: draft.comment.trim() };
  for (const name of ["host", "workload", "tier", "listener"] as const) {
    const value = draft[name].trim();
    if (value !== "") silence[name] = value;
  }
  if (draft.kind !== "") silence.kinds = [draft.kind];
  const hooks = draft.hooks.split(",").map((hook) => hook.trim()).filter((hook) => hook !== "");
  if (hooks.length > 0) silence.hooks = hooks;
  const end = draft.end.trim();
  const long = span(end);
  if (long !== null) return { for_s: long / 1000, silence };
  if (end === "") return { silence };
  const moment = endMeant(end, zone, now);
  return { silence: { ...silence, until: moment === null ? end : toAddress(moment) } };
}
