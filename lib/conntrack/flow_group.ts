/**
 * UDP flows as connection tracking holds them, read from `conntrack -L`.
 *
 * @module
 */
import { joinHostPort, parseIp } from "../model/ip.ts";

/** The tracking zones of a flow, as `conntrack` options; empty for the default zone. */
export type ZoneOptions = readonly string[];

/**
 * All flows of a dump that were sent to the same address and are answered from the same address, in one zone: nothing else
 * decides whether they are stale.
 */
export interface FlowGroup {
  /** Where the client sends to: `ip:port` or `[ip]:port`. */
  readonly destination: string;
  readonly destinationIp: string;
  readonly destinationPort: number;
  /** Where the answers come from: the endpoint, or the destination itself if it is not translated. */
  readonly replySource: string;
  readonly replyIp: string;
  readonly replyPort: number;
  readonly zone: ZoneOptions;
  readonly flows: number;
}

/** One line: the original tuple, then the reply tuple, each with counters where accounting is on. */
const TUPLE = String.raw`src=([0-9a-f.:]+) dst=([0-9a-f.:]+) sport=(\d{1,5}) dport=(\d{1,5})(?!\d)`;
const FLOW = new RegExp(String.raw`^udp +17 .*?${TUPLE}(.*?)${TUPLE}(.*)$`, "gm");
const ZONE = / (zone|zone-orig|zone-reply)=(\d+)/g;
const ZONE_OPTION: Readonly<Record<string, string>> = {
  "zone": "--zone",
  "zone-orig": "--orig-zone",
  "zone-reply": "--reply-zone",
};

interface CountedGroup extends FlowGroup {
  flows: number;
}

/** Groups the UDP flows of a dump, in order of first appearance. Lines of other kinds, without addresses, and lines cut off are passed over. */
export function groupFlows(dump: string): readonly FlowGroup[] {
  const groups = new Map<string, CountedGroup>();
  for (const match of dump.matchAll(FLOW)) {
    const [, , dst = "", , dport = "", middle = "", replySrc = "", , replySport = "", , rest = ""] = match;
    const tail = middle + rest;
    const zones = tail.includes("zone") ? zoneOptions(tail) : NO_ZONE;
    const key = `${dst} ${dport} ${replySrc} ${replySport} ${zones.join(" ")}`;
    const known = groups.get(key);
    if (known !== undefined) {
      known.flows++;
      continue;
    }
    const [destinationIp, replyIp] = [parseIp(dst)?.text, parseIp(replySrc)?.text];
    if (destinationIp === undefined || replyIp === undefined) continue;
    groups.set(key, {
      destination: joinHostPort(destinationIp, Number(dport)),
      destinationIp,
      destinationPort: Number(dport),
      replySource: joinHostPort(replyIp, Number(replySport)),
      replyIp,
      replyPort: Number(replySport),
      zone: zones,
      flows: 1,
    });
  }
  return [...groups.values()];
}

const NO_ZONE: ZoneOptions = [];

function zoneOptions(text: string): ZoneOptions {
  return [...text.matchAll(ZONE)].flatMap(([, name = "", id = ""]) => [ZONE_OPTION[name] ?? "", id]);
}
