/**
 * Checks of kernel settings: forwarding, connection tracking, and what single modes ask for.
 *
 * @module
 */
import {
  connReuse,
  neededIpvsSysctls,
  type NeededSysctl,
} from "../../backend/ipvs/node/preflight_sysctls.ts";
import { BE_LIBERAL, CONN_REUSE_MODE, IP_FORWARD, ROUTE_LOCALNET } from "../../backend/node/mode_sysctls.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { conntrackNames, type ConntrackSetting, isAsWanted } from "../../kernel/conntrack_settings.ts";
import type { Exec } from "../../kernel/exec.ts";
import { DISABLE_IPV6, readSysctls } from "../../kernel/sysctl.ts";
import { BRIDGE_CALLS, CONNTRACK_COUNT, CONNTRACK_MAX, FORWARDING } from "../live/host_network.ts";
import { failure, type Finding, ok, warning } from "./report.ts";

/** 1: the node forwards IPv6 packets. */
const IPV6_FORWARD = FORWARDING.IPv6;
/** 1: packets that stay on a bridge pass iptables, so that pods of one node reach each other through Services. */
const BRIDGE_NETFILTER = Object.values(BRIDGE_CALLS);

/** Setting → value; null where this kernel does not have it. */
export type Settings = ReadonlyMap<string, string | null>;

/** The settings of the node as a whole, by one program. */
export async function readSettings(exec: Exec, config: KubeProxyConfiguration): Promise<Settings> {
  const names = [
    IP_FORWARD,
    IPV6_FORWARD,
    DISABLE_IPV6,
    ...BRIDGE_NETFILTER,
    CONNTRACK_COUNT,
    CONNTRACK_MAX,
    BE_LIBERAL,
    ROUTE_LOCALNET,
    CONN_REUSE_MODE,
    ...neededIpvsSysctls(config).map(({ name }) => name),
    ...conntrackNames(config.conntrack),
  ];
  return await readSysctls(exec, [...new Set(names)]);
}

/** @param usesIpv6 why the cluster is known to use IPv6; null if nothing says so */
export function checkForwarding(settings: Settings, usesIpv6: string | null): readonly Finding[] {
  const check = "forwarding";
  const [v4, v6] = [settings.get(IP_FORWARD) ?? null, settings.get(IPV6_FORWARD) ?? null];
  const turnOn = (name: string): string => `sysctl -w ${name}=1, and keep it in /etc/sysctl.d`;
  const found6 = v6 === null ? "this kernel has no IPv6 forwarding" : `${IPV6_FORWARD} is ${v6}`;
  return [
    v4 === "1"
      ? ok(check, `${IP_FORWARD} is 1`)
      : v4 === null
      ? failure(check, `this kernel has no ${IP_FORWARD}`, "use a kernel with IPv4 forwarding")
      : failure(
        check,
        `${IP_FORWARD} is ${v4}: packets to and from pods of this node are dropped`,
        turnOn(IP_FORWARD),
      ),
    v6 === "1"
      ? ok(check, found6)
      : usesIpv6 === null
      ? ok(check, `${found6}, and nothing says that this cluster uses IPv6`)
      : failure(
        check,
        `${found6}, and ${usesIpv6}: IPv6 packets to and from pods are dropped`,
        turnOn(IPV6_FORWARD),
      ),
  ];
}

const FULL = 0.95;
const NEARLY_FULL = 0.75;

/** How full the table is, and whether the settings are those that a start asks for. */
export function checkConntrack(
  settings: Settings,
  wanted: readonly ConntrackSetting[],
): readonly Finding[] {
  const check = "connection tracking";
  const findings: Finding[] = [];
  const [count = NaN, max = NaN] = [CONNTRACK_COUNT, CONNTRACK_MAX].map((name) =>
    Number(settings.get(name) ?? "NaN")
  );
  if (max > 0 && !Number.isNaN(count)) {
    const text = `${count} of ${max} connections are tracked`;
    const mend = `raise conntrack.maxPerCore (--conntrack-max-per-core), or: sysctl -w ${CONNTRACK_MAX}=${
      2 * max
    }`;
    findings.push(
      count >= FULL * max
        ? failure(check, `${text}: new ones are dropped when it is full`, mend)
        : count >= NEARLY_FULL * max
        ? warning(check, `${text}: it is filling up`, mend)
        : ok(check, text),
    );
  }
  const absent = wanted.filter(({ name }) => (settings.get(name) ?? null) === null).map(({ name }) => name);
  const others = wanted.filter((setting) => !isAsWanted(setting, settings.get(setting.name) ?? ""))
    .map(({ name, value }) => `${name}=${value}`).join(" ");
  findings.push(
    absent.length > 0
      ? warning(
        check,
        `this kernel does not have ${absent.join(", ")}, or has not loaded it`,
        "modprobe nf_conntrack; in a network namespace of its own these belong to the host",
      )
      : others !== ""
      ? warning(
        check,
        `not as the configuration asks for (a start of kproxy sets it, if it may): ${others}`,
        `sysctl -w ${others}`,
      )
      : ok(check, "settings are as the configuration asks for"),
  );
  return findings;
}

const CHECK = "settings";

/** What of the mode decides which settings matter. */
export interface ModeSettings {
  readonly mode: ProxyMode;
  readonly needed: readonly NeededSysctl[];
  /** True if node ports are to answer on 127.0.0.1, in mode iptables. */
  readonly wantsLocalhost: boolean;
  /** What `uname -r` prints; null if it is not known. */
  readonly release: string | null;
}

/** A start of kproxy sets what it may: what is not as needed now hurts where it may not. */
export function checkModeSettings(
  settings: Settings,
  { mode, needed, wantsLocalhost, release }: ModeSettings,
): readonly Finding[] {
  // Despite its name this is about every hook of netfilter. Absent, no bridge uses them, which only matters where pods are on one.
  const findings = BRIDGE_NETFILTER.filter((name) => settings.get(name) === "0").map((name) =>
    warning(
      CHECK,
      `${name} is 0: on a pod network with a bridge, Services do not answer pods whose endpoint is on the same node`,
      `sysctl -w ${name}=1, and keep it in /etc/sysctl.d`,
    )
  );
  if (mode === "iptables" && wantsLocalhost) {
    const why = "node ports would not answer on 127.0.0.1";
    findings.push(checkSetting(settings, { name: ROUTE_LOCALNET, value: "1", why }));
  }
  if (mode === "ipvs") {
    // Forwarding has a check of its own.
    const others = needed.filter(({ name }) => name !== IP_FORWARD);
    findings.push(...others.map((one) => checkSetting(settings, one)));
    findings.push(checkConnReuse(settings.get(CONN_REUSE_MODE) ?? null, release));
  }
  return findings;
}

function checkSetting(settings: Settings, { name, value, why }: NeededSysctl): Finding {
  const found = settings.get(name) ?? null;
  if (found === value) return ok(CHECK, `${name} is ${value}`);
  const is = found === null ? "is not there (yet: its module may not be loaded)" : `is ${found}`;
  return warning(
    CHECK,
    `${name} ${is}, and a start of kproxy sets it to ${value}, if it may; otherwise ${why}`,
    `sysctl -w ${name}=${value}, or once: kproxy run --init-only, with full rights`,
  );
}

function checkConnReuse(found: string | null, release: string | null): Finding {
  const is = found ?? "not there";
  const choice = release === null ? null : connReuse(release);
  if (choice === null) {
    const what = `it is not known what this kernel needs of ${CONN_REUSE_MODE}, which is ${is}`;
    return warning(CHECK, what, "start kproxy with --allow-sys=osRelease");
  }
  if (choice === "leave") return ok(CHECK, `${CONN_REUSE_MODE} may be anything on Linux ${release}`);
  if (choice === "too old") {
    const what = `on Linux ${release} connections from a port used before may go to an endpoint that is gone`;
    return warning(CHECK, what, "use Linux 5.9 or newer");
  }
  if (found === "0") return ok(CHECK, `${CONN_REUSE_MODE} is 0, as Linux ${release} needs it`);
  return warning(
    CHECK,
    `${CONN_REUSE_MODE} is ${is}: on Linux ${release} a new connection from a port used before waits a second, ` +
      "unless it is 0 (a start sets it where it is 1)",
    `sysctl -w ${CONN_REUSE_MODE}=0, or use Linux 5.9 or newer`,
  );
}
