/**
 * Judges the reverse path filter: the kernel drops a packet whose answer would leave by another device.
 *
 * @module
 */
import { type Finding, ok, warning } from "../finding.ts";
import { deviceSetting, settingOfDevices } from "../settings.ts";
import { few } from "../../../text/words.ts";

const LOOSE = "2";
/** By these nothing comes from elsewhere. */
const NO_WAY: readonly string[] = ["all", "default", "lo"];

/**
 * What is in force at a device is the higher one of its own value and that of `all`.
 *
 * @param podDevices of single pods: strict there keeps a pod from using other addresses than its own, and is meant so
 */
export function judgeReversePath(
  settings: ReadonlyMap<string, string>,
  podDevices: ReadonlySet<string>,
): readonly Finding[] {
  const check = "reverse path filter";
  const values = settingOfDevices(settings, "ipv4", "rp_filter");
  const all = Number(values.get("all") ?? "0");
  const strict = [...values].filter(([device, value]) =>
    !NO_WAY.includes(device) && !podDevices.has(device) && Math.max(all, Number(value)) === 1
  ).map(([device]) => device);
  if (strict.length === 0) {
    return [ok(check, values.get("all") === LOOSE ? "loose" : "strict on no device")];
  }
  const device = strict[0] ?? "all";
  const name = strict.length > 1 ? "net.ipv4.conf.all.rp_filter" : deviceSetting("ipv4", device, "rp_filter");
  return [warning(
    check,
    `strict on ${
      few(strict)
    }: packets that come by another way than their answers go are dropped, as with several ` +
      "uplinks, tunnels of pod networks, or load balancers that keep the client's address",
    `sysctl -w ${name}=2 (loose; the higher one of a device's value and that of "all" is in force)`,
  )];
}
