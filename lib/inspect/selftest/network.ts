/**
 * Network of a test: namespaces, which are built, used, and removed in any case.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../../errors.ts";
import { type Exec, type ExecOptions, type ExecResult, runOk } from "../../kernel/exec.ts";
import {
  addNamespace,
  deleteNamespace,
  execInNamespace,
  listNamespaces,
  runIpLines,
} from "../../kernel/network_namespaces.ts";
import { isPermissionProblem } from "../../kernel/tool_errors.ts";
import { hostCidrText } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ChildRights, Job } from "./agent.ts";
import { ADDRESSES, type HostName, HOSTS, type NeighbourName, NEIGHBOURS } from "./cases.ts";
import type { SelftestOptions } from "./selftest.ts";

const NAME = /^kproxy-selftest-(?<until>[0-9a-z]+)-[0-9a-f]+-[a-z-]+$/;
/** Grace after a test's end: clocks may be set, and machines may stall. */
const GRACE_MS = 60_000;

/** @param untilMs end of the test, in milliseconds since the epoch */
export function namespaceNames(untilMs: number, random: string): Readonly<Record<HostName, string>> {
  const until = Math.ceil(untilMs / 1_000).toString(36);
  const entries = HOSTS.map((host) => [host, `kproxy-selftest-${until}-${random}-${host}`]);
  return Object.fromEntries(entries) as Record<HostName, string>;
}

/** Namespaces of tests that cannot be running any more. */
export function leftNamespaces(names: readonly string[], nowMs: number): readonly string[] {
  return names.filter((name) => {
    const until = NAME.exec(name)?.groups?.until;
    return until !== undefined && Number.parseInt(until, 36) * 1_000 + GRACE_MS < nowMs;
  });
}

/** The namespaces of one test, and the children that run in them. */
export class TestNetwork {
  readonly #options: SelftestOptions;
  readonly #until: AbortSignal;
  readonly #names: Readonly<Record<HostName, string>>;
  /** Namespaces that may exist. */
  readonly #begun: string[] = [];
  /** Aborted when the children have to end. */
  readonly #over = new AbortController();
  readonly #children: Promise<ExecResult>[] = [];

  /** @param until ends building the network, and the children */
  constructor(options: SelftestOptions, until: AbortSignal) {
    this.#options = options;
    this.#until = until;
    this.#names = namespaceNames(options.nowMs() + options.limitMs, options.random);
  }

  /** Starts programs in the namespace of a host. */
  execOf(host: HostName): Exec {
    const { exec, program } = this.#options;
    return execInNamespace(exec, this.#names[host], program("network")[0] ?? "");
  }

  /**
   * Creates and connects all namespaces.
   *
   * @throws {UnsupportedError} if this process, or this machine, may not create them
   * @throws {ExecError} if another command fails
   */
  async build(): Promise<void> {
    const { exec, families } = this.#options;
    const options: ExecOptions = { signal: this.#until };
    for (const host of HOSTS) {
      this.#begun.push(this.#names[host]);
      await asRights(() => addNamespace(exec, this.#names[host], options));
      await runOk(this.execOf(host), ["sysctl", "-w", ...settingsOf(host, families)], options);
    }
    await runIpLines(exec, this.#names.node, nodeLines(this.#names, families), options);
    for (const host of NEIGHBOURS) {
      await runIpLines(exec, this.#names[host], neighbourLines(host, families), options);
    }
  }

  /** Starts a child inside the namespace of a host. */
  start(host: HostName, rights: ChildRights, job: Job, options: ExecOptions = {}): Promise<ExecResult> {
    const child = this.execOf(host).run([...this.#options.program(rights), "selftest", "agent"], {
      ...options,
      stdin: JSON.stringify(job),
      signal: AbortSignal.any([this.#until, this.#over.signal]),
    });
    this.#children.push(child);
    return child;
  }

  /** Ends all children and removes all namespaces; yields those that are left, in sentences. */
  async remove(): Promise<readonly string[]> {
    this.#over.abort(new Error("the test is over"));
    await Promise.allSettled(this.#children);
    return await removeAll(this.#options.exec, this.#begun.toReversed());
  }
}

/** Removes namespaces of killed tests; yields how many were removed. */
export async function removeLeft(exec: Exec, nowMs: number): Promise<number> {
  const left = leftNamespaces(await asRights(() => listNamespaces(exec)), nowMs);
  const failures = await removeAll(exec, left);
  return left.length - failures.length;
}

async function removeAll(exec: Exec, names: readonly string[]): Promise<readonly string[]> {
  const failures: string[] = [];
  for (const name of names) {
    try {
      await deleteNamespace(exec, name);
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // A namespace that could not be created cannot be removed, either.
      if (await isThere(exec, name)) failures.push(`namespace ${name} is left: ${error.message}`);
    }
  }
  return failures;
}

async function isThere(exec: Exec, name: string): Promise<boolean> {
  try {
    return (await listNamespaces(exec)).includes(name);
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    // Without the program there are no named namespaces; after another failure that is unknown.
    return !error.isMissing();
  }
}

/** Replaces the tool's words for missing rights by one line. */
async function asRights<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const message = error.isMissing()
      ? `selftest needs the program ip (iproute2): ${error.message}`
      : isPermissionProblem(error.stderr)
      ? `selftest needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: ${error.stderr.trim()}`
      : null;
    if (message === null) throw error;
    throw new UnsupportedError("selftest", "the right to make network namespaces", error.stderr, {
      message,
    });
  }
}

/** Sysctls of a new namespace, set before it has interfaces. */
const SETTINGS: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: [
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.default.send_redirects=0",
    // Each REJECT must be answered; by default a host sends only a few a second.
    "net.ipv4.icmp_ratelimit=0",
  ],
  IPv6: [
    // Some machines disable IPv6 by default.
    "net.ipv6.conf.all.disable_ipv6=0",
    "net.ipv6.conf.default.disable_ipv6=0",
    "net.ipv6.conf.all.accept_ra=0",
    "net.ipv6.conf.default.accept_ra=0",
    // With duplicate address detection, a link-local address cannot be used for its first second.
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.icmp.ratelimit=0",
  ],
};
const FORWARDING: Readonly<Record<IpFamily, string>> = {
  IPv4: "net.ipv4.ip_forward=1",
  IPv6: "net.ipv6.conf.all.forwarding=1",
};

function settingsOf(host: HostName, families: readonly IpFamily[]): readonly string[] {
  return families.flatMap((family) => [
    ...SETTINGS[family],
    ...(host === "node" ? [FORWARDING[family]] : []),
  ]);
}

/** Lines of `ip` for the node's namespace: links to all other namespaces, addresses and routes. */
function nodeLines(
  namespaces: Readonly<Record<HostName, string>>,
  families: readonly IpFamily[],
): readonly string[] {
  return [
    ...NEIGHBOURS.map((name) => `link add ${name} type veth peer name eth0 netns ${namespaces[name]}`),
    ...NEIGHBOURS.flatMap((name) =>
      families.map((family) => addAddress(family, ADDRESSES[family].gateways[name], name))
    ),
    ...NEIGHBOURS.map((name) => `link set ${name} up`),
    ...families.flatMap((family) => {
      const { hosts, farPod } = ADDRESSES[family];
      const route = routeAdd(family);
      return [
        ...NEIGHBOURS.map((name) => `${route} ${hostCidrText(hosts[name])} dev ${name}`),
        `${route} ${hostCidrText(farPod)} via ${hosts.client}`,
        `${route} default via ${hosts.client}`,
      ];
    }),
  ];
}

function neighbourLines(name: NeighbourName, families: readonly IpFamily[]): readonly string[] {
  return [
    ...families.flatMap((family) => {
      const { hosts, farPod } = ADDRESSES[family];
      const own = [hosts[name], ...(name === "client" ? [farPod] : [])];
      return own.map((address) => addAddress(family, address, "eth0"));
    }),
    "link set eth0 up",
    ...families.flatMap((family) => {
      const { hosts, gateways } = ADDRESSES[family];
      return [
        `${routeAdd(family)} ${hostCidrText(gateways[name])} dev eth0 src ${hosts[name]}`,
        `${routeAdd(family)} default via ${gateways[name]} src ${hosts[name]}`,
      ];
    }),
  ];
}

function routeAdd(family: IpFamily): string {
  return family === "IPv6" ? "-6 route add" : "route add";
}

function addAddress(family: IpFamily, address: string, device: string): string {
  return family === "IPv6"
    ? `-6 addr add ${hostCidrText(address)} dev ${device} nodad`
    : `addr add ${hostCidrText(address)} dev ${device}`;
}
