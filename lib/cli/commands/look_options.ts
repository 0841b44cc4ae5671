/**
 * Options of the commands that look at the node, from their flags.
 *
 * @module
 */
import { stateOf } from "../../inspect/desired/desired.ts";
import type { LookOptions } from "../../inspect/look.ts";
import { findObjects, type FoundObjects } from "../../inspect/objects.ts";
import { systemExec } from "../../kernel/exec.ts";
import { namespacedName } from "../../model/names.ts";
import { FAMILIES, type NamespacedName, type Service } from "../../model/objects.ts";
import { inputDoubts } from "../flags/input_doubts.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { didYouMean } from "../../config/suggest.ts";
import { configurationWithWarnings } from "./output.ts";

/** True if the flags name the API server, so that no running kproxy is asked. */
export function namesSource(flags: ParsedFlags): boolean {
  return (flags.get("master") ?? "") !== "" || flags.get("kubeconfig") !== undefined;
}

/** True if the flags say which mode is meant, so that the node is not asked for it. */
export function namesMode(flags: ParsedFlags): boolean {
  return flags.get("proxy-mode") !== undefined || (flags.get("config") ?? "") !== "";
}

/**
 * Options for a look at the node; doubts about inputs are reported as warnings, each sentence once.
 *
 * @throws {ConfigError} with everything that is wrong with the file, or with the flags
 */
export async function lookOptions(flags: ParsedFlags, io: Io): Promise<LookOptions> {
  const { config, warn } = await configurationWithWarnings(flags, io);
  // Inputs only looked at may be any user's; those that decide about rules or credentials, only root's and this user's.
  const files = flags.get("repair") === true ? config.kproxy.manifests : [];
  (await inputDoubts(flags, { config, files })).forEach(warn);
  return {
    config,
    master: flags.get("master") ?? "",
    isModeNamed: namesMode(flags),
    isSourceNamed: namesSource(flags),
    exec: systemExec,
    report: warn,
    wantsDesired: flags.get("no-desired") !== true,
    wantsLive: flags.get("no-live") !== true,
    liveFrom: flags.get("live-from") ?? [],
  };
}

/** True if something of the Service is known: its ports, or that all of its destinations are another's. */
export function isKnown(name: NamespacedName, { state }: FoundObjects): boolean {
  return FAMILIES.some((family) => stateOf(state, family).services.has(name)) ||
    state.unserved.some(({ service }) => service === name);
}

/** Error for an unknown Service, with the reason or with a similar name among all Services. */
export async function noService(
  name: NamespacedName,
  objects: FoundObjects,
  options: LookOptions,
): Promise<Error> {
  const reason = absenceReason(name, objects);
  if (reason !== null) return new Error(reason);
  const all = await findObjects({ ...options, selection: {} });
  const known = [...new Set(FAMILIES.flatMap((family) => [...stateOf(all.state, family).services.keys()]))];
  // A source that selects as the proxy does has none of the Services it leaves out.
  const unseen = options.config.kproxy.manifests.length > 0
    ? ""
    : "; headless ones and those with the label service.kubernetes.io/service-proxy-name are not seen here";
  return new Error(`There is no Service ${name} with a cluster IP${didYouMean(name, known) || unseen}`);
}

/** Reason why nothing is known of a Service, in a sentence; null: there is no object of this name among them. */
function absenceReason(
  name: NamespacedName,
  { state, rejected, excluded }: Pick<FoundObjects, "state" | "rejected" | "excluded">,
): string | null {
  const refused = rejected.find(({ object }) => object === `Service ${name}`);
  if (refused !== undefined) return `Service ${name} is refused: ${refused.message} (${refused.where})`;
  const others = excluded.find(({ object }) => object === `Service ${name}`);
  if (others !== undefined) return `Service ${name} ${others.message} (${others.where})`;
  const service = state.objects.find((object): object is Service =>
    object.kind === "Service" && namespacedName(object.namespace, object.name) === name
  );
  if (service === undefined) return null;
  if (service.type === "ExternalName") {
    return `Service ${name} is of type ExternalName: DNS answers for it, and no proxy`;
  }
  if (service.clusterIP === "None") {
    return `Service ${name} is headless: it has no cluster IP, and DNS answers with its endpoints`;
  }
  return service.clusterIP === ""
    ? `Service ${name} has no cluster IP`
    : `Service ${name} has nothing that can be served: no ports, or no address that is one`;
}
