// Who looks at this page, where the collector wants to know that. The token goes to the collector once; what is kept is its cookie, which no
// script can read.
import { ApiError, ask, post, whenRefused, type Me, type Who } from "./api";
import { Cell } from "./cell";

/** The form is shown in place of what was measured. */
export const locked = new Cell<boolean>(false);
export const who = new Cell<Who | null>(null);

whenRefused(() => locked.set(true));

/** Whether this person may change something. A button for it is shown to nobody else; the collector judges each request all the same. */
export const operates = (of: Who | null): boolean => of !== null && ["operate", "admin"].includes(of.role);

/** Asks who this is. A collector of before this was asked wants nothing. */
export async function know(): Promise<void> {
  try {
    const me = await ask<Me>("/api/v1/me");
    who.set(me.who);
    if (me.wanted && me.who === null) locked.set(true);
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
  }
}

/** Shows the token; why it is not taken, or `null`: then the page begins anew. */
export async function enter(token: string): Promise<string | null> {
  try {
    await post("/api/v1/login", { token });
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    return e.message;
  }
  location.reload();
  return null;
}

export async function leave(): Promise<void> {
  try {
    await post("/api/v1/logout", {});
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
  }
  location.reload();
}
