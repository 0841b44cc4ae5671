/** A unit file's settings, by section and name; each in the order of its lines. */
export type UnitFile = ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>;

/** @throws {SyntaxError} on a line that is neither a section nor a setting */
export function parseUnitFile(text: string): UnitFile {
  const sections = new Map<string, Map<string, string[]>>();
  let settings = new Map<string, string[]>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const section = /^\[(\w+)\]$/.exec(line)?.[1];
    if (section !== undefined) {
      settings = new Map();
      sections.set(section, settings);
      continue;
    }
    const [, name = "", value = ""] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (name === "") throw new SyntaxError(`no setting: ${line}`);
    settings.set(name, [...settings.get(name) ?? [], value]);
  }
  return sections;
}
