// The slowest requests of each tier of an incident, each with the way that it took through the tiers below.
import { useState } from "preact/hooks";
import type { CallLeg, Exemplar, Hop, Incident, Spent } from "../api";
import { useCell } from "../cell";
import { useAsk } from "../parts";
import { zone } from "../settings";
import { clock, length, msOf } from "../time";
import { bareName, fromRoot, plural } from "../words";

/** Of a tier, before the others are asked for. */
const SHOWN = 1;
/** While more may come. */
const AGAIN_MS = 5000;

/** Where the time went in one tier, those parts that there are. */
export function spentOf(spent: Spent): string {
  const unread = spent.queued ? "unread since before it was accepted" : "unread";
  return [
    spent.retried_ms > 0 ? `${spent.retried_ms} ms before its connection was there` : "",
    spent.unread_ms > 0 ? `${spent.unread_ms} ms ${unread}` : "",
    `${spent.inside_ms} ms inside`,
  ].filter(Boolean).join(", ");
}

function Leg({ leg }: { leg: CallLeg }) {
  const workload = bareName(leg.workload);
  return (
    <li style={{ "--depth": leg.depth }}>
      {length(leg.took_ms)} {leg.connecting ? (leg.aborted ? "of dialling in vain" : "until a connection was there to") : "in a call to"} <b>{workload || leg.host}</b>{workload && <span class="quiet">@{leg.host}</span>}
      {leg.there && <span class="quiet"> ({spentOf(leg.there)})</span>}{leg.aborted && !leg.connecting && <span class="quiet">, without an answer</span>}{leg.calls_unknown && <span class="quiet">, and from there on it is not known</span>}
    </li>
  );
}

function Row({ hop, of }: { hop: Hop; of: Exemplar }) {
  const in_ = useCell(zone);
  const left = of.calls_left_out ?? 0;
  return (
    <tr>
      <td>{bareName(hop.workload) || hop.host}<span class="quiet"> {hop.host}</span></td>
      <td class="n">{length(of.took_ms)}</td>
      <td class="clock">{clock(msOf(of.end_unix_ns), in_)}</td>
      <td>
        {spentOf(of)}{of.aborted && <span class="quiet">, not answered</span>}
        {(of.calls ?? []).length > 0 && <ol class="way">{(of.calls ?? []).map((leg, n) => <Leg key={n} leg={leg} />)}</ol>}
        {!of.calls_known && <span class="quiet">; its thread had others at the same time: which calls were its own is not known</span>}
        {left > 0 && <span class="quiet">; {plural(left, "call")} more</span>}
      </td>
    </tr>
  );
}

export function SlowestRequests({ i }: { i: Incident }) {
  const [all, setAll] = useState(false);
  // What is pushed and listed has the slowest of each tier alone.
  const asked = useAsk<Incident>(all ? `/api/v1/incidents/${encodeURIComponent(i.id)}` : null, i.state === "open" ? AGAIN_MS : 0);
  const whole = asked.state === "there" ? asked.value : null;
  const rows = fromRoot((whole ?? i).hops).flatMap((hop) => (hop.slowest ?? []).slice(0, whole ? undefined : SHOWN).map((of) => ({ hop, of })));
  if (rows.length === 0) return null;
  return (
    <section id="slowest-requests" aria-labelledby="slowest-of-tiers">
      <h2 id="slowest-of-tiers">Slowest requests, by tier</h2>
      <div class="scroll">
        <table>
          <thead><tr><th scope="col">Tier</th><th scope="col" class="n">Took</th><th scope="col">Until</th><th scope="col">Where it was</th></tr></thead>
          <tbody>{rows.map(({ hop, of }) => <Row key={`${hop.host} ${hop.listener} ${of.end_unix_ns} ${of.took_ms}`} hop={hop} of={of} />)}</tbody>
        </table>
      </div>
      {!all && <p><button type="button" class="chip" onClick={() => setAll(true)}>The slowest 20 of each tier</button></p>}
      {asked.state === "failed" && <p class="quiet">They cannot be read: {asked.error.message}</p>}
      <p class="quiet">Requests of 200 ms or longer, from the kernel's view of each connection; calls that took less are not among them.</p>
    </section>
  );
}
