/**
 * What the forwarders of TCP and UDP share: who hears of what they do, and how much they may take.
 *
 * @module
 */
import type { DescriptorAllowance } from "../../../kernel/descriptors.ts";
import type { CopyBuffers } from "./copy_buffers.ts";
import type { PortalEndpoint, PortalProtocol } from "../plan/ruleset.ts";

/** Why a client was not served. */
export type RelayRefusal = "descriptors" | "limit" | "no endpoint" | "no answer";

/** Hears of everything that is forwarded. */
export interface RelayObserver {
  opened(protocol: PortalProtocol): void;
  closed(protocol: PortalProtocol): void;
  refused(protocol: PortalProtocol, reason: RelayRefusal): void;
  /** An endpoint took no connection. */
  dialFailed(protocol: PortalProtocol): void;
  /** Bytes of a client (`in`) or to it (`out`). */
  forwarded(protocol: PortalProtocol, direction: "in" | "out", bytes: number): void;
}

/** What a portal is given of the process. */
export interface RelayContext {
  readonly observer: RelayObserver;
  readonly sessions: SessionLimit;
  readonly buffers: CopyBuffers;
  /** Told what one portal cannot do, such as accept. */
  readonly onProblem: (problem: string, error: unknown) => void;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  readonly random: () => number;
  /** Milliseconds after which a UDP session without packets ends. */
  readonly udpIdleMs: number;
}

/** A port of kproxy's own at work. */
export interface OpenPortal {
  readonly port: number;
  /** Takes endpoints and seconds of affinity over. */
  update(endpoints: readonly PortalEndpoint[], stickySeconds: number): void;
  /** Takes no more clients; those that are there are served to their end. Resolves when others may have the port. */
  close(): Promise<void>;
}

/** No port could be had. */
export class NoPortError extends Error {
  /** @param isDenied true if it is a lack of rights, as for ports below 1024 */
  constructor(message: string, readonly isDenied: boolean) {
    super(message);
    this.name = "NoPortError";
  }
}

/**
 * How many sessions there may be at a time, however many descriptors are left: memory is for more than strangers. A client of UDP has a
 * socket whose buffer takes 64 KiB.
 */
export const MOST_SESSIONS: Readonly<Record<PortalProtocol, number>> = { TCP: 32_768, UDP: 4_096 };

/** How many sessions all portals of a protocol together may have: connections of TCP, clients of UDP. */
export class SessionLimit {
  readonly #most: number;
  readonly #allowance: DescriptorAllowance;
  #open = 0;
  #whenNone: (() => void) | null = null;

  /** @param most Infinity for as many as there are descriptors */
  constructor(most: number, allowance: DescriptorAllowance) {
    this.#most = most;
    this.#allowance = allowance;
  }

  get open(): number {
    return this.#open;
  }

  /**
   * Null if there is room for one more, which counts from now on; else what is lacking.
   *
   * @param descriptors how many it takes; as many are given back with it
   */
  take(descriptors: number): RelayRefusal | null {
    if (this.#open >= this.#most) return "limit";
    for (let taken = 0; taken < descriptors; taken++) {
      if (this.#allowance.take()) continue;
      for (; taken > 0; taken--) this.#allowance.giveBack();
      return "descriptors";
    }
    this.#open++;
    return null;
  }

  /** The system has no descriptor left, whatever was assured. */
  exhausted(): void {
    this.#allowance.exhausted();
  }

  giveBack(descriptors: number): void {
    for (let given = 0; given < descriptors; given++) this.#allowance.giveBack();
    this.#open--;
    if (this.#open === 0) this.#whenNone?.();
  }

  /** Resolves when there is none. */
  async none(): Promise<void> {
    if (this.#open === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#whenNone = resolve;
    await promise;
  }
}
