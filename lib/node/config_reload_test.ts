import { assertEquals } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import type { ConfigFile } from "../config/file/load.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError, UnsupportedError } from "../errors.ts";
import { createLogger } from "../observe/log.ts";
import { ReloadRecord } from "../observe/metrics_kproxy.ts";
import { Registry } from "../observe/prom_client.ts";
import { ConfigReload, type ReloadableProxy, untilIpv6IsOn } from "./config_reload.ts";
import type { Exec } from "../kernel/exec.ts";

const NEVER = new AbortController().signal;

/** A file for each edit of the defaults; a string stands for a wrong file with these problems, one per line. */
type Content = string | ((config: KubeProxyConfiguration) => void);

interface Scene {
  readonly reload: ConfigReload<KubeProxyConfiguration>;
  readonly proxy: ReloadableProxy;
  readonly notes: string[];
  readonly log: string[];
  /** Calls about the removal of other modes' leftovers, in their order. */
  readonly order: string[];
  failures(): Promise<number | undefined>;
}

function sceneOf(contents: readonly Content[], cannotRun = ""): Scene {
  const notes: string[] = [];
  const lines: string[] = [];
  const order: string[] = [];
  const record = new ReloadRecord(0);
  const registry = new Registry();
  record.addTo(registry);
  let read = 0;
  const reload = new ConfigReload<KubeProxyConfiguration>({
    watch: { next: () => Promise.resolve(read < contents.length ? fileOf(read) : null) },
    record,
    configurationOf: () => {
      const content = contents[read++] ?? "";
      if (typeof content === "string") {
        const problems = content.split("\n").map((message, i) => ({ path: "", message, line: i + 3 }));
        throw new ConfigError(problems, "c.yaml");
      }
      const config = defaultConfig();
      content(config);
      return Promise.resolve({ config, warnings: [] });
    },
    succeed: (config) => {
      order.push("prepared");
      return cannotRun === ""
        ? Promise.resolve(config)
        : Promise.reject(new UnsupportedError("", "", "", { message: cannotRun }));
    },
    nowMs: () => 7_000,
  });
  const proxy: ReloadableProxy = {
    now: { config: defaultConfig() },
    node: "node-a",
    verbosity: { level: 0 },
    log: createLogger({
      format: "json",
      verbosity: 0,
      write: (line) => void lines.push(line),
      nowMs: () => 0,
      pid: 1,
    }),
    otherModes: {
      undisturbed: (work) => {
        order.push("rests");
        return work().finally(() => void order.push("may go on"));
      },
    },
    events: { recorder: { record: ({ note }) => void notes.push(note) }, run: () => Promise.resolve() },
  };
  const failures = async (): Promise<number | undefined> =>
    (await registry.getMetricsAsJSON())[0]?.values[0]?.value;
  return { reload, proxy, notes, log: lines, order, failures };
}

function fileOf(index: number): ConfigFile {
  return { path: "c.yaml", bytes: new Uint8Array([index]) };
}

Deno.test("a verbosity is in force at once and needs no new proxy server", async () => {
  const { reload, proxy, failures } = sceneOf([(config) => {
    config.logging.verbosity = 4;
  }]);
  assertEquals(await reload.nextProxyServer(proxy, NEVER), null);
  assertEquals(proxy.verbosity.level, 4);
  assertEquals(proxy.now.config.logging.verbosity, 4);
  assertEquals(await failures(), 0);
});

Deno.test("a verbosity set by hand stays when the file changes nothing about it", async () => {
  const { reload, proxy } = sceneOf([() => {}]);
  proxy.verbosity.level = 9;
  assertEquals(await reload.nextProxyServer(proxy, NEVER), null);
  assertEquals(proxy.verbosity.level, 9);
});

Deno.test("any other field makes a new proxy server", async () => {
  const { reload, proxy } = sceneOf([(config) => {
    config.iptables.masqueradeAll = true;
  }]);
  assertEquals((await reload.nextProxyServer(proxy, NEVER))?.iptables.masqueradeAll, true);
  assertEquals(proxy.now.config.iptables.masqueradeAll, false, "the present proxy server stays as it is");
});

Deno.test("a wrong file is refused with every problem, and the next one is looked at", async () => {
  const { reload, proxy, notes, log, failures } = sceneOf(["bad\nworse", (config) => {
    config.iptables.masqueradeAll = true;
  }]);
  assertEquals((await reload.nextProxyServer(proxy, NEVER))?.iptables.masqueradeAll, true);
  assertEquals(notes, [
    "the changed configuration is refused, the former one stays in force: c.yaml:3: bad; c.yaml:4: worse",
  ]);
  const problems = log.map((line) => JSON.parse(line).err).filter((err) => err !== undefined);
  assertEquals(problems, ["c.yaml:3: bad", "c.yaml:4: worse"]);
  assertEquals(await failures(), 1);
});

Deno.test("a configuration that cannot be run here is refused while the present proxy server goes on", async () => {
  const { reload, proxy, notes, order, failures } = sceneOf([(config) => {
    config.mode = "ipvs";
  }], "no module ip_vs");
  assertEquals(await reload.nextProxyServer(proxy, NEVER), null);
  assertEquals(order, ["rests", "prepared", "may go on"]);
  assertEquals(proxy.now.config, defaultConfig());
  assertEquals(await failures(), 1);
  assertEquals(notes.length, 1);
});

/** Looks at a kernel whose setting has these values in turn, then ends; a text that is no number is a program that fails. */
async function look(
  values: readonly string[],
  refused: readonly "IPv6"[] = ["IPv6"],
): Promise<[boolean, number]> {
  const end = new AbortController();
  let looks = 0;
  const exec: Exec = {
    run: () => {
      const value = values[looks++]!;
      const code = /^\d$/.test(value) ? 0 : 1;
      const stdout = `net.ipv6.conf.all.disable_ipv6 = ${value}\n`;
      return Promise.resolve(
        code === 0 ? { code, stdout, stderr: "" } : { code, stdout: "", stderr: "killed" },
      );
    },
  };
  const clock = {
    nowMs: () => 0,
    sleep: () => Promise.resolve(looks === values.length ? end.abort() : undefined),
  };
  const options = { refused: refused.map((family) => ({ family })), exec, periodMs: 30_000, clock };
  const watched = untilIpv6IsOn(options, end.signal);
  if (looks === 0 || values[0] === "0") queueMicrotask(() => end.abort());
  return [await watched, looks];
}

Deno.test(
  "IPv6 that was off is noticed once it is on, whatever fails meanwhile",
  { permissions: "none" },
  async () => {
    assertEquals(await look(["1", "1", "broken", "1", "0"]), [true, 5]);
    assertEquals(await look(["1", "1"]), [false, 2]);
  },
);

Deno.test("where something else keeps IPv6 from being served, or nothing does, it is not looked for again", {
  permissions: "none",
}, async () => {
  assertEquals(await look(["0", "0"]), [false, 1]);
  assertEquals(await look(["1", "0"], []), [false, 0]);
});
