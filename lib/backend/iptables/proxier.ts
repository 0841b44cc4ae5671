/**
 * Gets a node ready for iptables mode: which variant, which families, which sysctls; and makes the proxiers.
 *
 * @module
 */
import { IptablesProxier, type IptablesSettings } from "./apply.ts";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../backend.ts";
import { usesLocalhostNodePorts } from "./base_rules.ts";
import { UnsupportedError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Iptables } from "../../kernel/iptables.ts";
import { chooseIptablesVariant, probeIptables } from "../../kernel/iptables_variant.ts";
import { ensureSysctl, readSysctl } from "../../kernel/sysctl.ts";
import { nodeIps } from "../../model/node.ts";
import type { IpFamily, NodeObject } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import type { ModeContext, PreparedMode } from "../mode.ts";
import { configuredIptables } from "./settings.ts";

const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";
const ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet";

/**
 * Probes the node and prepares it.
 *
 * @throws {UnsupportedError} if iptables does not work for the primary family
 * @throws {ExecError} if a sysctl is refused for another reason than a read-only `/proc/sys`
 */
export async function prepareIptables({ exec, config, log }: ModeContext): Promise<PreparedMode> {
  const { variant, reason } = await chooseIptablesVariant(exec);
  log.info("Using iptables", { variant, reason });
  const families = await usableFamilies(exec, variant, log);
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  if (!families.has(primaryFamily)) {
    throw new UnsupportedError(
      `Primary IP family ${primaryFamily}`,
      `a working ${primaryFamily === "IPv4" ? "iptables" : "ip6tables"}`,
      "none",
    );
  }
  log.info(families.size === 2 ? "Running in dual-stack mode" : "Running in single-stack mode", {
    families: [...families.keys()],
  });

  const dropInvalid = await readSysctl(exec, BE_LIBERAL) !== "1";
  const told = new Set<string>();
  const settingsOf = (family: IpFamily, node: NodeObject | null): IptablesSettings => {
    const { options, problem } = configuredIptables(config, family, node);
    if (problem !== null && !told.has(family + problem.message)) {
      told.add(family + problem.message);
      log.info("Local traffic is not told apart", { family, problem: problem.message });
    }
    return { ...options, dropInvalid: options.dropInvalid && dropInvalid };
  };
  if (families.has("IPv4")) await allowLocalhostNodePorts(exec, settingsOf("IPv4", null), log);
  const proxiers = [...families].map(([family, iptables]) =>
    new ReconfigurableProxier(iptables, settingsOf(family, null), log)
  );
  return {
    proxiers,
    reconfigure: (node) =>
      proxiers.filter((proxier) => proxier.configure(settingsOf(proxier.family, node))).map(({ family }) =>
        family
      ),
  };
}

async function usableFamilies(
  exec: Exec,
  variant: Iptables["variant"],
  log: Logger,
): Promise<ReadonlyMap<IpFamily, Iptables>> {
  const families = new Map<IpFamily, Iptables>();
  for (const family of FAMILIES) {
    try {
      if (family === "IPv6") await requireIpv6(exec);
      const iptables = new Iptables(exec, await probeIptables(exec, family, variant));
      const problem = await iptables.absence();
      if (problem !== null) throw new UnsupportedError(family, "a nat table that iptables can list", problem);
      families.set(family, iptables);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      log.info("IP family cannot be served", { family, reason: error.message });
    }
  }
  return families;
}

async function requireIpv6(exec: Exec): Promise<void> {
  const disabled = await readSysctl(exec, "net.ipv6.conf.all.disable_ipv6");
  if (disabled === "0") return;
  throw new UnsupportedError(
    "IPv6",
    "net.ipv6.conf.all.disable_ipv6 = 0",
    disabled ?? "a kernel without IPv6",
  );
}

/** Node ports on 127.0.0.1 need the kernel to route packets that leave loopback. */
async function allowLocalhostNodePorts(exec: Exec, settings: IptablesSettings, log: Logger): Promise<void> {
  if (!usesLocalhostNodePorts({ ...settings, family: "IPv4", nodePortIps: [], randomFully: true })) return;
  const outcome = await ensureSysctl(exec, ROUTE_LOCALNET, "1");
  if (outcome.kind === "changed") {
    log.info("Set sysctl", { name: ROUTE_LOCALNET, value: "1", before: outcome.found });
  }
  if (outcome.kind === "readOnly") {
    log.warn("Node ports will not answer on 127.0.0.1: a sysctl cannot be written", {
      name: ROUTE_LOCALNET,
      problem: outcome.message,
      advice: "run once with --init-only and enough rights, or set iptables.localhostNodePorts to false",
    });
  }
}

/** An iptables proxier whose settings follow the Node: a change starts afresh, with a full sync. */
export class ReconfigurableProxier implements FamilyProxier {
  readonly family: IpFamily;
  readonly #iptables: Iptables;
  readonly #log: Logger;
  #settings: IptablesSettings;
  #current: IptablesProxier;

  constructor(iptables: Iptables, settings: IptablesSettings, log: Logger) {
    this.family = iptables.family;
    this.#iptables = iptables;
    this.#settings = settings;
    this.#log = log;
    this.#current = this.#make();
  }

  /** Takes new settings over. @returns true if they differ, so that everything must be written again */
  configure(settings: IptablesSettings): boolean {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return false;
    this.#settings = settings;
    this.#current = this.#make();
    return true;
  }

  sync(request: SyncRequest): Promise<ApplyReport> {
    return this.#current.sync(request);
  }

  checkCanary(): Promise<boolean> {
    return this.#current.checkCanary();
  }

  #make(): IptablesProxier {
    return new IptablesProxier({
      iptables: this.#iptables,
      settings: this.#settings,
      interfaceIps: () => Deno.networkInterfaces().map(({ address }) => address),
      logger: this.#log,
    });
  }
}
