// A value that components watch.
import { useEffect, useState } from "preact/hooks";

export class Cell<T> {
  private watchers = new Set<() => void>();
  constructor(private held: T) {}
  get value(): T {
    return this.held;
  }
  set(value: T): void {
    if (Object.is(value, this.held)) return;
    this.held = value;
    for (const watcher of [...this.watchers]) watcher();
  }
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [, draw] = useState(0);
  const drawn = cell.value;
  useEffect(() => {
    const again = () => draw((n) => n + 1);
    const stop = cell.watch(again);
    // Effects run a frame after the drawing: what changed between had no watcher, and may never change again.
    if (!Object.is(cell.value, drawn)) again();
    return stop;
  }, [cell]);
  return drawn;
}

/** Draws again every `ms`; the moment of the last time. */
export function useNow(ms: number): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}
