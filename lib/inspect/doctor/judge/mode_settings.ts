/**
 * Judges the kernel settings that single modes ask for.
 *
 * @module
 */
import { connReuse, type NeededSysctl } from "../../../backend/ipvs/node/preflight_sysctls.ts";
import { CONN_REUSE_MODE, IP_FORWARD, ROUTE_LOCALNET } from "../../../backend/node/mode_sysctls.ts";
import type { ProxyMode } from "../../../config/types.ts";
import { type Finding, ok, warning } from "../finding.ts";
import { BRIDGE_NETFILTER, BRIDGE_NETFILTER_6 } from "../settings.ts";

const CHECK = "settings";

/** What of the mode decides which settings matter. */
export interface ModeSettings {
  readonly mode: ProxyMode;
  /** Of mode ipvs; empty in others. */
  readonly needed: readonly NeededSysctl[];
  /** True if node ports are to answer on 127.0.0.1, in mode iptables. */
  readonly wantsLocalhost: boolean;
  /** What `uname -r` prints; null if nobody can tell. */
  readonly release: string | null;
}

/** A start of kproxy sets what it may: what is not as needed now hurts where it may not. */
export function judgeModeSettings(
  settings: ReadonlyMap<string, string | null>,
  { mode, needed, wantsLocalhost, release }: ModeSettings,
): readonly Finding[] {
  const findings = [...judgeBridge(settings)];
  if (mode === "iptables" && wantsLocalhost) {
    findings.push(judgeSetting(settings, {
      name: ROUTE_LOCALNET,
      value: "1",
      why: "node ports would not answer on 127.0.0.1",
    }));
  }
  if (mode !== "ipvs") return findings;
  // Forwarding has a check of its own.
  for (const one of needed) if (one.name !== IP_FORWARD) findings.push(judgeSetting(settings, one));
  return [...findings, judgeConnReuse(settings.get(CONN_REUSE_MODE) ?? null, release)];
}

function judgeSetting(
  settings: ReadonlyMap<string, string | null>,
  { name, value, why }: NeededSysctl,
): Finding {
  const found = settings.get(name) ?? null;
  if (found === value) return ok(CHECK, `${name} is ${value}`);
  const is = found === null ? "is not there (yet: its module may not be loaded)" : `is ${found}`;
  return warning(
    CHECK,
    `${name} ${is}, and a start of kproxy sets it to ${value}, if it may; otherwise ${why}`,
    `sysctl -w ${name}=${value}, or once: kproxy run --init-only, with full rights`,
  );
}

function judgeConnReuse(found: string | null, release: string | null): Finding {
  const choice = release === null ? null : connReuse(release);
  if (choice === null) {
    return warning(
      CHECK,
      `nobody can tell what this kernel needs of ${CONN_REUSE_MODE}, which is ${found ?? "not there"}`,
      "start kproxy with --allow-sys=osRelease",
    );
  }
  if (choice === "leave") return ok(CHECK, `${CONN_REUSE_MODE} may be anything on Linux ${release}`);
  if (choice === "too old") {
    return warning(
      CHECK,
      `on Linux ${release} connections from a port used before may go to an endpoint that is gone`,
      "use Linux 5.9 or newer",
    );
  }
  if (found === "0") return ok(CHECK, `${CONN_REUSE_MODE} is 0, as Linux ${release} needs it`);
  return warning(
    CHECK,
    `${CONN_REUSE_MODE} is ${
      found ?? "not there"
    }: on Linux ${release} a new connection from a port used before waits a ` +
      "second, unless it is 0 (a start sets it where it is 1)",
    `sysctl -w ${CONN_REUSE_MODE}=0, or use Linux 5.9 or newer`,
  );
}

/** Despite its name this is about every hook of netfilter. Absent, no bridge uses them, which only matters where pods are on one. */
function judgeBridge(settings: ReadonlyMap<string, string | null>): readonly Finding[] {
  return [BRIDGE_NETFILTER, BRIDGE_NETFILTER_6].filter((name) => settings.get(name) === "0").map((name) =>
    warning(
      CHECK,
      `${name} is 0: on a pod network with a bridge, Services do not answer pods whose endpoint is on the same node`,
      `sysctl -w ${name}=1, and keep it in /etc/sysctl.d`,
    )
  );
}
