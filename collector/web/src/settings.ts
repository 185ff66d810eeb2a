// What this browser prefers: kept here, sent nowhere.
import { Cell } from "./cell";
import type { Zone } from "./time";

export type Theme = "system" | "light" | "dark";

function kept<T extends string>(name: string, allowed: readonly T[], otherwise: T): Cell<T> {
  let before: string | null = null;
  try {
    before = localStorage.getItem(name);
  } catch {
    // Storage may be forbidden: then the choice lasts as long as the page.
  }
  const cell = new Cell<T>(allowed.find((a) => a === before) ?? otherwise);
  cell.watch(() => {
    try {
      localStorage.setItem(name, cell.value);
    } catch {
      // As above.
    }
  });
  return cell;
}

export const zone = kept<Zone>("zone", ["utc", "local"], "utc");
export const theme = kept<Theme>("theme", ["system", "light", "dark"], "system");

const system = matchMedia("(prefers-color-scheme: dark)");
/** What is drawn now. */
export const dark = new Cell<boolean>(false);

function apply(): void {
  const is = theme.value === "system" ? system.matches : theme.value === "dark";
  document.documentElement.dataset["theme"] = is ? "dark" : "light";
  dark.set(is);
}
theme.watch(apply);
system.addEventListener("change", apply);
apply();

export const nextTheme = (): void => theme.set(dark.value ? "light" : "dark");
export const nextZone = (): void => zone.set(zone.value === "utc" ? "local" : "utc");
