// Who calls whom, with what each tier does now, or did at a past moment that the collector still holds.
import { useEffect, useMemo, useState } from "preact/hooks";
import { query, type Now, type NowAnswer, type Seen, type Topology as Graph } from "../api";
import { useCell } from "../cell";
import { fold, layout, MANY, type Box, type Folded, type Wire } from "../layout";
import { agents } from "../live";
import { moment as today, recording } from "../moment";
import { Meter, Moment, MomentField, Note, Trail, useAsk, useBetween, Wait } from "../parts";
import { go, hostAddress, place, withQuery } from "../route";
import { fromAddress, msOf, nsOf, toAddress } from "../time";
import { count, number, percent, plural } from "../words";

const EVERY_MS = 1000;
const SECONDS = 5;
/** A bottleneck of a tier that ended this recently is still shown. */
const RECENT_MS = 15_000;
/** Incidents that are named above the graph, where there are many tiers. */
const TOUCHED_MAX = 4;

function State({ now, live }: { now: Now; live: boolean }) {
  const m = now.metrics;
  const queued = m["queued_requests"];
  const limit = m["accept_queue_limit"]?.max ?? null;
  const several = m["multiplexed_connections"]?.last ?? 0;
  if (several > 0 && queued?.last == null) {
    return (
      <>
        <Meter name="Accept queue" value={m["accept_queue_depth"]?.max ?? 0} limit={limit} tone="accept" hint={`deepest in ${SECONDS} s`} />
        <p class="quiet">Connections only: {count(several)} carry several exchanges at once, so requests are not known; {number(m["unanswered_pieces"]?.max ?? 0)} pieces unanswered at most.</p>
        {(m["drops"]?.sum ?? 0) > 0 && <div class="loss">✕ {plural(m["drops"]?.sum ?? 0, "packet")} dropped</div>}
      </>
    );
  }
  if (queued?.last === null || queued === undefined) return <p class="quiet">{live ? `No windows in these ${SECONDS} s.` : `No windows of these ${SECONDS} s are kept.`}</p>;
  const lost = m["drops"]?.sum ?? 0;
  const response = m["response_time_ms"]?.mean;
  const rate = m["requests_answered"]?.mean;
  return (
    <>
      <Trail values={now.trail} limit={limit ?? 1} label={`queued requests, at most ${number(queued.max ?? 0)} in ${SECONDS} s`} />
      <Meter name="Accept queue" value={m["accept_queue_depth"]?.max ?? 0} limit={limit} tone="accept" hint={`deepest in ${SECONDS} s`} />
      <div class="numbers">
        <span><b>{number(queued.max ?? 0)}</b> queued</span>
        <span><b>{number(m["workers_busy"]?.max ?? 0)}</b> busy</span>
        {m["cpu_busy_ratio"]?.max != null && <span><b>{percent(m["cpu_busy_ratio"].max)}</b> CPU</span>}
        {rate != null && <span><b>{count(Math.round(rate * 20))}</b>/s</span>}
        {response != null && <span><b>{number(response)}</b> ms</span>}
      </div>
      {lost > 0 && <div class="loss">✕ {plural(lost, "packet")} dropped</div>}
    </>
  );
}

/** The same in two lines, where there are many tiers; of a folded one the fullest queue and the busiest CPU of its hosts, and the sums. */
function SmallState({ nows, hosts }: { nows: Now[]; hosts: number }) {
  const of = (now: Now, name: string) => now.metrics[name]?.max ?? null;
  const known = nows.filter((now) => now.metrics["queued_requests"]?.last != null);
  const several = nows.some((now) => (now.metrics["multiplexed_connections"]?.last ?? 0) > 0);
  if (known.length === 0 && !several) return <p class="quiet">No windows in these {SECONDS} s.</p>;
  const part = (now: Now) => (of(now, "accept_queue_depth") ?? 0) / Math.max(of(now, "accept_queue_limit") ?? 1, 1);
  const fullest = nows.reduce((a, b) => (part(b) > part(a) ? b : a));
  const sum = (name: string, pick: "sum" | "max") => nows.reduce((all, now) => all + (now.metrics[name]?.[pick] ?? 0), 0);
  const cpus = nows.map((now) => of(now, "cpu_busy_ratio")).filter((cpu) => cpu !== null);
  const lost = sum("drops", "sum");
  const silent = hosts - nows.length;
  return (
    <>
      <Meter name="Accept" value={of(fullest, "accept_queue_depth") ?? 0} limit={of(fullest, "accept_queue_limit")} tone="accept" hint={`deepest in ${SECONDS} s${hosts > 1 ? ", of the fullest" : ""}`} />
      <div class="numbers">
        {known.length > 0 ? <span><b>{number(sum("queued_requests", "max"))}</b> queued</span> : <span>connections only</span>}
        {cpus.length > 0 && <span><b>{percent(Math.max(...cpus))}</b> CPU</span>}
      </div>
      {silent > 0 && <div class="quiet">{plural(silent, "host")} silent</div>}
      {lost > 0 && <div class="loss">✕ {plural(lost, "packet")} dropped</div>}
    </>
  );
}

function SmallNode({ box, nows, hosts, tone, dim, spread }: { box: Box; nows: Now[]; hosts: number; tone: string; dim: boolean; spread: () => void }) {
  const style = { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, minHeight: `${box.height}px` };
  const kind = `node small ${dim ? "dim" : ""}`;
  if (box.ghost) return <div class={`${kind} ghost`} style={style}><b>{box.name}</b><span title="None is there, or what is between hides whose connections these are.">unpaired</span></div>;
  return (
    <div class={`${kind} ${tone}`} style={style} title={box.listeners.join(", ") || "calls only"}>
      {hosts > 1
        ? <button class="spread" onClick={spread} title="Show each of them" aria-label={`${box.workload} on ${hosts} hosts: show each of them`}><b>{box.workload}</b> ×{hosts}</button>
        : <a href={hostAddress(box.host, { workload: box.workload || undefined })}><b>{box.workload || box.host}</b>{box.workload && <span>@{box.host}</span>}</a>}
      {box.listeners.length === 0 ? <p class="quiet">calls only</p> : nows.length > 0 ? <SmallState nows={nows} hosts={hosts} /> : <p class="quiet">Nothing known.</p>}
    </div>
  );
}

function Node({ box, now, tone, live }: { box: Box; now: Now | undefined; tone: string; live: boolean }) {
  const style = { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, minHeight: `${box.height}px` };
  if (box.ghost) return <div class="node ghost" style={style}><b>{box.name}</b><span title="None is there, or what is between hides whose connections these are.">unpaired</span></div>;
  return (
    <div class={`node ${tone}`} style={style}>
      <a href={hostAddress(box.host, { workload: box.workload || undefined })}>
        <b>{box.workload || box.host}</b>{box.workload && <span>@{box.host}</span>}
      </a>
      <div class="listener">{box.listeners.join(", ") || "calls only"}</div>
      {now ? <State now={now} live={live} /> : <p class="quiet">Nothing known.</p>}
    </div>
  );
}

function Wires({ wires, width, height }: { wires: Wire[]; width: number; height: number }) {
  return (
    <svg class="wires" width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      {wires.map((w) => <path key={w.path} d={w.path} marker-end="url(#tip)" />)}
    </svg>
  );
}

/** Tiers that listened then and are not known any more stand alone: who called them is not kept. */
function withThen(graph: Graph, seen: Seen[]): Graph {
  const gone = seen.filter((s) => s.detail !== "" && !graph.nodes.some((n) => n.host === s.host && n.workload === s.detail));
  return gone.length === 0 ? graph : { ...graph, nodes: [...graph.nodes, ...gone.map((s) => ({ host: s.host, workload: s.detail, tier: "", listeners: [s.name] }))] };
}

export function Topology() {
  const { query: wish } = useCell(place);
  const at = fromAddress(wish.get("at"));
  const shown = useCell(recording);
  const graph = useAsk<Graph>("/api/v1/topology", 5000);
  const state = useAsk<NowAnswer>(query("/api/v1/now", { seconds: SECONDS, at: at === null ? undefined : nsOf(at) }), at === null && !shown ? EVERY_MS : 0);
  const then = useAsk<{ inventory: Seen[] }>(at === null ? null : query("/api/v1/inventory", { kind: "listener", start: nsOf(at - SECONDS * 1000), end: nsOf(at) }));
  const known = useCell(agents);
  useEffect(() => {
    document.title = "Topology · Tailwater";
  }, []);
  const value = graph.state === "there" ? withThen(graph.value, then.state === "there" ? then.value.inventory : []) : null;
  const narrow = innerWidth < 760;
  const text = JSON.stringify(value);
  const [wanted, setWanted] = useState("");
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const small = value !== null && value.nodes.length > MANY;
  const drawn = useMemo(() => {
    if (!value) return null;
    const { graph, folded } = small ? fold(value, open) : { graph: value, folded: [] as Folded[] };
    return { ...layout(graph, narrow, small), folded };
  }, [text, narrow, open]);
  const now = state.state === "there" ? state.value : null;
  /** The hosts that a box stands for. */
  const hostsOf = (box: Box): string[] => (box.host === "" ? drawn?.folded.find((f) => f.workload === box.workload)?.hosts ?? [] : [box.host]);
  const nowsOf = (box: Box): Now[] => {
    const hosts = hostsOf(box);
    return now?.workloads.filter((w) => w.workload === box.workload && hosts.includes(w.host)) ?? [];
  };
  const isWanted = (box: Box) => {
    const text = wanted.trim().toLowerCase();
    return text === "" || [box.name, ...hostsOf(box), ...box.listeners].some((part) => part.toLowerCase().includes(text));
  };
  const moment = at ?? (now ? msOf(now.now_unix_ns) : today());
  const { all } = useBetween(moment - RECENT_MS, moment);
  const touched = all.filter((i) => msOf(i.start_unix_ns) <= moment && msOf(i.end_unix_ns) >= moment - RECENT_MS && i.severity !== "info");
  const tone = (box: Box): string => {
    const is = (of: { host: string; workload: string }) => of.workload === box.workload && (of.host === box.host || hostsOf(box).includes(of.host));
    if (touched.some((i) => i.version > 0 && is(i.root))) return "root";
    return touched.some((i) => i.hops.some(is)) ? "drop" : "";
  };
  const away = (known ?? []).filter((a) => !a.connected);
  return (
    <main class="topology">
      <h1>Topology</h1>
      <div class="controls">
        <span class={`badge ${at === null ? "open" : ""}`}>{at === null ? <><span class="pulse" aria-hidden="true" />{shown ? "the recording's" : "live, the"} last {SECONDS} s</> : <>the {SECONDS} s before <Moment ms={at} /></>}</span>
        <MomentField label="at" ms={at} set={(ms) => go(withQuery({ at: ms === null ? null : toAddress(ms) }))} />
        {small && <input type="search" placeholder="Find tier, host, address" aria-label="Find a tier" value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />}
        {open.size > 0 && <button class="chip" onClick={() => setOpen(new Set())}>fold again</button>}
        {at !== null && <a class="chip" href="/topology">{shown ? "to the recording's end" : "back to live"}</a>}
      </div>
      {away.length > 0 && <Note tone="bad" title={`${away.map((a) => a.host).join(", ")}: no agent connected.`}><p>What is shown there is not zero, it is unknown.</p></Note>}
      {graph.state === "failed" && <Note tone="bad" title="The topology cannot be read."><p>{graph.error.message}</p></Note>}
      {state.state === "failed" && <Note tone="bad" title="The state cannot be read."><p>{state.error.message}</p></Note>}
      {graph.state === "waiting" && <Wait what="the topology" />}
      {drawn && drawn.boxes.length === 0 && <Note title="Nobody listens or calls yet."><p>The topology appears as agents see listeners and connections.</p></Note>}
      {small && touched.length > 0 && (
        <ul class="touched">
          {touched.slice(0, TOUCHED_MAX).map((i) => <li key={i.id}><a href={`/incidents/${i.id}`}><b>{i.root.workload || i.root.tier}@{i.root.host}</b>{i.drops.length > 0 && <span class="loss"> ✕ {i.drops.map((d) => `${d.workload}@${d.host}`).join(", ")}</span>}</a></li>)}
          {touched.length > TOUCHED_MAX && <li class="quiet">and {touched.length - TOUCHED_MAX} more</li>}
        </ul>
      )}
      {drawn && drawn.boxes.length > 0 && (
        <div class="canvas">
          <div class="graph" style={{ width: `${drawn.width}px`, height: `${drawn.height}px` }}>
            <Wires {...drawn} />
            {drawn.boxes.map((box) => small
              ? <SmallNode key={box.key} box={box} nows={nowsOf(box)} hosts={hostsOf(box).length} tone={tone(box)} dim={!isWanted(box)} spread={() => setOpen(new Set([...open, box.workload]))} />
              : <Node key={box.key} box={box} now={nowsOf(box)[0]} tone={tone(box)} live={at === null} />)}
          </div>
        </div>
      )}
      {drawn && drawn.boxes.length > 0 && <p class="quiet">An arrow points from caller to called. Amber: root of a recent incident. Red: its queue took part.</p>}
    </main>
  );
}
