/**
 * Reads input of `nft -f`, as `kproxy render` prints it, into the tables that it creates in an empty kernel.
 *
 * @module
 */
import {
  type ListedTable,
  type NftListing,
  OpenContainer,
  OpenTable,
  parseElement,
  splitElements,
} from "./nft_listing.ts";

/** A command that nft would refuse: its object is missing, or exists with another definition. */
class Refusal extends Error {}

/**
 * Reads one command a line, or several lines for a block in braces; no `include`, no variables. What is not understood, or is
 * to be refused, is among the problems; the other commands are read.
 */
export function parseNftScript(text: string): NftListing {
  const tables = new Map<string, OpenTable>();
  const problems: { readonly place: string; readonly message: string }[] = [];
  let lines: string[] = [];
  let open = 0;
  for (const line of text.split("\n")) {
    const trimmed = line.trim();
    if (trimmed === "" || trimmed.startsWith("#")) continue;
    lines.push(trimmed);
    // No text in quotes is longer than a line.
    for (const [brace] of trimmed.replaceAll(/"[^"]*"/g, "").matchAll(/[{}]/g)) {
      open += brace === "{" ? 1 : -1;
    }
    if (open > 0) continue;
    const command = lines.join(" ");
    [lines, open] = [[], 0];
    try {
      run(tables, command);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      problems.push({ place: "nft -f", message: `"${command}" ${error.message}` });
    }
  }
  if (lines.length > 0) {
    problems.push({ place: "nft -f", message: `"${lines.join(" ")}" has braces that are not closed` });
  }
  return { tables: [...tables.values()], problems };
}

/** Tables of a text that `nft -f` reads or `nft list` prints. @throws {SyntaxError} if there is a problem with the script */
export function tablesOfScript(text: string): readonly ListedTable[] {
  const { tables, problems: [problem] } = parseNftScript(text);
  if (problem !== undefined) throw new SyntaxError(problem.message);
  return tables;
}

function run(tables: Map<string, OpenTable>, command: string): void {
  const [, verb = "", object = "", family = "", tableName = "", rest = ""] =
    /^(\S+) (\S+) (\S+) (\S+)(?: (.*))?$/.exec(command) ?? [];
  const label = `${family} ${tableName}`;
  if (object === "table") return tableCommand(tables, verb, label, rest);
  const table = tables.get(label);
  if (table === undefined) throw new Refusal("is about no table that is there");
  const [, name = "", more = ""] = /^(\S+)(?: (.*))?$/.exec(rest) ?? [];
  const inBraces = /^\{ ?(.*?) ?\}$/.exec(more)?.[1] ?? "";
  switch (object) {
    case "chain":
      return chainCommand(table, verb, name, inBraces);
    case "rule": {
      const chain = table.chains.get(name);
      if (verb !== "add" || chain === undefined) throw new Refusal("adds no rule to a chain that is there");
      chain.rules.push(more);
      return;
    }
    case "set":
    case "map":
      return containerCommand(table, verb, object, name, inBraces);
    case "element":
      return elementCommand(table, verb, name, inBraces);
    default:
      throw new Refusal("is not understood");
  }
}

function tableCommand(tables: Map<string, OpenTable>, verb: string, label: string, rest: string): void {
  if (verb === "add") {
    const table = tables.get(label) ?? new OpenTable(label);
    table.comment = /comment "([^"]*)"/.exec(rest)?.[1] ?? table.comment;
    tables.set(label, table);
  } else if (!tables.delete(label) && verb !== "destroy") {
    throw new Refusal("is about no table that is there");
  }
}

function chainCommand({ chains, handles }: OpenTable, verb: string, name: string, spec: string): void {
  const known = chains.get(name);
  if (verb === "add") {
    if (known !== undefined) return;
    // The declaration as `nft list` prints it.
    const hook = /type .*/.exec(spec)?.[0].replaceAll(" ;", ";").replace(/;? *$/, ";");
    chains.set(name, { name, ...(hook === undefined ? {} : { hook }), rules: [] });
    handles.set(name, []);
    return;
  }
  if (known === undefined) throw new Refusal("is about no chain that is there");
  if (verb === "flush") known.rules.length = 0;
  else chains.delete(name);
}

function containerCommand(
  { containers }: OpenTable,
  verb: string,
  kind: "set" | "map",
  name: string,
  spec: string,
): void {
  const known = containers.get(name);
  if (verb === "add") {
    const container = known ?? new OpenContainer(kind);
    for (const part of spec.replaceAll(/"[^"]*"/g, '""').split(";")) container.define(part.trim());
    containers.set(name, container);
    return;
  }
  if (known === undefined) throw new Refusal(`is about no ${kind} that is there`);
  if (verb === "flush") known.elements.clear();
  else containers.delete(name);
}

function elementCommand({ containers }: OpenTable, verb: string, name: string, list: string): void {
  const container = containers.get(name);
  if (container === undefined) throw new Refusal("is about no set or map that is there");
  for (const element of splitElements(list.replaceAll(/ *, */g, ", "))) {
    const { key, value } = parseElement(element.trim());
    const known = container.elements.get(key);
    if (verb === "delete") {
      if (!container.elements.delete(key)) throw new Refusal(`deletes ${key}, which is not there`);
    } else if (known !== undefined && known !== value) {
      throw new Refusal(`adds ${key}, which is there with the value ${known}`);
    } else container.add(element.trim());
  }
}
