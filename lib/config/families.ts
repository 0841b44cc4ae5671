/**
 * Checks the IP families in a configuration against those that the node can serve.
 *
 * @module
 */
import type { Problem } from "../errors.ts";
import { isUnspecified, parseCidr, parseIp } from "../model/ip.ts";
import type { IpFamily } from "../model/objects.ts";
import type { KubeProxyConfiguration } from "./types.ts";

/** Problems and warnings about IP families. */
export interface FamilyFindings {
  /** Problems with which the node cannot be served. */
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

/** Words for addresses of any family. */
const ANY_FAMILY: readonly string[] = ["primary", "localhost", "all"];

/**
 * Looks for networks and addresses of a family that is not served, and for node ports that are open wider than they may seem.
 *
 * Source: kube-proxy 1.36 checkBadConfig and checkBadIPConfig; differs: an unset `clusterCIDR` is reported where rules are made, and one
 * without the primary family where that is known ({@linkcode clusterCidrProblem}).
 *
 * @param families those that the node can serve, the primary one among them
 */
export function checkFamilies(
  config: KubeProxyConfiguration,
  families: readonly IpFamily[],
): FamilyFindings {
  const problems: Problem[] = [];
  const warnings: Problem[] = [];
  const only = families.length === 1 ? families[0] : undefined;
  if (only !== undefined) {
    const problem = clusterCidrProblem(config, only, "only");
    const isFatal = config.detectLocalMode === "ClusterCIDR";
    if (problem !== null) (isFatal ? problems : warnings).push(problem);
    warnings.push(...singleStackWarnings(config, only));
  }
  warnings.push(...nodePortWarnings(config.nodePortAddresses ?? [], families));
  return { problems, warnings };
}

/** Problem that no network of `clusterCIDR` is of the node's only or primary family; null if one is. */
export function clusterCidrProblem(
  { clusterCIDR }: Pick<KubeProxyConfiguration, "clusterCIDR">,
  family: IpFamily,
  how: "only" | "primarily",
): Problem | null {
  const cidrs = clusterCIDR.split(",").map((text) => text.trim()).filter((text) => text !== "");
  if (!isOfOthersOnly(cidrs, family)) return null;
  return { path: "clusterCIDR", message: `has no ${family} network, but this node is ${how} ${family}` };
}

function singleStackWarnings(config: KubeProxyConfiguration, only: IpFamily): Problem[] {
  const warnings: Problem[] = [];
  if (config.mode === "ipvs" && isOfOthersOnly(config.ipvs.excludeCIDRs ?? [], only)) {
    warnings.push({
      path: "ipvs.excludeCIDRs",
      message: `has no ${only} network, but this node is only ${only}`,
    });
  }
  for (const path of ["healthzBindAddress", "metricsBindAddress"] as const) {
    const host = parseIp(config[path].replace(/:\d+$/, "").replace(/^\[|\]$/g, ""));
    if (host === null || host.family === only || isUnspecified(host)) continue;
    warnings.push({ path, message: `is ${host.family}, but this node is only ${only}` });
  }
  return warnings;
}

function nodePortWarnings(entries: readonly string[], families: readonly IpFamily[]): Problem[] {
  const path = "nodePortAddresses";
  if (entries.length === 0) {
    const message =
      'is not set, so node ports are open on every address; ["primary"] would be the Node\'s own';
    return [{ path, message }];
  }
  return families.filter((family) => isOfOthersOnly(entries, family)).map((family) => ({
    path,
    message: `has no ${family} network, so ${family} node ports are open on every address`,
  }));
}

/** True if there are entries, and none of them is of this family. */
function isOfOthersOnly(entries: readonly string[], family: IpFamily): boolean {
  return entries.length > 0 &&
    entries.every((entry) => !ANY_FAMILY.includes(entry) && parseCidr(entry)?.family !== family);
}
