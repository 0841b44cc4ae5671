/**
 * Two connections whose bytes are copied from each to the other.
 *
 * What waits for bytes costs as little as the runtime allows, because thousands may wait at once: no function is suspended meanwhile, and
 * no promise is there but those of the two reads.
 *
 * @module
 */
import type { CopyBuffers } from "./copy_buffers.ts";

/** What an exchange needs of a connection. */
export type Pipe = Pick<Deno.Conn, "read" | "write" | "closeWrite" | "close">;

/** What all exchanges of a portal share. */
export interface ExchangeHost {
  readonly buffers: CopyBuffers;
  /** Told how many bytes went from a client (`in`) or to it (`out`), each time. */
  onBytes(direction: "in" | "out", count: number): void;
  /** Told of each exchange once, when either connection has failed or both have said all; both are closed then. */
  onEnd(): void;
}

/** Copies both ways until both ends have said all, and tells each end when the other has. */
export class Exchange {
  readonly client: Pipe;
  readonly server: Pipe;
  readonly host: ExchangeHost;
  #directions = 2;

  /** Begins. */
  constructor(client: Pipe, server: Pipe, host: ExchangeHost) {
    this.client = client;
    this.server = server;
    this.host = host;
    new Direction(this, "in").wait();
    new Direction(this, "out").wait();
  }

  /** One direction is over. */
  ended(): void {
    if (--this.#directions > 0) return;
    this.close();
    this.host.onEnd();
  }

  /** Ends what the other direction waits for, too. */
  close(): void {
    closeQuietly(this.client);
    closeQuietly(this.server);
  }
}

/** One way. It reads on only when the other end has taken what was read: a slow reader slows the writer down, and costs one buffer. */
class Direction {
  readonly #exchange: Exchange;
  readonly #name: "in" | "out";
  #buffer: Uint8Array<ArrayBuffer>;
  /** Where in the buffer the bytes go that are being read; what is before has gone on already. */
  #at = 0;

  constructor(exchange: Exchange, name: "in" | "out") {
    this.#exchange = exchange;
    this.#name = name;
    this.#buffer = exchange.host.buffers.first();
  }

  /** Waits for the next bytes. */
  wait(): void {
    this.#read().then(this.#heard, this.#heard);
  }

  #read(): Promise<number | null> {
    const { client, server } = this.#exchange;
    const into = this.#at === 0 ? this.#buffer : this.#buffer.subarray(this.#at);
    return (this.#name === "in" ? client : server).read(into);
  }

  /** One function for what was read and for a failure, as it is there as long as nothing is heard. */
  readonly #heard = (outcome: unknown): void => {
    if (typeof outcome === "number") this.#pass(outcome).catch(() => this.#fail());
    else if (outcome === null) this.#finish().catch(() => this.#fail());
    else this.#fail();
  };

  get #to(): Pipe {
    return this.#name === "in" ? this.#exchange.server : this.#exchange.client;
  }

  async #pass(count: number): Promise<void> {
    const { buffers } = this.#exchange.host;
    const start = this.#at;
    let end = start + count;
    this.#at = 0;
    if (buffers.isTooSmall(this.#buffer, end)) {
      // Beginning and rest of a message go on together, as they came.
      this.#buffer = buffers.grown(this.#buffer);
      this.#at = end;
      const reading = this.#read();
      const rest = await nowOrLater(reading);
      if (rest === null) {
        // The other end may be gone; then the read fails, and ends this.
        await this.#write(start, end).catch(() => this.#exchange.close());
        reading.then(this.#heard, this.#heard);
        return;
      }
      end += rest;
      this.#at = 0;
    }
    await this.#write(start, end);
    this.#buffer = buffers.next(this.#buffer, end);
    this.wait();
  }

  async #write(start: number, end: number): Promise<void> {
    for (let at = start; at < end;) at += await this.#to.write(this.#buffer.subarray(at, end));
    this.#exchange.host.onBytes(this.#name, end - start);
  }

  /** Says that nothing more comes. */
  async #finish(): Promise<void> {
    await this.#to.closeWrite();
    this.#end();
  }

  #fail(): void {
    this.#exchange.close();
    this.#end();
  }

  #end(): void {
    this.#exchange.host.buffers.giveBack(this.#buffer);
    this.#exchange.ended();
  }
}

/** The runtime reads bytes that are there already within two turns; some more do no harm. */
const TURNS = 6;

/** How many bytes were read, if they were there already; null if they are not, or if there are none. It waits for nothing. */
async function nowOrLater(reading: Promise<number | null>): Promise<number | null> {
  let outcome: number | null = null;
  reading.then((count) => outcome = count, () => "who waits for it hears of it");
  for (let turn = 0; turn < TURNS && outcome === null; turn++) await null;
  return outcome;
}

/** Closes a connection that may be closed already. */
export function closeQuietly(socket: Pick<Deno.Conn, "close">): void {
  try {
    socket.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}
