/**
 * What a lab agent is asked to do and what it answers: the words between the test and the threads in the namespaces.
 *
 * @module
 */
import type { SocketAddress } from "./lab_sockets.ts";

/** Protocols of probes that reach a server. */
export type ProbeProtocol = "tcp" | "udp" | "sctp";

/** A server that answers every request with what it sees of the client. */
export interface ServerRequest {
  readonly protocol: ProbeProtocol;
  readonly ip: string;
  readonly port: number;
}

/** One or more requests, one after the other, each from a fresh socket. */
export interface ProbeRequest {
  readonly protocol: ProbeProtocol;
  /** Address to bind to; without it the namespace's routes choose. */
  readonly source?: string;
  /** Port to bind to; without it the kernel chooses a fresh one. */
  readonly sourcePort?: number;
  readonly to: SocketAddress;
  readonly count: number;
  /** Each request's limit. */
  readonly timeoutMs: number;
}

/** A request over the TCP connection that an agent keeps, which is made for the first one. */
export interface KeptRequest {
  readonly to: SocketAddress;
  readonly timeoutMs: number;
}

/** What a server saw of a request, in its own words. */
export interface Answer {
  /** Label of the namespace in which the server runs. */
  readonly server: string;
  /** The server's own end: where the request arrived. */
  readonly local: SocketAddress;
  /** The client's end as the server sees it. */
  readonly client: SocketAddress;
}

/** How one request ended. */
export type ProbeResult =
  | {
    readonly kind: "answer";
    readonly answer: Answer;
    /** The client's end as the client sees it. */
    readonly from: SocketAddress;
    readonly tookMs: number;
    /** True if the first packet of a TCP connection was lost, so that the client's kernel had to send it again. */
    readonly wasSynLost: boolean;
    /** Segments of a TCP connection that were lost after it was there: the request, that is. */
    readonly lostSegments: number;
  }
  /** An answer came from no server of a lab. */
  | { readonly kind: "stranger"; readonly text: string }
  | { readonly kind: "refused" }
  /** Nothing came back in time. */
  | { readonly kind: "silence" }
  | { readonly kind: "error"; readonly message: string };

/** Requests that start at a steady rate until they are told to stop. */
export interface LoopRequest {
  readonly protocol: ProbeProtocol;
  readonly to: SocketAddress;
  readonly perSecond: number;
  /**
   * A connection that takes longer, without the time in which the loop had no CPU, has failed, unless the machine is so busy that time
   * tells nothing. So has one that lost a packet, its first or a later one, as the kernel tells it, and a datagram without an answer.
   */
  readonly limitMs: number;
  /**
   * Takes ports that it has not used for long, as those that do not judge by time always do: a server that still has the other end of a
   * former connection, whose last packets were lost, asks back before it takes a new one.
   */
  readonly freshPorts?: boolean;
}

/** What became of the requests of a loop. */
export interface LoopReport {
  readonly requests: number;
  readonly durationMs: number;
  /** How long of it the loop itself was not given a CPU; requests are not blamed for that. */
  readonly stalledMs: number;
  /** One line per request that was refused, lost, or slow, with the second in which it began. */
  readonly failures: readonly string[];
  /** When each of them began, in milliseconds since the epoch. */
  readonly failuresAtMs: readonly number[];
  /**
   * Requests of which the limit is not asked, because the loop or a server had no CPU: connections that took longer by the clock,
   * that lost a packet while the machine stood still, and datagrams whose server came too late.
   */
  readonly excused: number;
  readonly slowestMs: number;
  /** Requests by `ip:port` of the server that answered. */
  readonly byServer: Readonly<Record<string, number>>;
}

/** A lone TCP segment, as no connection would send it. */
export interface SegmentRequest {
  readonly source: string;
  readonly to: SocketAddress;
  /** `S` for SYN, `A` for ACK. */
  readonly flags: "S" | "A";
  readonly timeoutMs: number;
  /**
   * Send it as a frame out of this interface, to this hardware address, past the sender's own routing. That is the only way to put
   * a loopback address on a wire.
   */
  readonly frame?: { readonly interfaceName: string; readonly hardwareAddress: string };
}

/** Methods of an agent. */
export interface AgentMethods {
  /** @param shared two numbers that all agents of a process share: how long servers have had no CPU, and how many loops run */
  enter: (netns: string, label: string, shared: Int32Array<SharedArrayBuffer>) => void;
  serve: (request: ServerRequest) => void;
  /** Ends the servers on this port, or all. */
  unserve: (port?: number) => Promise<void>;
  probe: (request: ProbeRequest) => Promise<ProbeResult[]>;
  askKept: (request: KeptRequest) => Promise<ProbeResult>;
  /** Closes that connection, so that the next request makes another one. */
  dropKept: (isReset?: boolean) => void;
  startLoop: (request: LoopRequest) => void;
  stopLoop: () => Promise<LoopReport>;
  /** Starts no more requests until `resumeLoop`; resolves when those under way have ended. */
  restLoop: () => Promise<void>;
  resumeLoop: () => void;
  /** Counters of the loop so far. */
  loopReport: () => LoopReport;
  /**
   * Longest time, in milliseconds, in which no request of the loop was answered, since this was asked last. Time in which it rested or
   * had no CPU does not count.
   */
  longestGap: () => number;
  /** ICMP echo; `silence` or an answer. */
  ping: (source: string, to: string, timeoutMs: number) => Promise<ProbeResult>;
  /** Sends a lone segment; the flags of the answer, or "" for silence. */
  segment: (request: SegmentRequest) => Promise<string>;
}

/** A call over the thread's channel. */
export interface AgentCall {
  readonly id: number;
  readonly method: keyof AgentMethods;
  readonly args: readonly unknown[];
}

/** Its result. */
export interface AgentReply {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}
