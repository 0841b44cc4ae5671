/**
 * A healthy node in memory, as far as `kproxy doctor` reads one, with faults for single programs.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import type { Exec, ExecOptions, ExecResult } from "../../lib/kernel/exec.ts";
import { FakeIptables, type FakeIptablesOptions } from "./fake_iptables.ts";
import { fakeSysctl } from "./fake_sysctl.ts";

/** Fault of a program, instead of its good answer. */
export type ProgramFault = "missing" | "forbidden" | "hangs" | "garbage" | "denied" | Partial<ExecResult>;

/** Version output by program. */
const VERSIONS: Readonly<Record<string, string>> = {
  "nft --version": "nftables v1.0.6 (Lester Gooch #5)\n",
  "ipvsadm --version": "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n",
  "ipset --version": "ipset v7.17, protocol version: 7\n",
  "ip -V": "ip utility, iproute2-6.1.0, libbpf 1.1.2\n",
  "conntrack --version": "conntrack v1.4.7 (conntrack-tools)\n",
  "sysctl --version": "sysctl from procps-ng 4.0.2\n",
  "nfacct --version": "nfacct v1.0.2 Copyright (C) 2011-2013 Pablo Neira Ayuso <pablo@netfilter.org>\n",
  "choom --version": "choom from util-linux 2.38.1\n",
};

/** Device → kind and MTU. */
export type FakeLinks = Readonly<Record<string, { readonly kind?: string; readonly mtu: number }>>;

/** A node in memory; see the module. */
export class DoctorNode implements Exec {
  /** Command lines that were run. */
  readonly runs: string[] = [];
  /** Sysctls. */
  readonly settings: Record<string, string> = {
    "net.ipv4.ip_forward": "1",
    "net.ipv6.conf.all.forwarding": "1",
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.netfilter.nf_conntrack_count": "12",
    "net.netfilter.nf_conntrack_max": "1048576",
    "net.netfilter.nf_conntrack_buckets": "262144",
    "net.netfilter.nf_conntrack_tcp_timeout_established": "86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "3600",
    "net.netfilter.nf_conntrack_tcp_be_liberal": "0",
    "net.ipv4.conf.all.route_localnet": "1",
    "net.ipv4.conf.all.forwarding": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.eth0.forwarding": "1",
    "net.ipv4.conf.eth0.rp_filter": "2",
    "net.ipv4.conf.eth0/100.forwarding": "1",
    "net.ipv4.conf.eth0/100.rp_filter": "0",
    "net.ipv4.vs.conntrack": "1",
    "net.ipv4.vs.expire_nodest_conn": "1",
    "net.ipv4.vs.expire_quiescent_template": "1",
    "net.ipv4.vs.conn_reuse_mode": "1",
  };
  links: FakeLinks = { lo: { mtu: 65536 }, eth0: { mtu: 1500 }, veth1: { kind: "veth", mtu: 1500 } };
  /** Output of `nft list chains`. */
  chains = "";
  /** Tables that `nft -c` finds, e.g. `ip kproxy`. */
  tables: readonly string[] = [];
  readonly iptables: FakeIptables;
  readonly #faults: { readonly start: string; readonly fault: ProgramFault }[] = [];

  constructor(options: FakeIptablesOptions = {}) {
    this.iptables = new FakeIptables(options);
  }

  /** Plants a fault for each command line with this beginning; later calls take precedence. */
  fail(start: string, fault: ProgramFault): this {
    this.#faults.unshift({ start, fault });
    return this;
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const line = argv.join(" ");
    this.runs.push(line);
    options.signal?.throwIfAborted();
    const found = this.#faults.find(({ start }) => line === start || line.startsWith(`${start} `));
    if (found !== undefined) return await suffer(argv, found.fault, options);
    if (/^ip6?tables/.test(argv[0] ?? "")) return await this.iptables.run(argv, options);
    return this.#answer(argv, line, options);
  }

  #answer(argv: readonly string[], line: string, { stdin }: ExecOptions): ExecResult {
    const version = VERSIONS[line];
    if (version !== undefined) return said(version);
    switch (argv[0]) {
      case "sysctl":
        return fakeSysctl(this.settings, argv.slice(1));
      case "ip":
        if (line === "ip -json netconf") return said(this.#deviceSettings());
        return said(line.includes("route") ? `[{"dst":"default","dev":"eth0"}]` : this.#links());
      case "nft":
        return line === "nft -y list chains" ? said(this.chains) : this.#check(String(stdin ?? ""));
      case "ipvsadm":
      case "ipset":
        return said("");
      default:
        throw new TypeError(`Nothing of the node is called so: ${line}`);
    }
  }

  #deviceSettings(): string {
    const devices = Object.keys(this.settings).flatMap((name) => {
      const [, version, device, setting] =
        /^net\.ipv([46])\.conf\.(.+)\.(forwarding|rp_filter)$/.exec(name) ?? [];
      if (device === undefined) return [];
      const value = this.settings[name];
      return [{
        family: version === "4" ? "inet" : "inet6",
        interface: device.replaceAll("/", "."),
        ...(setting === "forwarding"
          ? { forwarding: value === "1" }
          : { rp_filter: ["off", "strict", "loose"][Number(value)] }),
      }];
    });
    return JSON.stringify(devices);
  }

  #links(): string {
    return JSON.stringify(
      Object.entries(this.links).map(([ifname, { kind, mtu }]) => ({
        ifname,
        mtu,
        flags: ["UP"],
        ...(kind === undefined ? {} : { linkinfo: { info_kind: kind } }),
      })),
    );
  }

  #check(text: string): ExecResult {
    const [, word, table = ""] = /^(create|delete) table (.*)$/m.exec(text) ?? [];
    const isThere = this.tables.some((name) => text.includes(`table ${name}\n`));
    if (word === "delete" && !this.tables.includes(table)) {
      return refused(`/dev/stdin:1:1-2: Error: Could not process rule: No such file or directory\n${text}`);
    }
    if (word === "create" && isThere) {
      return refused(`/dev/stdin:1:1-2: Error: Could not process rule: File exists\n${text}`);
    }
    return said("");
  }
}

function said(stdout: string): ExecResult {
  return { code: 0, stdout, stderr: "" };
}

function refused(stderr: string): ExecResult {
  return { code: 1, stdout: "", stderr };
}

function suffer(argv: readonly string[], fault: ProgramFault, { signal }: ExecOptions): Promise<ExecResult> {
  if (typeof fault === "object") return Promise.resolve({ code: 1, stdout: "", stderr: "", ...fault });
  switch (fault) {
    case "missing":
      return Promise.reject(
        new ExecError(argv, -1, "No such file", { cause: new Deno.errors.NotFound("No such file") }),
      );
    case "forbidden":
      return Promise.reject(
        new ExecError(argv, -1, "Requires run access", {
          cause: new Deno.errors.NotCapable("Requires run access"),
        }),
      );
    case "garbage":
      return Promise.resolve({ code: 0, stdout: "\u0001]} *nat\ntable garbage {\n", stderr: "" });
    case "denied":
      return Promise.resolve({
        code: 1,
        stdout: "",
        stderr: `${argv[0]}: Operation not permitted (you must be root)\n`,
      });
    case "hangs":
      return new Promise((_resolve, reject) => {
        signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
  }
}
