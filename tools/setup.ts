/**
 * Installs missing programs that the demo and the tests need, with apt-get, and announces it.
 * `deno task setup` installs all of them.
 *
 * @module
 */
import { Activity } from "../lib/cli/terminal/drawing.ts";
import { writeLine } from "./output.ts";
import { errorTerminal } from "./terminal.ts";

/** A Debian package, and a program that shows that it is installed. */
export interface SystemPackage {
  readonly name: string;
  readonly program: string;
}

/** Packages that kproxy itself needs on a node, in some mode. */
export const NODE_PACKAGES: readonly SystemPackage[] = [
  { name: "iptables", program: "iptables" },
  { name: "nftables", program: "nft" },
  { name: "ipset", program: "ipset" },
  { name: "ipvsadm", program: "ipvsadm" },
  { name: "conntrack", program: "conntrack" },
  { name: "iproute2", program: "ip" },
  { name: "nfacct", program: "nfacct" },
  { name: "procps", program: "sysctl" },
  { name: "kmod", program: "depmod" },
];

/** Packages of the tests: those of a node, kapi's store, shells, a metrics linter. */
export const TEST_PACKAGES: readonly SystemPackage[] = [
  ...NODE_PACKAGES,
  { name: "chromium", program: "chromium" },
  { name: "curl", program: "curl" },
  { name: "etcd-server", program: "etcd" },
  { name: "faketime", program: "faketime" },
  { name: "user-mode-linux", program: "linux.uml" },
  { name: "gcc", program: "gcc" },
  { name: "libc6-dev", program: "gencat" },
  { name: "openssl", program: "openssl" },
  { name: "groff-base", program: "groff" },
  { name: "minisign", program: "minisign" },
  { name: "fish", program: "fish" },
  { name: "prometheus", program: "promtool" },
  { name: "systemd", program: "systemd-analyze" },
  { name: "util-linux", program: "setpriv" },
  { name: "zsh", program: "zsh" },
];

/** Path of a program, on the PATH or in the folders of root's programs. */
export function findProgram(name: string): string | undefined {
  const folders = [...(Deno.env.get("PATH") ?? "").split(":"), "/usr/sbin", "/sbin"];
  return folders.filter((folder) => folder !== "").map((folder) => `${folder}/${name}`).find(isFile);
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) return false;
    if (error instanceof Deno.errors.PermissionDenied) return false;
    throw error;
  }
}

/** Why packages cannot be installed on this machine; undefined if they can. */
export function whyNotInstallable(): string | undefined {
  if (Deno.build.os !== "linux") return `this is ${Deno.build.os}, not Linux`;
  if (findProgram("apt-get") === undefined) return "there is no apt-get";
  if (Deno.uid() !== 0) return "this is not root";
  return undefined;
}

/** Packages that are missing. */
function missingPackages(packages: readonly SystemPackage[]): SystemPackage[] {
  return packages.filter(({ program }) => findProgram(program) === undefined);
}

/**
 * Installs missing packages. Announces it first, or reports what to install if it cannot.
 *
 * Resolves to the packages that are still missing. `reason` tells why packages cannot be installed.
 */
export async function installPackages(
  packages: readonly SystemPackage[],
  reason: string | undefined = whyNotInstallable(),
): Promise<SystemPackage[]> {
  const missing = missingPackages(packages);
  if (missing.length === 0) return [];
  const names = missing.map(({ name }) => name);
  if (reason !== undefined) {
    writeLine(`Missing: ${names.join(" ")}, and they cannot be installed here (${reason}).`);
    writeLine(`Install them as root first, on Debian: apt-get install -y ${names.join(" ")}`);
    return missing;
  }
  writeLine(`Installing with apt-get: ${names.join(" ")}`);
  if (await aptGet("update") !== 0) {
    writeLine("apt-get update failed; trying with the package lists that are there");
  }
  // One by one if all at once fails, so that an unknown package does not block the others.
  if (await aptGet("install", ...names) !== 0) {
    for (const name of names) await aptGet("install", name);
  }
  const left = missingPackages(packages);
  if (left.length > 0) writeLine(`Could not install: ${left.map(({ name }) => name).join(" ")}`);
  return left;
}

async function aptGet(action: "update" | "install", ...names: readonly string[]): Promise<number> {
  const options = action === "update" ? ["-q"] : ["-q", "-y", "--no-install-recommends"];
  const child = new Deno.Command("apt-get", {
    args: [...options, action, ...names],
    // RUNLEVEL=1 keeps the packages' scripts from starting services.
    env: { DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
  using activity = new Activity(errorTerminal());
  activity.say(`apt-get ${[action, ...names].join(" ")}`);
  const { code, stdout, stderr } = await child.output();
  activity.say("");
  if (code !== 0) {
    const text = new TextDecoder().decode(stderr) || new TextDecoder().decode(stdout);
    writeLine(`apt-get ${action} ended with ${code}:\n${text.trim().split("\n").slice(-5).join("\n")}`);
  }
  return code;
}

if (import.meta.main) {
  const missing = await installPackages(TEST_PACKAGES);
  if (missing.length > 0) Deno.exitCode = 1;
  else writeLine("Everything that demo, tests and benchmarks need is installed");
}
