// Which signals a host and a workload have, in which charts, and what covers them. Data only.
import { bytes, number, percent } from "./words";

export interface PanelLine { metric: string; color: string; fill?: boolean; dash?: boolean; bars?: boolean; times?: number }
export interface Panel {
  name: string;
  /** Signals of the agent without which the chart means nothing. */
  signals: string[];
  lines: PanelLine[];
  format: (value: number) => string;
  atLeast?: number;
  /** Whole numbers only: there is no half of a packet. */
  whole?: boolean;
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
    ],
  },
  { name: "Run queue", signals: ["run_queue"], format: number, lines: [{ metric: "run_queue_wait_tasks", color: "root", fill: true }] },
  {
    name: "Queues", signals: ["accept_queue", "requests"], format: number, whole: true,
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
    ],
  },
  { name: "Response time", signals: ["requests"], format: ms, lines: [{ metric: "response_time_ms", color: "queued" }] },
  {
    name: "Outbound calls", signals: ["calls"], format: number, whole: true,
    lines: [
      { metric: "calls_in_flight", color: "calls", fill: true },
      { metric: "connections_open", color: "limit", dash: true },
    ],
  },
  { name: "Disk wait", signals: ["block_io"], format: number, lines: [{ metric: "blocked_io_tasks", color: "root", fill: true }] },
  { name: "Disk throughput", signals: ["block_io"], format: (v) => `${bytes(v)}/s`, lines: [{ metric: "io_bytes", color: "queued", times: PER_SECOND }] },
  { name: "Memory stalls", signals: ["memory", "memory_stall"], format: number, lines: [{ metric: "memory_stall_tasks", color: "root", fill: true }] },
  { name: "Retransmits", signals: ["retransmits"], format: number, whole: true, lines: [{ metric: "syn_retransmits", color: "vlrt", bars: true }] },
];
