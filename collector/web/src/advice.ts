// Advice on pools in words, and what its curve shows. Pure; knows no component and no address.
import type { Answer, Headroom, Pool, Range, TierAdvice, WithoutOne } from "./api";
import { length } from "./time";
import { number, plural } from "./words";

/** What a class says of a number. */
export const CLASSES: Record<string, string> = {
  measured: "Loads on both sides of the best one were seen.",
  plateau: "The hardware was full, and more in flight brought nothing as far as was seen.",
  extrapolated: "A lower bound, which says only what is too little: more may be better.",
  refused: "What was seen does not answer it, so there is no number.",
};

const LEFT_OUT: Record<string, string> = {
  steal: "the hypervisor took CPU",
  io: "it waited for disk",
  memory: "it was held up by memory",
  throttled: "a quota that it did not use up itself held it up",
  stopped: "threads were stopped",
  neighbour: "others had the CPU",
  downstream: "it waited for tiers below",
  incident: "an incident was open",
  not_measured: "not everything was measured",
  shared_cpu: "its CPU time is told together with that of others",
  multiplexed: "connections carried several requests at a time",
};
export const leftOut = (taint: string): string => LEFT_OUT[taint] ?? taint.replaceAll("_", " ");

export const told = <T>(answer: Answer<T>): answer is { class: string; value: T } => "value" in answer;
export const classOf = <T>(answer: Answer<T>): string => (told(answer) ? answer.class : "refused");
/** Why there is no number, as a sentence; without one the reason's name. `null`: there is a number. */
export const whyNot = <T>(answer: Answer<T>): string | null => (told(answer) ? null : answer.why ?? answer.refused.reason.replaceAll("_", " "));

/** The sentence in two: the listener that it begins with, which is a link, and the rest. */
export function lineOf(t: TierAdvice): { name: string; rest: string } {
  const name = `${t.tier}:${t.port}`;
  return { name, rest: t.sentence.startsWith(name) ? t.sentence.slice(name.length) : `: ${t.sentence}` };
}

/** What fewer and more cost. An end that was not seen is said to be so. */
export function endsOf(answer: { class: string; value: Pool }): string {
  const { at_least, at_most, seen_to } = answer.value;
  if (answer.class === "extrapolated") return `no upper end was seen up to ${number(seen_to)} in flight`;
  if (at_most === null) return `${at_least} or more; no upper end was seen up to ${number(seen_to)} in flight`;
  return `${at_least} to ${at_most} cost at most 2 %`;
}

export const seconds = (s: number): string => length(s < 60 ? s * 1000 : Math.round(s) * 1000);
export const rangeOf = (r: Range, times = 1): string => `${number(r.value * times)} (${number(r.low * times)} to ${number(r.high * times)})`;
/** A part of a whole of which tenths of a percent matter. */
export const part = (ratio: number): string => (ratio > 0 && ratio < 0.001 ? "below 0.1 %" : `${Number((ratio * 100).toFixed(1))} %`);

/** How long it may stand still before its accept queue overflows. */
export function standstill(h: Headroom): string {
  if (h.overflows_after_s !== null) return `its accept queue overflows after ${length(h.overflows_after_s * 1000)} (${number(h.places ?? 0)} places)`;
  return h.outlasted ? "its callers cannot fill its accept queue" : "when its accept queue overflows is not known";
}

/** What the other servers of a tier bear when one is away. */
export function withoutOne(of: WithoutOne): string {
  const when = of.days === 1 ? "of the day that was seen" : `of ${of.days} days`;
  return `CPU of the ${plural(of.servers, "server")} that ${of.servers === 1 ? "is" : "are"} left: ${part(of.cpu_ratio)} in the busiest minute ${when} (${number(of.per_second)} requests/s)`;
}

/** What came of a change of sizes: the mark that it is shown with, if it is certain, and the line. */
export function changed(t: TierAdvice): { tone: "good" | "bad" | "quiet"; line: string } | null {
  if (!t.change) return null;
  const { verdict, sentence } = t.change;
  return { tone: verdict === "better" ? "good" : verdict === "worse" ? "bad" : "quiet", line: sentence };
}

/** What is told, and what is refused; each in the collector's order. */
export const parted = (tiers: TierAdvice[]): { advised: TierAdvice[]; refused: TierAdvice[] } => ({
  advised: tiers.filter((t) => told(t.pool)),
  refused: tiers.filter((t) => !told(t.pool)),
});

/** From here on a linear axis would press the bend into its first pixels. */
const LOG_FROM = 100;
/** 95 % of a normal error. */
const ERRORS = 1.96;

/** What is drawn of a tier: points with their 95 % interval, the size that is advised, and the stretch that is as good. */
export interface Curve {
  log: boolean; x: [number, number]; top: number;
  at: number[]; throughput: number[]; low: number[]; high: number[];
  advised: number | null; from: number | null; to: number | null;
  /** Nothing was seen that ends it: drawn without an edge. */
  open: boolean;
  /** The size is a lower bound: nobody knows what is best beyond. */
  bound: boolean;
  /** What full CPUs would answer by what a request costs, where the size rests on that. */
  costs: { at: number; throughput: number }[];
}

/** Marks of a logarithmic axis: 1, 2, 4, 8 … */
export function doublings([from, to]: [number, number]): number[] {
  const marks: number[] = [];
  for (let at = 1; at <= to; at *= 2) if (at >= from) marks.push(at);
  return marks;
}

export function curveOf(t: TierAdvice): Curve | null {
  const points = t.points.filter((p) => p.in_flight > 0).sort((a, b) => a.in_flight - b.in_flight);
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined || first === last) return null;
  const pool = told(t.pool) ? t.pool.value : null;
  const { cpus } = t;
  const costs = t.model === "utilisation" && cpus !== null ? (t.costs ?? []).map((c) => ({ at: c.in_flight, throughput: cpus / c.cpu_s })) : [];
  const most = Math.max(last.in_flight, pool?.advised ?? 0, pool?.at_most ?? 0, ...costs.map((c) => c.at));
  const log = most > LOG_FROM;
  // One position short of the edge, so that the last error bar is whole.
  const x: [number, number] = log ? [Math.min(first.in_flight, 1) / 1.15, most * 1.15] : [0, most * 1.04];
  const high = points.map((p) => p.throughput + ERRORS * p.error);
  return {
    log, x, top: Math.max(...high, ...costs.map((c) => c.throughput)) * 1.06,
    at: points.map((p) => p.in_flight),
    throughput: points.map((p) => p.throughput),
    low: points.map((p) => Math.max(p.throughput - ERRORS * p.error, 0)),
    high,
    advised: pool?.advised ?? null,
    from: pool?.at_least ?? null,
    to: pool === null ? null : pool.at_most ?? x[1],
    open: pool !== null && pool.at_most === null,
    bound: classOf(t.pool) === "extrapolated",
    costs,
  };
}
