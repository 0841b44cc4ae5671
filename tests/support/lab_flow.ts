/**
 * Sends the packets of a flow case through a lab, as requests of real programs, and reports the outcomes in the words of the
 * flow cases.
 *
 * @module
 */
import { joinHostPort } from "../../lib/model/ip.ts";
import { type Packet, parsePacket } from "../../lib/sim/flow.ts";
import type { ObjectJson } from "../../lib/source/decode/api_json.ts";
import { type FlowCase, flowOf, type FlowStep } from "../flows/flow_case.ts";
import type { ApiJson } from "../flows/objects.ts";
import type { LabHost } from "./lab_host.ts";
import type { ProbeProtocol, ProbeResult, ServerRequest } from "./lab_probe.ts";
import { hostPrefix, NODE_ADDRESSES, type NodeLab } from "./node_lab.ts";

/** Client's error for an established connection that ended before an answer. */
const CLOSED = "closed without an answer";
/** Time without an answer after which a packet counts as dropped, where that is expected. */
const SILENCE_MS = 200;
/**
 * The same where another outcome is expected. A busy machine may take longer than the above, and the kernel forgets a
 * REJECT that arrives while the sender is still sending (this happens where all hosts are one machine,
 * under IPv6): the second attempt, a second later, is refused for good.
 */
const ANSWER_MS = 5_000;
/** Bound of the probability to miss an outcome in all requests of a step. */
const MISS_PROBABILITY = 1e-9;
/** Number of rounds in round-robin modes, in which each endpoint gets a request per round. */
const ROUNDS = 3;
const ROUND_ROBIN_MODES: readonly string[] = ["ipvs", "userspace"];

/** Expected outcomes of a request, and the number of requests to see each of them. */
interface Expectation {
  /** Outcomes, sorted. */
  readonly outcomes: readonly string[];
  readonly requests: number;
}

/**
 * Reads the text after `⇒`. Leftover marks are invisible outside of the node, so they are not part of an outcome.
 */
function parseExpectation(text: string, mode: string): Expectation {
  const plain = text.replace(/,? ?mark 0x[0-9a-f]+ left/g, "");
  const shared = /, masquerade (?:yes|no)$/.exec(plain)?.[0] ?? "";
  const parts = plain.slice(0, plain.length - shared.length).split(" | ").map((part) => {
    const [, place = "", chance, own = ""] =
      /^(.*?)(?: \((\d+\/\d+)(, masquerade (?:yes|no))?\))?$/.exec(part) ?? [];
    const isPlain = place === "untranslated" || place === "this node";
    const manner = own || shared || (isPlain ? ", masquerade no" : "");
    const [count = 1, of = 1] = (chance ?? "1/1").split("/").map(Number);
    return { outcome: place + manner, probability: count / of };
  });
  const least = Math.min(...parts.map(({ probability }) => probability));
  const byChance = Math.ceil(Math.log(MISS_PROBABILITY) / Math.log(1 - least));
  const requests = least === 1 ? 2 : ROUND_ROBIN_MODES.includes(mode) ? Math.ceil(ROUNDS / least) : byChance;
  return { outcomes: parts.map(({ outcome }) => outcome).sort(), requests };
}

/** Addresses and ports of all endpoints in the slices among `objects`. */
function endpointsOf(objects: readonly ApiJson[]): { ip: string; port: number; protocol: ProbeProtocol }[] {
  return objects.filter(isSlice).flatMap(({ endpoints = [], ports = [] }) =>
    endpoints.flatMap(({ addresses }) =>
      ports.map(({ port = 0, protocol = "TCP" }) => ({
        ip: addresses[0]!,
        port,
        protocol: protocol.toLowerCase() as ProbeProtocol,
      }))
    )
  );
}

function isSlice(object: ApiJson): object is ObjectJson<"EndpointSlice"> {
  return object.kind === "EndpointSlice";
}

function isNodeAddress(ip: string): boolean {
  return ip.startsWith("127.") || ip === "::1" ||
    Object.values(NODE_ADDRESSES).some((list) => (list as readonly string[]).includes(ip));
}

function isLocalPod(ip: string): boolean {
  return /^10\.244\.(0|9)\.|^fd00:10:244::/.test(ip);
}

/** How packets are sent, and in which mode. */
export interface LabFlowOptions {
  /** Mode whose rules the packets pass. @default {"iptables"} */
  readonly mode?: string;
  /** Factor of all waits, on a slow kernel. @default {1} */
  readonly patience?: number;
}

/** One flow case in a lab; its servers run as long as its packets need them. */
export class LabFlowCase {
  readonly #lab: NodeLab;
  readonly #case: FlowCase;
  readonly #packets: ReadonlyMap<FlowStep, Packet>;
  readonly #mode: string;
  readonly #patience: number;

  constructor(lab: NodeLab, flowCase: FlowCase, { mode = "iptables", patience = 1 }: LabFlowOptions = {}) {
    this.#lab = lab;
    this.#mode = mode;
    this.#patience = patience;
    this.#case = flowCase;
    const steps = flowCase.flows.map((flow) => typeof flow === "string" ? { flow } : flow);
    this.#packets = new Map(steps.map((step) => [step, parsePacket(flowOf(step, mode).packet)]));
  }

  /** Starts servers for all endpoints, then sends the packets. Yields the unexpected outcomes, in words. */
  async run(gapOf: (step: FlowStep) => string | undefined): Promise<string[]> {
    await this.serve();
    const differences: string[] = [];
    for (const [step, packet] of this.#packets) {
      if (gapOf(step) !== undefined) continue;
      const difference = await this.#check(step, packet);
      if (difference !== null) differences.push(difference);
    }
    await this.end();
    return differences;
  }

  /** Starts servers for all endpoints, on a node without tracked connections. */
  async serve(): Promise<void> {
    await this.#lab.flushConntrack();
    for (const { ip, port, protocol } of endpointsOf(this.#case.objects)) {
      await (await this.#owner(ip, true)).call("serve", { ip, port, protocol });
    }
  }

  /** Ends all servers. */
  async end(): Promise<void> {
    await Promise.all(
      [...this.#lab.hosts, this.#lab.node, this.#lab.world].map((host) => host.call("unserve")),
    );
  }

  /**
   * Distinct outcomes of so many requests for one of the case's packets, sorted. Only for packets that begin a connection.
   *
   * @param isPatient waits longer for an answer, as a busy machine needs
   */
  async observe(packetText: string, requests: number, isPatient: boolean): Promise<string[]> {
    const packet = parsePacket(packetText);
    const source = packet.inInterface === ""
      ? this.#lab.node
      : await this.#lab.host(packet.source, packet.inInterface);
    const outcomes = isPatient ? [] : ["dropped"];
    return [...new Set(await this.#request(source, packet, { outcomes, requests }))].sort();
  }

  /** Host of an address: the node, a pod, or the world. `hosted`: create a host for an address outside. */
  async #owner(ip: string, hosted: boolean): Promise<LabHost> {
    if (isNodeAddress(ip)) return this.#lab.node;
    const asSource = [...this.#packets.values()].findLast(({ source }) => source === ip);
    if (asSource !== undefined && asSource.inInterface !== "") {
      return await this.#lab.host(ip, asSource.inInterface);
    }
    if (isLocalPod(ip)) return await this.#lab.host(ip, "cni0");
    return this.#lab.outsideHost(ip) ?? (hosted ? await this.#lab.host(ip) : this.#lab.world);
  }

  async #check(step: FlowStep, packet: Packet): Promise<string | null> {
    const { packet: packetText, wanted: wantedText } = flowOf(step, this.#mode);
    const wanted = parseExpectation(wantedText, this.#mode);
    const undo: (() => Promise<unknown>)[] = [];
    const source = packet.inInterface === ""
      ? await this.#nodeSource(packet.source, undo)
      : await this.#lab.host(packet.source, packet.inInterface);
    if (packet.mark !== 0) await this.#mark(packet, undo);
    const found = packet.state === "INVALID"
      ? [await this.#sendInvalid(source, packet, wanted)]
      : isLoopbackFromOutside(packet)
      ? [await this.#sendToLoopback(packet, wanted)]
      : await this.#request(source, packet, wanted);
    for (const action of undo.toReversed()) await action();
    const outcomes = [...new Set(found)].sort();
    if (JSON.stringify(outcomes) === JSON.stringify(wanted.outcomes)) return null;
    return `${packetText}\n  wanted ⇒ ${wanted.outcomes.join(" | ")}\n  found  ⇒ ${outcomes.join(" | ")}`;
  }

  /** The node as a sender; it is lent an address that it does not have. */
  async #nodeSource(ip: string, undo: (() => Promise<unknown>)[]): Promise<LabHost> {
    const { node } = this.#lab;
    if (!isNodeAddress(ip)) {
      const change = (action: string) => node.netns.run(["ip", "addr", action, hostPrefix(ip), "dev", "lo"]);
      await change("add");
      undo.push(() => change("del"));
    }
    return node;
  }

  async #mark(
    { source, destination, mark, inInterface }: Packet,
    undo: (() => Promise<unknown>)[],
  ): Promise<void> {
    const tool = source.includes(":") ? "ip6tables" : "iptables";
    const rule = [
      inInterface === "" ? "OUTPUT" : "PREROUTING",
      ...["-s", source, "-d", destination],
      ...["-j", "MARK", "--or-mark", String(mark)],
    ];
    const change = (action: string) =>
      this.#lab.node.netns.run([tool, "-w", "5", "-t", "mangle", action, ...rule]);
    await change("-A");
    undo.push(() => change("-D"));
  }

  #timeoutMs(outcomes: readonly string[]): number {
    return this.#patience * (outcomes.includes("dropped") ? SILENCE_MS : ANSWER_MS);
  }

  async #request(source: LabHost, packet: Packet, { outcomes, requests }: Expectation): Promise<string[]> {
    const { destination: ip, port, protocol } = packet;
    const timeoutMs = this.#timeoutMs(outcomes);
    if (protocol === "icmp") {
      const result = await source.call("ping", packet.source, ip, timeoutMs);
      const place = isNodeAddress(ip) ? "this node" : "untranslated";
      return [result.kind === "answer" ? `${place}, masquerade no` : endOf(result)];
    }
    // The host that would get the untranslated packet also answers: a refusal is then by the rules, not by a closed port.
    const own = await this.#owner(ip, false);
    await this.#serveUnlessTaken(own, { ip, port, protocol });
    const request = { protocol, source: packet.source, to: { ip, port }, timeoutMs };
    const first = await source.probe(request);
    // One silence is enough, and so is one refusal: they may take long.
    const rest = first[0]?.kind !== "answer" ? [] : await source.probe({ ...request, count: requests - 1 });
    const found = [...first, ...rest].map((result) => outcomeOf(packet, result));
    const unwanted = found.filter((outcome) => !outcomes.includes(outcome));
    // In one of some ten thousand masqueraded packets the random port happens to be the original one.
    const isChance = packet.inInterface === "" && unwanted.length === 1 && found.length > 1 &&
      outcomes.includes(unwanted[0]!.replace(/masquerade no$/, "masquerade yes"));
    return isChance ? found.filter((outcome) => outcome !== unwanted[0]) : found;
  }

  /** Starts a server, unless kproxy itself has the port: health-check node ports are its own. */
  async #serveUnlessTaken(host: LabHost, server: ServerRequest): Promise<void> {
    try {
      await host.call("serve", server);
    } catch (error) {
      if (host !== this.#lab.node || !(error instanceof Error && error.message.includes("EADDRINUSE"))) {
        throw error;
      }
    }
  }

  /** Sends an ACK of no connection. Its receiver answers with a reset. */
  async #sendInvalid(source: LabHost, packet: Packet, { outcomes }: Expectation): Promise<string> {
    await this.#owner(packet.destination, true);
    await this.#lab.node.netns.run(["sysctl", "-q", "-w", "net.netfilter.nf_conntrack_tcp_loose=0"]);
    const answer = await source.call("segment", {
      source: packet.source,
      to: { ip: packet.destination, port: packet.port },
      flags: "A",
      timeoutMs: this.#timeoutMs(outcomes),
    });
    if (answer === "") return "dropped";
    return `${isNodeAddress(packet.destination) ? "this node" : "untranslated"}, masquerade no`;
  }

  /** Sends a frame to a loopback address, as no correct router would. */
  async #sendToLoopback(packet: Packet, { outcomes }: Expectation): Promise<string> {
    const { node, world } = this.#lab;
    // The sysctl that node ports on localhost need.
    await node.netns.run(["sysctl", "-q", "-w", "net.ipv4.conf.all.route_localnet=1"]);
    const to = { ip: packet.destination, port: packet.port };
    await node.call("serve", { protocol: "tcp", ...to });
    const hardwareAddress = (await node.netns.run(["cat", "/sys/class/net/eth0/address"])).trim();
    const answer = await world.call("segment", {
      source: packet.source,
      to,
      flags: "S",
      timeoutMs: this.#timeoutMs(outcomes),
      frame: { interfaceName: "eth0", hardwareAddress },
    });
    return answer === "" ? "dropped" : "this node, masquerade no";
  }
}

/** True for packets that only {@linkcode LabFlowCase} itself can put on a wire. */
export function isLoopbackFromOutside({ destination, inInterface }: Packet): boolean {
  return destination.startsWith("127.") && inInterface !== "";
}

function endOf(result: ProbeResult): string {
  if (result.kind === "refused") return "rejected";
  if (result.kind === "silence") return "dropped";
  if (result.kind === "stranger") return `answered by a stranger: ${result.text}`;
  if (result.kind === "error" && result.message === CLOSED) return "closed";
  return result.kind === "error" ? `error: ${result.message}` : "answered";
}

function outcomeOf({ destination, port, inInterface }: Packet, result: ProbeResult): string {
  // The only server on the node that is not the lab's is kproxy.
  if (result.kind === "stranger" && isNodeAddress(destination)) return "this node, masquerade no";
  if (result.kind !== "answer") return endOf(result);
  const { from } = result;
  const { server, local, client } = result.answer;
  const place = local.ip === destination && local.port === port
    ? server === "node" ? "this node" : "untranslated"
    : joinHostPort(local.ip, local.port);
  // For the node's own packets masquerading keeps the address, but always changes the port. Others keep their port unless two
  // requests by different paths came to the same endpoint from the same port.
  const isSame = client.ip === from.ip && (inInterface !== "" || client.port === from.port);
  return `${place}, masquerade ${isSame ? "no" : "yes"}`;
}
