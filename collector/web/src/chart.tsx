// One chart over time: steps of whole windows, the band between the least and the most where windows share a pixel, gaps where
// nothing is known, and what happened marked behind it. Owns how things are drawn; knows no metric.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Values } from "./api";
import { useCell } from "./cell";
import { peak, STEPS_MS, total, WHOLE_STEPS } from "./grid";
import { dark, zone } from "./settings";
import { clock, tick, zoneName } from "./time";

export interface Line {
  label: string;
  values: Values;
  /** Least of each step, where it differs: the band down to it is filled. */
  least?: Values;
  /** Name of a colour of the style sheet. */
  color: string;
  fill?: boolean;
  dash?: boolean;
  bars?: boolean;
}

export interface Mark { kind: "root" | "drop" | "vlrt" | "expected" | "gap" | "incident"; from: number; to: number; title?: string }

interface Props {
  label: string;
  times: number[];
  lines: Line[];
  marks?: Mark[];
  height: number;
  format: (value: number) => string;
  /** Charts of one group share the cursor. */
  group: string;
  axis?: boolean;
  /** The scale reaches at least up to this. */
  atLeast?: number;
  /** Values are counts: no marks between whole numbers. */
  whole?: boolean;
  onZoom?: (from: number, to: number) => void;
  onMark?: (mark: Mark) => void;
}

const Y_AXIS_PX = 54;

/** A colour of the style sheet, as it is now. */
export const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function hatch(context: CanvasRenderingContext2D, stroke: string, ratio: number, gap: number): CanvasPattern | null {
  const tile = document.createElement("canvas");
  const size = Math.round(gap * ratio);
  tile.width = tile.height = size;
  const c = tile.getContext("2d");
  if (!c) return null;
  c.strokeStyle = stroke;
  c.lineWidth = ratio;
  for (const shift of [-size, 0, size]) {
    c.beginPath();
    c.moveTo(shift, size);
    c.lineTo(shift + size, 0);
    c.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function drawMarks(u: uPlot, marks: Mark[]): void {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  const order: Mark["kind"][] = ["gap", "expected", "root", "incident", "drop", "vlrt"];
  for (const mark of [...marks].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind))) {
    const from = u.valToPos(mark.from, "x", true);
    const to = Math.max(u.valToPos(mark.to, "x", true), from + ratio);
    if (mark.kind === "vlrt") {
      // Along the ground: it began where something was dropped, and that is marked along the top.
      ctx.fillStyle = color("vlrt");
      ctx.fillRect(from, top + height - 4 * ratio, to - from, 4 * ratio);
    } else if (mark.kind === "gap" || mark.kind === "expected") {
      const pattern = hatch(ctx, color(mark.kind === "gap" ? "gap" : "vlrt-soft"), ratio, mark.kind === "gap" ? 7 : 5);
      if (pattern) ctx.fillStyle = pattern;
      ctx.fillRect(from, top, to - from, height);
      if (mark.kind === "expected") {
        ctx.fillStyle = color("vlrt");
        ctx.fillRect(from, top, to - from, 3 * ratio);
      }
    } else if (mark.kind === "root" || mark.kind === "incident") {
      ctx.fillStyle = color("root-soft");
      ctx.fillRect(from, top, to - from, height);
      if (to - from < 8 * ratio) continue; // Too narrow for edges.
      ctx.fillStyle = color("root");
      ctx.fillRect(from, top, ratio, height);
      ctx.fillRect(to - ratio, top, ratio, height);
    } else {
      ctx.fillStyle = color("drop-soft");
      ctx.fillRect(from, top, to - from, height);
      ctx.fillStyle = color("drop");
      ctx.fillRect(from, top, to - from, 3 * ratio);
    }
  }
  ctx.restore();
}

export function widthOf(element: HTMLElement): number {
  return Math.max(element.clientWidth, 120);
}

// A chart is as wide as its element for as long as it lives; returns how it ends.
export function keepFitting(u: uPlot, element: HTMLElement, height: () => number): () => void {
  const size = new ResizeObserver(() => u.setSize({ width: widthOf(element), height: height() }));
  size.observe(element);
  return () => {
    size.disconnect();
    u.destroy();
  };
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const readout = useRef<HTMLSpanElement>(null);
  const plot = useRef<uPlot | null>(null);
  // The moment that the keyboard reads: a chart that is made anew, as more of its windows arrive, goes on there.
  const read = useRef<number | null>(null);
  const now = useRef(props);
  now.current = props;
  const isDark = useCell(dark);
  const inZone = useCell(zone);
  const peaks = props.lines.map((line) => [line.label, peak(line.values)] as const);
  const summary = peaks.map(([label, max]) => `${label}: ${max === null ? "no data" : `at most ${props.format(max)}`}`).join(", ");
  const shape = JSON.stringify([
    props.lines.map((l) => [l.label, l.color, l.fill, l.dash, l.bars, l.least !== undefined]),
    props.height, props.group, props.axis, isDark, inZone, props.onZoom !== undefined,
  ]);
  const data = useMemo(() => {
    const rows: Values[] = [];
    for (const line of props.lines) {
      rows.push(line.values);
      if (line.least) rows.push(line.least);
    }
    return [props.times, ...rows] as uPlot.AlignedData;
  }, [props.times, props.lines]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    for (const line of now.current.lines) {
      const stroke = color(line.color);
      const steps = line.bars ? uPlot.paths.bars!({ align: 1, size: [1, 100], gap: 0 }) : uPlot.paths.stepped!({ align: 1 });
      series.push({
        label: line.label,
        stroke,
        width: line.bars ? 0 : line.dash ? 1 : 1.5,
        points: { show: false },
        paths: steps,
        spanGaps: false,
        ...(line.dash ? { dash: [4, 4] } : {}),
        ...(line.bars ? { fill: stroke } : line.fill ? { fill: color(`${line.color}-soft`) } : {}),
      });
      if (line.least) {
        series.push({ stroke: "transparent", width: 0, points: { show: false }, paths: steps, spanGaps: false });
        if (!line.fill) bands.push({ series: [series.length - 2, series.length - 1], fill: color(`${line.color}-soft`) });
      }
    }
    const faint = color("line");
    const text = color("muted");
    const font = "11px Inter, system-ui, sans-serif";
    const u = new uPlot(
      {
        width: widthOf(element),
        height: now.current.height,
        padding: [6, 18, now.current.axis ? 0 : 4, 0],
        legend: { show: false },
        cursor: {
          sync: { key: now.current.group, setSeries: false },
          points: { show: false },
          drag: { x: now.current.onZoom !== undefined, y: false, setScale: false },
          x: true,
          y: false,
        },
        select: { show: true, left: 0, top: 0, width: 0, height: 0 },
        scales: {
          x: { time: false, range: () => [now.current.times[0] ?? 0, now.current.times.at(-1) ?? 1] },
          y: {
            range: (_u, _min, max) => {
              const top = Math.max(max ?? 0, now.current.atLeast ?? 0);
              return [0, top > 0 ? top * 1.08 : 1];
            },
          },
        },
        axes: [
          {
            show: now.current.axis ?? false,
            incrs: STEPS_MS,
            space: 76,
            size: 26,
            font,
            stroke: text,
            grid: { show: true, stroke: faint, width: 1 },
            ticks: { show: true, stroke: faint, width: 1, size: 4 },
            values: (_u, splits, _axis, _space, step) => splits.map((ms) => tick(ms, inZone, step)),
          },
          {
            size: Y_AXIS_PX,
            space: 28,
            ...(now.current.whole ? { incrs: WHOLE_STEPS } : {}),
            font,
            stroke: text,
            grid: { show: true, stroke: faint, width: 1 },
            ticks: { show: false },
            values: (_u, splits) => splits.map((v) => now.current.format(v)),
          },
        ],
        series,
        bands,
        hooks: {
          drawClear: [(p) => drawMarks(p, now.current.marks ?? [])],
          setCursor: [(p) => say(p)],
          ready: [(p) => readAt(p)],
          setSelect: [
            (p) => {
              const { left, width } = p.select;
              // Charts of the group select along; only the one under the pointer zooms.
              if (width < 6 || !element.matches(":hover")) return;
              const [from, to] = [p.posToVal(left, "x"), p.posToVal(left + width, "x")];
              p.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              now.current.onZoom?.(from, to);
            },
          ],
        },
      },
      data,
      element,
    );
    function say(p: uPlot): void {
      if (!readout.current) return;
      const at = p.cursor.idx;
      if (at === null || at === undefined) {
        readout.current.textContent = "";
        return;
      }
      const { lines, times, format } = now.current;
      // The nearest start may lie after the pointer: a step holds from its start on.
      const under = p.posToVal(p.cursor.left ?? 0, "x");
      const index = (times[at] ?? 0) > under && at > 0 ? at - 1 : at;
      const moment = times[index] ?? 0;
      const values = lines.map((l) => {
        const value = l.values[index];
        return `${l.label} ${value === null || value === undefined ? "no data" : format(value)}`;
      });
      readout.current.textContent = `${clock(moment, inZone)} ${zoneName(moment, inZone).replace(", local", "")}  ·  ${values.join("  ·  ")}`;
    }
    plot.current = u;
    const end = keepFitting(u, element, () => now.current.height);
    return () => {
      end();
      plot.current = null;
    };
    // Data comes by the next effect; a new shape needs a new chart.
  }, [shape]);

  useEffect(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data);
  }, [data]);
  useEffect(() => plot.current?.redraw(false, false), [props.marks]);

  function readAt(u: uPlot): void {
    if (read.current !== null) u.setCursor({ left: u.valToPos(read.current, "x") + 1, top: 10 });
  }

  function move(event: KeyboardEvent): void {
    const u = plot.current;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!u || by === undefined || props.times.length < 2) return;
    event.preventDefault();
    const at = Math.min(Math.max((u.cursor.idx ?? -1) + by * (event.shiftKey ? 10 : 1), 0), props.times.length - 2);
    read.current = props.times[at] ?? 0;
    readAt(u);
  }

  function click(event: MouseEvent): void {
    const u = plot.current;
    if (!u || !props.onMark) return;
    const at = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
    const hit = (props.marks ?? []).find((m) => m.kind === "incident" && at >= m.from && at <= m.to);
    if (hit) props.onMark(hit);
  }

  return (
    <figure
      class="chart"
      role="img"
      tabIndex={0}
      aria-label={`${props.label}. ${summary}. Arrow keys read values.`}
      data-values={JSON.stringify(Object.fromEntries(props.lines.map((l) => [l.label, { max: peak(l.values), sum: total(l.values) }])))}
      onKeyDown={move}
      onBlur={() => (read.current = null)}
      onClick={click}
    >
      <figcaption>
        <span class="chart-name">{props.label}</span>
        <span class="legend" aria-hidden="true">
          {props.lines.map((line) => (
            <span key={line.label} class={`key ${line.dash ? "dashed" : ""}`} style={{ "--key": `var(--${line.color})` }}>
              {line.label}
            </span>
          ))}
        </span>
        <span class="readout" ref={readout} aria-live="polite" />
      </figcaption>
      <div ref={box} class="plot" />
    </figure>
  );
}
