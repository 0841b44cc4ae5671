import { assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { inFolder, kproxy } from "./kproxy.ts";

/** The node of the golden cases. */
const NODE = [
  "--hostname-override=node-a",
  "--bind-address=192.0.2.10",
  "--cluster-cidr=10.244.0.0/16",
  `--manifests=${ROOT}/tests/golden/all-examples/objects.yaml`,
];

Deno.test("check compares objects in files with saved rules, in every mode that one text holds", async () => {
  for (const mode of ["iptables", "nftables"]) {
    const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4", `--proxy-mode=${mode}`]);
    const broken = rules.replace("10.244.1.12:8080", "10.244.9.9:8080").replace(
      "10.244.1.12 . 8080",
      "10.244.9.9 . 8080",
    );
    await inFolder({ "live.rules": rules, "broken.rules": broken }, async (folder) => {
      const sound = await kproxy(["check", ...NODE, `--live-from=${folder}/live.rules`]);
      assertEquals([sound.code, sound.err], [0, ""], sound.out);
      assertStringIncludes(sound.out, `(mode ${mode}); live: files ${folder}/live.rules\n`);
      assertStringIncludes(sound.out, "nothing differs.\n");
      const found = await kproxy(["diff", ...NODE, `--live-from=${folder}/broken.rules`]);
      assertEquals([found.code, found.err], [1, ""], found.out);
      assertStringIncludes(found.out, "Service shop/web\n");
      assertStringIncludes(found.out, "10.244.9.9");
      const json = await kproxy(["check", ...NODE, `--live-from=${folder}/broken.rules`, "-o", "json"]);
      const { kind, apiVersion, clean, families } = JSON.parse(json.out);
      assertEquals([json.code, kind, apiVersion, clean], [1, "Check", "kproxy/v1", false]);
      const [{ services }] = families;
      assertEquals(services.map(({ name }: { name: string }) => name), ["shop/web"]);
    });
  }
});

Deno.test("check says that the objects do not know this node by its name", async () => {
  const flags = NODE.slice(1, 3);
  const node = JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } });
  await inFolder({ "node.json": node, "live.rules": "*nat\nCOMMIT\n" }, async (folder) => {
    const args = [...flags, `--manifests=${folder}/node.json`, `--live-from=${folder}/live.rules`];
    const check = (name: string) =>
      kproxy(["check", "--proxy-mode=iptables", `--hostname-override=${name}`, ...args]);
    const words = "There is no Node vm, by whose name policies and hints are decided here";
    assertStringIncludes((await check("vm")).err, `Warning: ${words}`);
    assertEquals((await check("node-a")).err.includes("no Node"), false);
  });
});

Deno.test("check names the cluster CIDR that the rules go by and the flags leave out", async () => {
  const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4", "--proxy-mode=iptables"]);
  await inFolder({ "live.rules": rules }, async (folder) => {
    const flags = NODE.filter((flag) => !flag.startsWith("--cluster-cidr"));
    const { code, err } = await kproxy(["check", ...flags, `--live-from=${folder}/live.rules`]);
    assertEquals(code, 1);
    assertStringIncludes(
      err,
      "Warning: Rules that are there go by cluster CIDR 10.244.0.0/16: --cluster-cidr=10.244.0.0/16",
    );
    const whole = await kproxy(["check", ...NODE, `--live-from=${folder}/live.rules`]);
    assertEquals([whole.code, whole.err], [0, ""], whole.out);
  });
});

Deno.test("what cannot be read of others' rules counts where packets to Services pass before ours", async () => {
  const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4", "--proxy-mode=iptables"]);
  const table = (hook: string): string =>
    `table ip fw {\n\tchain c {\n\t\ttype filter hook ${hook} priority filter; policy accept;\n\t\tfrobnicate !!\n\t}\n}\n`;
  for (const [hook, wanted] of [["forward", 0], ["prerouting", 1]] as const) {
    await inFolder({ "live.rules": rules, "fw.nft": table(hook) }, async (folder) => {
      const args = [`--live-from=${folder}/live.rules`, `--live-from=${folder}/fw.nft`];
      const { code, out } = await kproxy(["check", "--proxy-mode=iptables", ...NODE, ...args]);
      assertEquals(code, wanted, out);
      assertStringIncludes(out, "frobnicate");
    });
  }
});

const WRONG: readonly (readonly [args: readonly string[], words: string])[] = [
  [["check", ...NODE, "--live-from=/nowhere"], "Cannot read /nowhere"],
  [["check", ...NODE, "--repair", "--live-from=/nowhere"], "--repair writes the rules of this node"],
  [["check", "-o", "yaml"], 'Invalid value "yaml" for -o: want text or json'],
  [["check", "shop/web"], "shop/web"],
];

for (const [args, words] of WRONG) {
  Deno.test(`wrong use: ${args.filter((arg) => !NODE.includes(arg)).join(" ")}`, async () => {
    const { code, out, err } = await kproxy(args);
    assertEquals([code, out], [2, ""], err);
    assertStringIncludes(err, words);
  });
}
