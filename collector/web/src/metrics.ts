// Which metrics the API has, and what each needs of an agent. Written from collector/src/live/metric.rs by a test
// (TAILWATER_WRITE_DOCS=1 cargo test --test metric_homes), which fails while this is behind: change it there.

export interface Need {
  /** Signals without any of which it is unknown. */
  signals: readonly string[];
  /** Polling does not tell it. */
  hooks?: boolean;
}

const needs = {
  cpu_busy_ratio: { signals: ["cpu"] },
  cpu_steal_ratio: { signals: ["cpu"] },
  cpu_iowait_ratio: { signals: ["cpu"] },
  cpu_throttled_ratio: { signals: ["throttling"] },
  run_queue_wait_tasks: { signals: ["run_queue"] },
  run_queue_wait_max_ms: { signals: ["run_queue"], hooks: true },
  blocked_io_tasks: { signals: ["block_io"] },
  stopped_threads: { signals: ["cpu"], hooks: true },
  memory_stall_tasks: { signals: ["memory"] },
  swap_ins: { signals: ["memory"], hooks: true },
  io_bytes: { signals: ["block_io"], hooks: true },
  io_flushes: { signals: ["block_io"], hooks: true },
  device_in_flight: { signals: ["block_io"] },
  device_latency_ms: { signals: ["block_io"] },
  device_latency_max_ms: { signals: ["block_io"], hooks: true },
  queued_requests: { signals: ["accept_queue", "requests"] },
  accept_queue_depth: { signals: ["accept_queue"] },
  accept_queue_limit: { signals: ["accept_queue"] },
  accept_queue_wait_ms: { signals: ["accept_queue"], hooks: true },
  connections_arrived: { signals: ["accept_queue"], hooks: true },
  connections_accepted: { signals: ["accept_queue"], hooks: true },
  workers_busy: { signals: ["requests"] },
  drops: { signals: ["accept_queue"] },
  syn_ack_retransmits: { signals: ["accept_queue"], hooks: true },
  requests_received: { signals: ["requests"] },
  requests_answered: { signals: ["requests"] },
  requests_aborted: { signals: ["requests"] },
  requests_in_time: { signals: ["requests"] },
  requests_late: { signals: ["requests"] },
  requests_very_late: { signals: ["requests"] },
  response_time_ms: { signals: ["requests"] },
  response_time_max_ms: { signals: ["requests"] },
  multiplexed_connections: { signals: ["requests"] },
  multiplexed_bytes_in: { signals: ["requests"] },
  multiplexed_bytes_out: { signals: ["requests"] },
  unanswered_pieces: { signals: ["requests"] },
  calls_in_flight: { signals: ["calls"] },
  connections_open: { signals: ["calls"] },
  calls_answered: { signals: ["calls"] },
  call_time_ms: { signals: ["calls"] },
  call_time_max_ms: { signals: ["calls"] },
  syn_retransmits: { signals: ["retransmits"] },
  data_retransmits: { signals: ["retransmits"] },
} satisfies Record<string, Need>;

export type MetricName = keyof typeof needs;
export const NEEDS: Record<MetricName, Need> = needs;
