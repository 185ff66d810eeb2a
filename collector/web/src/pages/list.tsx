// The incidents: newest first, live, filtered by what the address says.
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Incident, Severity, Silenced } from "../api";
import { useCell } from "../cell";
import { LIST_MAX } from "../between";
import { agents, fresh, incidents, silences } from "../live";
import { searchDrawn } from "../keys";
import { recording, useMoment } from "../moment";
import { Awaited, KindBadge, MomentField, Note, SeverityMark, SilencedBadge, StartAgents, StateBadge, SustainedBadge, useBetween } from "../parts";
import { go, place, storyAddress, withQuery } from "../route";
import { zone } from "../settings";
import { untoldBy } from "../silence";
import { goesThrough, rootedAt, rootsOf, servicesOf } from "../which";
import { ago, clock, day, fromAddress, length, msOf, span, toAddress, zoneName } from "../time";
import { count, culprit, dropped, fromRoot, kindName, KINDS, percent, placeOf, plural, refused, resourceDid, resourceName, RESOURCES, veryLong, wholePlaceOf } from "../words";

const SEVERITIES: Severity[] = ["critical", "warning", "info"];
const SPANS: [string, string][] = [["15m", "15 min"], ["1h", "1 hour"], ["24h", "24 hours"], ["", "all"]];
/** Drawn at once; more by a button. */
const PAGE = 200;

interface Wish {
  text: string; severities: Set<Severity>; kind: string; resource: string; root: string; service: string; state: string; sustained: boolean;
  from: number | null; to: number | null;
}

function wishOf(query: URLSearchParams, now: number): Wish {
  const last = span(query.get("last"));
  const severities = (query.get("severity") ?? "").split(",").filter((s): s is Severity => SEVERITIES.includes(s as Severity));
  return {
    text: (query.get("q") ?? "").trim().toLowerCase(),
    severities: new Set(severities.length > 0 ? severities : SEVERITIES),
    kind: query.get("kind") ?? "",
    resource: query.get("resource") ?? "",
    root: query.get("root") ?? "",
    service: query.get("service") ?? "",
    state: query.get("state") ?? "",
    sustained: query.get("sustained") === "true",
    from: last !== null ? now - last : fromAddress(query.get("from")),
    to: fromAddress(query.get("to")),
  };
}

function words(i: Incident): string {
  // Found by what is shown, and by what another program shows.
  const places = [i.root, ...i.hops, ...i.drops].map((p) => `${placeOf(p)} ${wholePlaceOf(p)} ${p.tier}`);
  const culprits = i.root.culprits.map((c) => `${c.comm} ${c.workload}`);
  return [i.id, i.title, i.kind, kindName(i.kind), i.root.resource, ...places, ...culprits].join(" ").toLowerCase();
}

const fits = (i: Incident, w: Wish): boolean =>
  (w.kind === "" || i.kind === w.kind) &&
  (w.resource === "" || i.root.resource === w.resource) &&
  (w.root === "" || rootedAt(i, w.root)) &&
  (w.service === "" || goesThrough(i, w.service)) &&
  (w.state === "" || i.state === w.state) &&
  (!w.sustained || !!i.sustained) &&
  (w.from === null || msOf(i.end_unix_ns) >= w.from) &&
  (w.to === null || msOf(i.start_unix_ns) <= w.to) &&
  (w.text === "" || w.text.split(/\s+/).every((word) => words(i).includes(word)));

export function Headline({ incident }: { incident: Incident }) {
  const first = incident.drops[0];
  const lost = dropped(incident);
  const who = culprit(incident.root);
  const felt = fromRoot(incident.hops).at(-1);
  return (
    <span class="headline">
      {incident.version === 0 ? (
        <b>Cause being determined</b>
      ) : (
        <span>
          <b>{placeOf(incident.root)}</b> {resourceDid(incident.root.resource)}
          {who && <span class="by"> · {who}</span>}
        </span>
      )}
      <span class="effect">
        <svg class="arrow" viewBox="0 0 24 10" aria-label="so that"><path d="M0 5h21M17 1l5 4-5 4" /></svg>
        {first ? (
          <span><b>{placeOf(first)}</b> {refused(incident) ? "refused" : "dropped"} <b class="lost">{plural(lost, "connection")}</b></span>
        ) : (
          <span><b>{felt ? placeOf(felt) : "a queue"}</b> {felt ? `queued ${plural(felt.queued_max, "request")}` : "felt it"}</span>
        )}
      </span>
    </span>
  );
}

function Row({ incident, silenced }: { incident: Incident; silenced: Silenced | undefined }) {
  const in_ = useCell(zone);
  const start = msOf(incident.drops[0]?.first_unix_ns ?? incident.start_unix_ns);
  const lasted = msOf(incident.root.end_unix_ns) - msOf(incident.root.start_unix_ns);
  return (
    <li class={`row ${incident.severity} ${fresh.has(incident.id) ? "fresh" : ""}`} data-id={incident.id}>
      <a href={storyAddress(incident.id)} data-row>
        <SeverityMark severity={incident.severity} />
        <span class="when">
          <span class="clock">{clock(start, in_)}</span>
          <span class="day">{day(start, in_)} {zoneName(start, in_)}</span>
        </span>
        <span class="what">
          <Headline incident={incident} />
          <span class="facts">
            <StateBadge incident={incident} />
            <KindBadge kind={incident.kind} />
            <SustainedBadge incident={incident} />
            <SilencedBadge by={silenced} />
            {lasted > 0 && <span>{resourceName(incident.root.resource)} for {length(lasted)}</span>}
            {veryLong(incident) > 0 && <span class="vlrt">{plural(veryLong(incident), "request")} ≥ 1 s</span>}
            {incident.version > 0 && <span>confidence {percent(incident.confidence)}</span>}
          </span>
        </span>
      </a>
    </li>
  );
}

/** When incidents were, over the span that is shown. */
function Strip({ shown, from, to }: { shown: Incident[]; from: number; to: number }) {
  const in_ = useCell(zone);
  const width = Math.max(to - from, 1);
  const at = (ms: number) => Math.min(Math.max(((ms - from) / width) * 1000, 0), 1000);
  return (
    <figure class="strip" aria-label={`${plural(shown.length, "incident")} over ${length(width)}`} role="img">
      <svg viewBox="0 0 1000 44" preserveAspectRatio="none">
        <line x1="0" y1="43.500" x2="1000" y2="43.500" class="ground" />
        {shown.map((i) => {
          const size = i.severity === "critical" ? 40 : i.severity === "warning" ? 26 : 14;
          const x = at(msOf(i.start_unix_ns));
          return <rect key={i.id} class={i.severity} x={Math.min(x, 997)} y={43 - size} width={Math.max(at(msOf(i.end_unix_ns)) - x, 3)} height={size} />;
        })}
      </svg>
      <figcaption><span>{clock(from, in_).slice(0, 8)}</span><span>{length(width)}</span><span>{clock(to, in_).slice(0, 8)} {zoneName(to, in_)}</span></figcaption>
    </figure>
  );
}

/** One of several, or any. What the address asks for can be chosen even where nothing is of it. */
function Choice({ name, any, value, options, set }: { name: string; any: string; value: string; options: string[][]; set: (value: string) => void }) {
  const asked = value === "" || options.some(([known]) => known === value) ? [] : [[value, value]];
  return (
    <select aria-label={name} value={value} onChange={(e) => set(e.currentTarget.value)}>
      <option value="">{any}</option>
      {[...options, ...asked].map(([value, words]) => <option key={value} value={value}>{words}</option>)}
    </select>
  );
}

function Filters({ wish, all, known }: { wish: Wish; all: Incident[]; known: Incident[] }) {
  const { query } = useCell(place);
  const set = (changes: Record<string, string | null>) => go(withQuery(changes), "replace");
  const toggle = (severity: Severity) => {
    const next = new Set(wish.severities);
    if (!next.delete(severity)) next.add(severity);
    set({ severity: next.size === 0 || next.size === SEVERITIES.length ? null : SEVERITIES.filter((s) => next.has(s)).join(",") });
  };
  const moment = (name: "from" | "to") => (
    <MomentField label={name} ms={query.has("last") ? null : wish[name]} set={(ms) => set({ last: null, [name]: ms === null ? null : toAddress(ms) })} />
  );
  return (
    <search class="filters">
      <input id="search" ref={searchDrawn} type="search" placeholder="Search host, workload, culprit, id" aria-label="Search incidents" value={query.get("q") ?? ""}
        onInput={(e) => set({ q: e.currentTarget.value })} />
      <div class="group" role="group" aria-label="Severity">
        {SEVERITIES.map((s) => (
          <button key={s} type="button" class={`chip ${s}`} aria-pressed={wish.severities.has(s)} onClick={() => toggle(s)}>
            <SeverityMark severity={s} /> {s} <span class="n">{all.filter((i) => i.severity === s).length}</span>
          </button>
        ))}
      </div>
      <Choice name="Kind" any="any kind" value={wish.kind} set={(kind) => set({ kind })} options={Object.entries(KINDS).map(([kind, { name }]) => [kind, name])} />
      <details class="further" open={wish.resource !== "" || wish.root !== "" || wish.service !== ""}>
        <summary class="chip">cause and place …</summary>
        <div>
          <Choice name="Resource" any="any resource" value={wish.resource} set={(resource) => set({ resource })}
            options={Object.keys(RESOURCES).map((resource) => [resource, resourceName(resource)])} />
          <Choice name="Root" any="any root" value={wish.root} set={(root) => set({ root })} options={rootsOf(known).map((tier) => [tier, tier])} />
          <Choice name="Service" any="through any service" value={wish.service} set={(service) => set({ service })}
            options={servicesOf(known).map((tier) => [tier, tier])} />
        </div>
      </details>
      <Choice name="State" any="open and closed" value={wish.state} set={(state) => set({ state })} options={[["open", "open"], ["closed", "closed"]]} />
      <button type="button" class="chip" aria-pressed={wish.sustained} title="the root was over and drops went on, because dropped clients came again"
        onClick={() => set({ sustained: wish.sustained ? null : "true" })}>kept alive <span class="n">{all.filter((i) => i.sustained).length}</span></button>
      <div class="group spans" role="group" aria-label="Time">
        {SPANS.map(([value, name]) => (
          <button key={value} type="button" class="chip" aria-pressed={(query.get("last") ?? "") === value && (value !== "" || (wish.from === null && wish.to === null))}
            onClick={() => set({ last: value || null, from: null, to: null })}>{name}</button>
        ))}
        <details class="between" open={!query.has("last") && (wish.from !== null || wish.to !== null)}>
          <summary class="chip">between …</summary>
          <div>{moment("from")}{moment("to")}</div>
        </details>
      </div>
    </search>
  );
}

function Nothing() {
  const now = useMoment(1000);
  const known = useCell(agents);
  const shown = useCell(recording);
  const on = (known ?? []).filter((a) => a.connected);
  if (shown) return <Note title="No incident in this recording."><p>Nothing dropped and no queue came near its limit.</p></Note>;
  if (known !== null && on.length === 0) {
    return (
      <Note title="No incident, and no agent is connected.">
        <StartAgents />
        {known.map((a) => <p key={a.host}>{a.host}: gone for {ago(msOf(a.since_unix_ns), now).replace(" ago", "")}</p>)}
      </Note>
    );
  }
  return (
    <Note title="No incidents yet.">
      {on.length > 0 && <p>Nothing dropped and no queue came near its limit on {on.map((a) => a.host).join(", ")}.</p>}
    </Note>
  );
}

export function List() {
  const { query } = useCell(place);
  const all = useCell(incidents);
  const now = useMoment(5000);
  const wish = wishOf(query, now);
  const { all: known, cut } = useBetween(wish.from, wish.to);
  const held = useCell(silences);
  const untold = useMemo(() => untoldBy(held?.all ?? []), [held]);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    document.title = "Incidents · Tailwater";
  }, []);
  const [matching, shown] = useMemo(() => {
    const matching = known.filter((i) => fits(i, wish));
    return [matching, matching.filter((i) => wish.severities.has(i.severity))];
  }, [known, query, now]);
  if (all === null) {
    return (
      <main>
        <Awaited what="incidents" />
      </main>
    );
  }
  const many = Math.max(Number(query.get("show")) || PAGE, PAGE);
  const from = wish.from ?? Math.min(...shown.map((i) => msOf(i.start_unix_ns)), now) - 1000;
  return (
    <main class="list">
      <h1>Incidents</h1>
      <Filters wish={wish} all={matching} known={known} />
      {all.length === 0 ? <Nothing /> : shown.length === 0 ? (
        <Note title="No incident fits.">
          <p>{known.length >= LIST_MAX && wish.from === null && wish.to === null ? <>Only the newest {count(LIST_MAX)} were looked through: choose a time to look further back. </> : `${plural(known.length, "incident")} in all. `}<a href="/">Show all</a></p>
        </Note>
      ) : (
        <>
          <Strip shown={shown} from={from} to={wish.to ?? now} />
          <ol class="rows" ref={list} aria-label={plural(shown.length, "incident")}>
            {shown.slice(0, many).map((i) => <Row key={i.id} incident={i} silenced={untold.get(i.id)} />)}
          </ol>
          {shown.length > many && (
            <button type="button" class="chip more" onClick={() => go(withQuery({ show: String(many + PAGE) }), "replace")}>
              {shown.length - many} older
            </button>
          )}
          {known.length >= LIST_MAX && wish.from === null && wish.to === null && <p class="quiet">The newest {count(LIST_MAX)}. Choose a time to see older ones.</p>}
          {cut && <p class="quiet">There may be older ones in this time: the collector tells at most {count(LIST_MAX)} at once. Choose a shorter time.</p>}
        </>
      )}
    </main>
  );
}
