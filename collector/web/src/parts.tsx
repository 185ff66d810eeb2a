// Small things that several pages show.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask, type Incident, type Severity, type Silenced } from "./api";
import { beyond, LIST_MAX, merged } from "./between";
import { useCell } from "./cell";
import { incidents, link } from "./live";
import { moment } from "./moment";
import { zone } from "./settings";
import { clock, day, fromField, toField, zoneName } from "./time";
import { kindName, KINDS, sustainedBy } from "./words";

const SHAPES: Record<Severity, string> = {
  critical: "M8 1.500 15 14.500H1Z",
  warning: "M8 1 15 8 8 15 1 8Z",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Z",
};

/** A colour is never alone: each severity has a shape and a name. */
export function SeverityMark({ severity }: { severity: Severity }) {
  return (
    <svg class={`severity ${severity}`} viewBox="0 0 16 16" role="img" aria-label={severity}>
      <path d={SHAPES[severity] ?? SHAPES.info} />
    </svg>
  );
}

export function KindBadge({ kind }: { kind: string }) {
  return <span class="badge" title={KINDS[kind]?.about}>{kindName(kind)}</span>;
}

export function SustainedBadge({ incident }: { incident: Incident }) {
  if (!incident.sustained) return null;
  return <span class="badge critical sustained" title={incident.sustained.evidence}>{sustainedBy(incident.sustained.by)}</span>;
}

/** A message about it was held back by this silence. */
export function SilencedBadge({ by }: { by: Silenced | undefined }) {
  if (by === undefined) return null;
  return <span class="badge silenced" title={`not told, or not all of it: ${by.silence.comment}`}>silenced</span>;
}

export function StateBadge({ incident }: { incident: Incident }) {
  if (incident.state === "closed") return null;
  return <span class="badge open"><span class="pulse" aria-hidden="true" />{incident.version === 0 ? "open · cause being determined" : "open"}</span>;
}

/** A moment with its date and the name of its clock; `toMinute`: of which milliseconds say nothing. */
export function Moment({ ms, withDay = true, toMinute = false }: { ms: number; withDay?: boolean; toMinute?: boolean }) {
  const in_ = useCell(zone);
  const other = in_ === "utc" ? "local" : "utc";
  return (
    <time dateTime={new Date(ms).toISOString()} title={`${day(ms, other)} ${clock(ms, other)} ${zoneName(ms, other)}`}>
      {withDay && <span class="day">{day(ms, in_)} </span>}
      <span class="clock">{toMinute ? clock(ms, in_).slice(0, 5) : clock(ms, in_)}</span> <span class="zone">{zoneName(ms, in_)}</span>
    </time>
  );
}

export function Note({ title, children, tone = "plain" }: { title: string; children?: ComponentChildren; tone?: "plain" | "bad" }) {
  return (
    <div class={`note ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      <strong>{title}</strong>
      {children && <div>{children}</div>}
    </div>
  );
}

/** The collector's own words: what, and on lines of their own what to do. */
export function Said({ text }: { text: string }) {
  const [what, ...remedy] = text.split("\n");
  return <>{what}{remedy.map((line) => <span key={line} class="remedy">{line.trim()}</span>)}</>;
}

/** How agents are started that this collector hears: of its own machine over a socket, of others by mutual TLS. */
export function StartAgents() {
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const url = `https://${here ? "COLLECTOR" : location.hostname}:4781`;
  return <p>On this machine: <code>tailwater-agent run</code>. On others, with certificates: <code>tailwater-agent run --collector {url} --host NAME</code></p>;
}

export function Wait({ what }: { what: string }) {
  return <div class="wait" role="status">Reading {what} …</div>;
}

/** What has yet to be read, or nobody answers. */
export function Awaited({ what }: { what: string }) {
  const { state } = useCell(link);
  if (state !== "lost") return <Wait what={what} />;
  return <Note tone="bad" title="The collector does not answer."><p>The page tries again every two seconds.</p></Note>;
}

export type Asked<T> = { state: "waiting" } | { state: "there"; value: T } | { state: "failed"; error: ApiError };

/** Asks `path`, again every `every` ms (never: 0) and when it changes. What was there stays until the new answer is. */
export function useAsk<T>(path: string | null, every = 0): Asked<T> {
  const [asked, set] = useState<{ path: string | null; got: Asked<T> }>({ path: null, got: { state: "waiting" } });
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    async function once(): Promise<void> {
      let got: Asked<T>;
      try {
        got = { state: "there", value: await ask<T>(path!, stop.signal) };
      } catch (e) {
        if (stop.signal.aborted) return;
        got = { state: "failed", error: e instanceof ApiError ? e : new ApiError(0, String(e)) };
      }
      if (stop.signal.aborted) return;
      set({ path, got });
      if (every > 0) timer = setTimeout(() => void turn(), every);
    }
    async function turn(): Promise<void> {
      if (!document.hidden) return once();
      timer = setTimeout(() => void turn(), every);
    }
    void once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, every]);
  return asked.path === path ? asked.got : { state: "waiting" };
}

/** All incidents that the page knows, with those that touch the stretch from `from` to `to` (`null`: without that end). */
export function useBetween(from: number | null, to: number | null): { all: Incident[]; cut: boolean } {
  const newest = useCell(incidents);
  const path = beyond(newest, from, to);
  const asked = useAsk<{ incidents: Incident[] }>(path);
  // While a stretch that moved on is asked for again, the answer before stays.
  const older = useRef<Incident[]>([]);
  if (path === null) older.current = [];
  else if (asked.state === "there") older.current = asked.value.incidents;
  const rest = older.current;
  return useMemo(() => ({ all: merged(newest ?? [], rest), cut: rest.length >= LIST_MAX }), [newest, rest]);
}

/** A part of a whole as a bar; beyond the limit it is full and red. */
export function Meter({ name, value, limit, tone, hint }: { name: string; value: number; limit: number | null; tone: string; hint?: string }) {
  const full = limit !== null && limit > 0 && value >= limit;
  const share = limit !== null && limit > 0 ? Math.min(value / limit, 1) : null;
  const text = limit === null ? String(value) : `${value}/${limit}`;
  return (
    <div class={`meter ${full ? "full" : ""}`} title={hint} style={{ "--tone": `var(--${tone})` }}>
      <span class="meter-name">{name}</span>
      <span class="meter-value">{text}</span>
      <span
        class={`meter-bar ${share === null ? "unknown" : ""}`}
        role="meter"
        aria-label={`${name} ${text}`}
        aria-valuemin={0}
        aria-valuemax={limit ?? Math.max(value, 1)}
        aria-valuenow={limit === null ? value : Math.min(value, limit)}
        aria-valuetext={text}
      >
        <span style={{ width: share === null ? "0" : `${share * 100}%` }} />
      </span>
    </div>
  );
}

/** The last windows as small bars; a missing one is a dot on the ground. */
export function Trail({ values, limit, label }: { values: (number | null)[]; limit: number; label: string }) {
  const width = 100 / Math.max(values.length, 1);
  const top = Math.max(limit, ...values.map((v) => v ?? 0), 1e-9);
  return (
    <svg class="trail" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      {values.map((v, i) =>
        v === null ? (
          <rect key={i} class="missing" x={i * width} y={22.5} width={width * 0.5} height={1.5} />
        ) : (
          <rect key={i} x={i * width} y={24 - (v / top) * 24} width={width * 0.86} height={(v / top) * 24} />
        ),
      )}
    </svg>
  );
}

/** A moment to write, in the clock that the page shows. */
export function MomentField({ label, ms, set, id }: { label: string; ms: number | null; set: (ms: number | null) => void; id?: string }) {
  const in_ = useCell(zone);
  const [wrong, setWrong] = useState(false);
  const name = in_ === "utc" ? "UTC" : "local time";
  return (
    <label class="moment">
      {label}
      <input type="text" data-moment id={id} key={`${ms} ${in_}`} defaultValue={ms === null ? "" : toField(ms, in_)} placeholder="YYYY-MM-DD hh:mm:ss.mmm" spellcheck={false}
        autocomplete="off" aria-invalid={wrong} title={`${name}; also 14:03 for today, or -10m`} aria-label={`${label}, ${name}`}
        onChange={(e) => {
          const text = e.currentTarget.value.trim();
          const parsed = text === "" ? null : fromField(text, in_, moment());
          setWrong(text !== "" && parsed === null);
          if (text === "" || parsed !== null) set(parsed);
        }} />
      <span>{in_ === "utc" ? "UTC" : "local"}</span>
    </label>
  );
}
