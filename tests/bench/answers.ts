/**
 * Run as a program inside a namespace, `answers.ts PORT`: answers every connection to PORT with the address that it came to, and asks the
 * Services that a line of standard input lists, `[{"ip":…,"port":…,"endpoints":[…]}]`, until each has answered. It prints `ready` when
 * it can be asked, and for each such line when all had answered, in milliseconds since the epoch.
 *
 * One Service is asked at a time, until it answers: when the last one has, all have. Each try is a connection of its own, as a
 * connection belongs to the rules that its first packet met.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { LineReader } from "./line_reader.ts";

/** A Service that is to answer. */
export interface Sample {
  readonly ip: string;
  readonly port: number;
  /** Addresses one of which must say that it was reached. */
  readonly endpoints: readonly string[];
}

/** How exact the figures are. */
const INTERVAL_MS = 5;
/** A connection that is neither refused nor answered by then is given up for a new one. */
const TRY_MS = 200;

async function serve(port: number): Promise<void> {
  const listener = Deno.listen({ hostname: "0.0.0.0", port });
  writeLine("ready");
  for await (const connection of listener) {
    const { hostname } = connection.localAddr as Deno.NetAddr;
    // A client that has given up is no fault.
    void connection.write(new TextEncoder().encode(hostname)).catch(() => 0).finally(() =>
      connection.close()
    );
  }
}

/** The address that answered; undefined if none did. */
async function ask({ ip, port }: Sample): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(TRY_MS);
    using connection = await Deno.connect({ hostname: ip, port, signal });
    const buffer = new Uint8Array(64);
    const length = await connection.read(buffer);
    return length === null ? undefined : new TextDecoder().decode(buffer.subarray(0, length));
  } catch (error) {
    const isExpected = error instanceof Deno.errors.ConnectionRefused ||
      error instanceof Deno.errors.ConnectionReset ||
      error instanceof DOMException && error.name === "TimeoutError";
    if (isExpected) return undefined;
    throw error;
  }
}

function nowMs(): number {
  return performance.timeOrigin + performance.now();
}

/** Asks each until it answers. */
async function askAll(samples: readonly Sample[]): Promise<number> {
  for (const sample of samples) {
    for (;;) {
      const answer = await ask(sample);
      if (answer !== undefined) {
        if (!sample.endpoints.includes(answer)) throw new Error(`${sample.ip} led to ${answer}`);
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  }
  return nowMs();
}

if (import.meta.main) {
  void serve(Number(Deno.args[0]));
  const lines = new LineReader(Deno.stdin.readable);
  for (let line = await lines.next(); line !== null; line = await lines.next()) {
    writeLine(JSON.stringify(await askAll(JSON.parse(line))));
  }
  Deno.exit(0);
}
