import { equal } from "node:assert/strict";
import { test } from "node:test";
import table from "../../model/src/places.txt";
import { placeOf, poolOf, wholePlaceOf } from "./words";

test("places are written as the collector writes them", () => {
  const rows = table.trimEnd().split("\n").slice(1).map((line) => line.split(","));
  equal(rows.some(([workload]) => workload === ""), true, "a host that no agent observes");
  for (const [workload = "", host = "", whole, short] of rows) {
    equal(wholePlaceOf({ host, workload }), whole);
    equal(placeOf({ host, workload }), short);
  }
});

test("connections that carry several calls each are no limit of them", () => {
  const of = (calls: number | null, open: number | null) => poolOf({ pool_in_flight_max: calls, pool_open: open });
  equal(of(4, 4), 4);
  equal(of(101, 100), 100, "maxima of two moments");
  equal(of(40, 4), null);
  equal(of(40, null), null);
  equal(of(null, 4), 4);
});
