// Which metrics of a host and a workload are shown, in which charts, and what a chart lacks on a host. Pure; what each metric needs of an
// agent is in `metrics`.
import type { Coverage } from "./api";
import type { ShareName } from "./grid";
import { NEEDS, type MetricName } from "./metrics";
import { bytes, number, percent } from "./words";

export interface PanelLine {
  metric: MetricName; color: string; fill?: boolean; dash?: boolean; bars?: boolean; times?: number; label?: string;
  /** What /api/v1/responses says of the metric's values by bucket, as `quantiles` calls it; without it /api/v1/series is asked. */
  share?: ShareName;
}
export interface Panel {
  name: string;
  lines: PanelLine[];
  format: (value: number) => string;
  atLeast?: number;
  /** Whole numbers only: there is no half of a packet. */
  whole?: boolean;
  /** A value of something that happened: where nothing did, there is none, and that is no gap. */
  sparse?: boolean;
  /** Its name ends in the threshold that is set. */
  within?: boolean;
  /** What a workload's part of it is, nobody knows. */
  ofHost?: boolean;
}

/** Windows of 50 ms in a second: counts per window become rates. */
const PER_SECOND = 20;
const rate = (value: number): string => `${number(value)}/s`;
const ms = (value: number): string => `${number(value)} ms`;

export const PANELS: Panel[] = [
  {
    name: "CPU", format: percent, atLeast: 1,
    lines: [
      { metric: "cpu_busy_ratio", color: "queued", fill: true },
      { metric: "cpu_throttled_ratio", color: "root" },
      { metric: "cpu_steal_ratio", color: "calls" },
      { metric: "cpu_iowait_ratio", color: "workers" },
    ],
  },
  { name: "Run queue", format: number, lines: [{ metric: "run_queue_wait_tasks", color: "root", fill: true }] },
  {
    name: "Queues", format: number, whole: true,
    lines: [
      { metric: "queued_requests", color: "queued", fill: true },
      { metric: "accept_queue_depth", color: "accept", fill: true },
      { metric: "accept_queue_limit", color: "limit", dash: true },
    ],
  },
  { name: "Drops", format: number, whole: true, lines: [{ metric: "drops", color: "drop", bars: true }] },
  { name: "Workers", format: number, whole: true, lines: [{ metric: "workers_busy", color: "workers", fill: true }] },
  {
    name: "Requests", format: rate,
    lines: [
      { metric: "requests_received", color: "queued", times: PER_SECOND },
      { metric: "requests_answered", color: "accept", times: PER_SECOND },
      { metric: "requests_aborted", color: "drop", times: PER_SECOND },
    ],
  },
  {
    name: "Goodput", format: rate,
    lines: [
      { metric: "requests_in_time", color: "accept", times: PER_SECOND },
      { metric: "requests_late", color: "workers", times: PER_SECOND },
      { metric: "requests_very_late", color: "drop", times: PER_SECOND },
    ],
  },
  {
    name: "Response time", format: ms, sparse: true,
    lines: [
      { metric: "response_time_ms", color: "queued" },
      { metric: "response_time_max_ms", color: "workers" },
    ],
  },
  {
    name: "Response time, by share of answers", format: ms, sparse: true,
    lines: [
      { metric: "response_time_ms", share: "response_p50_ms", label: "half within", color: "queued" },
      { metric: "response_time_ms", share: "response_p99_ms", label: "99 % within", color: "workers" },
      { metric: "response_time_ms", share: "response_p99_least_ms", label: "99 % within this or more", color: "drop", dash: true },
    ],
  },
  {
    name: "Answers in time", within: true, format: percent, atLeast: 1, sparse: true,
    lines: [
      { metric: "response_time_ms", share: "within_most_ratio", label: "perhaps within", color: "workers" },
      { metric: "response_time_ms", share: "within_least_ratio", label: "surely within", color: "accept" },
    ],
  },
  {
    name: "Connections with several exchanges", format: number, whole: true,
    lines: [
      { metric: "multiplexed_connections", color: "limit", dash: true },
      { metric: "unanswered_pieces", color: "queued", fill: true },
    ],
  },
  {
    name: "Bytes on them", format: (v) => `${bytes(v)}/s`,
    lines: [
      { metric: "multiplexed_bytes_in", color: "queued", times: PER_SECOND },
      { metric: "multiplexed_bytes_out", color: "accept", times: PER_SECOND },
    ],
  },
  {
    name: "Outbound calls", format: number, whole: true,
    lines: [
      { metric: "calls_in_flight", color: "calls", fill: true },
      { metric: "connections_open", color: "limit", dash: true },
    ],
  },
  { name: "Outbound call rate", format: rate, lines: [{ metric: "calls_answered", color: "accept", times: PER_SECOND }] },
  {
    name: "Outbound call time", format: ms, sparse: true,
    lines: [
      { metric: "call_time_ms", color: "calls" },
      { metric: "call_time_max_ms", color: "workers" },
    ],
  },
  {
    name: "Connections", format: rate,
    lines: [
      { metric: "connections_arrived", color: "queued", times: PER_SECOND },
      { metric: "connections_accepted", color: "accept", times: PER_SECOND },
    ],
  },
  {
    name: "Longest waits", format: ms,
    lines: [
      { metric: "accept_queue_wait_ms", color: "accept", label: "in the accept queue" },
      { metric: "run_queue_wait_max_ms", color: "root", label: "for a CPU" },
    ],
  },
  { name: "Disk wait", format: number, lines: [{ metric: "blocked_io_tasks", color: "root", fill: true }] },
  { name: "Disk throughput", format: (v) => `${bytes(v)}/s`, lines: [{ metric: "io_bytes", color: "queued", times: PER_SECOND }] },
  { name: "Disk flushes", format: rate, lines: [{ metric: "io_flushes", color: "root", times: PER_SECOND }] },
  { name: "Block devices", format: number, ofHost: true, lines: [{ metric: "device_in_flight", color: "queued", fill: true }] },
  {
    name: "Block device latency", format: ms, sparse: true, ofHost: true,
    lines: [
      { metric: "device_latency_ms", color: "queued" },
      { metric: "device_latency_max_ms", color: "workers" },
    ],
  },
  { name: "Memory stalls", format: number, lines: [{ metric: "memory_stall_tasks", color: "root", fill: true }] },
  { name: "Stopped threads", format: number, lines: [{ metric: "stopped_threads", color: "root", fill: true }] },
  { name: "Swap", format: rate, lines: [{ metric: "swap_ins", color: "root", times: PER_SECOND }] },
  {
    name: "Retransmits", format: number, whole: true,
    lines: [
      { metric: "syn_retransmits", color: "vlrt", bars: true },
      { metric: "syn_ack_retransmits", color: "accept" },
      { metric: "data_retransmits", color: "calls" },
    ],
  },
];

/** The signal that a metric lacks on a host: one that is not measured there, or that is polled where only hooks would tell it. */
export function lacking(metric: MetricName, coverage: Coverage[]): Coverage | undefined {
  const { signals, hooks = false } = NEEDS[metric];
  return coverage.find((c) => signals.includes(c.signal) && (!c.covered || (hooks && c.sampled === true)));
}
