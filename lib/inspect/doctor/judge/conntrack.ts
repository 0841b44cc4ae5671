/**
 * Judges connection tracking: the settings that a start asks for, and how full the table is.
 *
 * @module
 */
import type { ConntrackSetting } from "../../../conntrack/settings.ts";
import { isAsWanted } from "../../../kernel/conntrack_settings.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import { CONNTRACK_COUNT, CONNTRACK_MAX } from "../settings.ts";

const CHECK = "connection tracking";
const FULL = 0.95;
const NEARLY_FULL = 0.75;

export function judgeConntrack(
  settings: ReadonlyMap<string, string | null>,
  wanted: readonly ConntrackSetting[],
): readonly Finding[] {
  return [...judgeFill(settings), judgeWanted(settings, wanted)];
}

function judgeFill(settings: ReadonlyMap<string, string | null>): readonly Finding[] {
  const [count, max] = [CONNTRACK_COUNT, CONNTRACK_MAX].map((name) => Number(settings.get(name) ?? "NaN"));
  if (count === undefined || max === undefined || !(max > 0) || Number.isNaN(count)) return [];
  const text = `${count} of ${max} connections are tracked`;
  const mend = `raise conntrack.maxPerCore (--conntrack-max-per-core), or: sysctl -w ${CONNTRACK_MAX}=${
    2 * max
  }`;
  if (count >= FULL * max) return [failure(CHECK, `${text}: new ones are dropped when it is full`, mend)];
  if (count >= NEARLY_FULL * max) return [warning(CHECK, `${text}: it is filling up`, mend)];
  return [ok(CHECK, text)];
}

function judgeWanted(
  settings: ReadonlyMap<string, string | null>,
  wanted: readonly ConntrackSetting[],
): Finding {
  const [others, absent]: [string[], string[]] = [[], []];
  for (const setting of wanted) {
    const found = settings.get(setting.name) ?? null;
    if (found === null) absent.push(setting.name);
    else if (!isAsWanted(setting, found)) others.push(`${setting.name}=${setting.value}`);
  }
  if (absent.length > 0) {
    return warning(
      CHECK,
      `this kernel does not have ${absent.join(", ")}, or has not loaded it`,
      "modprobe nf_conntrack; in a network namespace of its own these belong to the host",
    );
  }
  if (others.length > 0) {
    return warning(
      CHECK,
      `not as the configuration asks for (a start of kproxy sets it, if it may): ${others.join(" ")}`,
      `sysctl -w ${others.join(" ")}`,
    );
  }
  return ok(CHECK, "settings are as the configuration asks for");
}
