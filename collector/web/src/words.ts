// The field's terms as sentences, and numbers as people read them.
import type { Congestion, Hop, Incident, Root, VeryLong } from "./api";
import type { MetricName } from "./metrics";

export const KINDS: Record<string, { name: string; about: string }> = {
  upstream_ctqo: { name: "Upstream CTQO", about: "The tier that dropped is upstream of the millibottleneck: synchronous calls pushed the queue back to it." },
  downstream_ctqo: { name: "Downstream CTQO", about: "The tier with the millibottleneck, or one downstream of it, dropped while an upstream kept sending." },
  local_overflow: { name: "Local overflow", about: "The tier with the millibottleneck dropped; no observed tier calls it." },
  millibottleneck: { name: "Millibottleneck", about: "A resource was saturated for 50 ms to 2 s and a queue felt it; nothing dropped." },
  persistent_bottleneck: { name: "Persistent bottleneck", about: "The resource was saturated for longer than 2 s." },
  syn_flood: { name: "SYN flood", about: "Drops without any growth of accepted requests." },
  near_overflow: { name: "Near overflow", about: "A queue came close to its limit; nothing dropped." },
};
export const kindName = (kind: string): string => KINDS[kind]?.name ?? kind.replaceAll("_", " ");

export const RESOURCES: Record<string, { did: string; name: string }> = {
  cpu: { did: "used all its CPU", name: "CPU" },
  cpu_neighbour: { did: "waited for the CPU", name: "CPU, taken by a neighbour" },
  cpu_throttled: { did: "was throttled by its CPU quota", name: "CPU quota" },
  cpu_steal: { did: "lost CPU to something outside the machine", name: "stolen CPU" },
  io: { did: "waited for disk", name: "disk" },
  memory: { did: "stalled on memory", name: "memory" },
  lock: { did: "took requests on and answered none", name: "lock" },
  pause: { did: "stopped altogether", name: "pause" },
  event_loop: { did: "blocked its event loop", name: "event loop" },
  dns: { did: "waited for a server of names", name: "DNS" },
  network: { did: "waited for lost packets", name: "lost packets" },
  burst: { did: "got a burst of requests", name: "burst" },
  unexplained: { did: "stalled, unexplained", name: "unexplained" },
};
export const resourceName = (resource: string): string => RESOURCES[resource]?.name ?? resource;
export const resourceDid = (resource: string): string => RESOURCES[resource]?.did ?? resource;

const SUSTAINERS: Record<string, string> = { retries: "kept alive by retries" };
export const sustainedBy = (by: string): string => SUSTAINERS[by] ?? `kept alive by ${by.replaceAll("_", " ")}`;

export const ROLES: Record<string, string> = { root: "root cause", pushback: "pushed back", batch: "sent its batch", drop: "dropped" };

export const REASONS: Record<string, string> = { accept_queue_full: "accept queue full", refused: "accept queue full: refused at once", syn_queue_full: "SYN queue full", other: "other reason" };

/** Where something is, by the whole name of its workload, as whoever opens or silences that workload has to name it; of a host that no agent
 * observes, the host alone. The collector writes places in the same words (`collector/model/src/place.rs`), and `places.txt` there is the table
 * that both are held against. */
export const wholePlaceOf = ({ host, workload }: { host: string; workload: string }): string => (workload ? `${workload}@${host}` : host);

/** A workload's name without the type of systemd's unit: `tomcat10` of `tomcat10.service`. */
export const bareName = (workload: string): string => workload.replace(/\.(service|scope|slice)$/, "");

/** The same place where an incident is told. */
export const placeOf = ({ host, workload }: { host: string; workload: string }): string => wholePlaceOf({ host, workload: bareName(workload) });

export function culprit(root: Root): string {
  const first = root.culprits[0];
  return first ? `${first.comm || first.workload} ${percent(first.share)}` : "";
}

export const count = (n: number): string => n.toLocaleString("en-US");
export const percent = (ratio: number): string => `${Math.round(ratio * 100)} %`;

/** What an agent costs: its own CPU, and that of its kernel programs where it says so. */
export const agentCost = (agent: { cpu_ratio: number; kernel_cpu_ratio?: number }): string => {
  const tenth = (ratio: number) => `${(ratio * 100).toFixed(1)} %`;
  const kernel = agent.kernel_cpu_ratio;
  return `${tenth(agent.cpu_ratio)} of a core${kernel === undefined ? "" : ` and ${tenth(kernel)} in its kernel programs`}`;
};
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** Three digits are enough to read. */
export function number(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return count(Math.round(value));
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return String(Number(value.toFixed(size >= 10 ? 1 : 2)));
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = value;
  let unit = 0;
  while (Math.abs(n) >= 1000 && unit < units.length - 1) {
    n /= 1000;
    unit += 1;
  }
  return `${number(n)} ${units[unit]}`;
}

/** Root first, drop last: the order in which it happened, as `tailwater explain` tells it. */
export function fromRoot(hops: Hop[]): Hop[] {
  return hops[0]?.role === "drop" && hops.length > 1 ? [...hops].reverse() : hops;
}

export const dropped = (i: Incident): number => i.drops.reduce((sum, d) => sum + d.connections, 0);
/** Whether all of it were connections that Unix sockets refused at once. */
export const refused = (i: Incident): boolean => i.drops.length > 0 && i.drops.every((d) => d.reason === "refused");
export const packets = (i: Incident): number => i.drops.reduce((sum, d) => sum + d.count, 0);

/** Requests that took a second or longer: all of them where they are counted, else those that were sent again. */
export const veryLong = (i: Incident): number => (i.vlrt.by_kind ? Object.values(i.vlrt.by_kind).reduce((sum: number, n: number) => sum + n, 0) : i.vlrt.expected);
/** By where they waited, the most frequent first. */
export function veryLongKinds(of: VeryLong): string {
  const all: [number, string][] = [[of.retransmitted, "sent again"], [of.queued, "queued for accept"], [of.unread, "unread"], [of.inside, "inside"], [of.behind, "in tiers behind it"]];
  return all.filter(([n]) => n > 0).sort(([a], [b]) => b - a).map(([n, what]) => `${count(n)} ${what}`).join(", ");
}

export const observed = (hop: Hop): boolean => hop.observed !== false;

/** The connections that its calls are told against: none where each carries several (`carries_several` of model/src/window.rs), as their number limits nobody. */
export const poolOf = ({ pool_in_flight_max: calls, pool_open: open }: Pick<Hop, "pool_in_flight_max" | "pool_open">): number | null =>
  open !== null && open > 0 && 0.95 * (calls ?? 0) > open ? null : open;

/** What a tier did on its curve of load against throughput, as `tailwater explain` tells it. */
export function congested(c: Congestion): { point: string; about: string } {
  const now = `load ${number(Math.round(c.load_max))}, ${number(Math.round(c.throughput))} answers in 50 ms`;
  if (c.state === "known" && c.congestion_point !== null && c.throughput_usual !== null) {
    const frozen = c.windows_frozen ? `, stood still in ${plural(c.windows_frozen, "window")}` : "";
    return { point: number(Math.round(c.congestion_point)), about: `${now} where ${number(Math.round(c.throughput_usual))} are usual${frozen}` };
  }
  const why = { too_few_answers: "too few answers in 50 ms", still_rising: "never congested before" }[c.state] ?? "too few windows yet";
  return { point: "unknown", about: `${why}: ${now}` };
}

/** Metrics of /api/v1/series as they are called on the page. */
export const METRICS: Record<string, string> = {
  cpu_busy_ratio: "CPU busy",
  cpu_steal_ratio: "CPU stolen",
  cpu_iowait_ratio: "idle, waiting for I/O",
  cpu_throttled_ratio: "throttled",
  run_queue_wait_tasks: "tasks waiting for a CPU",
  run_queue_wait_max_ms: "longest wait",
  blocked_io_tasks: "tasks waiting for disk",
  stopped_threads: "threads stopped",
  memory_stall_tasks: "tasks stalled on memory",
  swap_ins: "pages from swap",
  io_bytes: "disk throughput",
  io_flushes: "flushes",
  device_in_flight: "requests at the devices",
  device_latency_ms: "latency, mean",
  device_latency_max_ms: "longest",
  queued_requests: "queued requests",
  accept_queue_depth: "accept queue",
  accept_queue_limit: "accept queue limit",
  accept_queue_wait_ms: "longest wait",
  connections_arrived: "arrived",
  connections_accepted: "accepted",
  workers_busy: "workers busy",
  drops: "dropped packets",
  requests_received: "received",
  requests_answered: "answered",
  requests_aborted: "aborted",
  requests_in_time: "in time",
  requests_late: "late",
  requests_very_late: "very late",
  response_time_ms: "mean",
  response_time_max_ms: "longest",
  multiplexed_connections: "multiplexed connections",
  multiplexed_bytes_in: "received",
  multiplexed_bytes_out: "sent",
  unanswered_pieces: "pieces unanswered",
  calls_in_flight: "calls in flight",
  connections_open: "connections open",
  calls_answered: "answered",
  call_time_ms: "mean",
  call_time_max_ms: "longest",
  syn_retransmits: "SYNs sent again",
  syn_ack_retransmits: "SYN-ACKs sent again",
  data_retransmits: "segments sent again",
} satisfies Record<MetricName, string>;
