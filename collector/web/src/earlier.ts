// What was seen before of an incident: earlier ones of the same cause at the same tier that went the same way. `tailwater explain` counts them
// by the same rule (collector/src/draw/earlier.rs).
import type { Incident } from "./api";

/** Tiers of the same names that have no host in common are another application's. */
export const alike = (a: Incident, b: Incident): boolean =>
  a.root.resource === b.root.resource &&
  a.root.tier === b.root.tier &&
  a.hops.length === b.hops.length &&
  a.hops.every((hop, n) => hop.tier === b.hops[n]?.tier) &&
  a.hops.some((hop) => b.hops.some((other) => other.host === hop.host));

/** Those of a list that began before an incident and are like it, the newest first. */
export const earlier = (of: Incident, all: Incident[]): Incident[] =>
  all
    .filter((i) => i.id !== of.id && i.start_unix_ns < of.start_unix_ns && alike(i, of))
    .sort((a, b) => b.start_unix_ns - a.start_unix_ns);
