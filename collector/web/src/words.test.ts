import { equal } from "node:assert/strict";
import { test } from "node:test";
import table from "../../model/src/places.txt";
import { placeOf, wholePlaceOf } from "./words";

test("places are written as the collector writes them", () => {
  const rows = table.trimEnd().split("\n").slice(1).map((line) => line.split(","));
  equal(rows.some(([workload]) => workload === ""), true, "a host that no agent observes");
  for (const [workload = "", host = "", whole, short] of rows) {
    equal(wholePlaceOf({ host, workload }), whole);
    equal(placeOf({ host, workload }), short);
  }
});
