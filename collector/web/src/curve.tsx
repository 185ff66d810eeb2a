// One chart of throughput against requests in flight: points with their 95 % interval, the sizes that are as good shaded, the advised
// one as a line. Owns how a curve is drawn and read by keys; knows no page and no API path.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { doublings, type Curve as Shown } from "./advice";
import { color, keepFitting, widthOf } from "./chart";
import { useCell } from "./cell";
import { dark } from "./settings";
import { number } from "./words";

const HEIGHT_PX = 280;
const FONT = "11px Inter, system-ui, sans-serif";

/** Behind the curve: the sizes that are as good, with an edge where one was seen. */
function drawSizes(u: uPlot, { from, to, open, advised }: Shown): void {
  if (from === null || to === null || advised === null) return;
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const at = (x: number) => Math.min(Math.max(u.valToPos(x, "x", true), left), left + width);
  ctx.save();
  ctx.fillStyle = color("accept-soft");
  const [begin, end] = [at(from), at(to)];
  ctx.fillRect(begin, top, Math.max(end - begin, devicePixelRatio), height);
  ctx.fillStyle = color("accept");
  ctx.fillRect(begin, top, devicePixelRatio, height);
  if (!open) ctx.fillRect(end - devicePixelRatio, top, devicePixelRatio, height);
  ctx.strokeStyle = color("ink");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(at(advised), top);
  ctx.lineTo(at(advised), top + height);
  ctx.stroke();
  ctx.restore();
}

/** Before the curve: each point with its error. */
function drawErrors(u: uPlot, { at, low, high }: Shown): void {
  const { ctx } = u;
  const cap = 3 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = color("queued");
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  at.forEach((x, i) => {
    const px = u.valToPos(x, "x", true);
    const [a, b] = [u.valToPos(low[i]!, "y", true), u.valToPos(high[i]!, "y", true)];
    ctx.moveTo(px, a);
    ctx.lineTo(px, b);
    for (const y of [a, b]) {
      ctx.moveTo(px - cap, y);
      ctx.lineTo(px + cap, y);
    }
  });
  ctx.stroke();
  ctx.restore();
}

/** Before the curve: what full CPUs would answer, as rings. */
function drawCosts(u: uPlot, { costs }: Shown): void {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = color("ink");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const { at, throughput } of costs) {
    ctx.beginPath();
    ctx.arc(u.valToPos(at, "x", true), u.valToPos(throughput, "y", true), 4 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.stroke();
  }
  ctx.restore();
}

export function Curve({ label, curve }: { label: string; curve: Shown }) {
  const box = useRef<HTMLDivElement>(null);
  const readout = useRef<HTMLSpanElement>(null);
  const plot = useRef<uPlot | null>(null);
  // What the keyboard reads, by its number in flight: a chart that is made anew as more is learnt goes on there.
  const read = useRef<number | null>(null);
  const isDark = useCell(dark);
  const shape = JSON.stringify(curve);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const [faint, text, line] = [color("line"), color("muted"), color("queued")];
    const axis = { font: FONT, labelFont: FONT, stroke: text, labelSize: 18, labelGap: 2, grid: { show: true, stroke: faint, width: 1 } };
    const u = new uPlot(
      {
        width: widthOf(element),
        height: HEIGHT_PX,
        padding: [8, 14, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, y: false },
        scales: {
          x: { time: false, range: () => curve.x, ...(curve.log ? { distr: 3 as const, log: 2 as const } : {}) },
          y: { range: () => [0, curve.top] },
        },
        axes: [
          // A mark that has no room comes as nothing.
          { ...axis, label: "requests in flight", size: 26, space: 40, ...(curve.log ? { splits: () => doublings(curve.x) } : {}), ticks: { show: true, stroke: faint, width: 1, size: 4 }, values: (_u, splits: (number | null)[]) => splits.map((v) => (v === null ? "" : number(v))) },
          { ...axis, label: "answers per second", size: 48, space: 30, ticks: { show: false }, values: (_u, splits) => splits.map(number) },
        ],
        series: [{}, { stroke: line, width: 1.5, points: { show: true, size: 6, stroke: line, fill: line } }],
        hooks: { drawClear: [(p) => drawSizes(p, curve)], draw: [(p) => drawErrors(p, curve), (p) => drawCosts(p, curve)], setCursor: [say], ready: [readAt] },
      },
      [curve.at, curve.throughput],
      element,
    );
    function say(p: uPlot): void {
      const i = p.cursor.idx;
      if (!readout.current) return;
      readout.current.textContent = i === null || i === undefined || curve.at[i] === undefined ? ""
        : `${number(curve.at[i])} in flight  ·  ${number(curve.throughput[i]!)}/s (${number(curve.low[i]!)} to ${number(curve.high[i]!)})`;
    }
    plot.current = u;
    const end = keepFitting(u, element, () => HEIGHT_PX);
    return () => {
      end();
      plot.current = null;
    };
  }, [shape, isDark]);

  function readAt(u: uPlot): void {
    if (read.current !== null) u.setCursor({ left: u.valToPos(read.current, "x"), top: 10 });
  }

  function move(event: KeyboardEvent): void {
    const u = plot.current;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!u || by === undefined) return;
    event.preventDefault();
    const at = Math.min(Math.max((u.cursor.idx ?? -1) + by * (event.shiftKey ? 10 : 1), 0), curve.at.length - 1);
    read.current = curve.at[at] ?? null;
    readAt(u);
  }

  const ends = curve.from === null ? "" : curve.bound ? `, at least ${curve.advised} are needed` : `, ${curve.advised} advised, as good from ${curve.from} ${curve.open ? "on, no upper end seen" : `to ${curve.to}`}`;
  return (
    <figure class="chart curve" role="img" tabIndex={0} data-curve={shape} onKeyDown={move} onBlur={() => (read.current = null)}
      aria-label={`${label}. ${curve.at.length} points, up to ${number(Math.max(...curve.throughput))} answers per second${ends}. Arrow keys read values.`}>
      <figcaption>
        <span class="legend" aria-hidden="true">
          <span class="key seen">seen, with 95 % interval</span>
          {curve.costs.length > 0 && <span class="key cost">CPUs ÷ what a request costs</span>}
          {curve.advised !== null && <span class="key size">{curve.bound ? "lower bound" : "advised"}</span>}
          {curve.from !== null && <span class="key good">{curve.bound ? "the best lies here or beyond" : curve.open ? "as good, end not seen" : "as good"}</span>}
        </span>
        <span class="readout" ref={readout} aria-live="polite" />
      </figcaption>
      <div ref={box} class="plot" />
    </figure>
  );
}
