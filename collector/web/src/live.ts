// Incidents as they come, and who reports. One event stream for the page; after a break it goes on where it was, and where something is gone everything
// is asked again.
import { ApiError, ask, query, type Agent, type Incident, type Silenced, type Status } from "./api";
import { LIST_MAX } from "./between";
import { Cell } from "./cell";
import { recording } from "./moment";
import { locked } from "./session";

export type Link = { state: "connecting" } | { state: "live" } | { state: "lost"; since: number };

const AGENTS_EVERY_MS = 5000;
const AGAIN_MS = 2000;
/** Nobody looks at an empty page for longer. */
const DRAWN_WITHIN_MS = 500;

export const link = new Cell<Link>({ state: "connecting" });
/** Newest first; `null`: not known yet. */
export const incidents = new Cell<Incident[] | null>(null);
export const agents = new Cell<Agent[] | null>(null);
/** Why the collector's disk takes nothing; `null`: it does. */
export const degraded = new Cell<string | null>(null);
/** What is not told, and which incident the answer is about; `null`: not known yet. */
export const silences = new Cell<{ about: string | null; all: Silenced[] } | null>(null);
/** The incident that is looked at, of which it matters whether a silence covers it. */
export const about = new Cell<string | null>(null);
/** Came while this page was open: marked for a moment. */
export const fresh = new Set<string>();

let byId = new Map<string, Incident>();
/** The list was answered when it was asked for last. */
let listed = false;

function show(): void {
  incidents.set([...byId.values()].sort((a, b) => b.start_unix_ns - a.start_unix_ns || (a.id < b.id ? 1 : -1)));
}

export async function load(): Promise<void> {
  try {
    const { incidents: all } = await ask<{ incidents: Incident[] }>(`/api/v1/incidents?limit=${LIST_MAX}`);
    const next = new Map<string, Incident>();
    for (const incident of all) {
      const known = byId.get(incident.id);
      next.set(incident.id, known && known.version > incident.version ? known : incident);
    }
    byId = next;
    listed = true;
    show();
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    listed = false;
  }
}

async function loadStatus(): Promise<void> {
  const status = await ask<Status>("/api/v1/status");
  degraded.set(status.store_degraded);
  // It stays the same as long as its server does; a new object would only draw everything anew.
  const shown = status.recording ?? null;
  if (JSON.stringify(shown) !== JSON.stringify(recording.value)) recording.set(shown);
}

async function loadAgents(): Promise<void> {
  if (document.hidden || locked.value) return;
  try {
    agents.set((await ask<{ agents: Agent[] }>("/api/v1/agents")).agents);
    await loadStatus();
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    if (e.unreachable) lost();
  }
}

/** Questions about silences: how many were asked, and the newest that was answered. */
let [asked, answered] = [0, 0];

/** Asks what is not told. An answer that comes after the one to a later question is none. */
export async function loadSilences(): Promise<void> {
  if (document.hidden || locked.value) return;
  const [mine, of] = [(asked += 1), about.value];
  try {
    const { silences: all } = await ask<{ silences: Silenced[] }>(query("/api/v1/silences", { incident: of ?? undefined }));
    if (mine < answered) return;
    answered = mine;
    const next = { about: of, all };
    // The same ones are no reason to draw everything anew.
    if (JSON.stringify(next) !== JSON.stringify(silences.value)) silences.set(next);
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
  }
}
about.watch(() => {
  // Nobody reads whether one covers the incident that was left.
  if (about.value !== null) void loadSilences();
});

/** What is not in the stream of events. */
function again(): void {
  void loadAgents();
  void loadSilences();
}

function lost(): void {
  if (link.value.state !== "lost") link.set({ state: "lost", since: Date.now() });
}

let reload: ReturnType<typeof setTimeout> | undefined;

function arrived(incident: Incident): void {
  const known = byId.get(incident.id);
  if (known && known.version >= incident.version) return;
  if (!known) fresh.add(incident.id);
  byId.set(incident.id, incident);
  show();
  // Its windows may have replaced an early alert under another id: the list says which are left.
  if (incident.version >= 1) {
    clearTimeout(reload);
    reload = setTimeout(() => void load(), 400);
  }
}

/** Behind the last event that came; `null`: none did. */
let cursor: string | null = null;

function listen(): void {
  const after = cursor;
  const source = new EventSource(after === null ? "/api/v1/live" : query("/api/v1/live", { after }));
  const heard = (event: Event): void => {
    cursor = (event as MessageEvent<string>).lastEventId || cursor;
  };
  source.addEventListener("open", () => {
    link.set({ state: "live" });
    if (after === null || !listed) void load();
    again();
  });
  source.addEventListener("incident", (event) => {
    heard(event);
    arrived(JSON.parse((event as MessageEvent<string>).data) as Incident);
  });
  source.addEventListener("lagged", () => void load());
  // A browser that was too slow, a tab in the background: what waits comes behind the cursor.
  source.addEventListener("slow", (event) => {
    heard(event);
    source.close();
    listen();
  });
  source.addEventListener("error", () => {
    // A browser tries again by itself unless it was answered with an error.
    source.close();
    // Whoever is not let in begins anew with a token.
    if (locked.value) return;
    lost();
    setTimeout(listen, AGAIN_MS);
  });
}

/** Resolves when it is known what time the page is about, or that this takes long. */
export async function start(): Promise<void> {
  const status = loadStatus().catch((e: unknown) => {
    // Whoever asks next says that nobody answers.
    if (!(e instanceof ApiError)) throw e;
  });
  void load();
  again();
  listen();
  setInterval(again, AGENTS_EVERY_MS);
  document.addEventListener("visibilitychange", again);
  // One that is slow with this is drawn all the same: what depends on it is drawn again.
  await Promise.race([status, new Promise((late) => setTimeout(late, DRAWN_WITHIN_MS))]);
}
