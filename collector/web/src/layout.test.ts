import { equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { fold, layout } from "./layout";

const node = (host: string) => ({ host, workload: host, tier: host, listeners: [`${host}:1`] });
const edge = (from: string, to: string | null, remote = `${to}:1`) => ({ from_host: from, from_workload: from, remote, to_host: to, to_workload: to });

test("callers stand before what they call", () => {
  const drawn = layout({ nodes: ["db", "web", "app"].map(node), edges: [edge("web", "app"), edge("app", "db"), edge("web", "db"), edge("app", "app")] }, false);
  const x = (host: string) => drawn.boxes.find((b) => b.host === host)!.x;
  ok(x("web") < x("app") && x("app") < x("db"));
  equal(drawn.wires.length, 3, "nobody points at itself");
});

test("a cycle ends, and what nobody watches is told apart", () => {
  const drawn = layout({ nodes: ["a", "b"].map(node), edges: [edge("a", "b"), edge("b", "a"), edge("b", null, "10.0.0.9:53")] }, false);
  equal(drawn.boxes.filter((b) => b.ghost).map((b) => b.name).join(), "10.0.0.9:53");
  ok(drawn.boxes.every((b) => Number.isFinite(b.x) && b.x < 4000));
});

test("boxes do not lie on each other, wide or narrow", () => {
  const names = ["a", "b", "c", "d", "e"];
  const graph = { nodes: names.map(node), edges: [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d"), edge("d", "e")] };
  for (const narrow of [false, true]) {
    const { boxes } = layout(graph, narrow);
    for (const a of boxes) for (const b of boxes) {
      if (a !== b) ok(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y, `${a.name} ${b.name}`);
    }
  }
});

test("tiers on several hosts are one, and stay apart when asked for", () => {
  const replica = (n: number) => ({ host: `h${n}`, workload: "app", tier: "app", listeners: [`10.0.0.${n}:8080`] });
  const graph = {
    nodes: [node("web"), replica(1), replica(2), replica(3), { ...replica(4), listeners: ["10.0.0.4:9090"] }, node("db")],
    edges: [1, 2, 3, 4].flatMap((n) => [
      { from_host: "web", from_workload: "web", remote: `10.0.0.${n}:8080`, to_host: `h${n}`, to_workload: "app" },
      { from_host: `h${n}`, from_workload: "app", remote: "db:1", to_host: "db", to_workload: "db" },
    ]),
  };
  const { graph: one, folded } = fold(graph, new Set());
  equal(JSON.stringify(folded), JSON.stringify([{ workload: "app", hosts: ["h1", "h2", "h3"] }]), "another port is another tier");
  equal(one.nodes.length, 4);
  equal(layout(one, false, true).wires.length, 4);
  equal(fold(graph, new Set(["app"])).graph.nodes.length, graph.nodes.length);
});

test("twenty tiers in five columns fit on a screen of 1280", () => {
  const names = [...Array(20).keys()].map((n) => `t${n}`);
  const edges = names.slice(4).map((name, n) => edge(names[n]!, name));
  const drawn = layout({ nodes: names.map(node), edges }, false, true);
  ok(drawn.width <= 1240, `${drawn.width}`);
});
