// Which signals a host and a workload have, in which charts, and what covers them. Data only.
import { bytes, number, percent } from "./words";

export interface PanelLine {
  metric: string; color: string; fill?: boolean; dash?: boolean; bars?: boolean; times?: number; label?: string;
  /** Of /api/v1/responses, not of /api/v1/series. */
  quantile?: boolean;
}
export interface Panel {
  name: string;
  /** Signals of the agent without which the chart means nothing. */
  signals: string[];
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
    name: "CPU", signals: ["cpu"], format: percent, atLeast: 1,
    lines: [
      { metric: "cpu_busy_ratio", color: "queued", fill: true },
      { metric: "cpu_throttled_ratio", color: "root" },
      { metric: "cpu_steal_ratio", color: "calls" },
      { metric: "cpu_iowait_ratio", color: "workers" },
    ],
  },
  { name: "Run queue", signals: ["run_queue"], format: number, lines: [{ metric: "run_queue_wait_tasks", color: "root", fill: true }] },
  {
    name: "Queues", signals: ["accept_queue"], format: number, whole: true,
    lines: [
      { metric: "queued_requests", color: "queued", fill: true },
      { metric: "accept_queue_depth", color: "accept", fill: true },
      { metric: "accept_queue_limit", color: "limit", dash: true },
    ],
  },
  { name: "Drops", signals: ["accept_queue"], format: number, whole: true, lines: [{ metric: "drops", color: "drop", bars: true }] },
  { name: "Workers", signals: ["requests"], format: number, whole: true, lines: [{ metric: "workers_busy", color: "workers", fill: true }] },
  {
    name: "Requests", signals: ["requests"], format: rate,
    lines: [
      { metric: "requests_received", color: "queued", times: PER_SECOND },
      { metric: "requests_answered", color: "accept", times: PER_SECOND },
      { metric: "requests_aborted", color: "drop", times: PER_SECOND },
    ],
  },
  {
    name: "Goodput", signals: ["requests"], format: rate,
    lines: [
      { metric: "requests_in_time", color: "accept", times: PER_SECOND },
      { metric: "requests_late", color: "workers", times: PER_SECOND },
      { metric: "requests_very_late", color: "drop", times: PER_SECOND },
    ],
  },
  {
    name: "Response time", signals: ["requests"], format: ms, sparse: true,
    lines: [
      { metric: "response_time_ms", color: "queued" },
      { metric: "response_time_max_ms", color: "workers" },
    ],
  },
  {
    name: "Response time, by share of answers", signals: ["requests"], format: ms, sparse: true,
    lines: [
      { metric: "response_p50_ms", color: "queued", quantile: true },
      { metric: "response_p99_ms", color: "workers", quantile: true },
      { metric: "response_p99_least_ms", color: "drop", dash: true, quantile: true },
    ],
  },
  {
    name: "Answers in time", within: true, signals: ["requests"], format: percent, atLeast: 1, sparse: true,
    lines: [
      { metric: "within_most_ratio", color: "workers", quantile: true },
      { metric: "within_least_ratio", color: "accept", quantile: true },
    ],
  },
  {
    name: "Connections with several exchanges", signals: ["requests"], format: number, whole: true,
    lines: [
      { metric: "multiplexed_connections", color: "limit", dash: true },
      { metric: "unanswered_pieces", color: "queued", fill: true },
    ],
  },
  {
    name: "Bytes on them", signals: ["requests"], format: (v) => `${bytes(v)}/s`,
    lines: [
      { metric: "multiplexed_bytes_in", color: "queued", times: PER_SECOND },
      { metric: "multiplexed_bytes_out", color: "accept", times: PER_SECOND },
    ],
  },
  {
    name: "Outbound calls", signals: ["calls"], format: number, whole: true,
    lines: [
      { metric: "calls_in_flight", color: "calls", fill: true },
      { metric: "connections_open", color: "limit", dash: true },
    ],
  },
  { name: "Outbound call rate", signals: ["calls"], format: rate, lines: [{ metric: "calls_answered", color: "accept", times: PER_SECOND }] },
  {
    name: "Outbound call time", signals: ["calls"], format: ms, sparse: true,
    lines: [
      { metric: "call_time_ms", color: "calls" },
      { metric: "call_time_max_ms", color: "workers" },
    ],
  },
  {
    name: "Connections", signals: ["accept_queue"], format: rate,
    lines: [
      { metric: "connections_arrived", color: "queued", times: PER_SECOND },
      { metric: "connections_accepted", color: "accept", times: PER_SECOND },
    ],
  },
  {
    name: "Longest waits", signals: ["accept_queue", "run_queue"], format: ms,
    lines: [
      { metric: "accept_queue_wait_ms", color: "accept", label: "in the accept queue" },
      { metric: "run_queue_wait_max_ms", color: "root", label: "for a CPU" },
    ],
  },
  { name: "Disk wait", signals: ["block_io"], format: number, lines: [{ metric: "blocked_io_tasks", color: "root", fill: true }] },
  { name: "Disk throughput", signals: ["block_io"], format: (v) => `${bytes(v)}/s`, lines: [{ metric: "io_bytes", color: "queued", times: PER_SECOND }] },
  { name: "Disk flushes", signals: ["block_io"], format: rate, lines: [{ metric: "io_flushes", color: "root", times: PER_SECOND }] },
  { name: "Block devices", signals: ["block_io"], format: number, ofHost: true, lines: [{ metric: "device_in_flight", color: "queued", fill: true }] },
  {
    name: "Block device latency", signals: ["block_io"], format: ms, sparse: true, ofHost: true,
    lines: [
      { metric: "device_latency_ms", color: "queued" },
      { metric: "device_latency_max_ms", color: "workers" },
    ],
  },
  { name: "Memory stalls", signals: ["memory", "memory_stall"], format: number, lines: [{ metric: "memory_stall_tasks", color: "root", fill: true }] },
  { name: "Swap", signals: ["memory"], format: rate, lines: [{ metric: "swap_ins", color: "root", times: PER_SECOND }] },
  {
    name: "Retransmits", signals: ["retransmits"], format: number, whole: true,
    lines: [
      { metric: "syn_retransmits", color: "vlrt", bars: true },
      { metric: "syn_ack_retransmits", color: "accept" },
      { metric: "data_retransmits", color: "calls" },
    ],
  },
];
