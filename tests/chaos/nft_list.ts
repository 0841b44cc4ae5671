/**
 * What `nft -j list table` prints, as lines that are equal if and only if the rules do the same. Nothing of kproxy's own reading has a
 * part in it.
 *
 * @module
 */

/** An object of `{"nftables": [...]}`, e.g. `{"chain": {"name": "services", …}}`. */
type Listed = Readonly<Record<string, Fields | undefined>>;
type Fields = Readonly<Record<string, unknown>>;

/** What says nothing about packets: numbers, counts, and the times and clients of affinity. */
const IDLE = new Set(["handle", "packets", "bytes", "expires", "json_schema_version", "release_name"]);
/** What others than kproxy fill: packets. */
const DYNAMIC = /\btimeout\b/;

function said(value: unknown): string {
  return JSON.stringify(value, (key, one) => IDLE.has(key) ? undefined : one) ?? "";
}

/** Names of chains and maps in a rule or an element, as they lead on. */
function leadsTo(text: string): { readonly chains: readonly string[]; readonly maps: readonly string[] } {
  return {
    chains: Array.from(text.matchAll(/"target":"([^"]+)"/g), ([, name = ""]) => name),
    maps: Array.from(text.matchAll(/"@([^"]+)"/g), ([, name = ""]) => name),
  };
}

function nameOf(object: Fields): string {
  return `${object["name"]}`;
}

/**
 * Without what means nothing: the clients in an affinity set, which slot an endpoint has, which is a matter of history, and chains that
 * Services share, which stay for a time when no packet reaches them any more.
 *
 * @param text JSON, as the program prints it
 */
export function comparableNft(text: string): string[] {
  const objects = (JSON.parse(text) as { readonly nftables: readonly Listed[] }).nftables;
  const all = (...kinds: readonly string[]): readonly Fields[] =>
    objects.map((one) => kinds.map((kind) => one[kind]).find((found) => found !== undefined))
      .filter((found) => found !== undefined);
  const [chains, sets] = [all("chain"), all("map", "set")];
  const rules = Map.groupBy(all("rule"), ({ chain }) => `${chain}`);
  const reached = new Set<string>();
  const waiting = chains.filter(({ hook }) => hook !== undefined).map(nameOf);
  for (let chain = waiting.pop(); chain !== undefined; chain = waiting.pop()) {
    if (reached.has(chain)) continue;
    reached.add(chain);
    const ways = leadsTo(said(rules.get(chain)));
    const elements = sets.filter((set) => ways.maps.includes(nameOf(set)));
    waiting.push(...ways.chains, ...leadsTo(said(elements)).chains);
  }
  return [
    ...all("table").map((table) => `table ${said(table)}`),
    // Rules' order counts, that of chains does not.
    ...chains.filter((chain) => reached.has(nameOf(chain))).flatMap((chain) => [
      `chain ${said(chain)}`,
      ...(rules.get(nameOf(chain)) ?? []).map((rule, at) => `rule ${chain["name"]} ${at}: ${said(rule)}`),
    ]).sort(),
    ...sets.flatMap(setLines).sort(),
  ];
}

function setLines({ elem, ...set }: Fields): string[] {
  const head = `set ${said(set)}`;
  if (DYNAMIC.test(head) || !Array.isArray(elem)) return [head];
  const name = nameOf(set);
  if (!name.includes("endpoints-")) return [head, ...elem.map((one) => `${name} ${said(one)}`)];
  return [head, ...elem.flatMap(([key, value]) => slotLines(name, key, value))];
}

/** A key, or with a comment one of an element. */
interface SlotKey {
  readonly concat?: readonly unknown[];
  readonly elem?: { readonly val: { readonly concat: readonly unknown[] } };
}

/** That the slot is taken, and that one of the Service's slots leads there. */
function slotLines(name: string, key: SlotKey, value: unknown): string[] {
  const fields = key.concat ?? key.elem?.val.concat ?? [];
  return [`${name} ${said(key)}`, `${name} ${said(fields.slice(0, -1))} has ${said(value)}`];
}
