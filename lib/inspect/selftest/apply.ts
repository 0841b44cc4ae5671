/**
 * The mode's own code on the node of the test: probes it, gets it ready and writes all rules, as `kproxy run` does at its start.
 *
 * @module
 */
import type { FamilyProxier } from "../../backend/backend.ts";
import { chooseMode } from "../../backend/node/choose_mode.ts";
import { MODES } from "../../backend/node/registry.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { UnsupportedError } from "../../errors.ts";
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { interfaceIps } from "../../kernel/interfaces.ts";
import { nodeSysctls } from "../../kernel/node_sysctls.ts";
import { ChangeTracker } from "../../model/change_tracker.ts";
import type { ApiObject } from "../../model/objects.ts";
import { silentLogger } from "../../observe/log.ts";
import { decodeObject } from "../../source/decode/decode.ts";
import type { ApplyAnswer, ApplyJob } from "./agent.ts";
import { ADDRESSES, NODE_NAME, nodeAddresses, nodeObject } from "./topology.ts";

/**
 * Writes the rules.
 *
 * @throws {UnsupportedError} anywhere but on the node of a test
 */
export async function apply(
  job: ApplyJob,
  exec: Exec = systemExec,
  ownIps: readonly string[] = interfaceIps(),
): Promise<ApplyAnswer> {
  requireTestNode(job, ownIps);
  // What goes wrong is in the answer.
  const log = silentLogger;
  const config = configOf(job);
  try {
    const sysctls = await nodeSysctls(exec, log);
    const { mode, prepared } = await chooseMode(MODES, { exec, config, log, sysctls });
    const [node] = decodeObject(nodeObject(job.families), "selftest").objects;
    if (node?.kind === "Node") prepared.reconfigure(node);
    const objects = job.objects.flatMap((raw) => decodeObject(raw, "selftest").objects);
    const failures: { family: FamilyProxier["family"]; message: string }[] = [];
    const wanted = prepared.proxiers.filter(({ family }) => job.families.includes(family));
    for (const proxier of wanted) {
      for (const message of await syncOnce(proxier, objects)) {
        failures.push({ family: proxier.family, message });
      }
    }
    await prepared.close?.();
    const refused = prepared.refused.filter(({ family }) => job.families.includes(family))
      .map(({ family, reason }) => ({ family, reason }));
    return { mode, served: wanted.map(({ family }) => family), failures, refused };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return { mode: null, served: [], failures: [{ family: null, message: error.message }], refused: [] };
  }
}

/** Started by hand, this must not write rules of a test on a machine at work. */
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

/** What went wrong, in sentences. */
async function syncOnce(proxier: FamilyProxier, objects: readonly ApiObject[]): Promise<readonly string[]> {
  const { family } = proxier;
  const problems: string[] = [];
  const tracker = new ChangeTracker({
    family,
    node: { name: NODE_NAME, zone: "" },
    report: (problem) => problems.push(problem),
  });
  for (const object of objects) {
    if (object.kind === "Service") tracker.updateService(undefined, object);
    if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
  }
  try {
    const { quarantined = [] } = await proxier.sync({ state: tracker.checkout().state, changed: "all" });
    return [
      ...problems,
      ...quarantined.map(({ service, problem }) =>
        `the tools refuse a part of Service ${service}: ${problem}`
      ),
    ];
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return [...problems, error.message];
  }
}
