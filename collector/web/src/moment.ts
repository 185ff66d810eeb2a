// What "now" is on this page: the browser's clock, or the end of the recording that is shown.
import type { Recording } from "./api";
import { Cell, useCell, useNow } from "./cell";
import { msOf } from "./time";

/** `null`: agents report. Known before anything is drawn. */
export const recording = new Cell<Recording | null>(null);

export const endOf = (shown: Recording): number => msOf(shown.end_unix_ns);
export const startOf = (shown: Recording): number => msOf(shown.start_unix_ns);

export const moment = (): number => (recording.value ? endOf(recording.value) : Date.now());

/** As `useNow`, of what is shown. */
export function useMoment(ms: number): number {
  const now = useNow(ms);
  const shown = useCell(recording);
  return shown ? endOf(shown) : now;
}
