/**
 * Attacks of a local user who waits where kproxy is asked: root's commands send nothing there and write nothing of what it says.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { signalChild } from "../../tools/end_programs.ts";
import { SyncError } from "../../lib/errors.ts";
import { CONFIG_PATH, STATUS_PATH } from "../../lib/serve/status/status_document.ts";
import { besideAudit, kproxy, type Run } from "../cli/kproxy.ts";
import { asNobody, NOBODY } from "../support/as_nobody.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { testService, testSlice, testSliceEndpoint } from "../support/model_objects.ts";
import { serving } from "../support/status_server.ts";
import { eventually } from "../support/until.ts";
import { EVIL, type SquatterOrder } from "../support/squatter_program.ts";

const NEEDS = [ROOT_NAMESPACES, ...["ip", "nft", "setpriv"].map(program)];
const SECRET = "root-only-secret";

/** A squatter at work. */
interface Squatter {
  /** Its socket. */
  readonly socket: string;
  /** What it was sent so far. */
  readonly got: () => string;
}

/** Runs `work` beside a squatter, on a node where no kproxy runs. */
async function withSquatter(netns: Netns, work: (squatter: Squatter) => Promise<void>): Promise<void> {
  const own = await Deno.makeTempDir({ prefix: "kproxy-secret-" });
  const folder = `/tmp/kproxy-squatter-${netns.name}`;
  try {
    const tokenFile = `${own}/token`;
    await Deno.writeTextFile(tokenFile, SECRET, { mode: 0o600 });
    await asNobody([], async ({ prefix, deno, root }) => {
      const order: SquatterOrder = { folder, tokenFile };
      const run = [deno, "run", "-q", "-A", "--no-check", "--config", `${root}/deno.json`];
      const argv = [...prefix, ...run, `${root}/tests/support/squatter_program.ts`, JSON.stringify(order)];
      const child = new Deno.Command("ip", {
        args: ["netns", "exec", netns.name, ...argv],
        // It is killed: what it leaves goes with its folder.
        env: { TMPDIR: folder },
        stdin: "null",
        stdout: "piped",
        stderr: "inherit",
      }).spawn();
      const { promise: ready, resolve } = Promise.withResolvers<void>();
      let said = "";
      const reading = (async () => {
        for await (const piece of child.stdout.pipeThrough(new TextDecoderStream())) {
          said += piece;
          if (said.startsWith("ready\n")) resolve();
        }
      })();
      try {
        await Promise.race([
          ready,
          child.status.then(() => Promise.reject(new Error("The squatter has ended"))),
        ]);
        assertEquals((await Deno.lstat(`${folder}/kproxy.sock`)).uid, NOBODY);
        await work({ socket: `${folder}/kproxy.sock`, got: () => said });
      } finally {
        signalChild(child, "SIGKILL");
        await child.status;
        await reading;
      }
    });
  } finally {
    await Deno.remove(own, { recursive: true });
    await Deno.remove(folder, { recursive: true });
  }
}

e2eTest(
  "a local user at kproxy's port, or on a socket of its own, gets no file of root's from doctor",
  NEEDS,
  async () => {
    await withNetns(async (netns) => {
      await withSquatter(netns, async ({ socket, got }) => {
        // The credentials are worth something: who names this kubeconfig, sends them.
        const kubeconfig = socket.replace("kproxy.sock", "kubeconfig");
        await kproxy(["doctor", "--allow-insecure-files", `--kubeconfig=${kubeconfig}`], {
          netns: netns.name,
        });
        assertStringIncludes(got(), `got Bearer ${SECRET}`);
        const before = got();
        for (const asked of [[], [`--socket=${socket}`]]) {
          const { out } = await kproxy(["doctor", ...asked], { netns: netns.name });
          assertEquals(out.includes("this node is judged by its configuration"), false, out);
        }
        assertEquals(got(), before);
      });
    });
  },
);

e2eTest(
  "a kproxy that runs as another user names no file for root's doctor to read",
  [ROOT_NAMESPACES, program("ip")],
  async () => {
    // As systemd makes it for the user of its unit.
    const directory = `/run/kproxy-test-${Deno.pid}`;
    const socket = `${directory}/kproxy.sock`;
    const manifest = `${ROOT}/examples/demo`;
    await Deno.mkdir(directory, { mode: 0o700 });
    try {
      await serving(async ({ askSocket }) => {
        const pages = new Map<string, string>();
        for (const path of [STATUS_PATH, CONFIG_PATH]) {
          pages.set(path, (await askSocket(`GET ${path} HTTP/1.0`)).body);
        }
        await using _server = Deno.serve(
          { path: socket, onListen: () => {} },
          (request) => new Response(pages.get(new URL(request.url).pathname)),
        );
        await Deno.chmod(socket, 0o600);
        const doctor = (netns: Netns): Promise<Run> =>
          kproxy(["doctor", `--socket=${socket}`], { netns: netns.name });
        await withNetns(async (netns) => {
          assertStringIncludes((await doctor(netns)).out, `objects in ${manifest}`);
          for (const path of [directory, socket]) await Deno.chown(path, NOBODY, NOBODY);
          const { out } = await doctor(netns);
          assertStringIncludes(out, "runs as another user, who may name neither credentials nor manifests");
          assertEquals(out.includes(manifest), false, out);
        });
      }, { manifests: [manifest] });
    } finally {
      await Deno.remove(directory, { recursive: true });
    }
  },
);

e2eTest(
  "a local user at kproxy's port, or on a socket of its own, has no rule written by check --repair",
  NEEDS,
  async () => {
    await withNetns(async (netns) => {
      await withSquatter(netns, async ({ socket, got }) => {
        for (const asked of [[], [`--socket=${socket}`]]) {
          const { code, out, err } = await kproxy(["check", "--repair", "--proxy-mode=nftables", ...asked], {
            netns: netns.name,
          });
          assertEquals(code, 1, out);
          assertMatch(
            err,
            /^Error: Nothing says where the objects are: no kproxy answers on \S+kproxy\.sock; /m,
          );
          assert(!out.includes(EVIL), out);
        }
        assertEquals(await netns.run(["nft", "list", "ruleset"]), "");
        // With files of the cluster's own it does not write either: what is there may be a proxy that fixes its rules itself.
        const files = ["--manifests=examples/demo", "--hostname-override=node-a"];
        const named = await kproxy(["check", "--repair", "--proxy-mode=nftables", ...files], {
          netns: netns.name,
        });
        assertStringIncludes(
          named.err,
          "Error: nothing is repaired: on 127.0.0.1:10249 another proxy answers there: mode nftables",
        );
        assertEquals(await netns.run(["nft", "list", "ruleset"]), "");
        assertEquals(got(), "ready\n");
      });
    });
  },
);

e2eTest(
  "beside a kproxy that cannot write, check --repair writes the objects of the files that it names, and none that it holds",
  [ROOT_NAMESPACES, program("ip"), program("nft")],
  async () => {
    const held = [
      testService({ namespace: "evil", name: "held", clusterIP: "10.96.6.6" }),
      testSlice({
        namespace: "evil",
        name: "held-x",
        serviceName: "held",
        endpoints: [testSliceEndpoint(EVIL)],
      }),
    ];
    const manifests = [`${ROOT}/examples/demo`];
    await withNetns(async (netns) => {
      await serving(async ({ socket, record }) => {
        const error = new SyncError("nftables", "apply", "no memory");
        for (const family of ["IPv4", "IPv6"] as const) {
          record.observer.failed({ family, full: true, durationMs: 1, error });
        }
        const repair = (): Promise<Run> =>
          kproxy(["check", "--repair", `--socket=${socket}`], { netns: netns.name });
        const { code, out, err } = await repair();
        assertEquals([code, besideAudit({ code, out, err })], [0, ""], out);
        assertMatch(out, /^Desired: files \S+examples\/demo \(mode nftables\)/);
        const rules = await netns.run(["nft", "list", "ruleset"]);
        assert(rules.includes("table ip kproxy") && !/203\.0\.113\.66|10\.96\.6\.6/.test(rules), rules);
      }, { families: ["IPv4", "IPv6"], mode: "nftables", node: "node-a", manifests, objects: held });
    });
  },
);

e2eTest(
  "who has switched the mode, or cleaned up, stands in the log of the kproxy that runs",
  [ROOT_NAMESPACES, ...["ip", "nft", "iptables"].map(program)],
  async () => {
    const folder = await Deno.makeTempDir({ prefix: "kproxy-audit-" });
    const file = `${folder}/config.yaml`;
    const write = (mode: string): Promise<void> =>
      Deno.writeTextFile(
        file,
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
          `mode: ${mode}\nkproxy: { manifests: [${ROOT}/examples/demo] }\n`,
      );
    try {
      await write("iptables");
      await withNetns(async (netns) => {
        const args = [`--config=${file}`, "--hostname-override=node-a"];
        await using running = await KproxyProcess.start({ netns, args });
        await write("nftables");
        await running.untilMessage("Audit");
        const audited = (): readonly unknown[] =>
          running.lines.filter(({ msg }) => msg === "Audit").map(({ ts: _ts, caller: _caller, ...line }) =>
            line
          );
        const at = { msg: "Audit", v: 0 };
        const switched = { ...at, action: "mode switch", uid: 0, from: "iptables", to: "nftables", file };
        assertEquals(audited(), [switched]);
        const table = ["iptables", "-t", "nat"];
        await eventually(async () =>
          assertEquals(/KUBE-SERVICES/.test(await netns.run([...table, "-S"])), false)
        );
        await netns.run([...table, "-N", "KUBE-SERVICES"]);
        const argv = ["cleanup", "--only=iptables"];
        assertEquals(besideAudit(await kproxy(argv, { netns: netns.name })), "");
        await running.until("the cleanup", () => audited().length === 2);
        const { what, ...rest } = audited()[1] as { readonly what: string };
        assertEquals(rest, { ...at, action: "cleanup", uid: "0" });
        assertMatch(what, /^modes="iptables" removed="1 chains and jumps of IPv4 (?:nft|legacy)"$/);
      });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);
