import { assertEquals, assertStringIncludes } from "@std/assert";
import { defaultConfig } from "../../config/defaults.ts";
import { applyFlagValues } from "../../config/flags_overlay.ts";
import { flagsBesideFileMarkdown } from "../../../tools/settings_doc.ts";
import type { Flag } from "./flag.ts";
import { FLAGS, flagsBesideFile } from "./flags.ts";
import { commandHelp } from "../help.ts";
import { parseArgs } from "./parse_args.ts";

/** A value that each of the flags kproxy adds to kube-proxy's takes, and that is not its default. */
const OTHER_VALUES: Readonly<Record<string, string>> = {
  "manifests": "/objects",
  "snapshot": "/snapshot",
  "snapshot-max-age": "24h",
  "proxy-mode-fallback": "true",
  "traffic-counters": "true",
  "socket": "/run/other/kproxy.sock",
  "status-api": "false",
  "status-page": "true",
  "ipvs-termination-deadline": "1m",
  "userspace-listen": "127.0.0.1",
};

function ownFlagsBesideFile(): readonly Flag[] {
  return flagsBesideFile().filter(({ field }) => field?.startsWith("kproxy."));
}

Deno.test("kproxy's own settings count beside a file, each of them", { permissions: "none" }, () => {
  assertEquals(ownFlagsBesideFile().map(({ name }) => name).toSorted(), Object.keys(OTHER_VALUES).toSorted());
  const before = JSON.stringify(defaultConfig());
  for (const [name, value] of Object.entries(OTHER_VALUES)) {
    const { values } = parseArgs(["run", `--${name}=${value}`]);
    const { config, warnings } = applyFlagValues(defaultConfig(), values, { fromFile: true });
    assertEquals([JSON.stringify(config) === before, warnings], [false, []], name);
  }
});

Deno.test(
  "a flag that is not listed is ignored beside a file, with a warning",
  { permissions: "none" },
  () => {
    const listed = flagsBesideFile().map(({ name }) => name);
    const fields = FLAGS.filter((flag) => "field" in flag && flag.field !== undefined);
    const silent = fields.filter(({ name, kind }) => {
      const value = kind === "bool" ? true : ["int", "level", "duration", "float"].includes(kind) ? 1 : "";
      if (listed.includes(name)) return false;
      const { warnings } = applyFlagValues(defaultConfig(), new Map([[name, value]]), { fromFile: true });
      return warnings[0] !== `--${name}: ignored because --config is given`;
    });
    assertEquals(silent.map(({ name }) => name), []);
  },
);

Deno.test("help and documentation name the flags that count beside a file", { permissions: "none" }, () => {
  for (const { name } of flagsBesideFile()) assertStringIncludes(flagsBesideFileMarkdown(), `\`--${name}\``);
  const text = commandHelp("run").replace(/\s+/g, " ");
  const own = ownFlagsBesideFile().map(({ name }) => `--${name}`).join(", ");
  assertStringIncludes(text, `kproxy's own are honoured too: ${own}.`);
});
