/**
 * The thread that forwards: neither syncs nor log lines keep what goes through it waiting.
 *
 * @module
 */
import { systemClock } from "../../../kernel/clock.ts";
import { CopyBuffers } from "./copy_buffers.ts";
import { openPortal } from "./open_portal.ts";
import {
  MOST_SESSIONS,
  NoPortError,
  type OpenPortal,
  type RelayContext,
  sessionPool,
  Sessions,
} from "./relay.ts";
import { QuietGarbage } from "./quiet_garbage.ts";
import type { PortalProtocol } from "../plan/ruleset.ts";
import type { RelayNews, RelayOrder } from "./relay_messages.ts";
import { RelayTally } from "./relay_tally.ts";

/** How often the counts are told, if there is news. */
const COUNTS_MS = 250;
/** How often a thread that is to end looks whether sessions are left. */
const DRAIN_LOOK_MS = 10;

interface ThreadScope {
  onmessage: ((event: MessageEvent<RelayOrder>) => void) | null;
  postMessage(news: RelayNews): void;
}
const scope = globalThis as unknown as ThreadScope;

const tally = new RelayTally();
const portals = new Map<number, OpenPortal>();
const pool = sessionPool(
  tally,
  (message) =>
    scope.postMessage({ kind: "problem", problem: "Sessions run out, shared out by client", message }),
);
const sessions: Readonly<Record<PortalProtocol, Sessions>> = {
  TCP: new Sessions(pool, "TCP", MOST_SESSIONS.TCP),
  UDP: new Sessions(pool, "UDP", MOST_SESSIONS.UDP),
};
const context: Omit<RelayContext, "sessions" | "udpIdleMs"> = {
  observer: tally,
  buffers: new CopyBuffers(),
  onProblem: (problem, error) => scope.postMessage({ kind: "problem", problem, message: messageOf(error) }),
  nowMs: () => performance.now(),
  random: Math.random,
};

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function carryOut(order: RelayOrder): Promise<void> {
  switch (order.kind) {
    case "open": {
      const { request, portal, place, udpIdleMs } = order;
      const opened = await openPortal(place, { ...context, sessions: sessions[place.protocol], udpIdleMs });
      portals.set(portal, opened);
      scope.postMessage({ kind: "opened", request, port: opened.port });
      return;
    }
    case "update":
      portals.get(order.portal)?.update(order.endpoints, order.stickySeconds);
      return;
    case "close": {
      const portal = portals.get(order.portal);
      portals.delete(order.portal);
      await portal?.close();
      scope.postMessage({ kind: "done", request: order.request });
      return;
    }
    case "drain":
      while (pool.count() > 0) await systemClock.sleep(DRAIN_LOOK_MS);
      scope.postMessage({ kind: "done", request: order.request });
  }
}

scope.onmessage = ({ data }) => {
  carryOut(data).catch((error) => {
    if ("request" in data) {
      const isDenied = error instanceof NoPortError && error.isDenied;
      scope.postMessage({ kind: "failed", request: data.request, message: messageOf(error), isDenied });
    } else context.onProblem("Cannot forward as told", error);
  });
};

// What nobody has foreseen costs one connection and not all of them.
for (const type of ["error", "unhandledrejection"] as const) {
  globalThis.addEventListener(type, (event) => {
    event.preventDefault();
    context.onProblem("A connection failed", "reason" in event ? event.reason : event.error);
  });
}

const garbage = new QuietGarbage();
let told = "";
setInterval(() => {
  const now = JSON.stringify(tally.counts);
  garbage.look(now === told, tally.changes);
  if (now === told) return;
  told = now;
  scope.postMessage({ kind: "counts", counts: tally.counts });
}, COUNTS_MS);
