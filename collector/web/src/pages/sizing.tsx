// What each tier's pool should be: a line to act on, what it rests on, and the curve behind it; below, what has no size and why.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { CLASSES, changed, classOf, curveOf, endsOf, leftOut, lineOf, part, parted, rangeOf, seconds, standstill, told, whyNot, withoutOne } from "../advice";
import type { Advice, Answer, Range, TierAdvice } from "../api";
import { Curve } from "../curve";
import { Moment, Note, useAsk, Wait } from "../parts";
import { hostAddress } from "../route";
import { msOf } from "../time";
import { number, plural } from "../words";

/** The collector works it out anew every minute. */
const EVERY_MS = 15_000;
/** Of what was left out, the reasons that are shown at once. */
const REASONS_SHOWN = 4;

const keyOf = (t: TierAdvice): string => `${t.host} ${t.workload} ${t.address} ${t.port}`;

function Class({ answer }: { answer: Answer<unknown> }) {
  const name = classOf(answer);
  return <span class={`badge class ${name}`} title={CLASSES[name]}>{name}</span>;
}

/** The sentence; its listener is a link that the keys step through. */
function Line({ t }: { t: TierAdvice }) {
  const { name, rest } = lineOf(t);
  return <p class="line"><a class="card-name" href={hostAddress(t.host, { workload: t.workload })}>{name}</a>{rest}</p>;
}

function LeftOut({ t }: { t: TierAdvice }) {
  if (t.left_out.length === 0) return <>nothing</>;
  const row = (l: TierAdvice["left_out"][number]) => <li key={l.taint}><b>{seconds(l.seconds)}</b> {leftOut(l.taint)}</li>;
  const [first, more] = [t.left_out.slice(0, REASONS_SHOWN), t.left_out.slice(REASONS_SHOWN)];
  return (
    <>
      <ul class="left-out">{first.map(row)}</ul>
      {more.length > 0 && <details><summary>{plural(more.length, "more reason")}</summary><ul class="left-out">{more.map(row)}</ul></details>}
    </>
  );
}

/** A range with its class, or why there is none. */
function Told({ answer, unit }: { answer: Answer<Range>; unit: string }) {
  return told(answer) ? <>{rangeOf(answer.value)} {unit} <Class answer={answer} /></> : <>unknown: {whyNot(answer)}</>;
}

/** What came of the last change of its sizes. */
function Changed({ t }: { t: TierAdvice }) {
  const change = changed(t);
  return change && <p class={`change ${change.tone}`}>Changed: {change.line}.</p>;
}

function Facts({ t }: { t: TierAdvice }) {
  const { pool, little, headroom, setting, limit, limit_set_by: by, servers } = t;
  return (
    <dl class="pairs">
      {told(pool) && <><dt>Pool{servers !== undefined && servers > 1 ? `, each of ${servers} servers` : ""}</dt><dd><b>{pool.class === "extrapolated" ? `at least ${pool.value.at_least}` : pool.value.advised}</b>; {endsOf(pool)}</dd></>}
      <dt>Set now</dt><dd>{limit ?? "limit unknown"}{by ? <>, by <code>{by}</code></> : setting ? <> · <code>{setting}</code></> : null}</dd>
      <dt>Learnt from</dt><dd>{seconds(t.learnt_s)} of traffic</dd>
      <dt>Seen up to</dt><dd>{t.seen_to > 0 ? `${number(t.seen_to)} in flight` : "no number in flight had enough answers"}</dd>
      <dt>Left out</dt><dd><LeftOut t={t} /></dd>
      <dt>Best in flight</dt><dd><Told answer={t.in_flight} unit="in each server" /></dd>
      <dt>Throughput at most</dt><dd><Told answer={t.throughput_max} unit={t.visits == null ? "of its own requests/s" : "requests of the system/s"} /></dd>
      <dt>Expected loss</dt><dd>{told(t.expected_loss) ? `${part(t.expected_loss.value)} of the best throughput` : `unknown: ${whyNot(t.expected_loss)}`}</dd>
      {(t.ceilings ?? []).flatMap((c) => [<dt key={`${c.sentence} is`}>Ceiling</dt>, <dd key={c.sentence}>{c.sentence}</dd>])}
      {t.limit_loss != null && <><dt>All {limit} in use</dt><dd>cost {part(t.limit_loss)} of the best throughput</dd></>}
      <dt>CPU of a request</dt><dd>{t.cpu_s_per_request === null ? "unknown" : `${rangeOf(t.cpu_s_per_request, 1000)} ms`}{t.cpus === null ? "" : `, of ${number(t.cpus)} CPU${t.cpus === 1 ? "" : "s"}`}</dd>
      <dt>Critical</dt><dd>{t.critical === null ? "no hardware was seen full" : t.critical === "cpu" ? "CPU" : t.critical}</dd>
      {headroom && <><dt>Now</dt><dd>{number(headroom.per_second)} requests/s{headroom.cpu_ratio === null ? "" : `, ${part(headroom.cpu_ratio)} of its CPU; full at ${number(headroom.full_at ?? 0)} times that`}</dd></>}
      {headroom?.without_one && <><dt>Without one</dt><dd>{withoutOne(headroom.without_one)}</dd></>}
      {headroom && <><dt>Standstill</dt><dd>{standstill(headroom)}</dd></>}
      {little && <><dt>Little's law</dt><dd class={little.holds ? undefined : "unheld"}>{little.holds ? "holds" : "does not hold"}: {number(little.in_flight)} in flight here, {number(little.by_callers)} by its callers</dd></>}
    </dl>
  );
}

function Advised({ t }: { t: TierAdvice }) {
  const curve = useMemo(() => curveOf(t), [t]);
  return (
    <li class="card advice" data-listener={keyOf(t)}>
      <Line t={t} />
      <p class="quiet evidence-class"><Class answer={t.pool} /> {CLASSES[classOf(t.pool)]}</p>
      <Changed t={t} />
      <div class="columns">
        {curve ? <Curve label={lineOf(t).name} curve={curve} /> : <p class="absent">A curve needs two numbers in flight with answers.</p>}
        <Facts t={t} />
      </div>
    </li>
  );
}

function Refused({ t }: { t: TierAdvice }) {
  const { name } = lineOf(t);
  return (
    <li class="card refusal" data-listener={keyOf(t)}>
      <p class="line"><a class="card-name" href={hostAddress(t.host, { workload: t.workload })}>{name}</a> <Class answer={t.pool} /></p>
      <p class="why-not">No size: {whyNot(t.pool)}.</p>
      <Changed t={t} />
      <dl class="pairs">
        <dt>Learnt from</dt><dd>{t.learnt_s > 0 ? `${seconds(t.learnt_s)} of traffic` : "nothing yet"}{t.seen_to > 0 ? `, up to ${number(t.seen_to)} in flight` : ""}</dd>
        <dt>Left out</dt><dd><LeftOut t={t} /></dd>
      </dl>
    </li>
  );
}

const NEEDS = "A curve needs requests at several different numbers in flight, and some of them while the CPU, or the pool itself, was full. It comes from traffic as it is: nothing is stopped and no load is made.";

function Awaited({ advice }: { advice: Advice }) {
  const since = advice.learning_since_unix_ns;
  return (
    <Note title="No size is advised yet.">
      <p>{since === null ? "Nothing was learnt so far." : <>Learning since <Moment ms={msOf(since)} />.</>} {NEEDS}</p>
      {advice.nothing && <p>Now: {advice.nothing}.</p>}
    </Note>
  );
}

export function Sizing() {
  const asked = useAsk<Advice>("/api/v1/advice", EVERY_MS);
  useEffect(() => {
    document.title = "Sizing · Tailwater";
  }, []);
  // While nobody answers, what was advised before holds on.
  const last = useRef<Advice | null>(null);
  if (asked.state === "there") last.current = asked.value;
  const advice = last.current;
  const { advised, refused } = useMemo(() => parted(advice?.tiers ?? []), [advice]);
  const since = advice?.learning_since_unix_ns ?? null;
  return (
    <main class="sizing">
      <h1>Sizing</h1>
      {asked.state === "waiting" && <Wait what="the advice" />}
      {asked.state === "failed" && <Note tone="bad" title="The advice cannot be read."><p>{asked.error.message}{advice && ". What is shown is from before."}</p></Note>}
      {advice && advised.length > 0 && since !== null && <p class="quiet">How many requests at a time each pool should let in, learnt from traffic since <Moment ms={msOf(since)} />.</p>}
      {advice && advised.length === 0 && <Awaited advice={advice} />}
      {(advice?.systems ?? []).map((s) => <p class="system" key={s.front}>{s.sentence}.</p>)}
      {(advice?.stealing ?? []).map((s) => <p class="system" key={`${s.host} ${s.cgroup}`}>{s.sentence}.</p>)}
      {advised.length > 0 && <ul class="advised">{advised.map((t) => <Advised key={keyOf(t)} t={t} />)}</ul>}
      {refused.length > 0 && (
        <section aria-labelledby="refused">
          <h2 id="refused">Without a size <span class="quiet">{plural(refused.length, "listener")}</span></h2>
          <ul class="cards">{refused.map((t) => <Refused key={keyOf(t)} t={t} />)}</ul>
        </section>
      )}
      {advice && advice.refused_listeners > 0 && <p class="quiet beyond">{plural(advice.refused_listeners, "listener")} more {advice.refused_listeners === 1 ? "is" : "are"} not learnt: there are more than the collector learns.</p>}
    </main>
  );
}
