/**
 * Messages between a test and the agents in the namespaces of a lab: calls, requests and results.
 *
 * @module
 */
import type { SocketAddress } from "./lab_sockets.ts";

/** Protocols of requests to a server. */
export type ProbeProtocol = "tcp" | "udp" | "sctp";

/** A server that answers every request with its view of the client. */
export interface ServerRequest {
  readonly protocol: ProbeProtocol;
  readonly ip: string;
  readonly port: number;
}

/** One or more requests, one after the other, each from a new socket. */
export interface ProbeRequest {
  readonly protocol: ProbeProtocol;
  /** Source address to bind to; without it the namespace's routes choose. */
  readonly source?: string;
  /** Source port to bind to; without it the kernel chooses a free one. */
  readonly sourcePort?: number;
  readonly to: SocketAddress;
  readonly count: number;
  /** Limit of each request. */
  readonly timeoutMs: number;
}

/** A request over the agent's kept TCP connection, which the first one opens. */
export interface KeptRequest {
  readonly to: SocketAddress;
  readonly timeoutMs: number;
}

/** Answer of a server, with its view of the request. */
export interface Answer {
  /** Label of the namespace in which the server runs. */
  readonly server: string;
  /** The server's end of the connection: where the request arrived. */
  readonly local: SocketAddress;
  /** The client's end, as the server sees it. */
  readonly client: SocketAddress;
}

/** Result of one request. */
export type ProbeResult =
  | {
    readonly kind: "answer";
    readonly answer: Answer;
    /** The client's end, as the client sees it. */
    readonly from: SocketAddress;
    readonly tookMs: number;
    /** True if the first packet of a TCP connection was lost, so that the client's kernel had to send it again. */
    readonly wasSynLost: boolean;
    /** Number of segments lost after a TCP connection was established: those of the request. */
    readonly lostSegments: number;
  }
  /** An answer that is not from a lab's server. */
  | { readonly kind: "stranger"; readonly text: string }
  | { readonly kind: "refused" }
  /** No answer in time. */
  | { readonly kind: "silence" }
  | { readonly kind: "error"; readonly message: string };

/** A connect loop: requests at a steady rate until it is stopped. */
export interface LoopRequest {
  readonly protocol: ProbeProtocol;
  readonly to: SocketAddress;
  readonly perSecond: number;
  /**
   * A connection that takes longer, without the time in which the loop had no CPU, has failed, unless the machine is too busy for time
   * to count. So has one with a lost packet, its first or a later one, as the kernel counts them, and a datagram without an answer.
   */
  readonly limitMs: number;
  /**
   * Uses ports that it has not used for long, as loops that do not fail by time always do: a server that still has the other end of a
   * former connection, whose last packets were lost, challenges a SYN before it accepts it.
   */
  readonly freshPorts?: boolean;
}

/** Results of a loop's requests. */
export interface LoopReport {
  readonly requests: number;
  readonly durationMs: number;
  /** Time in which the loop itself had no CPU; requests are not blamed for it. */
  readonly stalledMs: number;
  /** One line per request that was refused, lost, or slow, with the second of its start. */
  readonly failures: readonly string[];
  /** Start of each failed request, in milliseconds since the epoch. */
  readonly failuresAtMs: readonly number[];
  /**
   * Requests exempt from the limit, as the loop or a server had no CPU: connections that took longer,
   * or lost a packet while the machine stalled, and datagrams whose server answered too late.
   */
  readonly excused: number;
  readonly slowestMs: number;
  /** Number of requests by `ip:port` of the server that answered. */
  readonly byServer: Readonly<Record<string, number>>;
}

/** A single TCP segment, as no connection would send it. */
export interface SegmentRequest {
  readonly source: string;
  readonly to: SocketAddress;
  /** `S` for SYN, `A` for ACK. */
  readonly flags: "S" | "A";
  readonly timeoutMs: number;
  /**
   * Sends a frame out of this interface, to this hardware address, past the sender's own routing: the only way to put
   * a loopback address on a wire.
   */
  readonly frame?: { readonly interfaceName: string; readonly hardwareAddress: string };
}

/** Methods of an agent, by call. */
export interface AgentMethods {
  /** @param shared two numbers of all agents in a process: time in which servers had no CPU, and number of running loops */
  enter: (netns: string, label: string, shared: Int32Array<SharedArrayBuffer>) => void;
  serve: (request: ServerRequest) => void;
  /** Ends the servers on this port, or all. */
  unserve: (port?: number) => Promise<void>;
  probe: (request: ProbeRequest) => Promise<ProbeResult[]>;
  askKept: (request: KeptRequest) => Promise<ProbeResult>;
  /** Closes the kept connection, so that the next request opens another one. */
  dropKept: (isReset?: boolean) => void;
  startLoop: (request: LoopRequest) => void;
  stopLoop: () => Promise<LoopReport>;
  /** Starts no requests until `resumeLoop`; resolves when those under way have ended. */
  restLoop: () => Promise<void>;
  resumeLoop: () => void;
  /** Counters of the loop so far. */
  loopReport: () => LoopReport;
  /**
   * Longest time, in milliseconds, without an answer to a request of the loop, since the last call. Time in which it rested or
   * had no CPU does not count.
   */
  longestGap: () => number;
  /** ICMP echo; `silence` or an answer. */
  ping: (source: string, to: string, timeoutMs: number) => Promise<ProbeResult>;
  /** Sends a single segment; yields the flags of the answer, or "" for silence. */
  segment: (request: SegmentRequest) => Promise<string>;
}

/** A call over the worker's channel. */
export interface AgentCall {
  readonly id: number;
  readonly method: keyof AgentMethods;
  readonly args: readonly unknown[];
}

/** Result of a call. */
export interface AgentReply {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}
