// The slowest traces that passed while an incident lasted, by service, each with what opens it.
import { useEffect, useState } from "preact/hooks";
import type { Incident, SlowTrace, Traces as Told } from "../api";
import { useCell } from "../cell";
import { useAsk } from "../parts";
import { zone } from "../settings";
import { clock, length, msOf } from "../time";
import { plural } from "../words";

/** Of a service, before the others are asked for. */
const SHOWN = 3;
/** While more may come. */
const AGAIN_MS = 5000;

function Row({ service, on, trace }: { service: string; on: boolean; trace: SlowTrace }) {
  const in_ = useCell(zone);
  return (
    <tr>
      <td>{on ? <b>{service}</b> : service}{trace.host && <span class="quiet"> {trace.host}</span>}</td>
      <td>{trace.name}{trace.error && <span class="quiet"> failed</span>}</td>
      <td class="n">{length(msOf(trace.end_unix_ns) - msOf(trace.start_unix_ns))}</td>
      <td class="clock">{clock(msOf(trace.start_unix_ns), in_)}</td>
      <td class="clock">{trace.link ? <a href={trace.link} target="_blank" rel="noreferrer">{trace.trace_id}</a> : trace.trace_id}</td>
    </tr>
  );
}

function List({ told }: { told: Told }) {
  const [all, setAll] = useState(false);
  const rows = told.services.flatMap((of) => of.traces.slice(0, all ? undefined : SHOWN).map((trace) => ({ of, trace })));
  const more = told.services.reduce((sum, of) => sum + of.traces.length, 0) - rows.length;
  return (
    <>
      <div class="scroll">
        <table>
          <thead><tr><th scope="col">Service</th><th scope="col">Span</th><th scope="col" class="n">Took</th><th scope="col">From</th><th scope="col">Trace</th></tr></thead>
          <tbody>
            {rows.map(({ of, trace }) => <Row key={trace.trace_id + trace.span_id} service={of.service} on={of.tier !== null} trace={trace} />)}
          </tbody>
        </table>
      </div>
      {more > 0 && <p><button type="button" class="chip" onClick={() => setAll(true)}>{plural(more, "more trace")}</button></p>}
      <p class="quiet">By the clocks of those who sent them. In bold: services with the name of a tier or workload of the chain.</p>
    </>
  );
}

export function Traces({ i }: { i: Incident }) {
  const [every, setEvery] = useState(0);
  const wanted = i.version > 0;
  // Asked again until an incident that is over has all of them.
  const asked = useAsk<Told>(wanted ? `/api/v1/incidents/${encodeURIComponent(i.id)}/traces` : null, every);
  const told = asked.state === "there" ? asked.value : null;
  const gathering = told?.state === "gathering";
  useEffect(() => setEvery(gathering ? AGAIN_MS : 0), [gathering]);
  if (told === null || told.state === "off") return null;
  return (
    <section id="traces" aria-labelledby="slowest">
      <h2 id="slowest">Slowest traces meanwhile</h2>
      {told.services.length > 0 && <List told={told} />}
      {told.services.length === 0 && told.state === "missed" && <p class="quiet">Not known: nobody looked for them when this incident ended.</p>}
      {told.services.length === 0 && told.state !== "missed" && <p class="quiet">No span{told.slower_than_ms !== null && ` of ${told.slower_than_ms} ms or more`} came of that time.</p>}
      {gathering && <p class="quiet">More may come: exporters send spans some seconds after they end.</p>}
    </section>
  );
}
