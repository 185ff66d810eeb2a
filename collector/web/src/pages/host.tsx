// Every signal of a host, or of one of its workloads, now or at any past time that the collector still holds.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask, query, type Agent, type HostInventory, type Incident, type Responses, type Series, type Values } from "../api";
import { useCell } from "../cell";
import { Chart, type Line, type Mark } from "../chart";
import { gaps, gridOf, known, missing, onto, quantiles, type Lines } from "../grid";
import { agents } from "../live";
import { endOf, moment, recording, startOf, useMoment } from "../moment";
import { lacking, PANELS, type Panel, type PanelLine } from "../panels";
import { Moment, MomentField, Note, useAsk, useBetween, Wait } from "../parts";
import { go, hostAddress, place, storyAddress, withQuery } from "../route";
import { zone } from "../settings";
import { ago, clock, day, fromAddress, length, msOf, nsOf, span, toAddress, WINDOW_MS } from "../time";
import { agentCost, METRICS, number, placeOf, plural, wholePlaceOf } from "../words";
import { AgentState, clockError, LastSeen } from "./hosts";

/** More than a chart has pixels shows nothing more. */
const POINTS_MAX = 900;
/** What a window needs to get here: the newest end of a live chart. */
const BEHIND_MS = 500;
const SPANS: [string, string][] = [["1m", "1 min"], ["5m", "5 min"], ["15m", "15 min"], ["1h", "1 h"]];
const OTHERWISE = "5m";
const MINIMUM_MS = 500;

interface Range { from: number; to: number; live: boolean }

function rangeOf(wish: URLSearchParams, now: number): Range {
  const [from, to] = [fromAddress(wish.get("from")), fromAddress(wish.get("to"))];
  if (from !== null && to !== null && to > from) return { from, to, live: false };
  // One moment is looked at from half a minute before it to half a minute after.
  if (from !== null) return { from: from - 30_000, to: from + 30_000, live: false };
  const shown = recording.value;
  if (shown) {
    // Whole unless less is asked for; its end is as far as it goes.
    const last = span(wish.get("last")) ?? endOf(shown) - startOf(shown);
    return { from: endOf(shown) - last, to: endOf(shown), live: true };
  }
  const last = span(wish.get("last")) ?? span(OTHERWISE)!;
  const end = Math.floor((now - BEHIND_MS) / WINDOW_MS) * WINDOW_MS;
  return { from: end - last, to: end, live: true };
}

interface Read { grid: { times: number[]; step_ms: number }; metrics: Map<string, Lines>; oldest: number | null; newest: number | null; within_ms: number | null; share_known: Values; share_error: string | null; took_ms: number }
type Got = { key: string; read: Read | null; error: ApiError | null };

function useSeries(host: string, workload: string | null, range: Range): Got {
  const [got, set] = useState<Got>({ key: "", read: null, error: null });
  const who = `${host}\n${workload ?? ""}`;
  const running = useRef<{ stop: AbortController; what: string } | null>(null);
  useEffect(() => () => running.current?.stop.abort(), []);
  useEffect(() => {
    const what = `${who}\n${range.live ? range.to - range.from : `${range.from} ${range.to}`}`;
    // A live chart moves on while the collector still answers: that answer is waited for, or a slow one would never be seen.
    if (range.live && running.current?.what === what) return;
    running.current?.stop.abort();
    const stop = new AbortController();
    running.current = { stop, what };
    const begun = performance.now();
    const grid = gridOf(range.from, range.to, POINTS_MAX);
    const names: string[] = [...new Set(PANELS.flatMap((p) => p.lines.filter((l) => !l.share).map((l) => l.metric)))];
    const asked = { host, workload: workload ?? undefined, start: nsOf(grid.times[0] ?? 0), end: nsOf((grid.times.at(-1) ?? 0) - WINDOW_MS), max_points: POINTS_MAX };
    // One question for all charts: the collector reads each part of the past once. Quantiles are of what is in memory; without them the rest is shown.
    const series = ask<Series>(query("/api/v1/series", { ...asked, metric: names.join(",") }), stop.signal);
    const responses = ask<Responses>(query("/api/v1/responses", asked), stop.signal).catch((e: unknown): ApiError => {
      if (e instanceof ApiError) return e;
      throw e;
    });
    Promise.all([series, responses]).then(
      ([{ series, oldest_unix_ns, newest_unix_ns }, told]) => {
        if (stop.signal.aborted) return;
        const [answers, share_error] = told instanceof ApiError ? [null, told.message] : [told, null];
        const metrics = new Map<string, Lines>([...names.map((name): [string, Lines] => [name, onto(grid, series?.[name] ?? [])]), ...quantiles(grid, answers?.points ?? [])]);
        const [oldest, newest] = [oldest_unix_ns, newest_unix_ns].map((ns) => (ns ? msOf(ns) : null));
        set({ key: who, error: null, read: { grid, metrics, oldest: oldest ?? null, newest: newest ?? null, within_ms: answers?.within_ms ?? null, share_known: known(grid, answers?.points ?? []), share_error, took_ms: performance.now() - begun } });
      },
      (e: unknown) => {
        if (stop.signal.aborted) return;
        set((before) => ({ key: who, read: before.key === who ? before.read : null, error: e instanceof ApiError ? e : new ApiError(0, String(e)) }));
      },
    ).finally(() => {
      if (running.current?.stop === stop) running.current = null;
    });
  }, [who, range.from, range.to]);
  return got.key === who ? got : { key: who, read: null, error: null };
}

/** Why a stretch has no values. */
function whyMissing(from: number, to: number, read: Read, agent: Agent | undefined): string {
  const gone = agent && !agent.connected ? msOf(agent.since_unix_ns) : null;
  if (read.oldest !== null && to <= read.oldest) return recording.value ? "before the recording" : "before what the collector holds";
  if (gone !== null && from >= gone - 2000) return "no agent is connected";
  if (read.newest !== null && from >= read.newest - WINDOW_MS) return recording.value ? "the recording ends" : "no windows have come yet";
  return "windows are missing: lost, or the agent was away";
}

const WITHOUT_SHARES = "it is not in memory any more, and the disk has no response times by share; or how long requests took is not known here";

type Gaps = { from: number; to: number }[];

const wordOf = (line: PanelLine): string => line.label ?? METRICS[line.metric] ?? line.metric;

function PanelChart({ panel, read, range, agent, overlay, workload, shared }: { panel: Panel; read: Read; range: Range; agent: Agent | undefined; overlay: Incident[]; workload: string | null; shared: Gaps }) {
  // A chart is there as long as one of its lines may be.
  const lacks = panel.lines.map((line) => lacking(line.metric, agent?.coverage ?? []));
  const lack = lacks.every((c) => c !== undefined) ? lacks[0] : undefined;
  const lines = useMemo(() => {
    const all: Line[] = [];
    for (const line of panel.lines) {
      const found = read.metrics.get(line.share ?? line.metric);
      if (!found || found.max.every((v) => v === null)) continue;
      const times = line.times ?? 1;
      const scaled = (values: (number | null)[]) => (times === 1 ? values : values.map((v) => (v === null ? null : v * times)));
      const limited = line.metric === "accept_queue_limit"; // Told only when it changes or the queue moves: 0 is "not told".
      const merged = read.grid.step_ms > WINDOW_MS && !line.bars && !line.dash;
      all.push({
        label: wordOf(line), color: line.color, values: limited ? found.max.map((v) => (v === 0 ? null : v)) : scaled(found.max),
        ...(merged ? { least: scaled(found.min) } : {}),
        ...(line.fill && !merged ? { fill: true } : {}), ...(line.dash ? { dash: true } : {}), ...(line.bars ? { bars: true } : {}),
      });
    }
    return all;
  }, [panel, read]);
  const { sparse } = panel;
  const byShare = panel.lines.every((l) => l.share);
  const name = panel.within && read.within_ms !== null ? `${panel.name}: within ${length(read.within_ms)}` : panel.name;
  const unknown = useMemo(() => (lines.length === 0 ? [] : byShare ? gaps(read.grid, [read.share_known]) : sparse ? shared : gaps(read.grid, lines.map((l) => l.values))), [read, lines, shared]);
  const marks = useMemo((): Mark[] => [
    ...unknown.map((g): Mark => ({ kind: "gap", ...g })),
    ...overlay.map((i): Mark => ({ kind: "incident", from: msOf(i.root.start_unix_ns) || msOf(i.start_unix_ns), to: msOf(i.root.end_unix_ns) || msOf(i.end_unix_ns), title: i.id })),
    ...overlay.flatMap((i) => i.drops.map((d): Mark => ({ kind: "drop", from: msOf(d.first_unix_ns), to: msOf(d.last_unix_ns) }))),
  ], [unknown, overlay]);
  const reasons = byShare ? [WITHOUT_SHARES] : [...new Set(unknown.map((g) => whyMissing(g.from, g.to, read, agent)))];
  const all_ms = (gaps: Gaps) => gaps.reduce((sum, g) => sum + g.to - g.from, 0);
  const lost = all_ms(unknown);
  const without = panel.lines.filter((line, n) => lacks[n] && !lines.some((l) => l.label === wordOf(line))).map(wordOf);
  if (lack && !lack.covered) {
    return <div class="panel absent"><b>{name}</b><p>Not covered on {agent!.host}: {lack.reason || "the agent gave no reason"}.</p></div>;
  }
  if (lines.length === 0 && lack) {
    return <div class="panel absent"><b>{name}</b><p>Polling does not tell it on {agent!.host}: {lack.reason || "the agent gave no reason"}.</p></div>;
  }
  if (lines.length === 0) {
    const shares = () => read.share_error ?? (read.share_known.every((v) => v === null) ? WITHOUT_SHARES : "nothing was answered in this time");
    const why = byShare ? shares() : sparse ? "nothing was answered in this time" : whyMissing(range.from, range.to, read, agent);
    return <div class="panel absent"><b>{name}</b><p>No data: {read.newest !== null && read.oldest !== null && range.from < read.newest && range.to > read.oldest && !sparse ? "this signal has no values here" : why}.</p></div>;
  }
  return (
    <div class="panel">
      <Chart label={name} group={`host ${workload ?? ""}`} times={read.grid.times} height={150} axis lines={lines} marks={marks} format={panel.format}
        {...(panel.atLeast ? { atLeast: panel.atLeast } : {})} {...(panel.whole ? { whole: true } : {})}
        onZoom={(from, to) => to - from >= MINIMUM_MS && go(withQuery({ from: toAddress(Math.floor(from)), to: toAddress(Math.ceil(to)), last: null }))}
        onMark={(mark) => mark.title && go(storyAddress(mark.title))} />
      {without.length > 0 && <p class="why">Not measured here: {without.join(", ")}.</p>}
      {lost > all_ms(shared) && reasons.length > 0 && <p class="why">No data for {length(lost)}: {reasons.join("; ")}.</p>}
    </div>
  );
}

function Controls({ range }: { range: Range }) {
  const { query: wish } = useCell(place);
  const shown = useCell(recording);
  const width = range.to - range.from;
  const show = (from: number, to: number) => go(withQuery({ from: toAddress(from), to: toAddress(to), last: null }));
  return (
    <div class="controls">
      <div class="group" role="group" aria-label={shown ? "The recording's end" : "Live"}>
        {shown && <button type="button" class="chip" aria-pressed={range.live && !wish.has("last")} onClick={() => go(withQuery({ last: null, from: null, to: null }))}>whole</button>}
        {SPANS.map(([value, text]) => (
          <button key={value} type="button" class="chip" aria-pressed={range.live && (wish.get("last") ?? (shown ? "" : OTHERWISE)) === value}
            onClick={() => go(withQuery({ last: value, from: null, to: null }))}>{text}</button>
        ))}
      </div>
      <div class="group" role="group" aria-label="Move in time">
        <button type="button" class="chip" aria-label="earlier" onClick={() => show(range.from - width / 2, range.to - width / 2)}>←</button>
        <button type="button" class="chip" aria-label="zoom out" onClick={() => show(range.from - width / 2, Math.min(range.to + width / 2, moment()))}>−</button>
        <button type="button" class="chip" aria-label="zoom in" disabled={width < 2 * MINIMUM_MS} onClick={() => show(range.from + width / 4, range.to - width / 4)}>+</button>
        <button type="button" class="chip" aria-label="later" onClick={() => show(range.from + width / 2, range.to + width / 2)}>→</button>
      </div>
      <MomentField id="from" label="from" ms={range.live ? null : range.from} set={(ms) => ms !== null && show(ms, range.live || range.to <= ms ? ms + 60_000 : range.to)} />
      <MomentField id="to" label="to" ms={range.live ? null : range.to} set={(ms) => ms !== null && show(range.live || range.from >= ms ? ms - 60_000 : range.from, ms)} />
      <span class="range">{range.live ? <span class="badge open"><span class="pulse" aria-hidden="true" />{shown ? "recording" : "live"}</span> : null} <span class="quiet">{length(width)}</span></span>
    </div>
  );
}

function About({ agent, inventory, workload, oldest }: { agent: Agent | undefined; inventory: HostInventory | null; workload: string | null; oldest: number | null }) {
  const in_ = useCell(zone);
  return (
    <div class="columns">
      <section aria-labelledby="workloads">
        <h2 id="workloads">Workloads</h2>
        {inventory === null ? <p class="quiet">None known.</p> : (
          <div class="scroll">
            <table>
              <thead><tr><th scope="col">Workload</th><th scope="col">Listens on</th><th scope="col">Calls</th><th scope="col" class="n">CPU quota</th></tr></thead>
              <tbody>
                {inventory.workloads.map((w) => (
                  <tr key={w.name} aria-current={w.name === workload ? "true" : undefined}>
                    <td><a href={hostAddress(inventory.host, { workload: w.name, ...Object.fromEntries(["from", "to", "last"].map((p) => [p, new URLSearchParams(location.search).get(p) ?? undefined])) })}>{w.name}</a> {w.comm && w.comm !== w.name && <span class="quiet">{w.comm}</span>}</td>
                    <td>{w.listeners.join(", ") || <span class="quiet">nothing</span>}</td>
                    <td>{w.remotes === null ? <span class="quiet">unknown</span> : w.remotes.length > 3 ? plural(w.remotes.length, "address", "addresses") : w.remotes.join(", ") || <span class="quiet">nobody</span>}</td>
                    <td class="n">{w.cpu_quota_ns === null ? <span class="quiet">unknown</span> : w.cpu_quota_ns > 0 ? `${number(w.cpu_quota_ns / 5e7)} cores` : "none"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      {agent && (
        <section aria-labelledby="signals">
          <h2 id="signals">Signals</h2>
          <div class="scroll">
            <table>
              <thead><tr><th scope="col">Signal</th><th scope="col">Covered</th><th scope="col">By</th></tr></thead>
              <tbody>
                {agent.coverage.map((c) => (
                  <tr key={c.signal}><td>{c.signal.replaceAll("_", " ")}</td><td>{c.sampled ? <b title="polled every 50 ms: peaks between two looks are missed">sampled</b> : c.covered ? "yes" : <b class="lost">no</b>}</td><td class="quiet">{c.covered ? c.hook : c.reason}{c.sampled && `; ${c.reason}`}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
          <p class="quiet">
            Agent {agent.agent_version}{agent.kernel_release && ` on ${agent.kernel_release}`}; clock {clockError(agent)}; {plural(agent.windows_lost, "window")} lost{agent.resident_bytes > 0 && `; ${agentCost(agent)}`}.
            {oldest !== null && <> Windows are held since {day(oldest, in_)} {clock(oldest, in_)}.</>}
            {agent.shed_signals.length > 0 && <> Shed to stay within its budget: {agent.shed_signals.join(", ")}.</>}
          </p>
        </section>
      )}
    </div>
  );
}

export function Host({ host }: { host: string }) {
  const { query: wish } = useCell(place);
  const workload = wish.get("workload") || null;
  const known = useCell(agents);
  const wide = span(wish.get("last") ?? OTHERWISE) ?? 0;
  const now = useMoment(wide <= 60_000 ? 500 : wide <= 300_000 ? 1000 : 5000);
  const fixed = wish.has("from");
  const range = rangeOf(wish, fixed ? 0 : now);
  const got = useSeries(host, workload, range);
  const inventory = useAsk<HostInventory>(`/api/v1/hosts/${encodeURIComponent(host)}`, 10_000);
  const agent = known?.find((a) => a.host === host);
  const { all } = useBetween(range.from, range.to);
  const overlay = useMemo(
    () => all.filter((i) => i.version > 0 && i.severity !== "info" && msOf(i.end_unix_ns) >= range.from && msOf(i.start_unix_ns) <= range.to && i.hops.some((h) => h.host === host)),
    [all, range.from, range.to, host],
  );
  useEffect(() => {
    document.title = `${wholePlaceOf({ host, workload: workload ?? "" })} · Tailwater`;
  }, [host, workload]);
  const read = got.read;
  const shared = useMemo(() => (read ? gaps(read.grid, [...read.metrics].filter(([name]) => name !== "response_time_ms").map(([, lines]) => lines.max)) : []), [read]);
  const shared_ms = read && shared.length > 0 ? missing(read.grid, [...read.metrics.values()]) : 0;
  return (
    <main class="host">
      <nav class="crumbs" aria-label="Host"><span><a href="/hosts">Hosts</a> / {workload ? <a href={hostAddress(host)}>{host}</a> : host}</span></nav>
      <div class="title-line">
        <h1>{wholePlaceOf({ host, workload: workload ?? "" })}</h1>
        {agent ? <AgentState agent={agent} now={now} /> : known !== null && inventory.state === "there" ? <LastSeen ms={msOf(inventory.value.newest_unix_ns)} now={now} />
          : known !== null && inventory.state === "failed" && <span class="badge critical">no agent of this name has connected</span>}
      </div>
      <Controls range={range} />
      {overlay.length > 0 && (
        <ul class="overlay">
          {overlay.slice(0, 6).map((i) => <li key={i.id}><a href={storyAddress(i.id)}><Moment ms={msOf(i.start_unix_ns)} withDay={false} /> {placeOf(i.root)}: {i.drops.length > 0 ? plural(i.drops.reduce((n, d) => n + d.connections, 0), "connection") + " dropped" : "queue near its limit"}</a></li>)}
        </ul>
      )}
      {got.error && (
        <Note tone="bad" title={got.error.unreachable ? "The collector does not answer." : "No windows can be shown."}>
          <p>{got.error.message}</p>
          {agent && !agent.connected && <p>Its agent is gone for {ago(msOf(agent.since_unix_ns), moment()).replace(" ago", "")}.</p>}
        </Note>
      )}
      {read && read.oldest !== null && range.to <= read.oldest && (
        <Note title="This time is not kept any more."><p>The collector holds windows of {host} since <Moment ms={read.oldest} />.</p></Note>
      )}
      {!read && !got.error && <Wait what={`windows of ${host}`} />}
      {read && shared_ms > 0 && shared_ms < range.to - range.from && (
        <p class="why whole">No windows of {host} for {length(shared_ms)} of this time (hatched): {[...new Set(shared.map((g) => whyMissing(g.from, g.to, read, agent)))].join("; ")}.</p>
      )}
      {read && (
        <div class="panels" data-points={read.grid.times.length - 1} data-step-ms={read.grid.step_ms} data-took-ms={Math.round(read.took_ms)}>
          {PANELS.filter((panel) => !(panel.ofHost && workload)).map((panel) => <PanelChart key={panel.name} {...{ panel, read, range, agent, overlay, workload, shared }} />)}
        </div>
      )}
      {read && <p class="quiet">{read.grid.step_ms > WINDOW_MS ? `Each point is ${length(read.grid.step_ms)}: the line is the worst 50 ms of it, the band reaches down to the least; shares of answers are of all in it.` : "Each step is one window of 50 ms."} Drag over a chart to zoom; click a shaded incident to open it.</p>}
      <About agent={agent} inventory={inventory.state === "there" ? inventory.value : null} workload={workload} oldest={read?.oldest ?? null} />
    </main>
  );
}
