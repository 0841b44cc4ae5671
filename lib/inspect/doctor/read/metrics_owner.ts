/**
 * Asks who serves metrics where a service proxy of this node would.
 *
 * @module
 */
import { readRefusal } from "../../../source/kube/kube_answer.ts";
import type { MetricsOwner } from "../judge/other_proxies.ts";

/** @param address `IP:port` as configured; an unspecified IP is asked on loopback */
export async function readMetricsOwner(address: string, signal: AbortSignal): Promise<MetricsOwner> {
  if (address === "") return "nobody";
  let response: Response;
  try {
    response = await fetch(`http://${localAddress(address)}/metrics`, { signal, redirect: "manual" });
  } catch (error) {
    signal.throwIfAborted();
    // Nobody listens there.
    if (error instanceof TypeError) return "nobody";
    throw error;
  }
  const body = response.body ?? new Blob().stream();
  // Its beginning is enough: whoever answers may send without an end.
  const text = await readRefusal({ body }, { signal, note: () => {} });
  // Both have the metrics of kube-proxy; those of Go's runtime, which come early, only kube-proxy has.
  if (/^(# (HELP|TYPE) )?go_/m.test(text)) return "kube-proxy";
  return /^(# (HELP|TYPE) )?k(ube)?proxy_/m.test(text) ? "kproxy" : "somebody else";
}

/** `0.0.0.0:10249` → `127.0.0.1:10249`. */
export function localAddress(address: string): string {
  return address.replace(/^0\.0\.0\.0:/, "127.0.0.1:").replace(/^\[::\]:/, "[::1]:");
}
