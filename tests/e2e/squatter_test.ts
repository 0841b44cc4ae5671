/**
 * Attacks of a local user who waits where kproxy is asked: root's commands send nothing there and write nothing of what it says.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { signalChild } from "../../tools/end_programs.ts";
import { kproxy } from "../cli/kproxy.ts";
import { asNobody, NOBODY } from "../support/as_nobody.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
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
        await kproxy(["doctor", `--kubeconfig=${socket.replace("kproxy.sock", "kubeconfig")}`], {
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
            /^Error: Nothing says where the objects are: no kproxy tells of itself on \S+kproxy\.sock; /m,
          );
          assert(!out.includes(EVIL), out);
        }
        assertEquals(await netns.run(["nft", "list", "ruleset"]), "");
        // With files of the cluster's own it does not write either: what is there may be a proxy that mends its rules itself.
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
