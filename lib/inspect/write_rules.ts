/**
 * Writes all rules of some families through the mode's own code, as the first sync of `kproxy run` does.
 *
 * @module
 */
import { candidateModes, chooseMode, type Modes } from "../backend/node/choose_mode.ts";
import { modeSysctls } from "../backend/node/mode_sysctls.ts";
import type { PreparedMode } from "../backend/node/mode.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import type { Exec } from "../kernel/exec.ts";
import { nodeSysctls } from "../kernel/sysctl.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { type DesiredState, stateOf } from "./desired/desired.ts";

export interface RuleWriting {
  readonly exec: Exec;
  readonly config: KubeProxyConfiguration;
  readonly modes: Modes;
  readonly desired: DesiredState;
  readonly families: readonly IpFamily[];
  readonly log: Logger;
}

export interface WrittenRules extends Pick<PreparedMode, "refused"> {
  readonly mode: string;
  /** Families that the mode serves here, including those whose sync failed. */
  readonly families: readonly IpFamily[];
  readonly failures: readonly { readonly family: IpFamily; readonly error: Error }[];
  /** Services whose rules the kernel refuses, and why. */
  readonly quarantined: readonly {
    readonly family: IpFamily;
    readonly service: string;
    readonly problem: string;
  }[];
}

/**
 * Writes the rules.
 *
 * @throws {UnsupportedError} if the node cannot run the mode, or rights are missing
 */
export async function writeRules(
  { exec, config, modes, desired, families, log }: RuleWriting,
): Promise<WrittenRules> {
  const sysctls = await nodeSysctls(exec, log, modeSysctls(candidateModes(config, modes).modes));
  const { mode, prepared } = await chooseMode(modes, { exec, config, log, sysctls });
  const failures: { family: IpFamily; error: Error }[] = [];
  const quarantined: { family: IpFamily; service: string; problem: string }[] = [];
  const served = prepared.proxiers.filter(({ family }) => families.includes(family));
  try {
    prepared.reconfigure(desired.node);
    prepared.setServiceCidrs?.(desired.serviceCidrs);
    for (const proxier of served) {
      const { family } = proxier;
      try {
        const report = await proxier.sync({ state: stateOf(desired, family), changed: "all" });
        for (const { service, problem } of report.quarantined ?? []) {
          quarantined.push({ family, service, problem });
        }
      } catch (error) {
        if (!(error instanceof Error)) throw error;
        failures.push({ family, error });
      }
    }
  } finally {
    await prepared.close?.();
  }
  return {
    mode,
    families: served.map(({ family }) => family),
    failures,
    quarantined,
    refused: prepared.refused,
  };
}
