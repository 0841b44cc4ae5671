/**
 * Devices and their addresses through the `ip` program.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import {
  addDummyLine,
  deleteLinkLine,
  type DeviceAddress,
  type Link,
  parseDeviceAddresses,
  parseDeviceSettings,
  parseLinks,
  parseRoutes,
  type Route,
} from "../netfilter/ip_batch.ts";
import { type Exec, runOk } from "./exec.ts";
import type { IpFamily } from "../model/objects.ts";
import { mayBlameLines, type RefusedLine } from "./tool_errors.ts";

// Errors of older kernels by number, of newer ones (6.4) in full.
const EXISTS_REGEXP = /File exists|already assigned/i;
const ABSENT_REGEXP = /Cannot assign requested address|address not found|Cannot find device|No such device/i;
const NO_DEVICE_REGEXP = /does not exist|Cannot find device/;
const ABSENT_DEVICE_REGEXP = /Cannot find device|No such device/;
const NO_TYPE_REGEXP = /Unknown device type|Operation not supported|Not supported/i;
const FAILED_LINE_REGEXP = /^Command failed -:(\d+)$/;

/** All devices of a network namespace. */
export interface Devices {
  /** Device → its kind (`dummy`, `veth`, …; `""`: hardware). */
  readonly kinds: ReadonlyMap<string, string>;
  readonly addresses: readonly DeviceAddress[];
}

/** All devices and their addresses. */
export async function readDevices(exec: Exec): Promise<Devices> {
  const links = parseLinks(await runOk(exec, ["ip", "-json", "-details", "address"]));
  return {
    kinds: new Map(links.map(({ device, kind }) => [device, kind])),
    addresses: links.flatMap(({ addresses }) => addresses),
  };
}

/** All devices, with or without addresses. */
export async function readLinks(exec: Exec): Promise<readonly Link[]> {
  return parseLinks(await runOk(exec, ["ip", "-json", "-details", "link"]));
}

/**
 * `forwarding` and `rp_filter` of each device, `all` and `default` among them: `net.ipv4.conf.eth0/100.forwarding` → `1`. In one answer
 * of the kernel, where `sysctl -a` takes 15 s on a node with 200 pods.
 */
export async function readDeviceSettings(exec: Exec): Promise<ReadonlyMap<string, string>> {
  return parseDeviceSettings(await runOk(exec, ["ip", "-json", "netconf"]));
}

/**
 * Routes of a family's main table.
 *
 * @param which words of `ip route` that select some: a router's table has a million
 */
export async function readRoutes(
  exec: Exec,
  family: IpFamily,
  which: readonly string[] = [],
): Promise<readonly Route[]> {
  const option = family === "IPv6" ? ["-6"] : [];
  return parseRoutes(await runOk(exec, ["ip", "-json", ...option, "route", ...which]), family);
}

/** Kind of a device (`dummy`, `veth`, …; `""`: hardware), or null if there is none of this name. */
export async function deviceKind(exec: Exec, device: string): Promise<string | null> {
  try {
    const text = await runOk(exec, ["ip", "-json", "-details", "link", "show", "dev", device]);
    return parseLinks(text).find((link) => link.device === device)?.kind ?? null;
  } catch (error) {
    if (error instanceof ExecError && NO_DEVICE_REGEXP.test(error.stderr)) return null;
    throw error;
  }
}

/** The addresses of one device, both families, in canonical text; null if there is none of this name. */
export async function deviceAddresses(exec: Exec, device: string): Promise<ReadonlySet<string> | null> {
  try {
    const text = await runOk(exec, ["ip", "-json", "address", "show", "dev", device]);
    return new Set(parseDeviceAddresses(text).map(({ address }) => address));
  } catch (error) {
    if (error instanceof ExecError && NO_DEVICE_REGEXP.test(error.stderr)) return null;
    throw error;
  }
}

/**
 * Makes a dummy device unless it is there.
 *
 * @returns true if it was not there
 * @throws {UnsupportedError} if the kernel has no dummy devices, or if a device of this name is something else
 */
export async function ensureDummy(exec: Exec, device: string): Promise<boolean> {
  try {
    await runOk(exec, ["ip", ...addDummyLine(device).split(" ")]);
    return true;
  } catch (error) {
    if (!(error instanceof ExecError) || error.isMissing()) throw error;
    // An existing device says more than the error of adding it. Asked first, it would cost every first start a program.
    const kind = await deviceKind(exec, device);
    if (kind === "dummy") return false;
    if (kind !== null) {
      throw new UnsupportedError(
        `Device ${device}`,
        "a dummy device of this name",
        `one of kind ${kind || "hardware"}`,
      );
    }
    if (!NO_TYPE_REGEXP.test(error.stderr)) throw error;
    throw new UnsupportedError(`Device ${device}`, "the kernel module dummy", error.stderr.trim(), {
      cause: error,
    });
  }
}

/** Deletes a device with its addresses; one that is gone is fine. */
export async function deleteDevice(exec: Exec, device: string): Promise<void> {
  try {
    await runOk(exec, ["ip", ...deleteLinkLine(device).split(" ")]);
  } catch (error) {
    if (!(error instanceof ExecError && NO_DEVICE_REGEXP.test(error.stderr))) throw error;
  }
}

/**
 * Carries out lines of `ip -batch` (without line ends) in one run of the program. A line may add what is there already,
 * and remove what is gone already.
 *
 * @throws {ExecError} if another line failed; all others have been carried out
 */
export async function runIpBatch(exec: Exec, lines: readonly string[]): Promise<void> {
  const failures = await runBatch(exec, lines);
  if (failures.length > 0) throw batchError(lines, failures);
}

/**
 * As {@linkcode runIpBatch}, but addresses that the kernel does not take are no failure.
 *
 * @returns the refused lines
 * @throws {ExecError} if another line failed, or if no line is to blame
 */
export async function runIpBatchOthers(
  exec: Exec,
  lines: readonly string[],
): Promise<readonly RefusedLine[]> {
  const failures = await runBatch(exec, lines);
  const isRefusal = ({ index, problem }: RefusedLine): boolean =>
    lines[index]?.startsWith("address add ") === true && !ABSENT_DEVICE_REGEXP.test(problem) &&
    mayBlameLines({ code: 1, stderr: problem });
  if (!failures.every(isRefusal)) throw batchError(lines, failures);
  return failures;
}

const BATCH = ["ip", "-force", "-batch", "-"];

/** The failures that matter; all other lines have been carried out. */
async function runBatch(exec: Exec, lines: readonly string[]): Promise<readonly RefusedLine[]> {
  const { code, stderr } = await exec.run(BATCH, { stdin: lines.map((line) => `${line}\n`).join("") });
  if (code === 0) return [];
  const failures = batchFailures(stderr, lines);
  // A status without any line to blame is a failure of the program as a whole.
  if (failures === null) throw new ExecError(BATCH, code, stderr);
  return failures;
}

function batchError(lines: readonly string[], failures: readonly RefusedLine[]): ExecError {
  return new ExecError(
    BATCH,
    1,
    failures.map(({ index, problem }) => `${problem} (${lines[index]})`).join("\n"),
  );
}

/** Null if the text names no line. */
function batchFailures(stderr: string, lines: readonly string[]): readonly RefusedLine[] | null {
  const failures: RefusedLine[] = [];
  let words: string[] = [];
  let blamed = 0;
  for (const text of stderr.split("\n")) {
    const at = FAILED_LINE_REGEXP.exec(text);
    if (at === null) {
      words.push(text);
      continue;
    }
    blamed++;
    const index = Number(at[1]) - 1;
    const problem = words.join(" ").trim();
    words = [];
    const isFine = / add /.test(` ${lines[index] ?? ""} `)
      ? EXISTS_REGEXP.test(problem)
      : ABSENT_REGEXP.test(problem);
    if (!isFine) failures.push({ index, problem });
  }
  return blamed === 0 ? null : failures;
}
