/**
 * Rules as the kernel holds them, through the tools' own listings. Nothing is changed, and no lock is held for longer than a save takes.
 *
 * @module
 */
import { DEVICE } from "../../backend/ipvs/plan/ruleset.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { iptablesPrograms } from "../../kernel/iptables_variant.ts";
import type { IptablesVariant } from "../../kernel/iptables.ts";
import { Nft, type NftTableName } from "../../kernel/nft.ts";
import { isPermissionProblem, LEGACY_LIST_REGEXP } from "../../kernel/tool_errors.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { parseDeviceAddresses } from "../../netfilter/ip_batch.ts";
import { IPTABLES_TABLES } from "../../netfilter/nft_listing.ts";
import { type LiveNode, liveOfTexts, type LiveProblem, type LiveText, proxyOfTable } from "./live.ts";
import { withUnreadElements } from "./unread_elements.ts";

export interface KernelQuestion {
  /** False: rule counters are not read. @default {true} */
  readonly isCounted?: boolean;
  /** True: nftables elements are left to `readElements` where a service proxy may have many. @default {false} */
  readonly areElementsLeft?: boolean;
  readonly signal?: AbortSignal;
}

const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];
// Errors of tools whose kernel part is missing: then there are no rules to read.
const ABSENT =
  /Can't initialize ipvs: (?!Permission|Operation not permitted)|Cannot open session to kernel|Protocol not supported|Table does not exist|Address family not supported/;

/** Rules of this network namespace's kernel. A tool that fails is among the problems; the others are used. */
export async function liveOfKernel(exec: Exec, question: KernelQuestion = {}): Promise<LiveNode> {
  const reading = new Reading(exec, question);
  const saving = Promise.all(FAMILIES.map((family) => reading.iptables(family))).then((texts) =>
    texts.flat()
  );
  const [bound, ...texts] = await Promise.all([
    reading.bound(),
    saving,
    reading.nftables(saving),
    reading.text(["ipset", "save"], { kind: "ipset" }),
    reading.text(["ipvsadm", "-Sn"], { kind: "ipvsadm" }),
  ]);
  return reading.live(texts.flat(), bound);
}

/** The nftables tables alone, without those of iptables, and with their elements left to `readElements`. */
export async function nftablesOfKernel(exec: Exec): Promise<LiveNode> {
  const reading = new Reading(exec, { areElementsLeft: true });
  return reading.live(await reading.nftables(null), []);
}

class Reading {
  readonly problems: LiveProblem[] = [];
  readonly #exec: Exec;
  readonly #options: { readonly signal?: AbortSignal };
  readonly #flags: readonly string[];
  readonly #areElementsLeft: boolean;
  /** True: the tables of nftables were listed without elements. */
  #isTerse = false;

  constructor(exec: Exec, { signal, isCounted = true, areElementsLeft = false }: KernelQuestion) {
    this.#exec = exec;
    this.#flags = isCounted ? ["-c"] : [];
    this.#options = signal === undefined ? {} : { signal };
    this.#areElementsLeft = areElementsLeft;
  }

  live(texts: readonly LiveText[], bound: readonly string[]): LiveNode {
    const live = liveOfTexts(texts, { from: "the kernel", bound, problems: this.problems });
    if (!this.#isTerse) return live;
    return new Map(
      [...live].map(([family, rules]) => [
        family,
        { ...rules, nftables: withUnreadElements(rules.nftables) },
      ]),
    );
  }

  /** Output of a program; none if the program, or its part of the kernel, is missing. */
  async text(argv: readonly string[], what: Omit<LiveText, "name" | "text">): Promise<readonly LiveText[]> {
    const text = await this.#run(argv);
    return text === null || text === "missing" ? [] : [{ name: argv.join(" "), text, ...what }];
  }

  /** Rules of each existing variant. No table is named: in the legacy variant, naming one would create it. */
  async iptables(family: IpFamily): Promise<readonly LiveText[]> {
    const found = await Promise.all(VARIANTS.map((variant) => this.#saved(family, variant)));
    // Before 1.8 no program has the variant in its name.
    if (!found.every((texts) => texts === "missing")) {
      return found.flatMap((texts) => texts === "missing" ? [] : texts);
    }
    return await this.text([iptablesPrograms(family).save, ...this.#flags], { family, kind: "iptables" });
  }

  async #saved(family: IpFamily, variant: IptablesVariant): Promise<readonly LiveText[] | "missing"> {
    const argv = [iptablesPrograms(family, variant).save, ...this.#flags];
    const text = await this.#run(argv);
    if (text === "missing") return text;
    const isEmpty = text === null || !/^\*/m.test(text);
    return isEmpty ? [] : [{ name: argv.join(" "), text, variant, family, kind: "iptables" }];
  }

  /**
   * All nftables tables but those that iptables-nft has listed: nft needs far longer for their rules than iptables does.
   *
   * @param saved output of iptables-save; null: tables of iptables are not needed
   */
  async nftables(saved: Promise<readonly LiveText[]> | null): Promise<readonly LiveText[]> {
    const tables = await this.#nftTables();
    if (this.#areElementsLeft) {
      const terse = await this.#terseRuleset(tables);
      if (terse !== null) return [terse];
    }
    if (!tables.some(isOfIptables)) return await this.text(["nft", "list", "ruleset"], { kind: "nftables" });
    const list = async (names: readonly NftTableName[]): Promise<readonly LiveText[]> => {
      const texts = names.map(({ word, name }) =>
        this.text(["nft", "list", "table", word, name], { kind: "nftables" })
      );
      return (await Promise.all(texts)).flat();
    };
    const unsaved = async (): Promise<readonly LiveText[]> => {
      if (saved === null) return [];
      const texts = await saved;
      const isSaved = ({ word, name }: NftTableName): boolean =>
        texts.some(({ family, variant, text }) =>
          (family === "IPv6") === (word === "ip6") && variant !== "legacy" && text.includes(`*${name}\n`)
        );
      return await list(tables.filter((table) => isOfIptables(table) && !isSaved(table)));
    };
    const others = list(tables.filter((table) => !isOfIptables(table)));
    return (await Promise.all([others, unsaved()])).flat();
  }

  /** The ruleset without elements; null: it must be listed with them. */
  async #terseRuleset(tables: readonly NftTableName[]): Promise<LiveText | null> {
    // Without a service proxy's table there are few elements, and perhaps many rules of iptables, which are slow in nft.
    if (!tables.some(({ word, name }) => proxyOfTable(`${word} ${name}`) !== null)) return null;
    const [terse] = await this.text(["nft", "-t", "list", "ruleset"], { kind: "nftables" });
    const isWhole = terse !== undefined && !LOST_ELEMENTS.test(terse.text) &&
      tables.every(({ word, name }) => terse.text.includes(`table ${word} ${name} {`));
    this.#isTerse = isWhole;
    return isWhole ? terse : null;
  }

  async #nftTables(): Promise<readonly NftTableName[]> {
    try {
      return await new Nft(this.#exec).tables(this.#options);
    } catch (error) {
      if (error instanceof ExecError) return [];
      throw error;
    }
  }

  /** Addresses on the dummy device of IPVS mode; none if it does not exist. */
  async bound(): Promise<readonly string[]> {
    const argv = ["ip", "-json", "address", "show", "dev", DEVICE];
    const text = await this.#run(argv, /does not exist|Cannot find device/);
    if (text === null || text === "missing") return [];
    try {
      return parseDeviceAddresses(text).map(({ address }) => address);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.problems.push({ place: argv.join(" "), message: error.message });
      return [];
    }
  }

  /** Output of a program. `missing`: no such program; null: no output, or a failure (a problem). */
  async #run(argv: readonly string[], absent: RegExp = ABSENT): Promise<string | "missing" | null> {
    const place = argv.join(" ");
    try {
      const { code, stdout, stderr } = await this.#exec.run(argv, this.#options);
      if (code === 0) return stdout;
      if (!absent.test(stderr)) this.problems.push({ place, message: failure(stderr, code) });
      return null;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // `--allow-run` is a list of names; the error for another name says how to allow it.
      if (error.isMissing()) return "missing";
      this.problems.push({ place, message: error.message });
      return null;
    }
  }
}

/** True for tables that belong to iptables-nft, or would. */
function isOfIptables({ word, name }: NftTableName): boolean {
  return (word === "ip" || word === "ip6") && IPTABLES_TABLES.has(name);
}

/** Anonymous sets are never empty; some releases of nft omit their elements, too. */
const LOST_ELEMENTS = /\{ *\}/;

function failure(stderr: string, code: number): string {
  const [first = ""] = stderr.split("\n").filter((line) => line.trim() !== "");
  if (LEGACY_LIST_REGEXP.test(stderr)) {
    return `${first.trim()}: only root may list the rules of iptables' legacy variant, and nothing here tells whether there are some`;
  }
  if (isPermissionProblem(stderr)) return `${first.trim()}: reading it needs root or CAP_NET_ADMIN`;
  return first === "" ? `it ended with status ${code}` : first.trim();
}
