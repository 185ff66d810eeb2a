// What the collector says, in its own names (interfaces: /api/v1). Fields may be added within v1: whatever is not needed here is not
// named here, and what a collector may leave out is optional.

export type Severity = "critical" | "warning" | "info";
export type Role = "root" | "pushback" | "batch" | "drop";

export interface Culprit { pid: number; comm: string; workload: string; share: number }

/** Where in its code a process ran, or its threads waited: functions, the innermost first; none: in the kernel for itself. */
export interface Code {
  doing: "running" | "waiting"; pid: number; comm: string; percent: number; samples: number; frames: string[];
  /** Who called the last of them is not known, or not told. */
  cut?: boolean;
}

export interface Root {
  host: string; workload: string; tier: string; resource: string;
  start_unix_ns: number; end_unix_ns: number; peak: number; unit: string;
  culprits: Culprit[]; evidence: string;
  /** Up to three places in the code of whoever it is, that with most samples first. */
  code?: Code[];
}

/** Where a tier was on its curve of load against throughput. */
export interface Congestion {
  state: string; congestion_point: number | null; throughput_usual: number | null; load_max: number; throughput: number; windows_frozen: number | null;
}

/** A tier from its onset to the newest window of its incident. */
export interface Life {
  start_unix_ns: number; end_unix_ns: number; queued_max: number; received: number; answered: number; dropped: number;
  now: { start_unix_ns: number; queued: number; workers_busy: number; accept_queue: number } | null;
}

/** What keeps drops alive now that their root is over. */
export interface Sustained {
  by: string; since_unix_ns: number; until_unix_ns: number; retry_share: number; way_out: string; evidence: string;
  host: string; workload: string; listener: string;
}

export interface Hop {
  host: string; workload: string; tier: string; listener: string; role: Role; onset_unix_ns: number;
  /** Whether an agent sees it. If not, `queued_max` are the calls to it that its observed caller had in flight, and the other numbers are not known. */
  observed?: boolean;
  /** Its agent does not measure requests: queued and workers are not known. */
  requests_unknown?: boolean;
  /** Its connections carry several exchanges at once: requests and workers are not known, and queued are pieces of data that nothing was said to. */
  connections_only?: boolean;
  order_to_root?: "before" | "after" | "unknown" | null;
  congestion?: Congestion | null;
  /** The same over the whole life of the incident; the numbers here are those of its onset. */
  life?: Life | null;
  queued_max: number; workers_busy_max: number; workers_limit: number | null;
  accept_queue_max: number; accept_queue_limit: number | null;
  pool_in_flight_max: number | null; pool_open: number | null;
  /** Its slowest requests, slowest first: of an incident that is pushed or listed one, of one that is asked for by its id up to 20. */
  slowest?: Exemplar[];
}

/** Where the time of a request went in one tier. */
export interface Spent { retried_ms: number; unread_ms: number; queued: boolean; inside_ms: number }

/** A call on the way of a request, 1 deep if it is of the tier itself. */
export interface CallLeg {
  depth: number; host: string; workload: string; tier: string; after_ms: number; took_ms: number;
  connecting?: boolean; aborted?: boolean; there?: Spent; calls_unknown?: boolean;
}

/** A request that took 200 ms or longer. */
export interface Exemplar extends Spent {
  end_unix_ns: number; took_ms: number; aborted?: boolean; calls_known: boolean; calls?: CallLeg[]; calls_left_out?: number;
}

/** Whether requests, and those who work at them, are known of a tier. */
export const turns = (hop: Pick<Hop, "requests_unknown" | "connections_only">): boolean => !hop.requests_unknown && !hop.connections_only;

export interface Drops {
  host: string; workload: string; tier: string; listener: string;
  count: number; sk_drops?: number | null; connections: number; reason: string; first_unix_ns: number; last_unix_ns: number;
}

/** Requests that took a second or longer, where clients feel them, by where most of that time went. */
export interface VeryLong { retransmitted: number; queued: number; unread: number; inside: number; behind: number }

export interface Incident {
  id: string; version: number; state: "open" | "closed"; kind: string; severity: Severity; confidence: number;
  title: string; start_unix_ns: number; end_unix_ns: number; clock_error_ns: number;
  root: Root; hops: Hop[]; drops: Drops[];
  vlrt: { syn_retransmits: number | null; expected: number; clients: { address: string; count: number }[]; by_kind?: VeryLong | null };
  alternatives: { root: Root; confidence: number }[];
  /** Further causes that filled the same queue, with the part of what waited that waited for each. */
  also?: { root: Root; share: number }[];
  /** What spoke against the root, in clauses. */
  against?: string[];
  /** What else happened on its way around its onset, in clauses. */
  context?: string[];
  /** What whoever is on call can do about it, a sentence without its full stop. */
  do_now?: string | null;
  sustained?: Sustained | null;
}

export type Values = (number | null)[];

export interface TierRow {
  host: string; workload: string; tier: string; listener: string;
  queued_requests: Values; accept_queue_depth: Values; workers_busy: Values; drops: Values; calls_in_flight: Values;
  /** Connections begun in the window whose SYN had to be sent again. Empty or not there: no client is observed, or not known any more. */
  retried?: Values;
}

export interface Timeline {
  start_unix_ns: number; window_ns: number; tiers: TierRow[];
  resource: { metric: string; values: Values } | null;
}

export interface Point { start_unix_ns: number; min: number; max: number; mean: number; windows: number }

export interface Series {
  window_ns: number;
  /** Of the one metric that was asked for. */
  points?: Point[];
  /** Of several, by metric. */
  series?: Record<string, Point[]>;
  oldest_unix_ns?: number; newest_unix_ns?: number; step_ns?: number;
}

/** Where a part of the answers ends: at a time, or in the bucket that has no upper edge. Both `null`: there was no answer. */
export interface Quantile { ms: number | null; at_least_ms: number | null }

/** Answers by response time, of windows in memory. */
export interface Responses {
  /** What `[[sla]]` sets. */
  within_ms: number;
  points: {
    start_unix_ns: number; windows: number; answers: number; p50: Quantile; p99: Quantile;
    /** Share of the answers within it: between the two, as it may lie inside of a bucket. */
    within: { least: number; most: number } | null;
  }[];
}

/** Covered, sampled (polled: peaks between two looks are missed), or not covered. */
export interface Coverage { signal: string; covered: boolean; sampled?: boolean; hook: string; reason: string }

export interface Agent {
  host: string; connected: boolean; peer: string | null; since_unix_ns: number; agent_version: string;
  kernel_release: string; cpus: number; scope_cgroup: string; coverage: Coverage[];
  clock: { error_ns?: number }; batches: number; batches_refused: number; windows_lost: number;
  newest_window_end_unix_ns: number; cpu_ratio: number; kernel_cpu_ratio?: number; resident_bytes: number; shed_signals: string[];
}

export interface Topology {
  nodes: { host: string; workload: string; tier: string; listeners: string[] }[];
  edges: { from_host: string; from_workload: string; remote: string; to_host: string | null; to_workload: string | null }[];
}

export interface Recent { last: number | null; mean: number | null; max: number | null; sum: number | null }
export interface Now { host: string; workload: string | null; start_unix_ns: number; metrics: Record<string, Recent>; trail: Values }
export interface NowAnswer { now_unix_ns: number; window_ns: number; windows: number; hosts: Now[]; workloads: Now[] }

export interface HostInventory {
  host: string; oldest_unix_ns: number; newest_unix_ns: number;
  /** `null`: not known, as of a host whose windows are on disk only. */
  workloads: { name: string; cgroup: string; comm: string; cpu_quota_ns: number | null; listeners: string[]; remotes: string[] | null }[];
}

/** What the collector shows in place of agents: a file that it has read to its end. */
export interface Recording {
  file: string; start_unix_ns: number; end_unix_ns: number; windows_from_unix_ns: number;
  incidents: number; incidents_dropped: number; records: number; torn: string | null; refused: number;
}

export interface Status { store_degraded: string | null; recording?: Recording | null }

/** A number with its 95 % interval. */
export interface Range { value: number; low: number; high: number }
/** Told with its class (`measured`, `plateau`, `extrapolated`), or refused with the reason and, as a sentence, why. */
export type Answer<T> = { class: string; value: T } | { refused: { reason: string }; why?: string };
/** `at_most: null`: no upper end was seen, as far as `seen_to`. */
export interface Pool { advised: number; at_least: number; at_most: number | null; seen_to: number }
/** Answers per second with so many requests in flight; `error` is its standard error. */
export interface CurvePoint { in_flight: number; throughput: number; error: number }

/** CPU time of a request, s, among so many in flight; `error_s` is its standard error. */
export interface CostPoint { in_flight: number; cpu_s: number; error_s: number }

/** What a server bears of the present load; `full_at` times of it fill its CPUs. `overflows_after_s`: a standstill that overflows its accept queue. */
export interface Headroom { per_second: number; cpu_ratio: number | null; full_at: number | null; places: number | null; overflows_after_s: number | null; outlasted: boolean; without_one?: WithoutOne | null }
/** A tier with one server less, in the busiest minute of the last seven days. */
export interface WithoutOne { servers: number; per_second: number; days: number; cpu_ratio: number }

/** What is advised on one listener of one server. `null`: not known. */
export interface TierAdvice {
  tier: string; host: string; workload: string; address: string; port: number; sentence: string; model: string;
  learnt_s: number; seen_to: number; cpu_s_per_request: Range | null; cpus: number | null; critical: string | null;
  pool: Answer<Pool>; throughput_max: Answer<Range>; in_flight: Answer<Range>; expected_loss: Answer<number>;
  left_out: { taint: string; seconds: number }[]; points: CurvePoint[];
  limit_loss?: number | null; held_between_calls?: number | null; costs?: CostPoint[]; headroom?: Headroom | null;
  servers?: number; visits?: number | null; setting?: string | null; limit?: number | null; limit_set_by?: string | null;
  ceilings?: { what: string; most: number; limit: number; sentence: string }[];
  change?: { at_unix_ns: number; verdict: string; sentence: string } | null;
  little?: { in_flight: number; by_callers: number; holds: boolean } | null;
}

export interface Advice { learning_since_unix_ns: number | null; made_unix_ns?: number | null; nothing?: string | null; systems?: { front: string; sentence: string }[]; stealing?: { host: string; cgroup: string; sentence: string }[]; tiers: TierAdvice[]; refused_listeners: number }

/** Something that was there at some time, whether it still is or not. */
export interface Seen { kind: "host" | "workload" | "listener" | "tier"; host: string; name: string; detail: string; first_unix_ns: number; last_unix_ns: number }

/** The collector's own words, or that it said none. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
  /** Nobody answered. */
  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** One replay of an incident with other sizes. */
export interface Replayed { drops: number[]; p99_s: number | null; goodput: { within_s: number; per_second: number; ratio: number }[] }

/** What would have prevented an incident, or why that is not said. */
export interface Prevention {
  id: string; version: number; why: string | null;
  /** Where there is no answer: the accept queue that would have held all that came. */
  queue: { sentence: string } | null;
  answer: {
    first_attempts: number; attempts_factor: number; margin: number; p99_wanted_s: number; assumed: string[]; untried: string[];
    reproduction: { predicted: number; seen: number; ratio: number };
    unchanged: Replayed;
    harder: Replayed;
    candidates: { effect: string; change: string; replayed: Replayed; with_margin: Replayed | null }[];
  } | null;
}

/** Times and matchers of what is not told. What is not there fits everything; `*` stands for any text. */
export interface Silence {
  comment: string; from?: string; until?: string; daily?: string; days?: string[];
  host?: string; workload?: string; tier?: string; listener?: string; kinds?: string[]; hooks?: string[];
}

/** A silence as it is listed. Without `id`, `by` and `made_unix_ns` it is the configuration's. */
export interface Silenced {
  id: string | null; by: string | null; made_unix_ns: number | null;
  /** Whether it is its time. */
  now: boolean;
  /** Messages that were held back since the collector's start, and the newest incidents that they were about. */
  untold: number; incidents: string[];
  /** Whether it covers the incident that was asked about, now. Not there: that one is not in the collector's memory. */
  covers?: boolean;
  silence: Silence;
}

/** What somebody wants not to be told: it ends after so many seconds by the collector's clock, or at `until`. */
export interface Wanted { for_s?: number; silence: Silence }

/** Who asks here; the way is `session` after the form, `open` where nobody is asked. */
export interface Who { name: string; role: string; way: string }
export interface Me { wanted: boolean; who: Who | null }

let refused = (): void => undefined;
/** What happens when the collector wants to know who asks. */
export function whenRefused(then: () => void): void {
  refused = then;
}

/** What is answered, and `null` for a body that is no JSON. */
async function answered(path: string, sent: RequestInit): Promise<{ status: number; body: unknown }> {
  let answer: Response;
  try {
    answer = await fetch(path, sent);
  } catch (e) {
    if (sent.signal?.aborted) throw e;
    throw new ApiError(0, "the collector does not answer");
  }
  const [status, body] = [answer.status, (await answer.json().catch(() => null)) as { error?: string } | null];
  if (status === 401) refused();
  if (!answer.ok) throw new ApiError(status, body?.error ?? `the collector answered ${status}`);
  return { status, body };
}

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const { status, body } = await answered(path, signal ? { signal } : {});
  if (body === null) throw new ApiError(status, `the collector answered ${status}`);
  return body as T;
}

/** Sends JSON; what is answered, `null` where that is nothing. */
export async function post(path: string, body: unknown): Promise<unknown> {
  const sent = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await answered(path, sent)).body;
}

/** With what is `undefined` left out. */
export function query(path: string, parameters: Record<string, string | number | undefined>): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) text.set(name, String(value));
  }
  return `${path}?${text}`;
}

/** A span that was slow or failed, as a way to its trace. */
export interface SlowTrace {
  trace_id: string;
  span_id: string;
  name: string;
  /** `host.name` as whoever sent it says; empty: it does not. */
  host: string;
  start_unix_ns: number;
  end_unix_ns: number;
  error: boolean;
  /** Where it can be opened; absent: nowhere is configured. */
  link?: string;
}

/** The slowest traces that passed while an incident lasted. */
export interface Traces {
  id: string;
  state: "off" | "gathering" | "settled" | "missed";
  slower_than_ms: number | null;
  /** `tier`: a tier or workload on the incident's way has exactly that name. */
  services: { service: string; tier: string | null; traces: SlowTrace[] }[];
}
