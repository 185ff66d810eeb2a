// What would have prevented an incident: each change that was tried, with drops, p99 and goodput by the model, and how well the model gives
// what was seen.
import type { Incident, Prevention as Told, Replayed } from "../api";
import { useAsk, Wait } from "../parts";
import { count, percent, plural } from "../words";

const EFFECTS: Record<string, string> = {
  prevents: "prevents it", slow: "no drops, too slow", moves: "moves the queue", beyond_seen: "not known: beyond what was seen", tight: "no drops, but nothing to spare", lessens: "drops less", nothing: "does not help",
};

const sum = (of: number[]): number => of.reduce((a, b) => a + b, 0);
const took = (s: number | null): string => (s === null ? "never" : s < 0.9995 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(1)} s`);

function Row({ name, of, margin, effect, tone }: { name: string; of: Replayed; margin?: Replayed | null; effect: string; tone?: string }) {
  return (
    <tr class={tone}>
      <td>{name}</td><td>{effect}</td><td class="n">{count(sum(of.drops))}</td><td class="n">{margin ? count(sum(margin.drops)) : ""}</td><td class="n">{took(of.p99_s)}</td>
      {of.goodput.map((g) => <td key={g.within_s} class="n">{percent(g.ratio)}</td>)}
    </tr>
  );
}

function Answer({ told }: { told: NonNullable<Told["answer"]> }) {
  const { reproduction: r } = told;
  return (
    <>
      <p class="quiet">
        {plural(told.first_attempts, "first attempt")} of the incident, replayed through a model of its tiers. With nothing changed the model
        drops {count(r.predicted)} where {count(r.seen)} were dropped ({r.ratio.toFixed(2)}). {told.attempts_factor > 1 && `Sizes stand ${told.attempts_factor.toFixed(2)} times as many, with which it drops as much as was seen. `}Prevention is no drop and a p99 of {took(told.p99_wanted_s)} at the most{told.margin > 1 && `, also with ${percent(told.margin - 1)} more attempts and in a stall that lasts ${percent(told.margin - 1)} longer`}.
      </p>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Change</th><th scope="col">By the model</th><th scope="col" class="n">Drops</th><th scope="col" class="n">with {percent(told.margin - 1)} more</th><th scope="col" class="n">p99</th>
              {told.unchanged.goodput.map((g) => <th key={g.within_s} scope="col" class="n">within {took(g.within_s)}</th>)}
            </tr>
          </thead>
          <tbody>
            <Row name="none" of={told.harder} effect="as it was" tone="quiet" />
            {told.candidates.map((c) => <Row key={c.change} name={c.change} of={c.replayed} margin={c.with_margin} effect={EFFECTS[c.effect] ?? c.effect} />)}
          </tbody>
        </table>
      </div>
      {told.untried.length > 0 && <p class="quiet">Not tried, for want of time: {told.untried.join(", ")}.</p>}
      {told.assumed.length > 0 && <details><summary>taken for granted</summary><ul>{told.assumed.map((a) => <li key={a}>{a}</li>)}</ul></details>}
    </>
  );
}

function Refused({ told }: { told: Told }) {
  return (
    <>
      <p class="quiet">Not said by the model: {told.why}.</p>
      {told.queue && <p>By count alone: {told.queue.sentence}.</p>}
    </>
  );
}

export function Prevention({ i }: { i: Incident }) {
  // Asked again for each version: an incident that is open is not answered.
  const wanted = i.drops.length > 0 && i.version > 0;
  const asked = useAsk<Told>(wanted ? `/api/v1/incidents/${encodeURIComponent(i.id)}/prevention?version=${i.version}` : null);
  if (!wanted) return null;
  return (
    <section id="prevention" aria-labelledby="prevented">
      <h2 id="prevented">What would have prevented it</h2>
      {asked.state === "waiting" && <Wait what="the replay" />}
      {asked.state === "failed" && <p class="quiet">Not known: {asked.error.message}</p>}
      {asked.state === "there" && (asked.value.answer ? <Answer told={asked.value.answer} /> : <Refused told={asked.value} />)}
    </section>
  );
}
