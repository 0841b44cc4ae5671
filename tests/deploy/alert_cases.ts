/**
 * Of each alert: series that make it fire, and series like them that must not. Values are those of promtool, one a minute.
 *
 * @module
 */

/** Series by name, with their values. */
export type Series = Readonly<Record<string, string>>;

/** What an alert is tried with. */
export interface AlertCase {
  readonly alert: string;
  /** Minutes from the beginning until it is looked for. @default {20} */
  readonly atMinute?: number;
  /** It is about all nodes together. @default {false} */
  readonly isOfAll?: boolean;
  readonly fires: readonly Series[];
  readonly rests: readonly Series[];
}

const N = 'job="kproxy",node="a"';
const SYNCS = "kubeproxy_sync_proxy_rules";
const PROGRAMMING = "kubeproxy_network_programming_duration_seconds_bucket";
const V4 = `${N},ip_family="IPv4"`;

function requests(good: string, failed: string): Series {
  return {
    [`rest_client_requests_total{${N},code="200",host="h",method="GET"}`]: good,
    [`rest_client_requests_total{${N},code="<error>",host="h",method="GET"}`]: failed,
  };
}

function programming(upTo1: string, upTo30: string, all: string): Series {
  return {
    [`${PROGRAMMING}{${V4},le="1"}`]: upTo1,
    [`${PROGRAMMING}{${V4},le="30"}`]: upTo30,
    [`${PROGRAMMING}{${V4},le="60"}`]: all,
    [`${PROGRAMMING}{${V4},le="+Inf"}`]: all,
  };
}

function syncs(queued: string, done: string): Series {
  return {
    [`${SYNCS}_last_queued_timestamp_seconds{${V4}}`]: queued,
    [`${SYNCS}_last_timestamp_seconds{${V4}}`]: done,
  };
}

/** Every alert of `deploy/prometheus/rules.yaml`. */
export const ALERT_CASES: readonly AlertCase[] = [
  {
    alert: "KproxyDown",
    fires: [{ [`up{${N}}`]: "0x30" }],
    rests: [{ [`up{${N}}`]: "1x15 0 0 0 1x10" }, { 'up{job="other",node="a"}': "0x30" }],
  },
  {
    alert: "KproxyAbsent",
    isOfAll: true,
    fires: [{ 'up{job="other"}': "1x30" }],
    rests: [{ [`up{${N}}`]: "0x30" }],
  },
  {
    alert: "KproxyRestarts",
    fires: [{ [`process_start_time_seconds{${N}}`]: "1 1 2 2 3 3 4x30" }],
    rests: [{ [`process_start_time_seconds{${N}}`]: "1 1 1 2x30" }],
  },
  {
    alert: "KproxySyncStuck",
    fires: [syncs("1000x30", "900x30"), { [`${SYNCS}_last_queued_timestamp_seconds{${V4}}`]: "1000x30" }],
    rests: [syncs("1000+60x30", "1001+60x30"), syncs("1000+60x30", "990+60x30")],
  },
  {
    alert: "KproxySyncsFail",
    fires: [
      { [`${SYNCS}_iptables_restore_failures_total{${V4}}`]: "0+1x30" },
      { [`${SYNCS}_nftables_sync_failures_total{${V4}}`]: "0+1x30" },
    ],
    rests: [{ [`${SYNCS}_iptables_restore_failures_total{${V4}}`]: "0x12 1x20" }],
  },
  {
    alert: "KproxyChangesSlow",
    atMinute: 35,
    fires: [programming("0+5x40", "0+5x40", "0+10x40")],
    rests: [programming("0+995x40", "0+999x40", "0+1000x40")],
  },
  {
    alert: "KproxyServicesQuarantined",
    fires: [{ [`kproxy_quarantined_services{${V4}}`]: "1x30" }],
    rests: [{ [`kproxy_quarantined_services{${V4}}`]: "0x30" }],
  },
  {
    alert: "KproxyObjectsRejected",
    fires: [{ [`kproxy_rejected_objects_total{${N}}`]: "0x15 1x20" }],
    rests: [{ [`kproxy_rejected_objects_total{${N}}`]: "3x30" }],
  },
  {
    alert: "KproxyHealthCheckPortTaken",
    fires: [{ [`kproxy_health_check_node_port_conflicts{${N}}`]: "2x30" }],
    rests: [{ [`kproxy_health_check_node_port_conflicts{${N}}`]: "2x15 0x20" }],
  },
  {
    alert: "KproxyApiFails",
    atMinute: 35,
    fires: [requests("0+1x40", "0+3x40")],
    rests: [requests("0+3x40", "0+1x40")],
  },
  {
    alert: "KproxyConfigRefused",
    fires: [{ [`kproxy_config_last_reload_successful{${N}}`]: "0x30" }],
    rests: [{ [`kproxy_config_last_reload_successful{${N}}`]: "0x18 1x10" }],
  },
  {
    alert: "KproxyServesSnapshot",
    fires: [{ [`kproxy_snapshot_in_use{${N}}`]: "1x30" }],
    rests: [{ [`kproxy_snapshot_in_use{${N}}`]: "0x15 1x15" }],
  },
  {
    alert: "KproxySnapshotNotWritten",
    atMinute: 50,
    fires: [{ [`kproxy_snapshot_write_failures_total{${N}}`]: "0+1x60" }],
    rests: [{ [`kproxy_snapshot_write_failures_total{${N}}`]: "9x60" }],
  },
  {
    alert: "KproxyServerFails",
    fires: [{ [`kproxy_server_failures_total{${N},server="healthz"}`]: "0+1x30" }],
    rests: [{ [`kproxy_server_failures_total{${N},server="healthz"}`]: "4x30" }],
  },
  {
    alert: "KproxyLogLinesLost",
    atMinute: 35,
    fires: [{ [`kproxy_log_lines_dropped_total{${N}}`]: "0+10x40" }],
    rests: [{ [`kproxy_log_lines_dropped_total{${N}}`]: "0x5 10x40" }],
  },
  {
    alert: "KproxyVersionsDiffer",
    isOfAll: true,
    atMinute: 400,
    fires: [{
      [`kubernetes_build_info{${N},git_version="v1"}`]: "1x450",
      'kubernetes_build_info{job="kproxy",node="b",git_version="v2"}': "1x450",
    }],
    rests: [{
      [`kubernetes_build_info{${N},git_version="v1"}`]: "1x450",
      'kubernetes_build_info{job="kproxy",node="b",git_version="v1"}': "1x450",
    }],
  },
];
