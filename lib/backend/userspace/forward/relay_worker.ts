/**
 * The thread that forwards traffic: syncs and log lines do not delay it.
 *
 * @module
 */
import { systemClock } from "../../../kernel/clock.ts";
import { CopyBuffers } from "./tcp_portal.ts";
import { openPortal } from "./open_portal.ts";
import { NoPortError, type OpenPortal, type RelayContext, relaySessions } from "./relay.ts";
import type { RelayNews, RelayOrder } from "./shared_portals.ts";

/** How often the counts are sent, if there is news. */
const COUNTS_MS = 250;
/** How often a thread that is to end looks whether sessions are left. */
const DRAIN_LOOK_MS = 10;

interface ThreadScope {
  onmessage: ((event: MessageEvent<RelayOrder>) => void) | null;
  postMessage(news: RelayNews): void;
}
const scope = globalThis as unknown as ThreadScope;

function onProblem(problem: string, error: unknown): void {
  scope.postMessage({ kind: "problem", problem, message: messageOf(error) });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const sessions = relaySessions({
  onGreed: (message) => onProblem("Sessions run out, shared out by client", message),
});
const counts = { TCP: sessions.TCP.counts, UDP: sessions.UDP.counts };
const portals = new Map<number, OpenPortal>();
const context: Omit<RelayContext, "udpIdleMs"> = {
  sessions,
  buffers: new CopyBuffers(),
  onProblem,
  nowMs: () => performance.now(),
  random: Math.random,
};

/** @returns the port of a portal that was opened */
async function carryOut(order: RelayOrder): Promise<number> {
  switch (order.kind) {
    case "open": {
      const opened = await openPortal(order.place, { ...context, udpIdleMs: order.udpIdleMs });
      portals.set(order.portal, opened);
      return opened.port;
    }
    case "update":
      await portals.get(order.portal)?.update(order.endpoints, order.stickySeconds);
      return 0;
    case "close": {
      const portal = portals.get(order.portal);
      portals.delete(order.portal);
      await portal?.close();
      return 0;
    }
    case "drain":
      while (counts.TCP.open + counts.UDP.open > 0) await systemClock.sleep(DRAIN_LOOK_MS);
      return 0;
  }
}

scope.onmessage = async ({ data }) => {
  const { request } = data;
  try {
    scope.postMessage({ kind: "done", request, port: await carryOut(data) });
  } catch (error) {
    const isDenied = error instanceof NoPortError && error.isDenied;
    scope.postMessage({ kind: "failed", request, message: messageOf(error), isDenied });
  }
};

// An unexpected failure costs one connection and not all of them.
for (const type of ["error", "unhandledrejection"] as const) {
  globalThis.addEventListener(type, (event) => {
    event.preventDefault();
    onProblem("A connection failed", "reason" in event ? event.reason : event.error);
  });
}

let sent = "";
setInterval(() => {
  const now = JSON.stringify(counts);
  if (now === sent) return;
  sent = now;
  scope.postMessage({ kind: "counts", counts });
}, COUNTS_MS);
