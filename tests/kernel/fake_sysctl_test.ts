/**
 * The in-memory `sysctl` beside the real one, on the same settings of a namespace.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { readSysctls } from "../../lib/kernel/sysctl.ts";
import { fakeSysctl } from "../support/fake_sysctl.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const FORWARD = "net.ipv4.ip_forward";
const LOCALNET = "net.ipv4.conf.all.route_localnet";
const PORTS = "net.ipv4.ip_local_port_range";
const NONE = "net.ipv4.there_is_none";

e2eTest("the sysctl in memory says and does what the real one does", [
  ROOT_NAMESPACES,
  program("sysctl"),
], async () => {
  await withNetns(async ({ exec }) => {
    const values = { [FORWARD]: "0", [LOCALNET]: "0", [PORTS]: "32768\t60999" };
    for (const [name, value] of Object.entries(values)) await exec.run(["sysctl", "-w", `${name}=${value}`]);
    for (
      const args of [
        ["-n", FORWARD],
        ["-n", NONE],
        [FORWARD, LOCALNET, PORTS],
        [NONE, PORTS, NONE, FORWARD],
        ["-w", `${LOCALNET}=1`],
        ["-w", `${NONE}=1`],
        ["-n", LOCALNET, FORWARD],
      ]
    ) assertEquals(fakeSysctl(values, args), await exec.run(["sysctl", ...args]), args.join(" "));
    // What status a refused value leads to differs from setting to setting, and nothing depends on it.
    const together = ["-w", `${PORTS}=2 1`, `${FORWARD}=1`];
    const refusals = { write: { [PORTS]: `sysctl: setting key "${PORTS}": Invalid argument` } };
    const { stdout, stderr } = await exec.run(["sysctl", ...together]);
    const { code: _, ...said } = fakeSysctl(values, together, refusals);
    assertEquals(said, { stdout, stderr });
    assertEquals([...await readSysctls(exec, [NONE, PORTS, LOCALNET])], [
      [NONE, null],
      [PORTS, "32768\t60999"],
      [LOCALNET, "1"],
    ]);
  });
});
