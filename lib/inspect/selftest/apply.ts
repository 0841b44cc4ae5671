/**
 * Writes rules on the test's node by the mode's own code: probes, prepares and syncs, as a start of `kproxy run` does.
 *
 * @module
 */
import { MODES } from "../../backend/node/registry.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { interfaceIps } from "../../kernel/machine.ts";
import type { IpFamily } from "../../model/objects.ts";
import { silentLogger } from "../../observe/log.ts";
import { decodeObject } from "../../source/decode/decode.ts";
import { stateOfObjects } from "../desired/desired.ts";
import { writeRules } from "../write_rules.ts";
import type { ApplyAnswer, ApplyJob } from "./agent.ts";
import { ADDRESSES, NODE_NAME, nodeAddresses, nodeObject } from "./cases.ts";

/**
 * Writes the rules.
 *
 * @throws {UnsupportedError} anywhere but on a test's node
 */
export async function apply(
  job: ApplyJob,
  exec: Exec = systemExec,
  ownIps: readonly string[] = interfaceIps(),
): Promise<ApplyAnswer> {
  requireTestNode(job, ownIps);
  const { families } = job;
  const config = configOf(job);
  const raw = [nodeObject(families), ...job.objects];
  const objects = raw.flatMap((one) => decodeObject(one, "selftest").objects);
  const failures: { family: IpFamily | null; message: string }[] = [];
  const desired = stateOfObjects(objects, NODE_NAME, (message) => failures.push({ family: null, message }));
  try {
    // Failures are part of the answer.
    const options = { exec, config, modes: MODES, desired, families, log: silentLogger };
    const { mode, families: served, refused, ...written } = await writeRules(options);
    for (const { family, service, problem } of written.quarantined) {
      failures.push({ family, message: `the tools refuse a part of Service ${service}: ${problem}` });
    }
    for (const { family, error } of written.failures) failures.push({ family, message: error.message });
    const unserved = refused.filter(({ family }) => families.includes(family))
      .map(({ family, reason }) => ({ family, reason }));
    return { mode, served, failures, refused: unserved };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return { mode: null, served: [], failures: [{ family: null, message: error.message }], refused: [] };
  }
}

/** Guards against a start by hand: test rules must not be written on a production machine. */
function requireTestNode({ families }: ApplyJob, ownIps: readonly string[]): void {
  const known = new Set([...nodeAddresses(families), "127.0.0.1", "::1"]);
  const others = ownIps.filter((ip) => !known.has(ip) && !ip.startsWith("fe80:"));
  const missing = nodeAddresses(families).filter((ip) => !ownIps.includes(ip));
  if (others.length === 0 && missing.length === 0) return;
  throw new UnsupportedError("Rules of the test", "the node of a kproxy selftest", "another machine");
}

function configOf({ mode, families }: ApplyJob): KubeProxyConfiguration {
  return {
    ...defaultConfig(),
    mode,
    hostnameOverride: NODE_NAME,
    clusterCIDR: families.map((family) => ADDRESSES[family].podCidr).join(","),
  };
}
