// What is not told: the silences that hold or whose time comes, whose they are, why, what they cover and what they held back.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Silenced } from "../api";
import { useCell, useNow } from "../cell";
import { incidents, silences } from "../live";
import { recording } from "../moment";
import { Awaited, Moment, Note } from "../parts";
import { storyAddress } from "../route";
import { zone } from "../settings";
import { beginOf, hoursOf, sorted, stageOf } from "../silence";
import { clock, day, msOf } from "../time";
import { plural } from "../words";
import { byWhom, Covers, EndSilence, MakeSilence, Until, useOperates } from "./silence";

/** Incidents of a silence that are named; the others are counted. */
const NAMED_MAX = 5;

/** Which incidents it held something back of, the newest first. */
function Kept({ ids }: { ids: string[] }) {
  const known = useCell(incidents);
  const in_ = useCell(zone);
  const newest = [...ids].reverse();
  const name = (id: string): string => {
    const start = known?.find((i) => i.id === id)?.start_unix_ns;
    return start === undefined ? id : `${day(msOf(start), in_)} ${clock(msOf(start), in_).slice(0, 8)}`;
  };
  return (
    <>
      {newest.slice(0, NAMED_MAX).map((id, n) => <span key={id}>{n > 0 && ", "}<a href={storyAddress(id)}>{name(id)}</a></span>)}
      {newest.length > NAMED_MAX && ` and ${newest.length - NAMED_MAX} before`}
    </>
  );
}

function Card({ one, now, told }: { one: Silenced; now: number; told: (text: string) => void }) {
  const s = one.silence;
  const begin = beginOf(s);
  const hours = hoursOf(s);
  const stage = stageOf(one, now);
  return (
    <li class={`card silence ${one.now ? "holds" : ""}`} data-id={one.id ?? "configured"} data-row tabIndex={-1}>
      <div class="card-head">
        <b class="reason">{s.comment}</b>
        <span class={`badge ${one.now ? "silenced" : ""}`}>{stage}</span>
      </div>
      <dl class="pairs">
        <dt>Not told</dt><dd><Covers s={s} /></dd>
        <dt>Ends</dt><dd><Until s={s} now={now} /></dd>
        {begin !== null && begin > now && <><dt>Begins</dt><dd><Moment ms={begin} toMinute /></dd></>}
        {hours !== null && <><dt>Only</dt><dd>{hours}</dd></>}
        <dt>Made</dt><dd>{byWhom(one)}{one.made_unix_ns !== null && <>, <Moment ms={msOf(one.made_unix_ns)} toMinute /></>}{one.id !== null && <span class="id"> {one.id}</span>}</dd>
        <dt>Held back</dt><dd>{one.untold === 0 ? "nothing" : plural(one.untold, "message")} since the collector's start{one.incidents.length > 0 && <>: <Kept ids={one.incidents} /></>}</dd>
      </dl>
      <EndSilence one={one} told={told} />
    </li>
  );
}

function Listed({ id, title, all, now, told }: { id: string; title: string; all: Silenced[]; now: number; told: (text: string) => void }) {
  if (all.length === 0) return null;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title} <span class="quiet">{all.length}</span></h2>
      <ul class="cards">{all.map((one, n) => <Card key={one.id ?? `configured ${n}`} one={one} now={now} told={told} />)}</ul>
    </section>
  );
}

export function Silences() {
  const known = useCell(silences);
  const shown = useCell(recording);
  const may = useOperates();
  const now = useNow(1000);
  const [said, say] = useState<string | null>(null);
  const status = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    document.title = "Silences · Tailwater";
  }, []);
  // The button that was pressed is gone with its silence: the keyboard goes on from what came of it.
  useEffect(() => {
    if (said !== null && document.activeElement === document.body) status.current?.focus();
  }, [said]);
  if (shown !== null) return <main class="silences"><h1>Silences</h1><Note title="This is a recording: nobody is told of what is in it." /></main>;
  if (known === null) {
    return <main class="silences"><Awaited what="silences" /></main>;
  }
  const { holding, coming } = sorted(known.all, now);
  return (
    <main class="silences">
      <div class="title-line"><h1>Silences</h1><MakeSilence like={null} told={say} /></div>
      <p class="quiet">What no hook is told of for a while. It is found, kept and shown all the same, and of what was told before, the end is told.{!may && " Whoever has the role operate can make silences and end them."}</p>
      <p class="done" role="status" tabIndex={-1} ref={status}>{said}</p>
      {holding.length + coming.length === 0 && <Note title="No silence: every incident is told to the hooks that want it." />}
      <Listed id="holding" title="Hold now" all={holding} now={now} told={say} />
      <Listed id="coming" title="To come" all={coming} now={now} told={say} />
    </main>
  );
}
