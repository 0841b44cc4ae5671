/**
 * `kproxy render`: the rules that the objects in files stand for, as text, without touching the machine.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { UsageError } from "../../errors.ts";
import { type RenderedMode, renderedModeOf } from "../../inspect/desired/desired.ts";
import { previewOf } from "../../inspect/desired/preview.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { nodeName } from "../../kernel/machine.ts";
import { readManifests } from "../../source/files/file_source.ts";
import { counted } from "../../text/words.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { configurationWithWarnings, warnUnserved } from "./output.ts";

/** Tools that load the text. */
const TOOLS: Readonly<Record<RenderedMode, Readonly<Record<IpFamily, string>>>> = {
  iptables: { IPv4: "iptables-restore --noflush", IPv6: "ip6tables-restore --noflush" },
  ipvs: { IPv4: "the programs named", IPv6: "the programs named (ip6tables-restore)" },
  nftables: { IPv4: "nft -f -", IPv6: "nft -f -" },
};

/**
 * Prints the rules of the families asked for. Without `--family` those of the families that have Services.
 *
 * @returns 0; 1 if objects were refused and the rules are those of the others; 2 if nothing could be read
 */
export async function renderCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const { config, warn } = await configurationWithWarnings(flags, io);
  const mode = renderedModeOf(config);
  const { objects, problems, foreign } = await readObjects(config);
  for (const { path, kind, count } of foreign) {
    io.err(`Note: ${path}: ${counted(count, "object")} of kind ${kind} not read\n`);
  }
  for (const { where, object, message } of problems) {
    const isFile = where.startsWith(object);
    io.err(`Error: ${where}: ${isFile ? "" : `${object}: `}${message}\n`);
  }
  if (objects.length === 0 && problems.length > 0) return 2;

  const preview = previewOf(objects, { nodeName: nodeName(config), config, mode, warn });
  warnUnserved(preview.unserved, warn);
  const families = wantedFamilies(flags, preview.families);
  for (const family of families) {
    if (families.length > 1) await io.out(`# ${family}: what follows is for ${TOOLS[mode][family]}\n`);
    await io.out(preview.render(family));
  }
  return problems.length > 0 ? 1 : 0;
}

async function readObjects(config: KubeProxyConfiguration): ReturnType<typeof readManifests> {
  const { manifests } = config.kproxy;
  if (manifests.length === 0) {
    throw new UsageError("Nothing to render: name files or folders with --manifests=PATH");
  }
  try {
    return await readManifests(manifests);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof TypeError) {
      throw new UsageError(error.message, { cause: error });
    }
    throw error;
  }
}

function wantedFamilies(flags: ParsedFlags, used: readonly IpFamily[]): readonly IpFamily[] {
  switch (flags.get("family")) {
    case "ipv4":
      return ["IPv4"];
    case "ipv6":
      return ["IPv6"];
    case "both":
      return FAMILIES;
    default:
      return used.length > 0 ? used : ["IPv4"];
  }
}
