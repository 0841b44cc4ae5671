/**
 * A thread that lives in one network namespace of a lab: it serves, asks, and hammers there. The runtime gives every worker its
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

/** What the module uses of a worker's global scope. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<AgentCall>) => void) | null;
  postMessage(message: AgentReply): void;
}
const scope = globalThis as unknown as WorkerScope;

/** A loop that waits for longer does not judge by time: a SYN is sent again after 1 s. */
const LOST_MS = 900;
/** What is not answered by now never will be. A busy machine may leave client and server without a CPU for seconds. */
const GIVE_UP_MS = 5_000;
/** Where patient loops connect from. */
const [FIRST_PORT, PORTS] = [10_000, 50_000];
/** A pause between two ticks of a loop that is none of its own. */
const STALL_MS = 30;
/**
 * Who had such a pause so shortly before or during a request is on a machine with too much to do, whose kernel has pauses too, which
 * no clock measures: then only lost packets decide, and not the time that an answer took.
 */
const BUSY_MS = 2_000;
/** How often a thread with servers looks whether it runs. */
const SERVER_TICK_MS = 10;
/**
 * A datagram is answered within a few milliseconds. Where a server had no CPU for so long right after it was sent, its endpoint may have
 * left meanwhile, and the flow with it: nothing brings such an answer back, whatever proxy there is.
 */
const ANSWER_STALL_MS = 20;
const SENT_SOON_MS = 150;
/** More of them in one loop have another cause. */
const MAX_CUT_ANSWERS = 2;
/** By then the servers of a late answer have told whether they had no CPU. */
const SERVERS_TELL_MS = 100;

let servers = new LabServers("");
const kept = new KeptConnection();
let loop: ConnectLoop | undefined;
/** At these indices: for how many milliseconds any agent's servers have had no CPU; how many loops run. All agents of a process share it. */
let shared = new Int32Array(new SharedArrayBuffer(8));
const [SERVED, LOOPS] = [0, 1];
let isTelling = false;

/**
 * Adds up for how long this thread, which has servers, did not come to run, while there are loops that want to know. At other times it
 * sleeps: on a kernel that is slow, a hundred ticks a second of every thread would take more than all that the tests do.
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
 * How long this thread itself did not come to run. On a machine with more to do than it has CPUs that is no fault of the way that a
 * request took, and an answer that lies in the socket meanwhile is not late. What a second SYN costs, a second, is longer.
 */
class Stalls {
  readonly #everyMs: number;
  #lastMs = performance.now();
  #totalMs = 0;
  /** When the last one ended. */
  #latestMs = -Infinity;

  /** @param everyMs how often {@linkcode Stalls.tick} is called by a thread that runs */
  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  tick(): void {
    const totalMs = this.totalMs();
    this.#lastMs = performance.now();
    if (totalMs > this.#totalMs) this.#latestMs = this.#lastMs;
    this.#totalMs = totalMs;
  }

  /** True if there was one at this time, as `performance.now()` tells it, or since. */
  anySince(timeMs: number): boolean {
    return this.#latestMs >= timeMs || this.totalMs() > this.#totalMs;
  }

  /** A clock that stands still meanwhile. */
  runningMs(): number {
    return performance.now() - this.totalMs();
  }

  /** Up to now. */
  totalMs(): number {
    const gapMs = performance.now() - this.#lastMs;
    return this.#totalMs + (gapMs > STALL_MS ? gapMs - this.#everyMs : 0);
  }
}

/** For how long, in all, servers have had no CPU since that was `servedMs`, as it is known after `waitMs` more. */
async function stalledServersMs(servedMs: number, waitMs: number): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, waitMs));
  return Atomics.load(shared, SERVED) - servedMs;
}

/**
 * Starts requests on time, whatever becomes of the earlier ones. What was due while it had no CPU is not made up for: hundreds at once,
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
  /** Of the latest answer, by {@linkcode ConnectLoop.#ranMs}. */
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
    // To the end of the last request, whose limit this clock decides.
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

  /** How long it has been running without rest. */
  #activeMs(): number {
    const nowMs = performance.now();
    return nowMs - this.#startMs - this.#restedMs - (nowMs - (this.#restingSinceMs ?? nowMs));
  }

  /** How long it has been running without rest and with a CPU. */
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

  /** Starts nothing more for a time; resolves when everything under way has ended. */
  async rest(): Promise<void> {
    this.#restingSinceMs ??= performance.now();
    await Promise.all(this.#running);
  }

  resume(): void {
    this.#restedMs += performance.now() - (this.#restingSinceMs ?? performance.now());
    this.#restingSinceMs = undefined;
  }

  /**
   * A port that this loop has not used for long: left to itself the kernel takes one a second time within a minute. What happens to such a
   * connection when IPVS mode goes is no loss of a packet either (docs/operations.md).
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
    // What took as long as a packet that was sent again takes needs a better excuse.
    const wasBusy = this.#stalls.anySince(startMs - BUSY_MS);
    const isBusy = wasBusy && (tookMs < LOST_MS || lostMs > tookMs / 2);
    // No client sends a datagram again: one that is answered late was not lost.
    const isLate = tookMs > limitMs && protocol !== "udp" && !isBusy &&
      !(tookMs < LOST_MS && await stalledServersMs(servedMs, SERVERS_TELL_MS) >= tookMs - limitMs);
    // Where the time is not enough to notice that a first packet was lost, the kernel still does. If all of the machine stood still for
    // so long, its timer comes before the answer that lies there.
    const wasLost = result.kind === "answer" && (result.wasSynLost || result.lostSegments > 0);
    const isLost = wasLost && lostMs < LOST_MS;
    if (result.kind === "answer" && !isLate && !isLost) {
      const { ip, port } = result.answer.local;
      const key = ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
      this.#byServer[key] = (this.#byServer[key] ?? 0) + 1;
      this.#slowestMs = Math.max(this.#slowestMs, tookMs);
      // One that came in time by the clock itself needs no excuse.
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
  // ICMPv6's checksum is the kernel's work, ICMP's is ours: the other words are zero.
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
