/**
 * Judges whether the kernel forwards packets, as a whole and from each device.
 *
 * @module
 */
import { IP_FORWARD } from "../../../backend/node/mode_sysctls.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import { deviceSetting, IPV6_FORWARD, settingOfDevices } from "../settings.ts";
import { few } from "../../../text/words.ts";

const CHECK = "forwarding";

/** Names that are no device. */
const GROUPS: readonly string[] = ["all", "default"];
/** Packets are sent to these by the node itself; nothing comes in by them that would be forwarded. */
const OWN_DEVICES: readonly string[] = ["lo", "kube-ipvs0", "kube-dummy-if", "nodelocaldns", "dummy0"];

/** @param usesIpv6 why the cluster is known to use IPv6; null if nothing says so */
export function judgeForwarding(
  settings: ReadonlyMap<string, string | null>,
  usesIpv6: string | null,
): readonly Finding[] {
  return [
    judgeIpv4(settings.get(IP_FORWARD) ?? null),
    judgeIpv6(settings.get(IPV6_FORWARD) ?? null, usesIpv6),
  ];
}

function judgeIpv4(value: string | null): Finding {
  if (value === "1") return ok(CHECK, `${IP_FORWARD} is 1`);
  if (value === null) {
    return failure(CHECK, `this kernel has no ${IP_FORWARD}`, "use a kernel with IPv4 forwarding");
  }
  return failure(
    CHECK,
    `${IP_FORWARD} is ${value}: packets to and from pods of this node are dropped`,
    `sysctl -w ${IP_FORWARD}=1, and keep it in /etc/sysctl.d`,
  );
}

function judgeIpv6(value: string | null, usesIpv6: string | null): Finding {
  if (value === "1") return ok(CHECK, `${IPV6_FORWARD} is 1`);
  const found = value === null ? "this kernel has no IPv6 forwarding" : `${IPV6_FORWARD} is ${value}`;
  if (usesIpv6 === null) return ok(CHECK, `${found}, and nothing says that this cluster uses IPv6`);
  return failure(
    CHECK,
    `${found}, and ${usesIpv6}: IPv6 packets to and from pods are dropped`,
    `sysctl -w ${IPV6_FORWARD}=1, and keep it in /etc/sysctl.d`,
  );
}

/** A device whose packets are not forwarded although the node forwards. */
export function judgeDeviceForwarding(
  settings: ReadonlyMap<string, string>,
  usesIpv6: string | null,
): readonly Finding[] {
  const families = usesIpv6 === null ? ["ipv4"] as const : ["ipv4", "ipv6"] as const;
  return families.flatMap((family): Finding[] => {
    const values = settingOfDevices(settings, family, "forwarding");
    // Where nothing is forwarded, the devices are not the cause.
    if (values.get("all") === "0") return [];
    const off = [...values].filter(([device, value]) =>
      value === "0" && !GROUPS.includes(device) && !OWN_DEVICES.includes(device)
    ).map(([device]) => device);
    if (off.length === 0) return [];
    const named = few(off);
    return [warning(
      CHECK,
      `${family === "ipv4" ? "IPv4" : "IPv6"} packets that come in by ${named} are not forwarded`,
      `sysctl -w ${deviceSetting(family, off[0] ?? "", "forwarding")}=1${
        off.length > 1 ? " and so for the others" : ""
      }`,
    )];
  });
}
