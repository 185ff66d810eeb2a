// The form that takes a token, in place of every page while the collector wants one.
import { useState } from "preact/hooks";
import { enter, who } from "../session";
import { useCell } from "../cell";

export function Login() {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const before = useCell(who);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setWrong(await enter(token.trim()));
    setBusy(false);
  };
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void submit(event)}>
        <h1>{before?.way === "session" ? "Your session is over." : "This collector wants a token."}</h1>
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="current-password" spellcheck={false} required autofocus value={token} onInput={(event) => setToken(event.currentTarget.value)} aria-describedby={wrong === null ? undefined : "wrong"} aria-invalid={wrong !== null} />
        {wrong !== null && <p id="wrong" class="wrong" role="alert">{wrong}</p>}
        <button type="submit" class="chip" disabled={busy || token.trim() === ""}>Open</button>
        <p class="quiet">On the collector's host, <code>tailwater token create NAME</code> prints one. This browser then has a session of twelve hours; the token itself is kept nowhere.</p>
      </form>
    </main>
  );
}
