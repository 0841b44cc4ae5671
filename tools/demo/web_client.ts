/**
 * The client of the demo. It takes orders on standard input, one per line, and answers each with one line of JSON:
 * `spread HOST:PORT COUNT` makes requests one after another; `load RATE HOST:PORT…` makes RATE new connections a second to
 * the targets in turn, until `stop`, and says how far it is in between. Every request has a connection and a port of its own.
 *
 * @module
 */

/** One request. */
export interface Reply {
  /** When the connection was begun, as milliseconds since 1970. */
  readonly startedMs: number;
  readonly tookMs: number;
  /** Name of the backend that answered; empty if the request failed. */
  readonly backend: string;
  /** Why it failed; empty if it did not. */
  readonly failure: string;
}

/** How far a load is; written from time to time, as a line of its own. */
export interface LoadProgress {
  readonly done: number;
  readonly failed: number;
}

/** What has not come by now never will: long enough for a machine that leaves client and backend without a processor for a second. */
const GIVE_UP_MS = 4_000;
/** No further request begins after this; where packets arrive, all of them take less than a second. */
const SPREAD_MS = 8_000;
const TICK_MS = 4;
const PROGRESS_MS = 200;

async function request(target: string): Promise<Reply> {
  // Other programs compare it with their own times.
  const startedMs = Date.now();
  const beganMs = performance.now();
  let backend = "";
  let failure = "";
  try {
    backend = await fetchName(target);
    if (backend === "") failure = "no name in the reply";
  } catch (error) {
    failure = error instanceof Error ? error.message : String(error);
  }
  const tookMs = performance.now() - beganMs;
  return { startedMs, tookMs, backend, failure: failure === "" ? "" : `${target}: ${failure}` };
}

/**
 * Asks for `/` over a new connection and returns the name in the reply. The client closes it: who closes first remembers the port for a
 * minute, and a backend that did would send a packet back when another target's connection comes to it from the same port.
 */
async function fetchName(target: string): Promise<string> {
  const [hostname = "", port = ""] = target.split(":");
  const giveUp = new AbortController();
  const timer = setTimeout(() => giveUp.abort(), GIVE_UP_MS);
  try {
    using connection = await Deno.connect({ hostname, port: Number(port), signal: giveUp.signal });
    giveUp.signal.addEventListener("abort", () => connection.close(), { once: true });
    const text = `GET / HTTP/1.1\r\nHost: ${target}\r\n\r\n`;
    await connection.write(new TextEncoder().encode(text));
    return await readName(connection);
  } catch (error) {
    if (giveUp.signal.aborted) throw new Error(`no reply within ${GIVE_UP_MS} ms`, { cause: error });
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** The body's only line; empty if the backend closes before it has come. */
async function readName(connection: Deno.Conn): Promise<string> {
  const buffer = new Uint8Array(4096);
  let text = "";
  for (let n = await connection.read(buffer); n !== null; n = await connection.read(buffer)) {
    text += new TextDecoder().decode(buffer.subarray(0, n));
    const name = /^HTTP\/1\.1 200 [\s\S]*\r\n\r\n(\S+)\n$/.exec(text)?.[1];
    if (name !== undefined) return name;
  }
  return "";
}

/** Gives up where little gets through, so that the answer still comes. */
async function spread(target: string, count: number): Promise<Reply[]> {
  const replies: Reply[] = [];
  const endMs = performance.now() + SPREAD_MS;
  while (replies.length < count && performance.now() < endMs) replies.push(await request(target));
  return replies;
}

/** Makes connections at an even rate until told to stop. What a late timer missed is made up for at once. */
class Load {
  readonly #requests: Promise<Reply>[] = [];
  readonly #timers: readonly ReturnType<typeof setInterval>[];
  #done = 0;
  #failed = 0;

  constructor(rate: number, targets: readonly string[], onProgress: (progress: LoadProgress) => void) {
    const startedMs = performance.now();
    const makeDue = (): void => {
      const due = Math.floor((performance.now() - startedMs) * rate / 1000);
      while (this.#requests.length < due) {
        this.#requests.push(this.#make(targets[this.#requests.length % targets.length] ?? ""));
      }
    };
    this.#timers = [
      setInterval(makeDue, TICK_MS),
      setInterval(() => onProgress({ done: this.#done, failed: this.#failed }), PROGRESS_MS),
    ];
  }

  async stop(): Promise<Reply[]> {
    for (const timer of this.#timers) clearInterval(timer);
    return await Promise.all(this.#requests);
  }

  async #make(target: string): Promise<Reply> {
    const reply = await request(target);
    this.#done++;
    if (reply.failure !== "") this.#failed++;
    return reply;
  }
}

async function serveOrders(): Promise<void> {
  const answer = (value: unknown): void => {
    let bytes: Uint8Array = new TextEncoder().encode(`${JSON.stringify(value)}\n`);
    // A write to a pipe may take only a part.
    while (bytes.length > 0) bytes = bytes.subarray(Deno.stdout.writeSync(bytes));
  };
  let load: Load | undefined;
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const [order, first = "", ...more] of lines.map((line) => line.split(" "))) {
      if (order === "spread") answer(await spread(first, Number(more[0])));
      else if (order === "load") {
        load = new Load(Number(first), more, answer);
        answer([]);
      } else if (order === "stop") answer(await load?.stop() ?? []);
    }
  }
}

if (import.meta.main) await serveOrders();
