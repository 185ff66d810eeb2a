// Every tier of an incident on one 50 ms axis: from half a second before the first sign to after the first retries of what was dropped.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, ApiError, query, turns, type Incident, type Series, type TierRow, type Timeline, type Values } from "../api";
import { Chart, type Line, type Mark } from "../chart";
import { useCell } from "../cell";
import { gaps, gridOf, onto, stretches, total, type Grid } from "../grid";
import { Note, useAsk, Wait } from "../parts";
import { go, hostAddress } from "../route";
import { zone } from "../settings";
import { msOf, nsOf, toAddress, zoneName } from "../time";
import { count, fromRoot, METRICS, number, observed, percent, placeOf, plural, resourceName } from "../words";

const BEFORE_MS = 500;
const AFTER_MS = 500;
/** A client sends a SYN again after one second (RFC 6298), whatever its kernel does later: where retries are expected if no client is observed. */
const RETRY_MS = 1000;
/** An incident lasts a minute at most; one point per window. */
const POINTS_MAX = 2000;
const TIER_METRICS = ["queued_requests", "accept_queue_depth", "workers_busy", "drops", "calls_in_flight"] as const;
type TierMetric = (typeof TIER_METRICS)[number];

interface Rows { tiers: Record<TierMetric, Values>[]; resource: Values | null; retried: Map<number, Values> }

/** Requests that wait a second or longer: the windows in which those began that observed clients had to try again, else where the first retries are expected. */
function veryLong(i: Incident, grid: Grid, rows: Rows): Mark[] {
  const began = stretches(grid, (at) => [...rows.retried.values()].some((row) => (row[at] ?? 0) > 0));
  if (began.length > 0) return began.map((b): Mark => ({ kind: "vlrt", ...b }));
  if (i.vlrt.expected === 0) return [];
  return i.drops.map((d): Mark => ({ kind: "expected", from: msOf(d.first_unix_ns) + RETRY_MS, to: msOf(d.last_unix_ns) + RETRY_MS }));
}

function marksOf(i: Incident, grid: Grid, rows: Rows): Mark[] {
  const marks: Mark[] = [];
  if (i.version > 0) marks.push({ kind: "root", from: msOf(i.root.start_unix_ns), to: msOf(i.root.end_unix_ns) });
  for (const d of i.drops) {
    marks.push({ kind: "drop", from: msOf(d.first_unix_ns), to: msOf(d.last_unix_ns) });
  }
  return marks.concat(veryLong(i, grid, rows));
}

/** What was kept with the incident, and what the collector still holds around it. */
function merge(grid: Grid, i: Incident, kept: Timeline | null, held: Map<string, Values>): Rows {
  const start = grid.times[0] ?? 0;
  const from = (values: Values | undefined, key: string): Values => {
    const row: Values = held.get(key)?.slice() ?? Array<number | null>(grid.times.length).fill(null);
    const shift = kept ? Math.round((msOf(kept.start_unix_ns) - start) / grid.step_ms) : 0;
    values?.forEach((value, n) => {
      const at = n + shift;
      if (value !== null && at >= 0 && at < row.length - 1) row[at] = row[at] ?? value;
    });
    return row;
  };
  const tiers = i.hops.map((hop, n) => {
    const tier: TierRow | undefined = kept?.tiers.find((t) => t.host === hop.host && t.listener === hop.listener);
    return Object.fromEntries(TIER_METRICS.map((m) => [m, from(tier?.[m], `${n} ${m}`)])) as Record<TierMetric, Values>;
  });
  const retried = new Map<number, Values>();
  i.hops.forEach((hop, n) => {
    const row = kept?.tiers.find((t) => t.host === hop.host && t.listener === hop.listener)?.retried;
    if (row?.some((v) => (v ?? 0) > 0)) retried.set(n, from(row, `${n} retried`));
  });
  return { tiers, resource: kept?.resource ? from(kept.resource.values, "resource") : null, retried };
}

/** What the collector holds, and whether that is the answer to what is asked now; until it is here, the one before stays. */
function useHeld(i: Incident, grid: Grid, kept: Timeline | null): { held: Map<string, Values>; whole: boolean } {
  const metric = kept?.resource?.metric;
  const question = [i.id, i.version, grid.times[0], grid.times.at(-1), metric].join(" ");
  const [answer, set] = useState({ to: "", held: new Map<string, Values>() });
  useEffect(() => {
    const stop = new AbortController();
    const [start, end] = [nsOf(grid.times[0] ?? 0), nsOf((grid.times.at(-1) ?? 0) - 1)];
    const wanted: [string, Record<string, string | number | undefined>][] = i.hops.flatMap((hop, n) =>
      hop.listener ? TIER_METRICS.map((m): [string, Record<string, string>] => [`${n} ${m}`, { host: hop.host, workload: hop.workload, listener: hop.listener, metric: m }]) : [],
    );
    if (metric && i.root.workload) wanted.push(["resource", { host: i.root.host, workload: i.root.workload, metric }]);
    void Promise.all(
      wanted.map(async ([key, what]): Promise<[string, Values] | null> => {
        try {
          const series = await ask<Series>(query("/api/v1/series", { ...what, start, end, max_points: POINTS_MAX }), stop.signal);
          return [key, onto(grid, series.points ?? []).max];
        } catch (e) {
          // No longer held: what was kept with the incident is all there is.
          if (e instanceof ApiError || stop.signal.aborted) return null;
          throw e;
        }
      }),
    ).then((all) => {
      if (!stop.signal.aborted) set({ to: question, held: new Map(all.filter((one) => one !== null)) });
    });
    return () => stop.abort();
  }, [question, grid]);
  return { held: answer.held, whole: answer.to === question };
}

const ratio = (metric: string): boolean => metric.endsWith("_ratio");

export function Story({ i }: { i: Incident }) {
  const in_ = useCell(zone);
  // Asked again with every version, and while it is open; until the answer is here, the one before stays.
  const asked = useAsk<Timeline>(`/api/v1/incidents/${encodeURIComponent(i.id)}/timeline?version=${i.version}`, i.state === "open" ? 1000 : 0);
  const before = useRef<Timeline | null>(null);
  if (asked.state === "there") before.current = asked.value;
  const kept = before.current;
  const lastDrop = Math.max(0, ...i.drops.map((d) => msOf(d.last_unix_ns)));
  const [from, to] = [
    Math.min(msOf(i.start_unix_ns), msOf(i.root.start_unix_ns) || Infinity) - BEFORE_MS,
    Math.max(msOf(i.end_unix_ns), lastDrop > 0 ? lastDrop + RETRY_MS : 0) + AFTER_MS,
  ];
  const grid = useMemo(() => gridOf(from, to, POINTS_MAX), [from, to]);
  const { held, whole } = useHeld(i, grid, kept);
  const rows = useMemo(() => merge(grid, i, kept, held), [grid, i, kept, held]);
  // Where requests are not known the accept queue is all that is known of a queue.
  const queue = (n: number) => (turns(i.hops[n]!) ? rows.tiers[n]!.queued_requests : rows.tiers[n]!.accept_queue_depth);
  const every = rows.tiers.map((_, n) => queue(n)).concat(rows.resource ? [rows.resource] : []);
  const known = every.some((row) => row.some((v) => v !== null));
  if (asked.state === "waiting" && !known) return <section><Wait what="the timeline" /></section>;
  const order = fromRoot(i.hops);
  const group = `story ${i.id}`;
  const happened = marksOf(i, grid, rows);
  const marks = (...lines: Values[]): Mark[] => [...gaps(grid, lines).map((g): Mark => ({ kind: "gap", ...g })), ...happened];
  const seenAgain = [...rows.retried.values()].reduce((sum, row) => sum + (total(row) ?? 0), 0);
  const lossy = order.map((hop) => i.hops.indexOf(hop)).filter((n) => rows.tiers[n]!.drops.some((v) => (v ?? 0) > 0));
  const missing = gaps(grid, every).reduce((sum, g) => sum + g.to - g.from, 0);
  const resource = kept?.resource?.metric;
  return (
    <section class="timeline" aria-labelledby="timeline" aria-busy={asked.state === "waiting" || !whole} data-range={`${grid.times[0]} ${grid.times.at(-1)}`}
      data-marks={JSON.stringify(happened)}>
      <h2 id="timeline">Timeline, 50 ms windows <span class="quiet">{zoneName(from, in_)}</span></h2>
      <ul class="marks">
        {i.version > 0 && <li class="mark root">millibottleneck: {resourceName(i.root.resource)} at {placeOf(i.root)}</li>}
        {i.drops.length > 0 && <li class="mark drop">drops</li>}
        {seenAgain > 0 && <li class="mark vlrt">VLRT requests, where they began: {plural(seenAgain, "SYN")} seen again</li>}
        {seenAgain === 0 && i.vlrt.expected > 0 && <li class="mark expected">first retries expected, 1 s after the drops: about {plural(i.vlrt.expected, "VLRT request")}</li>}
        {missing > 0 && <li class="mark gap">no data: not kept, lost, or the agent was away</li>}
      </ul>
      {!known ? (
        <Note title="The windows of this incident are not kept any more.">
          <p>{asked.state === "failed" ? asked.error.message : "Evidence has expired, or the collector was restarted before the incident closed. The numbers above were kept with the incident."}</p>
        </Note>
      ) : (
        <div class="stack">
          {rows.resource && resource && (
            <Chart label={`${placeOf(i.root)} · ${METRICS[resource] ?? resource}`} group={group} times={grid.times} height={96}
              lines={[{ label: METRICS[resource] ?? resource, values: rows.resource, color: "root", fill: true }]}
              marks={marks(rows.resource)} format={ratio(resource) ? percent : number} {...(ratio(resource) ? { atLeast: 1 } : {})} />
          )}
          {order.map((hop) => {
            const tier = rows.tiers[i.hops.indexOf(hop)]!;
            const queued = queue(i.hops.indexOf(hop));
            if (!hop.listener || queued.every((v) => v === null)) {
              return <div key={hop.host + hop.listener} class="absent">{placeOf(hop)} {hop.listener}: {observed(hop) ? "nothing known. Its windows are not kept." : "not observed. No agent is there."}</div>;
            }
            if (!turns(hop)) {
              const limit = hop.accept_queue_limit;
              return (
                <Chart key={hop.host + hop.listener} label={`${placeOf(hop)} ${hop.listener} · accept queue${hop.requests_unknown ? ", polled" : "; requests are not known, connections only"}`} group={group} times={grid.times} height={110}
                  lines={[{ label: "accept queue", values: queued, color: "accept", fill: true }]} marks={marks(queued)} format={number} whole {...(limit !== null ? { atLeast: limit } : {})} />
              );
            }
            const holds = hop.workers_limit !== null && hop.accept_queue_limit !== null ? hop.workers_limit + hop.accept_queue_limit + 1 : null;
            const lines: Line[] = [
              { label: "queued requests", values: tier.queued_requests, color: "queued", fill: true },
              { label: "accept queue", values: tier.accept_queue_depth, color: "accept", fill: true },
              { label: "workers busy", values: tier.workers_busy, color: "workers" },
            ];
            if (tier.calls_in_flight.some((v) => (v ?? 0) > 0)) lines.push({ label: "calls in flight", values: tier.calls_in_flight, color: "calls" });
            if (holds !== null) {
              lines.push({ label: `holds ${count(holds)}`, values: tier.queued_requests.map((v) => (v === null ? null : holds)), color: "limit", dash: true });
            }
            return (
              <Chart key={hop.host + hop.listener} label={`${placeOf(hop)} ${hop.listener}`} group={group} times={grid.times} height={150}
                lines={lines} marks={marks(tier.queued_requests)} format={number} whole {...(holds !== null ? { atLeast: holds } : {})} />
            );
          })}
          {lossy.map((n) => (
            <Chart key={`drops ${n}`} label={`${placeOf(i.hops[n]!)} ${i.hops[n]!.listener} · dropped packets per window`} group={group} times={grid.times} height={84}
              lines={[{ label: "dropped packets", values: rows.tiers[n]!.drops, color: "drop", bars: true }]} marks={marks(rows.tiers[n]!.drops)} format={number} whole />
          ))}
          {[...rows.retried].map(([n, row]) => (
            <Chart key={`retried ${n}`} label={`${placeOf(i.hops[n]!)} ${i.hops[n]!.listener} · VLRT requests by the window they began in`} group={group} times={grid.times} height={84}
              lines={[{ label: "SYNs sent again", values: row, color: "vlrt", bars: true }]} marks={marks(row)} format={number} whole />
          ))}
          <Chart label="" group={group} times={grid.times} height={30} axis lines={[{ label: "", values: grid.times.map(() => null), color: "line" }]} format={() => ""} />
        </div>
      )}
      <p class="quiet">
        Look further:{" "}
        {order.filter(observed).map((hop, n) => (
          <span key={hop.host + hop.listener}>{n > 0 && " · "}
            <a href={hostAddress(hop.host, { workload: hop.workload, from: toAddress(from - 4500), to: toAddress(to + 4500) })}>every signal of {placeOf(hop)}</a>
          </span>
        ))}
      </p>
    </section>
  );
}

export const zoomTo = (host: string, workload: string | undefined) => (from: number, to: number): void =>
  go(hostAddress(host, { workload, from: toAddress(from), to: toAddress(to) }));
