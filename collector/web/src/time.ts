// Moments as people read them. Inside the page a moment is a whole number of milliseconds since 1970 (a window starts at a multiple
// of 50); nanoseconds exist only at the API, where a JSON number would lose their last digits.

export type Zone = "utc" | "local";

export const WINDOW_MS = 50;

/** Milliseconds of the API's nanoseconds. */
export const msOf = (ns: number): number => Math.round(ns / 1e6);
/** The API's nanoseconds, exact. */
export const nsOf = (ms: number): string => `${Math.round(ms)}000000`;

const two = (n: number): string => String(n).padStart(2, "0");
const three = (n: number): string => String(n).padStart(3, "0");

/** A date whose UTC fields read as the wall clock of `zone`. */
function wall(ms: number, zone: Zone): Date {
  const date = new Date(ms);
  return zone === "utc" ? date : new Date(ms - date.getTimezoneOffset() * 60_000);
}

/** `2026-11-21` */
export function day(ms: number, zone: Zone): string {
  const d = wall(ms, zone);
  return `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`;
}

/** `14:03:07.350` */
export function clock(ms: number, zone: Zone): string {
  const d = wall(ms, zone);
  return `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}.${three(d.getUTCMilliseconds())}`;
}

/** As short as the distance between two marks of an axis allows. */
export function tick(ms: number, zone: Zone, step_ms: number): string {
  const text = clock(ms, zone);
  if (step_ms < 1000) return text.slice(3);
  return step_ms < 60_000 ? text.slice(0, 8) : text.slice(0, 5);
}

/** What the wall clock is called: `UTC`, `GMT+1`, `CET`. */
export function zoneName(ms: number, zone: Zone): string {
  if (zone === "utc") return "UTC";
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date(ms));
  const name = parts.find((p) => p.type === "timeZoneName")?.value ?? "local";
  return name === "UTC" ? "local (UTC)" : `${name}, local`;
}

/** `850 ms`, `1.25 s`, `3 min 20 s`, `2 h 5 min`. */
export function length(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(2))} s`;
  const [whole, part, names] =
    ms < 3_600_000 ? [ms / 60_000, (ms % 60_000) / 1000, ["min", "s"]] : [ms / 3_600_000, (ms % 3_600_000) / 60_000, ["h", "min"]];
  const rest = Math.floor(part);
  return `${Math.floor(whole)} ${names[0]}${rest > 0 ? ` ${rest} ${names[1]}` : ""}`;
}

/** `now`, `12 s ago`, `3 min ago`. */
export function ago(ms: number, now: number): string {
  const past = now - ms;
  if (past < 2000) return "now";
  if (past < 60_000) return `${Math.floor(past / 1000)} s ago`;
  if (past < 3_600_000) return `${Math.floor(past / 60_000)} min ago`;
  if (past < 86_400_000) return `${Math.floor(past / 3_600_000)} h ago`;
  return `${Math.floor(past / 86_400_000)} d ago`;
}

/** For a field in which a person writes a moment: `2026-11-21 14:03:07.350`. */
export const toField = (ms: number, zone: Zone): string => `${day(ms, zone)} ${clock(ms, zone)}`;

/** Back from it, with what is left out filled in: seconds by zero, the day by today. `-10m` is ten minutes ago. `null`: no moment. */
export function fromField(text: string, zone: Zone, now: number): number | null {
  const past = span(text.trim().replace(/^-\s*/, ""));
  if (past !== null) return now - past;
  const found = /^(?:(\d{4}-\d{2}-\d{2})[T ]+)?(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3}))?)?(Z?)$/.exec(text.trim());
  if (!found) return null;
  const [, date, hours, minutes, seconds, fraction, utc] = found;
  const in_ = utc ? "utc" : zone;
  const time = `${hours!.padStart(2, "0")}:${minutes}:${seconds ?? "00"}.${(fraction ?? "").padEnd(3, "0")}`;
  const ms = Date.parse(`${date ?? day(now, in_)}T${time}${in_ === "utc" ? "Z" : ""}`);
  return Number.isFinite(ms) ? ms : null;
}

/** As in an address: `2026-11-21T14:03:07.350Z`. */
export const toAddress = (ms: number): string => new Date(ms).toISOString();
/** Back from it; `null`: no moment. Takes Unix milliseconds and nanoseconds as well. */
export function fromAddress(text: string | null): number | null {
  if (!text) return null;
  if (/^\d{19}$/.test(text)) return Math.floor(Number(text.slice(0, 13)));
  if (/^\d{13}$/.test(text)) return Number(text);
  const ms = Date.parse(text);
  return Number.isFinite(ms) ? ms : null;
}

/** `90s`, `5m`, `1h`, `2d` in milliseconds; `null`: something else. */
export function span(text: string | null): number | null {
  const found = /^(\d{1,5})(s|m|h|d)$/.exec(text ?? "");
  if (!found) return null;
  const unit = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[found[2] as "s" | "m" | "h" | "d"];
  return Number(found[1]) * unit;
}
