/**
 * Commands that look at a node, given objects, saved rules and files by an attacker.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { runCli } from "../../lib/cli/cli.ts";
import type { Io } from "../../lib/cli/io.ts";
import { openOwnSocket } from "../../lib/kernel/own_socket.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { inFolder, kproxy, type Run } from "./kproxy.ts";

/** Colours by an escape of 7 bits and by one of 8, a change of direction, a bell. */
const EVIL = "\u001b[31m\u009b31m\u202e\u0007";
// deno-lint-ignore no-control-regex -- these are what a terminal would obey.
const OBEYED = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;

const NODE = ["--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16"];
const OBJECTS: readonly ApiJson[] = [
  service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] }),
  slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.1.12@node-b"]),
  service(`shop/we${EVIL}`, { clusterIP: "10.96.0.2", ports: [":80"] }),
  { ...service("shop/kind", { clusterIP: "10.96.0.3", ports: [":80"] }), kind: `Kind${EVIL}` },
];
const RULES = `*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:EV${EVIL}L - [0:0]
-A PREROUTING -m comment --comment "a${EVIL}" -j KUBE-SERVICES
-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment "x${EVIL}" -j DNAT --to-destination 10.6.6.6
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m ev${EVIL} --dport 80 -j EV${EVIL}L
COMMIT
gar${EVIL}
`;
const TABLES = `table ip kube-proxy${EVIL} {
 chain a${EVIL} { type filter hook forward priority 0; policy drop; comment "b${EVIL}"
 ip daddr 10.96.0.1 counter drop comment "c${EVIL}"
 }
}
`;

async function inHostileFolder(
  work: (files: readonly string[], folder: string) => Promise<void>,
): Promise<void> {
  const objects = JSON.stringify({ apiVersion: "v1", kind: "List", items: OBJECTS });
  await inFolder({ "objects.json": objects, "live.rules": RULES, "live.nft": TABLES }, async (folder) => {
    const live = ["live.rules", "live.nft"].map((name) => `--live-from=${folder}/${name}`);
    await work([...NODE, `--manifests=${folder}/objects.json`, ...live], folder);
  });
}

/** A command in this process. */
async function command(argv: readonly string[]): Promise<Run> {
  let [out, err] = ["", ""];
  const none = { write: () => {} };
  const io: Io = {
    out: (text) => Promise.resolve(void (out += text)),
    err: (text) => void (err += text),
    log: { out: none, err: none, flush: () => Promise.resolve() } as unknown as Io["log"],
  };
  return { code: await runCli(argv, io), out, err };
}

const COMMANDS: readonly (readonly string[])[] = [
  ["trace", "world", "10.96.0.1:80"],
  ["service", "list"],
  ["service", "get", "shop/web"],
  ["check"],
];

Deno.test("what a terminal would obey is in no text and in no document, which say the same all the same", async () => {
  await inHostileFolder(async (files) => {
    for (const words of COMMANDS) {
      const text = await command([...words, ...files]);
      assert(text.code < 2, text.err);
      assert(!OBEYED.test(text.out), `${words}: ${JSON.stringify(text.out)}`);
      const json = await command([...words, ...files, "-o", "json"]);
      assert(!OBEYED.test(json.out), `${words}: ${JSON.stringify(json.out)}`);
      assert(JSON.stringify(JSON.parse(json.out)).includes("\u009b31m\u202e"), words.join(" "));
    }
  });
});

Deno.test("nor is it in what is said of errors", async () => {
  await inHostileFolder(async (files) => {
    const { code, out, err } = await kproxy(["trace", "world", "10.96.0.1:80", ...files]);
    assertEquals(code, 1);
    assertStringIncludes(err, "must be a DNS label");
    assert(!OBEYED.test(out + err), JSON.stringify(err));
    const { err: unknown } = await kproxy([`--unknown${EVIL}`]);
    assertEquals(unknown, 'Error: Unknown flag "--unknown\\u001b[31m\\u009b31m\\u202e\\u0007"\n');
  });
});

Deno.test("saved rules that never end, or are no file, are refused at once", async () => {
  await inFolder({ "empty.rules": "" }, async (folder) => {
    await new Deno.Command("mkfifo", { args: [`${folder}/fifo`] }).output();
    const startMs = performance.now();
    for (const name of ["/dev/zero", `${folder}/fifo`, folder]) {
      const argv = ["trace", "local", "10.96.0.1:80", "--no-desired", `--live-from=${name}`];
      assertEquals(await command(argv), {
        code: 2,
        out: "",
        err: `Error: Cannot read ${name}: is not a file\n`,
      });
    }
    assert(performance.now() - startMs < 60_000);
    const big = await Deno.open(`${folder}/big.rules`, { write: true, create: true });
    await big.truncate(2 ** 33);
    big.close();
    const argv = ["check", ...NODE, `--manifests=${folder}/empty.rules`, `--live-from=${folder}/big.rules`];
    const { code, err } = await command(argv);
    assertEquals([code, err], [2, `Error: Cannot read ${folder}/big.rules: is larger than 256 MiB\n`]);
  });
});

const CHAINS = Array.from({ length: 40 }, (_, index) => index);
const SERVICES_CHAIN = ":PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n";

/** Rules that a kernel would take, and that lead a packet on more ways than can be followed. */
const ENDLESS: readonly (readonly [name: string, rules: string, words: string])[] = [
  [
    "chains that each jump to the next one twice",
    `*nat\n${SERVICES_CHAIN}${CHAINS.map((at) => `:C${at} - [0:0]\n`).join("")}-A PREROUTING -j C0\n` +
    `${CHAINS.map((at) => `-A C${at} -j C${at + 1}\n`.repeat(at === 39 ? 0 : 2)).join("")}COMMIT\n`,
    "A packet takes more than 10000 jumps here: it is not followed to its end",
  ],
  [
    "choices that each leave another mark",
    `*nat\n${SERVICES_CHAIN}${
      CHAINS.slice(0, 32).map((bit) =>
        `-A PREROUTING -m statistic --mode random --probability 0.5 -j MARK --set-xmark ${
          ["0x", (2 ** bit).toString(16)].join("")
        }/0x${(2 ** bit).toString(16)}\n`
      ).join("")
    }COMMIT\n`,
    "A packet takes more than 10000 ways here: it is not followed to its end",
  ],
  [
    "a chain of nftables that is deeper than the kernel lets any be",
    `table ip kube-proxy {\n${
      CHAINS.map((at) => ` chain c${at} {\n${at === 39 ? "" : `  jump c${at + 1}\n`} }\n`).join("")
    } chain nat-prerouting {\n  type nat hook prerouting priority -100; policy accept;\n  jump c0\n }\n}\n`,
    "Table ip kube-proxy: jumps never end at c16",
  ],
];

for (const [name, rules, words] of ENDLESS) {
  Deno.test(`${name} are followed as far as there is time`, async () => {
    await inFolder({ "live.rules": rules }, async (folder) => {
      const argv = ["trace", "world", "10.96.0.1:80", "--no-desired", `--live-from=${folder}/live.rules`];
      const { code, out, err } = await command(argv);
      assert(code < 2, err);
      assertStringIncludes(out, words);
    });
  });
}

Deno.test("of what cannot be read only the first problems are printed", async () => {
  const rules = `*nat\n:PREROUTING ACCEPT [0:0]\n${"-x\n".repeat(5_000)}COMMIT\n`;
  const long = `-A PREROUTING -m comment --comment "${"x".repeat(1_000_000)}" -j ACCEPT\n`;
  const objects = JSON.stringify({ apiVersion: "v1", kind: "List", items: OBJECTS.slice(0, 2) });
  await inFolder(
    { "a.rules": rules, "b.rules": `*nat\n${long}COMMIT\n`, "objects.json": objects },
    async (folder) => {
      const files = [...NODE, `--manifests=${folder}/objects.json`];
      const { out } = await command(["check", ...files, `--live-from=${folder}/a.rules`]);
      assertEquals(out.match(/^Not read: /gm)?.length, 11);
      assertStringIncludes(out, "more, see -o json\n");
      for (const words of COMMANDS) {
        const text = await command([...words, ...files, `--live-from=${folder}/b.rules`]);
        const longest = Math.max(...text.out.split("\n").map((line) => line.length));
        assert(longest < 30_000, `${words}: a line of ${longest} characters`);
      }
    },
  );
});

Deno.test("a program that answers in place of kproxy is named, and waited for a moment only", async () => {
  await inFolder({ "live.rules": RULES }, async (folder) => {
    const socket = `${folder}/kproxy.sock`;
    const { listener } = openOwnSocket(socket);
    const taken: Deno.Conn[] = [];
    const taking = (async () => {
      for await (const connection of listener) taken.push(connection);
    })();
    const live = [`--live-from=${folder}/live.rules`, `--socket=${socket}`];
    const startMs = performance.now();
    await Promise.all(COMMANDS.map(async (words) => {
      const { code, err } = await command([...words, ...live]);
      assert(code > 0);
      assertStringIncludes(
        err,
        `Warning: the kproxy on ${socket} cannot be asked: it does not answer within 5 s; objects are not taken from it\n`,
      );
    }));
    assert(performance.now() - startMs < 120_000);
    listener.close();
    await taking;
    for (const connection of taken) connection.close();
  });
});
