import { assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { inFolder, kproxy } from "./kproxy.ts";

/** The node of the golden cases. */
const OBJECTS = `--manifests=${ROOT}/tests/golden/all-examples/objects.yaml`;
const NODE = [
  "--hostname-override=node-a",
  "--bind-address=192.0.2.10",
  "--cluster-cidr=10.244.0.0/16",
  OBJECTS,
];
const WEB = "10.244.0.11:8080 (1/3) | 10.244.1.12:8080 (1/3) | 10.244.2.13:8080 (1/3), masquerade";

Deno.test("trace and service look at objects in files and at saved rules, in every mode that one text holds", async () => {
  for (const mode of ["iptables", "nftables"]) {
    const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4", `--proxy-mode=${mode}`]);
    await inFolder({ "live.rules": rules }, async (folder) => {
      const live = `--live-from=${folder}/live.rules`;
      // What is in force tells the mode, without a flag.
      const trace = await kproxy(["trace", "world", "shop/web", ...NODE, live]);
      assertEquals([trace.code, trace.err], [0, ""], trace.out);
      assertStringIncludes(
        trace.out,
        `By the live rules (${mode}, files ${folder}/live.rules): ${WEB} yes\n`,
      );
      assertStringIncludes(trace.out, "say the same.");
      const json = await kproxy(["explain", "10.244.0.5@cni0", "10.96.10.1:80", ...NODE, live, "-o", "json"]);
      const { kind, service, live: { end }, findings } = JSON.parse(json.out);
      assertEquals([json.code, kind, service.name, end, findings], [0, "Trace", "shop/web", `${WEB} no`, []]);
      // A user who names the mode is told of another one, even where it does the same.
      const other = mode === "iptables" ? "nftables" : "iptables";
      const named = await kproxy(["trace", "world", "shop/web", ...NODE, live, `--proxy-mode=${other}`]);
      assertEquals(named.code, 1);
      assertStringIncludes(named.out, `Wrong: This node should have rules of mode ${other}`);
      const one = await kproxy(["service", "get", "shop/web", ...NODE, live]);
      assertEquals(one.code, 0, one.err);
      assertStringIncludes(one.out, "shop/web:http (TCP 80)");
      assertStringIncludes(one.out, "in the kernel");
      assertStringIncludes(one.out, "10.244.2.13");
      const all = await kproxy(["service", "list", ...NODE, `--no-live`, "-o", "json"]);
      const names = JSON.parse(all.out).items.map((item: { service: string }) => item.service);
      assertEquals([all.code, names.includes("shop/web"), names.length > 8], [0, true, true]);
    });
  }
});

/** Objects that say why there is nothing to be traced. */
const ABSENT = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [
    { spec: { clusterIP: "None", ports: [{ port: 80 }] }, name: "headless" },
    { spec: { type: "ExternalName", externalName: "example.org" }, name: "external" },
    {
      spec: { clusterIP: "10.96.0.7", ports: [{ port: 80 }] },
      name: "foreign",
      labels: { "service.kubernetes.io/service-proxy-name": "cilium" },
    },
    { spec: { clusterIP: "10.96.0.8", ports: [{ port: "eighty" }] }, name: "broken" },
    { spec: { clusterIP: "10.96.0.9", ports: [{ port: 80 }] }, name: "web" },
  ].map(({ spec, name, ...metadata }) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name, ...metadata },
    spec,
  })),
});

Deno.test("a Service that is none of the proxy's is reported with the reason, by trace and by service get", async () => {
  await inFolder({ "objects.json": ABSENT }, async (folder) => {
    const flags = ["--hostname-override=node-a", `--manifests=${folder}/objects.json`, "--no-live"];
    for (
      const [name, words] of [
        ["headless", "Service shop/headless is headless: it has no cluster IP"],
        ["external", "Service shop/external is of type ExternalName: DNS answers for it, and no proxy"],
        ["foreign", "is left to another proxy by its label service.kubernetes.io/service-proxy-name: cilium"],
        ["broken", "Service shop/broken is refused: items[3].spec.ports[0].port"],
        ["wob", 'There is no Service shop/wob with a cluster IP: did you mean "shop/web"?'],
      ] as const
    ) {
      const commands = [["service", "get", `shop/${name}`], [
        "trace",
        "world",
        `${name}.shop.svc.cluster.local:80`,
      ]];
      for (const argv of commands) {
        const { code, out, err } = await kproxy([...argv, ...flags]);
        assertEquals([code, out], [1, ""], err);
        assertStringIncludes(err, words);
      }
    }
    const { code, out } = await kproxy(["trace", "world", "web.shop.svc:80", ...flags]);
    assertEquals(code, 0);
    assertStringIncludes(
      out,
      "Service shop/web has no endpoints: no EndpointSlice has the label kubernetes.io/service-name=web",
    );
  });
});

Deno.test("a rule that cannot be judged makes the answer unsure, with its place", async () => {
  const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4", "--proxy-mode=iptables"]);
  const quota = rules.replace(
    /(-I FORWARD .* -j KUBE-PROXY-FIREWALL\n)/,
    "$1-I FORWARD -m quota --quota 1000 -j DROP\n",
  );
  await inFolder({ "live.rules": quota }, async (folder) => {
    const { code, out } = await kproxy([
      "trace",
      "world",
      "shop/web",
      ...NODE,
      `--live-from=${folder}/live.rules`,
    ]);
    assertEquals(code, 1, out);
    assertStringIncludes(
      out,
      'Unsure: table filter chain FORWARD rule 1: "-m quota --quota 1000" is not understood and taken as not matching',
    );
  });
});

Deno.test("trace ends with 1 and names the place where live rules part from the desired ones", async () => {
  const { out: rules } = await kproxy(["render", ...NODE, "--family=ipv4"]);
  const broken = rules.replace("--to-destination 10.244.1.12:8080", "--to-destination 10.244.9.9:8080");
  await inFolder({ "live.rules": broken }, async (folder) => {
    const { code, out } = await kproxy([
      "trace",
      "world",
      "10.96.10.1:80",
      ...NODE,
      `--live-from=${folder}/live.rules`,
    ]);
    assertEquals(code, 1);
    assertStringIncludes(out, "They part here:");
    assertStringIncludes(out, "10.244.9.9:8080");
    assertStringIncludes(out, "Wrong: The live rules do something else than the desired ones");
  });
});

const WRONG: readonly (readonly [args: readonly string[], words: string])[] = [
  [["trace"], "needs a source and a destination"],
  [["trace", "local", "10.96.0.1"], "names no port: write 10.96.0.1:80"],
  [["trace", "local", "10.96.0.1:99999"], "is no destination"],
  [["trace", "nowhere!", "10.96.0.1:80", ...NODE, "--no-live"], "is no source"],
  [["trace", "fd00::1", "10.96.0.1:80", ...NODE, "--no-live"], "IPv6 address"],
  [["trace", "local", "10.96.0.1:80", "--no-live", "--no-desired"], "leave nothing"],
  [["trace", "local", "10.96.0.1:80", ...NODE, "--live-from=/nowhere"], "Cannot read /nowhere"],
  [["trace", "local", "10.96.0.1:80", "-o", "yaml"], 'Invalid value "yaml" for -o: want text or json'],
  [["service"], "service list or kproxy service get"],
  [["service", "get"], "service list or kproxy service get"],
];

for (const [args, words] of WRONG) {
  Deno.test(`wrong use: ${args.filter((arg) => !NODE.includes(arg)).join(" ")}`, async () => {
    const { code, out, err } = await kproxy(args);
    assertEquals([code, out], [2, ""], err);
    assertStringIncludes(err, words);
  });
}
