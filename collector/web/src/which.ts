// Which incidents are asked for by place: what a name finds is what it finds in the API (collector/model/src/incident/which.rs).
import type { Incident } from "./api";
import { bareName } from "./words";

interface Place { tier: string; workload: string; host: string }

const called = (name: string, p: Place): boolean => [p.tier, p.workload, p.host, bareName(p.workload)].includes(name);
const through = (i: Incident): Place[] => [i.root, ...i.hops, ...i.drops];

/** Whether its root is the tier, workload or host of this name. */
export const rootedAt = (i: Incident, name: string): boolean => called(name, i.root);

/** Whether one of that name is its root, on the way from it, or dropped. */
export const goesThrough = (i: Incident, name: string): boolean => through(i).some((p) => called(name, p));

const names = (places: Place[]): string[] => [...new Set(places.map((p) => p.tier).filter((tier) => tier !== ""))].sort();

/** The tiers that are roots of some, by name. An incident whose cause is being determined has none yet. */
export const rootsOf = (all: Incident[]): string[] => names(all.filter((i) => i.version > 0).map((i) => i.root));

/** The tiers that some go through, by name. */
export const servicesOf = (all: Incident[]): string[] => names(all.flatMap(through));
