import { equal } from "node:assert/strict";
import { test } from "node:test";
import type { Coverage } from "./api";
import { lacking } from "./panels";

const is = (signal: string, covered: boolean, sampled = false): Coverage => ({ signal, covered, sampled, hook: "", reason: "" });

test("a metric lacks a signal of its own that is not measured, and no other", () => {
  const coverage = [is("retransmits", false), is("accept_queue", true), is("requests", true)];
  equal(lacking("syn_retransmits", coverage)?.signal, "retransmits");
  equal(lacking("syn_ack_retransmits", coverage), undefined, "they come from the accept queue");
  equal(lacking("queued_requests", coverage), undefined);
  equal(lacking("queued_requests", [is("requests", true), is("accept_queue", false)])?.signal, "accept_queue", "a part of a sum is not the sum");
  equal(lacking("calls_in_flight", coverage), undefined, "nothing is said of calls");
});

test("what only hooks tell is lacking where its signal is polled", () => {
  const polled = [is("cpu", true, true)];
  equal(lacking("stopped_threads", polled)?.signal, "cpu");
  equal(lacking("cpu_busy_ratio", polled), undefined);
  equal(lacking("stopped_threads", [is("cpu", true)]), undefined);
});
