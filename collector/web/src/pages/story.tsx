// One incident as a story: the sentence, the chain from root to drop, every tier on one axis, who did it, and what else fits.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { turns, type Drops, type Hop, type Incident, type Root } from "../api";
import { useCell, useNow } from "../cell";
import { LIST_MAX } from "../between";
import { earlier } from "../earlier";
import { about, incidents, silences } from "../live";
import { Awaited, KindBadge, Meter, Moment, Note, SeverityMark, SilencedBadge, StateBadge, SustainedBadge, useAsk } from "../parts";
import { hostAddress, storyAddress } from "../route";
import { zone } from "../settings";
import { untoldBy } from "../silence";
import { clock, length, msOf, toAddress } from "../time";
import { bareName, congested, count, culprit, dropped, fromRoot, KINDS, kindName, observed, packets, percent, placeOf, plural, poolOf, REASONS, refused, resourceDid, resourceName, ROLES, sustainedBy, veryLong, veryLongKinds } from "../words";
import { InItsCode } from "./code";
import { Prevention } from "./prevention";
import { SlowestRequests } from "./slowest";
import { byWhom, EndSilence, MakeSilence, Until, useOperates } from "./silence";
import { Story as StoryTimeline } from "./timeline";
import { Traces } from "./traces";

/** A longer incident tells its tiers also as they are now. */
const LONG_MS = 10_000;
/** Charts of a host open with this much around the incident. */
const AROUND_MS = 5000;

export const around = (i: Incident): { from: string; to: string } => ({
  from: toAddress(msOf(i.start_unix_ns) - AROUND_MS),
  to: toAddress(msOf(i.end_unix_ns) + AROUND_MS),
});

function Fact({ name, value, about, tone }: { name: string; value: string; about?: string; tone?: string }) {
  return (
    <div class={`fact ${tone ?? ""}`}>
      <dt>{name}</dt>
      <dd>{value}</dd>
      {about && <dd class="about">{about}</dd>}
    </div>
  );
}

function Facts({ i }: { i: Incident }) {
  const lasted = msOf(i.root.end_unix_ns) - msOf(i.root.start_unix_ns);
  const first = i.drops.length > 0 ? Math.min(...i.drops.map((d) => msOf(d.first_unix_ns))) : null;
  const last = i.drops.length > 0 ? Math.max(...i.drops.map((d) => msOf(d.last_unix_ns))) : null;
  const lead = first === null ? null : first - msOf(i.root.start_unix_ns);
  return (
    <dl class="facts-row">
      {i.version > 0 && <Fact name="Root cause" tone="root" value={resourceName(i.root.resource)} about={`${placeOf(i.root)}, ${length(lasted)}`} />}
      {first !== null && last !== null && (
        <Fact name={refused(i) ? "Refused" : "Dropped"} tone="drop" value={plural(dropped(i), "connection")} about={refused(i) ? `in ${length(last - first)}` : `${plural(packets(i), "packet")} in ${length(last - first)}`} />
      )}
      {lead !== null && lead > 0 && i.version > 0 && <Fact name="Cause to drop" value={length(lead)} about="from the onset to the first drop" />}
      <Fact name="Very long requests" tone="vlrt" value={count(veryLong(i))}
        about={i.vlrt.by_kind && veryLong(i) > 0 ? veryLongKinds(i.vlrt.by_kind) + (i.vlrt.syn_retransmits ? `; ${plural(i.vlrt.syn_retransmits, "SYN")} seen again` : "") : i.vlrt.syn_retransmits === null ? "expected: 1 s or longer, by retry" : `${plural(i.vlrt.syn_retransmits, "SYN")} seen again`} />
      {i.version > 0 && <Fact name="Confidence" value={percent(i.confidence)} about={i.alternatives[0] ? `next best ${percent(i.alternatives[0].confidence)}` : "nothing else fits"} />}
    </dl>
  );
}

/** What a tier that is not the root did. */
const DID: Record<string, string> = {
  pushback: "waited for the tier below, kept its callers waiting",
  drop: "filled up behind it, refused connections",
  batch: "sent on what it had stored",
};

function HopCard({ hop, drops, i, index, of }: { hop: Hop; drops: Drops[]; i: Incident; index: number; of: number }) {
  const in_ = useCell(zone);
  const own = drops.filter((d) => d.host === hop.host && d.workload === hop.workload);
  const isRoot = hop.role === "root";
  const lost = own.reduce((sum, d) => sum + d.connections, 0);
  const seen = observed(hop);
  const workload = bareName(hop.workload);
  const name = <><b>{workload || hop.host}</b>{workload && <span>@{hop.host}</span>}</>;
  const congestion = seen && hop.congestion ? congested(hop.congestion) : null;
  return (
    <li class={`hop ${hop.role} ${lost > 0 ? "lossy" : ""} ${seen ? "" : "unobserved"}`} aria-label={`${index + 1} of ${of}: ${placeOf(hop)}, ${ROLES[hop.role] ?? hop.role}`}>
      <div class="hop-head">
        <span class="role">{isRoot && lost > 0 ? "root cause, dropped" : (ROLES[hop.role] ?? hop.role)}</span>
        <span class="onset" title="its queue began to grow">{clock(msOf(hop.onset_unix_ns), in_)}</span>
      </div>
      {seen ? <a class="hop-name" href={hostAddress(hop.host, { workload: hop.workload, ...around(i) })}>{name}</a> : <span class="hop-name">{name}</span>}
      <div class="listener">{hop.listener || "no listener seen"}</div>
      <p class="did">{isRoot ? [resourceDid(i.root.resource), culprit(i.root)].filter(Boolean).join(" · ") : DID[hop.role]}</p>
      {hop.order_to_root === "unknown" && (
        <p class="order" title="The two onsets are closer than the clocks agree; the flow of requests decided.">order to the root unknown</p>
      )}
      {!seen && <p class="unseen"><b>Unpaired: no agent sees its other end</b>, as none is there, or something between hides whose connections these are. Its caller had {plural(hop.queued_max, "call")} to it in flight.</p>}
      {seen && <div class="meters">
        <Meter name="Accept queue" value={hop.accept_queue_max} limit={hop.accept_queue_limit} tone="accept"
          hint="deepest, of what the listener may hold; the kernel takes one more than the limit" />
        {hop.requests_unknown && <p class="unseen">Requests, workers and calls are not measured on {hop.host}: its agent can load no kernel program.</p>}
        {hop.connections_only && <p class="unseen">Its connections carry several exchanges at once (HTTP/2, gRPC, WebSocket): requests and workers are not known. What came and was not spoken to is.</p>}
        {turns(hop) && <Meter name="Workers busy" value={hop.workers_busy_max} limit={hop.workers_limit} tone="workers"
          hint={hop.workers_limit === null ? "no limit is known: not configured, not learned, or event-driven" : "most threads with a request at once, of those there are"} />}
        {hop.pool_in_flight_max !== null && (
          <Meter name="Calls in flight" value={hop.pool_in_flight_max} limit={poolOf(hop)} tone="calls"
            hint={poolOf(hop) === null ? "most at once" : "most at once, of the connections that were open"} />
        )}
        {!hop.requests_unknown && <div class="queued"><span>{hop.connections_only ? "Pieces of data unanswered at most" : "Queued at most"}</span><b>{count(hop.queued_max)}</b></div>}
        {hop.life && msOf(i.end_unix_ns) - msOf(i.start_unix_ns) >= LONG_MS && (
          <div class="congestion" title="the numbers above are those of the onset">
            <span>{i.state === "open" ? "Now" : "At the end"}</span><b>{hop.life.now && turns(hop) ? count(hop.life.now.queued) : "unknown"}</b>
            <span class="about">
              {hop.life.now && `accept queue ${count(hop.life.now.accept_queue)}${turns(hop) ? `, ${plural(hop.life.now.workers_busy, "worker")} busy` : ""}; `}
              over its whole life {turns(hop) && `${plural(hop.life.answered, "answer")}, `}{plural(hop.life.dropped, "packet")} dropped
            </span>
          </div>
        )}
        {congestion && (
          <div class="congestion" title="the load beyond which more load gave no more answers, learnt on this listener">
            <span>Congestion point N*</span><b>{congestion.point}</b><span class="about">{congestion.about}</span>
          </div>
        )}
      </div>}
      {lost > 0 && <div class="loss">✕ {plural(lost, "connection")} dropped</div>}
    </li>
  );
}

function Chain({ i }: { i: Incident }) {
  const hops = fromRoot(i.hops);
  const outward = i.kind === "downstream_ctqo";
  // What waited for the root above it and came down on another tier: pushed back up to whoever stored it, and sent on from there.
  const turns = hops.some((hop) => hop.role === "pushback") && hops.some((hop) => hop.role === "batch");
  const sent = (from: Hop) => (turns ? from.role === "batch" : outward);
  return (
    <section aria-labelledby="chain">
      <h2 id="chain">Chain, from root to drop</h2>
      <ol class="chain">
        {hops.map((hop, n) => [
          n > 0 && (
            <li key={`to ${hop.host}`} class="push" aria-hidden="true">
              <svg viewBox="0 0 60 24"><path d="M2 12h52M46 4l10 8-10 8" /></svg>
              <span>{sent(hops[n - 1]!) ? "sent on" : "pushed back"}</span>
            </li>
          ),
          <HopCard key={hop.host + hop.listener} hop={hop} drops={i.drops} i={i} index={n} of={hops.length} />,
        ])}
      </ol>
      {hops.length === 0 && <Note title="The chain is not known yet." />}
    </section>
  );
}

/** What keeps it alive, apart from what began it. */
function Sustaining({ i }: { i: Incident }) {
  const in_ = useCell(zone);
  const s = i.sustained;
  if (!s) return null;
  return (
    <section class="sustaining" aria-labelledby="sustaining">
      <h2 id="sustaining">Trigger over, {sustainedBy(s.by)}</h2>
      <dl class="facts-row">
        <Fact name="Since" tone="drop" value={clock(msOf(s.since_unix_ns), in_)} about="when the root was over" />
        <Fact name="Share of retries" value={percent(s.retry_share)} about={`of the attempts at ${placeOf(s)} ${s.listener}`} />
      </dl>
      <p><b>Way out:</b> {s.way_out}.</p>
      <p class="evidence">{s.evidence}</p>
    </section>
  );
}

/** How often the like was there before, of what the list holds. */
function Before({ i }: { i: Incident }) {
  const all = useCell(incidents);
  const before = useMemo(() => earlier(i, all ?? []), [i, all]);
  const last = before[0], first = before[before.length - 1];
  if (!last || !first) return null;
  return (
    <p class="before">
      <b>Seen before:</b> {(all?.length ?? 0) >= LIST_MAX && "at least "}{plural(before.length, "time")} since <Moment ms={msOf(first.start_unix_ns)} toMinute />, the last{" "}
      <a href={storyAddress(last.id)}>{length(msOf(i.start_unix_ns) - msOf(last.start_unix_ns))} before</a>: the same cause at the same tier, and the same chain.
    </p>
  );
}

function Bar({ share, tone }: { share: number; tone: string }) {
  return <span class="bar" style={{ "--tone": `var(--${tone})` }}><span style={{ width: `${Math.min(share, 1) * 100}%` }} /></span>;
}

/** A list with its heading; nothing where it is empty. */
function Clauses({ title, all = [] }: { title: string; all?: ComponentChildren[] | undefined }) {
  return all.length === 0 ? null : (
    <>
      <h3>{title}</h3>
      <ul class="clauses">{all.map((clause, n) => <li key={n}>{clause}</li>)}</ul>
    </>
  );
}

function Reasons({ i }: { i: Incident }) {
  const cause = (root: Root) => `${placeOf(root)} ${resourceDid(root.resource)}`;
  return (
    <div class="columns">
      <section aria-labelledby="culprits">
        <h2 id="culprits">Culprits</h2>
        {i.root.culprits.length === 0 ? <p class="quiet">Nobody in particular used the resource.</p> : (
          <ul class="shares">
            {i.root.culprits.map((c) => (
              <li key={`${c.comm} ${c.pid}`}>
                <span class="who"><b>{c.comm || c.workload}</b>{c.pid > 0 && <span class="quiet"> pid {c.pid}</span>} <span class="quiet">in {c.workload || "an unknown workload"}</span></span>
                <span class="share">{percent(c.share)}</span>
                <Bar share={c.share} tone="root" />
              </li>
            ))}
          </ul>
        )}
        <InItsCode root={i.root} />
        <h3>Evidence</h3>
        <p class="evidence">{i.root.evidence || "Not told yet: the windows of this incident are still coming in."}</p>
      </section>
      <section aria-labelledby="roots">
        <h2 id="roots">Confidence and alternatives</h2>
        <ul class="shares">
          <li>
            <span class="who"><b>{cause(i.root)}</b></span><span class="share">{percent(i.confidence)}</span><Bar share={i.confidence} tone="accent" />
          </li>
          {i.alternatives.map((a, n) => (
            <li key={n}>
              <span class="who">{cause(a.root)}</span><span class="share">{percent(a.confidence)}</span><Bar share={a.confidence} tone="muted" />
              <details><summary>why</summary><p class="evidence">{a.root.evidence}</p></details>
            </li>
          ))}
        </ul>
        {i.alternatives.length === 0 && <p class="quiet">No other root fits what was seen.</p>}
        <Clauses title="Further causes of the same overflow" all={i.also?.map((a) => (
          <>
            {cause(a.root)}, for {percent(a.share)} of what waited
            <details><summary>why</summary><p class="evidence">{a.root.evidence}</p></details>
          </>
        ))} />
        <Clauses title="What speaks against it" all={i.against} />
        <Clauses title="Meanwhile" all={i.context} />
        <p class="quiet">Clocks agree within {(i.clock_error_ns / 1e6).toFixed(1)} ms; onsets closer than that have no known order.</p>
      </section>
    </div>
  );
}

function DropTable({ i }: { i: Incident }) {
  const in_ = useCell(zone);
  if (i.drops.length === 0 && i.vlrt.clients.length === 0) return null;
  return (
    <section aria-labelledby="drops">
      <h2 id="drops">Drops</h2>
      <div class="scroll">
        <table>
          <thead><tr><th scope="col">Listener</th><th scope="col">Reason</th><th scope="col" class="n">Packets</th><th scope="col" class="n">Connections</th><th scope="col">From</th><th scope="col">To</th></tr></thead>
          <tbody>
            {i.drops.map((d) => (
              <tr key={d.host + d.listener}>
                <td><b>{placeOf(d)}</b> {d.listener}</td><td>{REASONS[d.reason] ?? d.reason}</td><td class="n">{count(d.count)}</td><td class="n">{count(d.connections)}</td>
                <td class="clock">{clock(msOf(d.first_unix_ns), in_)}</td><td class="clock">{clock(msOf(d.last_unix_ns), in_)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {i.vlrt.clients.length > 0 && <p>Sent again by {i.vlrt.clients.map((c) => `${c.address} (${count(c.count)})`).join(", ")}.</p>}
    </section>
  );
}

/** Which silences cover what is like this now, and the way to one. */
function Silencing({ id, i }: { id: string; i: Incident }) {
  const known = useCell(silences);
  const may = useOperates();
  const now = useNow(1000);
  const [said, say] = useState<string | null>(null);
  useEffect(() => {
    about.set(id);
    return () => about.set(null);
  }, [id]);
  const covering = known?.about === id ? known.all.filter((one) => one.covers) : [];
  if (covering.length === 0 && said === null && !may) return null;
  return (
    <div class="silencing">
      {covering.map((one, n) => (
        <div key={one.id ?? `configured ${n}`} class="silenced-by" data-id={one.id ?? "configured"}>
          <p><span class="badge silenced">not told now</span> <b>{one.silence.comment}</b> <span class="about">{byWhom(one)}, <Until s={one.silence} now={now} />{one.silence.hooks && `, to ${one.silence.hooks.join(", ")}`}</span></p>
          <EndSilence one={one} told={say} />
        </div>
      ))}
      <div class="actions">
        <MakeSilence like={i} told={say} />
        <p class="done" role="status">{said}{said !== null && <> <a href="/silences">All silences</a></>}</p>
      </div>
    </div>
  );
}

export function Story({ id }: { id: string }) {
  const all = useCell(incidents);
  const live = all?.find((i) => i.id === id) ?? null;
  // Beyond what the list holds, and under an early alert's id, the collector still knows it.
  const asked = useAsk<Incident>(live === null && all !== null ? `/api/v1/incidents/${encodeURIComponent(id)}` : null);
  const i = live ?? (asked.state === "there" ? asked.value : null);
  const in_ = useCell(zone);
  const held = useCell(silences);
  const untold = useMemo(() => untoldBy(held?.all ?? []), [held]);
  useEffect(() => {
    document.title = i ? `${kindName(i.kind)} ${clock(msOf(i.start_unix_ns), in_)} · Tailwater` : "Incident · Tailwater";
  }, [i, in_]);
  const near = useMemo(() => {
    const at = all?.findIndex((other) => other.id === id) ?? -1;
    return at < 0 || !all ? {} : { newer: all[at - 1], older: all[at + 1] };
  }, [all, id]);
  if (i === null) {
    if (asked.state === "failed") {
      return (
        <main class="story">
          <Note tone="bad" title={asked.error.status === 404 ? "This incident is not kept." : "The incident cannot be read."}>
            <p>{asked.error.message}</p>
            <p>{asked.error.status === 404 && "It may have expired: the collector keeps a bounded number of incidents. "}<a href="/">All incidents</a></p>
          </Note>
        </main>
      );
    }
    return <main class="story"><Awaited what="the incident" /></main>;
  }
  return (
    <main class={`story ${i.severity}`} data-id={i.id} data-version={i.version}>
      <nav class="crumbs" aria-label="Incident">
        <a href="/">← Incidents</a>
        <span class="near">
          {near.newer ? <a id="newer" href={storyAddress(near.newer.id)} title="newer incident (k)">newer</a> : <span>newer</span>}
          {near.older ? <a id="older" href={storyAddress(near.older.id)} title="older incident (j)">older</a> : <span>older</span>}
        </span>
      </nav>
      <header>
        <div class="badges">
          <SeverityMark severity={i.severity} /><span class={`badge ${i.severity}`}>{i.severity}</span>
          <KindBadge kind={i.kind} /><SustainedBadge incident={i} /><SilencedBadge by={untold.get(i.id)} /><StateBadge incident={i} />
          <Moment ms={msOf(i.start_unix_ns)} />
        </div>
        <h1 class="sentence">{i.title}</h1>
        {KINDS[i.kind] && <p class="quiet">{KINDS[i.kind]!.about} Times in the sentence are UTC.</p>}
        {i.do_now && <p class="do-now"><b>{i.state === "open" ? "Do now" : "To do"}:</b> {i.do_now}.</p>}
        <Facts i={i} />
        <Before i={i} />
        <Silencing id={id} i={i} />
      </header>
      <Sustaining i={i} />
      <Chain i={i} />
      <StoryTimeline i={i} />
      <Reasons i={i} />
      <SlowestRequests i={i} />
      <Traces i={i} />
      <Prevention i={i} />
      <DropTable i={i} />
      <footer class="raw">
        <span>{i.id} · version {i.version}</span>
        <a href={`/topology?at=${toAddress(msOf(i.end_unix_ns))}`}>topology at its end</a>
        <a href={`/api/v1/incidents/${i.id}`} target="_blank" rel="noreferrer">JSON</a>
        <a href={`/api/v1/incidents/${i.id}/timeline`} target="_blank" rel="noreferrer">timeline JSON</a>
        <a href={`/api/v1/incidents/${i.id}/prevention`} target="_blank" rel="noreferrer">prevention JSON</a>
        <a href={`/api/v1/incidents/${i.id}/traces`} target="_blank" rel="noreferrer">traces JSON</a>
      </footer>
    </main>
  );
}
