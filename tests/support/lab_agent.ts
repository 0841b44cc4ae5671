/**
 * A thread in one network namespace of a lab: it runs servers, sends requests, and runs connect loops. Every worker has its
 * own system thread, so no process has to be started per namespace.
 *
 * @module
 */
import type {
  AgentCall,
  AgentMethods,
  AgentReply,
  LoopReport,
  LoopRequest,
  ProbeRequest,
  ProbeResult,
  SegmentRequest,
} from "./lab_probe.ts";
import { answerFlags, ethernetFrame, tcpSegment } from "./lab_segment.ts";
import { ask, KeptConnection } from "./lab_client.ts";
import { LabServers } from "./lab_servers.ts";
import { enterNetns, Socket } from "./lab_sockets.ts";

/** The part of a worker's global scope that this module uses. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<AgentCall>) => void) | null;
  postMessage(message: AgentReply): void;
}
const scope = globalThis as unknown as WorkerScope;

/** Loops with a higher limit do not fail by time: a lost SYN is sent again after 1 s. */
const LOST_MS = 900;
/** Limit after which no answer will come. A busy machine may leave client and server without a CPU for seconds. */
const GIVE_UP_MS = 5_000;
/** Source ports of patient loops. */
const [FIRST_PORT, PORTS] = [10_000, 50_000];
/** Pause between two ticks of a loop that the loop has not caused. */
const STALL_MS = 30;
/**
 * A loop that stalled so shortly before or during a request runs on an overloaded machine, whose kernel stalls too, which
 * no clock measures: then only lost packets count, not the time of an answer.
 */
const BUSY_MS = 2_000;
/** Interval at which a thread with servers checks for stalls. */
const SERVER_TICK_MS = 10;
/**
 * A datagram is answered within a few milliseconds. If a server had no CPU for so long right after it was sent, its endpoint may have
 * left meanwhile, and the flow with it: no proxy could return such an answer.
 */
const ANSWER_STALL_MS = 20;
const SENT_SOON_MS = 150;
/** Limit of such answers in one loop; more have another cause. */
const MAX_CUT_ANSWERS = 2;
/** Time after which servers of a late answer have reported their stalls. */
const SERVERS_TELL_MS = 100;

let servers = new LabServers("");
const kept = new KeptConnection();
let loop: ConnectLoop | undefined;
/** At these indices: milliseconds in which any agent's servers had no CPU; number of running loops. All agents of a process share it. */
let shared = new Int32Array(new SharedArrayBuffer(8));
const [SERVED, LOOPS] = [0, 1];
let isTelling = false;

/**
 * Adds up the stalls of this thread, which has servers, while loops run that use the sum. At other times it
 * sleeps: on a slow kernel, a hundred ticks a second in every thread would cost more than the tests.
 */
async function tellServerStalls(): Promise<never> {
  isTelling = true;
  while (true) {
    await Atomics.waitAsync(shared, LOOPS, 0).value;
    const stalls = new Stalls(SERVER_TICK_MS);
    for (let toldMs = 0; Atomics.load(shared, LOOPS) > 0;) {
      await new Promise((resolve) => setTimeout(resolve, SERVER_TICK_MS));
      stalls.tick();
      const newMs = Math.round(stalls.totalMs() - toldMs);
      toldMs += newMs;
      if (newMs > 0) Atomics.add(shared, SERVED, newMs);
    }
  }
}

async function probe({ count, ...request }: ProbeRequest): Promise<ProbeResult[]> {
  const results: ProbeResult[] = [];
  for (let i = 0; i < count; i++) results.push(await ask(request));
  return results;
}

/**
 * Measures how long this thread got no CPU. On an overloaded machine that is not the path's fault, and an
 * answer that waits in the socket meanwhile is not late. A second SYN costs a second, which is longer.
 */
class Stalls {
  readonly #everyMs: number;
  #lastMs = performance.now();
  #totalMs = 0;
  /** End of the latest stall. */
  #latestMs = -Infinity;

  /** @param everyMs interval of {@linkcode Stalls.tick} in a thread that runs */
  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  tick(): void {
    const totalMs = this.totalMs();
    this.#lastMs = performance.now();
    if (totalMs > this.#totalMs) this.#latestMs = this.#lastMs;
    this.#totalMs = totalMs;
  }

  /** True if there was a stall at this time of `performance.now()`, or since. */
  anySince(timeMs: number): boolean {
    return this.#latestMs >= timeMs || this.totalMs() > this.#totalMs;
  }

  /** A clock that stops during stalls. */
  runningMs(): number {
    return performance.now() - this.totalMs();
  }

  /** Total up to now. */
  totalMs(): number {
    const gapMs = performance.now() - this.#lastMs;
    return this.#totalMs + (gapMs > STALL_MS ? gapMs - this.#everyMs : 0);
  }
}

/** Total time in which servers had no CPU since it was `servedMs`, as known after `waitMs` more. */
async function stalledServersMs(servedMs: number, waitMs: number): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, waitMs));
  return Atomics.load(shared, SERVED) - servedMs;
}

/**
 * Starts requests on time, whatever happens to earlier ones. Requests due during a stall are skipped: hundreds at once,
 * from each loop of a node, would keep a slow machine busy for as long again.
 */
class ConnectLoop {
  readonly #request: LoopRequest;
  readonly #startMs = performance.now();
  readonly #stalls: Stalls;
  readonly #running = new Set<Promise<void>>();
  readonly #failures: string[] = [];
  readonly #failuresAtMs: number[] = [];
  readonly #byServer: Record<string, number> = {};
  #started = 0;
  #ports = 0;
  #slowestMs = 0;
  #excused = 0;
  #cutAnswers = 0;
  #ended = false;
  #restingSinceMs: number | undefined;
  #restedMs = 0;
  /** Time of the latest answer, by {@linkcode ConnectLoop.#ranMs}. */
  #answeredMs = 0;
  #longestGapMs = 0;
  readonly #done: Promise<void>;

  constructor(request: LoopRequest) {
    this.#request = request;
    this.#stalls = new Stalls(500 / request.perSecond);
    this.#done = this.#run();
  }

  async #run(): Promise<void> {
    const intervalMs = 1000 / this.#request.perSecond;
    let [activeMs, stalledMs, ranMs] = [0, 0, 0];
    // Ticks until the last request ends, whose limit depends on this clock.
    while (!this.#ended || this.#running.size > 0) {
      this.#stalls.tick();
      ranMs += Math.max(0, this.#activeMs() - activeMs - (this.#stalls.totalMs() - stalledMs));
      [activeMs, stalledMs] = [this.#activeMs(), this.#stalls.totalMs()];
      const due = this.#ended ? 0 : Math.floor(ranMs / intervalMs);
      while (this.#started < due) {
        this.#started++;
        const one = this.#once().finally(() => this.#running.delete(one));
        this.#running.add(one);
      }
      await new Promise((resolve) => setTimeout(resolve, intervalMs / 2));
    }
  }

  /** Time that the loop has run without rest. */
  #activeMs(): number {
    const nowMs = performance.now();
    return nowMs - this.#startMs - this.#restedMs - (nowMs - (this.#restingSinceMs ?? nowMs));
  }

  /** Time that the loop has run without rest and with a CPU. */
  #ranMs(): number {
    return this.#activeMs() - this.#stalls.totalMs();
  }

  /** See `AgentMethods.longestGap`. */
  longestGap(): number {
    this.#noteGap();
    const longestMs = this.#longestGapMs;
    this.#longestGapMs = 0;
    return longestMs;
  }

  #noteGap(): void {
    const ranMs = this.#ranMs();
    this.#longestGapMs = Math.max(this.#longestGapMs, ranMs - this.#answeredMs);
    this.#answeredMs = ranMs;
  }

  /** Starts no requests for a time; resolves when all requests under way have ended. */
  async rest(): Promise<void> {
    this.#restingSinceMs ??= performance.now();
    await Promise.all(this.#running);
  }

  resume(): void {
    this.#restedMs += performance.now() - (this.#restingSinceMs ?? performance.now());
    this.#restingSinceMs = undefined;
  }

  /**
   * A port that this loop has not used for long: the kernel would choose one again within a minute. When IPVS mode ends, the loss of
   * such a connection is no lost packet (docs/operations.md).
   */
  #freshPort(): { readonly source: string; readonly sourcePort: number } {
    const source = this.#request.to.ip.includes(":") ? "::" : "0.0.0.0";
    return { source, sourcePort: FIRST_PORT + this.#ports++ % PORTS };
  }

  async #once(): Promise<void> {
    const { protocol, to, limitMs, freshPorts = false } = this.#request;
    const [atMs, beganMs] = [performance.now() - this.#startMs, Date.now()];
    const [startMs, stalledMs] = [performance.now(), this.#stalls.totalMs()];
    const servedMs = Atomics.load(shared, SERVED);
    const stalledSoonMs = protocol === "udp" ? stalledServersMs(servedMs, SENT_SOON_MS) : 0;
    const fresh = protocol === "tcp" && (freshPorts || limitMs > LOST_MS) ? this.#freshPort() : {};
    const patience = { timeoutMs: Math.max(limitMs, GIVE_UP_MS), ...fresh };
    const result = await ask({ protocol, to, ...patience }, () => this.#stalls.runningMs());
    const lostMs = this.#stalls.totalMs() - stalledMs;
    const tookMs = result.kind === "answer" ? result.tookMs - lostMs : 0;
    // A request that took as long as a retransmission needs a longer stall as its excuse.
    const wasBusy = this.#stalls.anySince(startMs - BUSY_MS);
    const isBusy = wasBusy && (tookMs < LOST_MS || lostMs > tookMs / 2);
    // Datagrams are not retransmitted: a late answer shows that none was lost.
    const isLate = tookMs > limitMs && protocol !== "udp" && !isBusy &&
      !(tookMs < LOST_MS && await stalledServersMs(servedMs, SERVERS_TELL_MS) >= tookMs - limitMs);
    // A lost first packet may be faster than the limit, but the kernel counts it. If the whole machine stalled for
    // so long, the kernel's timer runs before it reads the answer that is already there.
    const wasLost = result.kind === "answer" && (result.wasSynLost || result.lostSegments > 0);
    const isLost = wasLost && lostMs < LOST_MS;
    if (result.kind === "answer" && !isLate && !isLost) {
      const { ip, port } = result.answer.local;
      const key = ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
      this.#byServer[key] = (this.#byServer[key] ?? 0) + 1;
      this.#slowestMs = Math.max(this.#slowestMs, tookMs);
      // A request that was in time by the wall clock needs no excuse.
      if (wasLost || (protocol !== "udp" && result.tookMs > limitMs)) this.#excused++;
      this.#noteGap();
      return;
    }
    if (
      result.kind === "silence" && this.#cutAnswers < MAX_CUT_ANSWERS &&
      await stalledSoonMs >= ANSWER_STALL_MS
    ) {
      this.#cutAnswers++;
      this.#excused++;
      return;
    }
    const what = result.kind === "answer"
      ? `took ${tookMs.toFixed(0)} ms from port ${result.from.port}` +
        (result.wasSynLost ? ", its SYN was lost" : result.lostSegments > 0 ? ", its request was lost" : "")
      : result.kind === "error"
      ? result.message
      : result.kind === "stranger"
      ? `answered by a stranger: ${result.text}`
      : result.kind;
    const clock = new Date(beganMs).toISOString().slice(11, -1);
    this.#failures.push(`at ${(atMs / 1000).toFixed(3)} s (${clock}): ${what}`);
    this.#failuresAtMs.push(beganMs);
  }

  report(): LoopReport {
    return {
      requests: this.#started,
      durationMs: this.#activeMs(),
      stalledMs: this.#stalls.totalMs(),
      failures: [...this.#failures],
      failuresAtMs: [...this.#failuresAtMs],
      excused: this.#excused,
      slowestMs: this.#slowestMs,
      byServer: { ...this.#byServer },
    };
  }

  async stop(): Promise<LoopReport> {
    this.#ended = true;
    const [durationMs, stalledMs] = [this.#activeMs(), this.#stalls.totalMs()];
    await this.#done;
    return { ...this.report(), durationMs, stalledMs };
  }
}

function runningLoop(): ConnectLoop {
  if (loop === undefined) throw new TypeError("No loop is running");
  return loop;
}

function echoRequest(six: boolean, id: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, six ? 128 : 8);
  view.setUint16(4, id);
  view.setUint16(6, 1);
  // The kernel computes ICMPv6's checksum, for ICMP it is ours: the other words are zero.
  const sum = 0x0800 + id + 1;
  if (!six) view.setUint16(2, ~((sum & 0xffff) + (sum >>> 16)) & 0xffff);
  return bytes;
}

async function ping(source: string, to: string, timeoutMs: number): Promise<ProbeResult> {
  const six = to.includes(":");
  const id = 1 + Math.floor(Math.random() * 0xfffe);
  const start = performance.now();
  using socket = Socket.of("icmp", to);
  socket.bind({ ip: source, port: 0 });
  socket.sendTo(echoRequest(six, id), { ip: to, port: 0 });
  while (performance.now() - start < timeoutMs) {
    const reply = await socket.receive(() => timeoutMs - (performance.now() - start));
    if (reply === null) break;
    const offset = six ? 0 : (reply.bytes[0]! & 15) * 4;
    const view = new DataView(reply.bytes.buffer, offset);
    const type = view.getUint8(0);
    if (type === (six ? 1 : 3)) return { kind: "refused" };
    if (type !== (six ? 129 : 0) || view.getUint16(4) !== id) continue;
    const from = { ip: source, port: 0 };
    const answer = { server: "", local: { ip: to, port: 0 }, client: from };
    return {
      kind: "answer",
      answer,
      from,
      tookMs: performance.now() - start,
      wasSynLost: false,
      lostSegments: 0,
    };
  }
  return { kind: "silence" };
}

async function segment({ source, to, flags, timeoutMs, frame }: SegmentRequest): Promise<string> {
  const from = { ip: source, port: 20_000 + Math.floor(Math.random() * 10_000) };
  const bytes = tcpSegment(from, to, flags);
  const start = performance.now();
  using socket = frame === undefined ? Socket.of("rawTcp", to.ip) : Socket.frames(frame.interfaceName);
  if (frame === undefined) {
    socket.bind({ ip: source, port: 0 });
    socket.sendTo(bytes, { ip: to.ip, port: 0 });
  } else {
    socket.send(ethernetFrame(frame.hardwareAddress, source, to.ip, bytes));
  }
  while (performance.now() - start < timeoutMs) {
    const reply = await socket.receive(() => timeoutMs - (performance.now() - start));
    if (reply === null) break;
    const found = answerFlags(frame === undefined ? reply.bytes : reply.bytes.subarray(14), from, to);
    if (found !== "") return found;
  }
  return "";
}

const methods: AgentMethods = {
  enter: (netns, name, ofAll) => {
    enterNetns(netns);
    servers = new LabServers(name);
    shared = ofAll;
  },
  serve: (request) => {
    if (!isTelling) void tellServerStalls();
    servers.serve(request);
  },
  unserve: (port) => servers.end(port),
  probe,
  askKept: (request) => kept.ask(request),
  dropKept: (isReset = false) => kept.drop(isReset),
  startLoop: (request) => {
    loop = new ConnectLoop(request);
    Atomics.add(shared, LOOPS, 1);
    Atomics.notify(shared, LOOPS);
  },
  stopLoop: async () => {
    const report = await runningLoop().stop();
    loop = undefined;
    Atomics.sub(shared, LOOPS, 1);
    return report;
  },
  restLoop: () => runningLoop().rest(),
  resumeLoop: () => runningLoop().resume(),
  loopReport: () => runningLoop().report(),
  longestGap: () => runningLoop().longestGap(),
  ping,
  segment,
};

scope.onmessage = async ({ data: { id, method, args } }) => {
  try {
    const call = methods[method] as (...args: readonly unknown[]) => unknown;
    scope.postMessage({ id, result: await call(...args) });
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.stack ?? error.message : String(error) });
  }
};
