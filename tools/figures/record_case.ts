/**
 * A record for tests.
 *
 * @module
 */
import type { ProxiesRecord, ProxiesRow, ProxySamples, RecordHead } from "./records.ts";

/** Of which each test changes what it is about. */
export const HEAD: RecordHead = {
  command: "deno task bench proxies --peer kube-proxy --record",
  commit: "0123456789abcdef",
  code: "now",
  date: "2026-11-23",
  machine: "2 × CPU, 24 GB, Linux 6.18.5",
  load: [0.5, 1.25],
  n: 5,
  versions: {
    kproxy: "0.1.0",
    kubeProxy: "kube-proxy v1.36.2",
    deno: "2.9.6",
    nft: "1.0.6",
    iptables: "1.8.9",
  },
};

const KPROXY: ProxySamples = {
  firstSyncMs: [900, 1400, 1100, 1000, 1200],
  startCpuMs: [800, 810, 820, 830, 840],
  changeMs: [12.5, 12, 13, 12.5, 40],
  residentMb: [84, 84, 84, 84, 84],
  anonymousMb: [41, 41, 40, 41, 42],
  peakMb: [96, 97, 98, 95, 96],
  chargedMb: [],
  chargedPeakMb: [],
};

/** One mode at one size. */
export const ROW: ProxiesRow = {
  mode: "iptables",
  services: 1000,
  endpoints: 10,
  kproxy: KPROXY,
  kubeProxy: { ...KPROXY, firstSyncMs: [7100, 7300, 7000, 7200, 7050], changeMs: [218, 217, 219, 220, 1200] },
  bare: {
    firstSyncMs: [320, 310, 330, 320, 340],
    changeMs: [10, 10, 11, 9, 12],
    changeWithStartMs: [15, 15, 16, 15, 14],
  },
};

/** With one row. */
export const RECORD: ProxiesRecord = { ...HEAD, rows: [ROW] };
