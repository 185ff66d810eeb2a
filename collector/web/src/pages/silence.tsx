// One silence: the form that makes it, the button that ends it, and how it is told in a line. Both are for whoever may operate; what is wrong
// with a silence is said in the collector's own words.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError, post, type Incident, type Silence, type Silenced } from "../api";
import { useCell, useNow } from "../cell";
import { loadSilences } from "../live";
import { recording } from "../moment";
import { Moment, Said } from "../parts";
import { operates, who } from "../session";
import { zone } from "../settings";
import { draftOf, EMPTY, endMeant, endOf, ENDS, fitsOf, placed, placesOf, wantedOf, type Draft } from "../silence";
import { length } from "../time";
import { KINDS } from "../words";

/** Whether whoever looks may make silences and end them: of a recording nobody is told in any case. */
export function useOperates(): boolean {
  const known = useCell(who);
  return useCell(recording) === null && operates(known);
}

export function Covers({ s }: { s: Silence }) {
  const fits = fitsOf(s);
  if (fits.length === 0) return <b class="everything">everything</b>;
  return <>{fits.map(({ name, value }, n) => <span key={name}>{n > 0 && ", "}<span class="matcher">{name}</span> <b>{value}</b></span>)}</>;
}

export function Until({ s, now }: { s: Silence; now: number }) {
  const end = endOf(s);
  if (end === null) return <>{s.until === undefined ? "for ever" : `until ${s.until}`}</>;
  return <>until <Moment ms={end} toMinute /> <span class="left">({inMinutes(end - now)} left)</span></>;
}

/** A length that is read, not measured. */
const inMinutes = (ms: number): string => (ms < 60_000 ? "less than a minute" : length(Math.round(ms / 60_000) * 60_000));

export const byWhom = (one: Silenced): string => (one.id === null ? "by the configuration" : one.by ? `by ${one.by}` : "by somebody without a token");

/** Asks, and afterwards for all silences anew; what the collector refuses, in its words. */
async function change<T>(path: string, body: unknown): Promise<{ done: T } | { refused: string }> {
  try {
    const done = (await post(path, body)) as T;
    await loadSilences();
    return { done };
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    return { refused: e.message };
  }
}

export function EndSilence({ one, told }: { one: Silenced; told: (text: string) => void }) {
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  if (!useOperates() || one.id === null) return null;
  const end = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    const of = await change("/api/v1/silences/end", { id: one.id });
    setBusy(false);
    if ("refused" in of) setWrong(of.refused);
    else told(`${one.id} has ended. What goes on and was not told is told with its next change.`);
  };
  return (
    <>
      <button type="button" class="chip end" aria-busy={busy} onClick={() => void end()} aria-label={`End ${one.id}: ${one.silence.comment}`}>End</button>
      {wrong !== null && <p class="wrong" role="alert"><Said text={wrong} /></p>}
    </>
  );
}

/** The button, and the form that it opens: about what is like an incident, or about anything. */
export function MakeSilence({ like, told }: { like: Incident | null; told: (text: string) => void }) {
  const [open, setOpen] = useState(false);
  if (!useOperates()) return null;
  return (
    <>
      <button id="silence" type="button" class="chip" onClick={() => setOpen(true)} title={`${like ? "tell nobody of what is like this, for a while" : "tell nobody of something, for a while"} (s)`} aria-haspopup="dialog">Silence …</button>
      {open && <Form like={like} close={() => setOpen(false)} told={told} />}
    </>
  );
}

type Write = (name: keyof Draft, value: string) => void;

function Form({ like, close, told }: { like: Incident | null; close: () => void; told: (text: string) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [draft, setDraft] = useState<Draft>(() => (like ? draftOf(like) : EMPTY));
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const in_ = useCell(zone);
  // Before the next key comes: it is the reason's first letter.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const write: Write = (name, value) => setDraft((before) => ({ ...before, [name]: value }));
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setWrong(null);
    const made = await change<Silenced>("/api/v1/silences", wantedOf(draft, in_, Date.now()));
    setBusy(false);
    if ("refused" in made) return setWrong(made.refused);
    // Closed by its own method, it gives the keyboard back to the button.
    dialog.current?.close();
    told(`${made.done.id} holds. It ends by itself; whoever may operate can end it before.`);
  };
  const text = (name: "host" | "workload" | "tier" | "listener" | "hooks", label: string, hint: string) => (
    <label>{label}<input type="text" name={name} value={draft[name]} placeholder={hint} spellcheck={false} autocomplete="off" autocapitalize="off" onInput={(e) => write(name, e.currentTarget.value)} /></label>
  );
  const places = like ? placesOf(like) : [];
  return (
    <dialog ref={dialog} class="form" aria-labelledby="silence-title" onClose={close}>
      <form noValidate onSubmit={(event) => void submit(event)}>
        <h2 id="silence-title">{like ? "Silence what is like this" : "Silence"}</h2>
        <label>Reason<input type="text" name="comment" value={draft.comment} placeholder="why nobody is told, for whoever finds it" autocomplete="off" aria-invalid={wrong !== null && draft.comment.trim() === ""} onInput={(e) => write("comment", e.currentTarget.value)} /></label>
        <End end={draft.end} write={write} />
        <fieldset>
          <legend>Covers</legend>
          {places.length > 0 && (
            <div class="choices" role="group" aria-label="Fill in from the incident">
              {places.map((p) => (
                <button key={p.name} type="button" class="chip" aria-pressed={draft.host === p.host && draft.workload === p.workload} onClick={() => setDraft(placed(draft, p))}>
                  {p.what === "root" ? "root" : "dropped"}: {p.name}
                </button>
              ))}
            </div>
          )}
          <div class="fields">
            {text("host", "Host", "any")}
            {text("workload", "Workload", "any")}
            {text("tier", "Tier", "any")}
            {text("listener", "Listener of a drop", "any ADDRESS:PORT")}
            <label>Kind
              <select name="kind" value={draft.kind} onChange={(e) => write("kind", e.currentTarget.value)}>
                <option value="">any</option>
                {Object.entries(KINDS).map(([kind, { name }]) => <option key={kind} value={kind}>{name}</option>)}
              </select>
            </label>
            {text("hooks", "Hooks", "all, or NAME, NAME")}
          </div>
          <p class="quiet"><code>*</code> stands for any text. One place, a drop or the root, must fit all that is given.</p>
          {like !== null && like.drops.length > 0 && <p class="quiet">A drop is told at once, as a local overflow of the tier that dropped: a silence of another root or kind lets that first message through.</p>}
        </fieldset>
        <div class="submit">
          <p class="summary">Not told: <Covers s={wantedOf(draft, in_, 0).silence} /></p>
          {wrong !== null && <p class="wrong" role="alert"><Said text={wrong} /></p>}
          <div class="actions">
            <button type="submit" class="chip main" aria-busy={busy}>Silence</button>
            <button type="button" class="chip" onClick={() => dialog.current?.close()}>Cancel</button>
          </div>
        </div>
      </form>
    </dialog>
  );
}

function End({ end, write }: { end: string; write: Write }) {
  const in_ = useCell(zone);
  const now = useNow(1000);
  const meant = endMeant(end, in_, now);
  return (
    <fieldset>
      <legend>Ends</legend>
      <div class="choices" role="group" aria-label="Common lengths">
        {ENDS.map(([value, name]) => <button key={value} type="button" class="chip" aria-pressed={end.trim() === value} onClick={() => write("end", value)}>{name}</button>)}
      </div>
      <input type="text" name="end" value={end} placeholder="2h, 06:00 or 2026-11-27 06:00" spellcheck={false} autocomplete="off" autocapitalize="off" aria-label="Ends after a time, or at a moment" aria-describedby="silence-end" onInput={(e) => write("end", e.currentTarget.value)} />
      <p id="silence-end" class="quiet">{meant === null ? "A time such as 45m, 2h or 1d, or a moment such as 06:00." : <>That is <Moment ms={meant} toMinute />.</>}</p>
    </fieldset>
  );
}
