/**
 * What `kproxy render` prints of the examples, fed to the real tools.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { withNetns } from "../support/netns.ts";
import { ROOT } from "../../tools/project_files.ts";
import { kproxy } from "../cli/kproxy.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

e2eTest(
  "what render prints of the examples is loaded by the real tools",
  [
    ROOT_NAMESPACES,
    ...["ip", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"].map(program),
  ],
  async (t) => {
    const folders = [...Deno.readDirSync(`${ROOT}/examples`)].filter(({ isDirectory }) => isDirectory);
    for (const { name } of folders) {
      await t.step(name, () =>
        withNetns(async (netns) => {
          const { code, out, err } = await kproxy(["render", `--manifests=${ROOT}/examples/${name}`]);
          assertEquals([code, err], [0, ""]);
          // The text of the second family, if there is one, begins with a comment.
          const [four = "", six = ""] = out.split(/^(?=# IPv6:)/m);
          const texts = [["iptables", four], ["ip6tables", six]].filter(([, text]) => text !== "");
          assert(four.includes("*nat"), out);
          for (const variant of ["nft", "legacy"]) {
            for (const [tool, text] of texts) {
              await netns.run([`${tool}-${variant}-restore`, "--test", "--noflush"], { stdin: text! });
            }
          }
        }));
    }
  },
);
