/**
 * Golden cases: objects as a user writes them, and the rules they must yield, as text that the real tools load.
 *
 * A case is a folder of `tests/golden` with `objects.yaml`, `iptables.rules` and/or `ip6tables.rules`, and, where the case is about a
 * change, `before.yaml`. Node, detector and defaults are those of {@linkcode exampleOptions}.
 *
 * @module
 */
import { parseAll } from "@std/yaml";
import { planIptables } from "../../lib/backend/iptables/plan/plan.ts";
import type { IptablesOptions, IptablesPlan } from "../../lib/backend/iptables/plan/ruleset.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { nodePortAddresses } from "../../lib/model/node.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import type { ProxyState } from "../../lib/model/state.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";

const FOLDER = new URL("../golden/", import.meta.url);

/** Permissions of the tests: to read the cases, and for the YAML parser's start. */
export const GOLDEN_PERMISSIONS: Deno.PermissionOptions = {
  read: [FOLDER],
  env: ["LOG_TOKENS", "LOG_STREAM"],
};

/** A golden case. */
export interface GoldenCase {
  readonly name: string;
  readonly objects: readonly ApiObject[];
  /** Objects before the change; null if the case is not about a change. */
  readonly before: readonly ApiObject[] | null;
  /** Restore text of each family that the case covers. */
  readonly expected: Partial<Readonly<Record<IpFamily, string>>>;
}

const RULE_FILES: Readonly<Record<IpFamily, string>> = { IPv4: "iptables.rules", IPv6: "ip6tables.rules" };

/** Settings of the golden cases. */
export function exampleOptions(family: IpFamily, changes: Partial<IptablesOptions> = {}): IptablesOptions {
  return {
    family,
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: family === "IPv4" ? { kind: "cidr", cidr: "10.244.0.0/16" } : { kind: "none" },
    localhostNodePorts: true,
    nodePortAddresses: nodePortAddresses(family, null),
    nodePortIps: [],
    nodeIp: family === "IPv4" ? "192.0.2.10" : "::1",
    dropInvalid: true,
    nfacct: false,
    ...changes,
  };
}

/** A tracker for the example node that has seen `objects`. */
export function exampleTracker(family: IpFamily, objects: readonly ApiObject[]): ChangeTracker {
  const tracker = new ChangeTracker({ family, node: { name: "node-a", zone: "" } });
  for (const object of objects) {
    if (object.kind === "Service") tracker.updateService(undefined, object);
    else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
  }
  return tracker;
}

/** State of one family on the example node. */
export function exampleState(family: IpFamily, objects: readonly ApiObject[]): ProxyState {
  return exampleTracker(family, objects).checkout().state;
}

/** Plan of all Services with the example settings. */
export function examplePlan(family: IpFamily, objects: readonly ApiObject[]): IptablesPlan {
  return planIptables(exampleState(family, objects), "all", exampleOptions(family));
}

/**
 * Decodes multi-document YAML.
 *
 * @throws {SyntaxError} if an object is not accepted
 */
export function decodeYaml(text: string, where: string): ApiObject[] {
  return (parseAll(text, { schema: "core" }) as unknown[]).flatMap((document) => {
    const { objects, rejections } = decodeObject(document, where);
    const [rejection] = rejections;
    if (rejection !== undefined) {
      throw new SyntaxError(`${where}: ${rejection.object}: ${rejection.message}`);
    }
    return objects;
  });
}

function readIfThere(url: URL): string | null {
  try {
    return Deno.readTextFileSync(url);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
}

/** Folders of other cases: the captures of IPVS mode belong to tests/support/golden_ipvs.ts. */
const OTHER_FOLDERS: ReadonlySet<string> = new Set(["ipvs"]);

/** Names of all cases, sorted. */
export function goldenNames(): string[] {
  return [...Deno.readDirSync(FOLDER)]
    .filter((entry) => entry.isDirectory && !OTHER_FOLDERS.has(entry.name))
    .map((entry) => entry.name).sort();
}

/**
 * Reads one case.
 *
 * @throws {TypeError} if the case has no expected rules
 */
export function loadGolden(name: string): GoldenCase {
  const folder = new URL(`${name}/`, FOLDER);
  const before = readIfThere(new URL("before.yaml", folder));
  const expected: Partial<Record<IpFamily, string>> = {};
  for (const family of ["IPv4", "IPv6"] as const) {
    const text = readIfThere(new URL(RULE_FILES[family], folder));
    if (text !== null) expected[family] = text;
  }
  if (Object.keys(expected).length === 0) throw new TypeError(`Golden case "${name}" has no rule file`);
  return {
    name,
    objects: decodeYaml(Deno.readTextFileSync(new URL("objects.yaml", folder)), `${name}/objects.yaml`),
    before: before === null ? null : decodeYaml(before, `${name}/before.yaml`),
    expected,
  };
}
