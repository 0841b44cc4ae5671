/**
 * What to do about each warning and error of the log: the half of `docs/messages.md` that the code cannot say of itself. The other
 * half is read off the source, and a test holds that neither has a line that the other has not.
 *
 * @module
 */

/** What a line asks of its reader. */
export interface LogAction {
  /** What is to be done; where nothing is, why not. */
  readonly action: string;
  /** Shows more, or whether it is over; absent: nothing does. */
  readonly command?: string;
  /** How a message reads that is made elsewhere than where it is written. */
  readonly shown?: string;
}

const DOCTOR = "kproxy doctor";
const STATUS = "kproxy status";
const CHECK = "kproxy check";
const WRITE_CONFIG = "kproxy write-config --config=FILE";

/** By message, as the source has it; `file: (expression)` for those that are made elsewhere. */
export const LOG_ACTIONS: Readonly<Record<string, LogAction>> = {
  // Rules and the kernel.
  "Chains are printed as before although they were written again; they are left as they are until they change":
    {
      action: "find what undoes the rules: another proxy, or an iptables-restore that writes nothing",
      command: CHECK,
    },
  "Cannot set the canary of table mangle": {
    action: "fix what the error names; until then a flush of table mangle is not noticed",
    command: DOCTOR,
  },
  "Chains of Services that are gone cannot be deleted and stay, empty: others use them": {
    action: "remove the rules that lead to them; they do no harm, and deleting is tried again",
    command: CHECK,
  },
  "Node ports may not answer on 127.0.0.1: a sysctl cannot be read": {
    action: "install procps, or set iptables.localhostNodePorts to false",
    command: DOCTOR,
  },
  "Node ports will not answer on 127.0.0.1: a sysctl cannot be written": {
    action: "run once with --init-only and enough rights, or set iptables.localhostNodePorts to false",
    command: DOCTOR,
  },
  "A Service does not get what it asks for": {
    action: "change what the line names in the Service, or load the scheduler's module",
    command: "kproxy service get NAMESPACE/NAME",
  },
  "Cannot delete real servers, will try again": {
    action: "fix what the error names; clients may still reach the endpoints that left",
    command: CHECK,
  },
  "Cannot remove what was made for IPVS": {
    action: "fix what the error names; then remove what stays",
    command: "kproxy cleanup --only=ipvs",
  },
  "Cannot set timeouts of IPVS": {
    action: "fix what the error names, or leave ipvs.tcpTimeout and the like at 0",
    command: DOCTOR,
  },
  "A kernel setting cannot be read": { action: "install procps, or set it on the node", command: DOCTOR },
  "Connections from a port used before may go to an endpoint that is gone": {
    action: "use Linux 5.9 or newer, or set net.ipv4.vs.conn_reuse_mode as the line says",
    command: DOCTOR,
  },
  "nft prints rules otherwise than they were written, taken for its way": {
    action:
      "compare the named chains; remove a foreign rule, else tell the project your versions of nft and the kernel",
    command: CHECK,
  },
  "Clients may get another endpoint: they could not be carried over to the new table": {
    action: "none: session affinity begins anew once",
  },
  "Traffic is not counted: this kernel forgets counters of set elements": {
    action: "take a newer kernel, or switch kproxy.trafficCounters off",
  },
  "Traffic is not counted: nft or the kernel refuses counters of set elements": {
    action: "take a newer nft or kernel, or switch kproxy.trafficCounters off",
  },
  "Node ports will not answer on …: mode nftables does not serve them there": {
    action: "reach them on the node's primary address, or set nodePortAddresses",
    command: "kproxy doctor --migrate-to=nftables",
  },
  "Running another proxy mode than the configured one": {
    action: "give the node what the line says that it lacks, and start anew",
    command: "kproxy selftest --proxy-mode=MODE",
  },
  "Cannot remove tracked UDP flows that lead elsewhere; they end once they are idle": {
    action: "install conntrack, or wait for kproxy's UDP timeout",
    command: DOCTOR,
  },
  "Cannot remove the rules that lead Services to this process: they stay, whatever has its ports next": {
    action: "start kproxy again, or run the command",
    command: "kproxy cleanup --only=userspace",
  },
  "No rule can keep direct packets from the ports of Services: iptables lacks conntrack or REJECT": {
    action:
      "load xt_conntrack, ipt_REJECT and ip6t_REJECT, or set bindAddress to one that others do not reach",
    command: DOCTOR,
  },
  "lib/backend/userspace/node/preflight.ts: (problem)": {
    shown:
      "e.g. `The thread that forwards failed`, `Cannot accept connections`, `Sessions run out, shared out by client`",
    action:
      "fix what the error names, often a lack of file descriptors, or a client that takes all it can get",
    command: STATUS,
  },
  "Cannot set sysctl, the node may run out of tracked connections or end them at other times": {
    action: "let kproxy run once with --init-only as root, or set it on the node",
    command: DOCTOR,
  },
  "Kernel settings cannot be read: install procps, there is no program sysctl on PATH": {
    action: "install procps",
    command: DOCTOR,
  },
  "A program gave no answer, asking again": {
    action: "none once; if it comes again, look at what the node is busy with",
    command: DOCTOR,
  },
  "iptables cannot read a table: nft added rules to it that iptables has no words for. Our rules there are looked for by name…. Put the other rules into a table of their own":
    { action: "put those rules into a table of their own", command: CHECK },
  "Stale UDP flows stay: the program conntrack is missing": {
    action: "install conntrack: UDP clients may stay with endpoints that are gone",
    command: DOCTOR,
  },
  "Cannot look for stale UDP flows, will try again": {
    action: "fix what the error names; UDP clients may stay with endpoints that are gone",
    command: DOCTOR,
  },
  "Cannot read the addresses of the node": {
    action: "fix what the error names; node ports are open where they were",
    command: DOCTOR,
  },
  "Service is quarantined, a part of it is refused": {
    action:
      "change what the error names in the Service, or give the kernel what it lacks; all others are served",
    command: "kproxy service get NAMESPACE/NAME",
  },
  "Rules were changed or removed by something else, writing them again": {
    action: "none once; if it comes again, end what writes there: another proxy, a firewall that flushes",
    command: DOCTOR,
  },
  "Rules differ from what was written right after they were written; checks of them become rare": {
    action: "end what changes them all the time",
    command: CHECK,
  },
  "Cannot check whether the rules are still there": { action: "fix what the error names", command: DOCTOR },
  "Sync failed, will write everything again": {
    action: "fix what the error names; the previous rules stay in force meanwhile",
    command: DOCTOR,
  },
  // Objects and where they come from.
  "Cannot look at the manifests, trying again": { action: "fix what the error names", command: STATUS },
  "Manifest folder is gone; its last content stays in force": {
    action: "make it again, or start kproxy without it",
    command: STATUS,
  },
  "A manifest file takes long to read; others go on, and what it held stays in force": {
    action: "none; split the file if changes of it must be fast",
  },
  "A manifest file took long to read": { action: "none; split the file if changes of it must be fast" },
  "Watches of folders do not answer any more, polling instead": {
    action: "raise fs.inotify.max_user_instances; changes are seen within 5 s meanwhile",
  },
  "Cannot watch folder, polling it instead": {
    action: "raise fs.inotify.max_user_watches; changes are seen within 5 s meanwhile",
  },
  "lib/source/kube/connection_state.ts: (message)": {
    shown: "why a request to the API server failed, e.g. `Cannot reach the API server`",
    action:
      "fix the connection to the API server, its certificate or kproxy's rights; rules stay as they are",
    command: "kproxy doctor --kubeconfig=FILE",
  },
  "Still no success at the API server": {
    action: "as above; the line comes again, ever more rarely",
    command: "kproxy doctor --kubeconfig=FILE",
  },
  "Cannot write Events any more": { action: "fix what the error names; nothing else depends on it" },
  "The API server does not take Events, the proxy goes on without": {
    action: "allow kproxy to create Events in events.k8s.io",
    command: "kproxy doctor --kubeconfig=FILE",
  },
  "Versions of the API server expire at once, listing again with longer and longer waits": {
    action: "look at the API server's watch cache and at etcd: it forgets faster than it lists",
  },
  "Cannot write the snapshot, going on without": {
    action: "make room, or let kproxy write there: a reboot without the API server would serve nothing",
    command: STATUS,
  },
  "The API server has not answered yet, the snapshot is too old to be served": {
    action: "restore the connection to the API server; nothing is served until then",
    command: STATUS,
  },
  "The API server has not answered yet, the snapshot is of no use": {
    action: "restore the connection to the API server; nothing is served until then",
    command: STATUS,
  },
  "The API server has not answered yet, serving from the snapshot": {
    action: "restore the connection to the API server; changes are not seen until then",
    command: STATUS,
  },
  "Object is only partly usable": {
    action: "change what the line names in the object",
    command: "kproxy service get NAMESPACE/NAME",
  },
  "Manifest file may be written by others": {
    action: "give the file to root (chown root, chmod go-w): as root kproxy refuses it, unless allowed",
    command: DOCTOR,
  },
  "Object refused": {
    action: "change what the line names in the object; all others are served",
    command: CHECK,
  },
  "Part of a Service is not served": {
    action: "take the address or node port from one of the Services that want it",
    command: "kproxy service get NAMESPACE/NAME",
  },
  "An endpoint is left out, it cannot answer": {
    action: "correct the address in the EndpointSlice or Endpoints",
    command: "kproxy service get NAMESPACE/NAME",
  },
  // The node and the configuration.
  "lib/cli/commands/start.ts: (warning)": {
    shown: "a setting that has no effect, or that is written in an old way",
    action: "change the flag or the field that the line names",
    command: WRITE_CONFIG,
  },
  "lib/cli/commands/start.ts: (doubt)": {
    shown:
      "a file that others may write or read, or credentials that go over plain HTTP or to a server that is not verified",
    action: "give the file to root (chown root, chmod go-w), keep others from reading it, or use https",
    command: DOCTOR,
  },
  "lib/cli/commands/start.ts: (sentence)": {
    shown: "what `--write-config-to` left out or changed",
    action: "look at the file that was written",
    command: WRITE_CONFIG,
  },
  "lib/node/config_reload.ts: (warning)": {
    shown: "a setting of the changed file that has no effect",
    action: "change the field that the line names",
    command: WRITE_CONFIG,
  },
  "Problem of the changed configuration": {
    action: "correct the field; see the line below",
    command: WRITE_CONFIG,
  },
  "Changed configuration refused, the former one stays in force": {
    action: "correct the file: it is taken as soon as it is right",
    command: WRITE_CONFIG,
  },
  "Cannot start anew, going on without IPv6": {
    action: "fix what the error names, then start kproxy again",
    command: DOCTOR,
  },
  "Configuration file cannot be read, the configuration in force stays": {
    action: "put the file back, or let kproxy read it",
    command: WRITE_CONFIG,
  },
  "Ending without waiting any longer": { action: "none; what was left hung: the line names it" },
  "Configuration may be incomplete or incorrect": {
    action: "change the field that the line names",
    command: WRITE_CONFIG,
  },
  "Too few file descriptors for a new proxy server, waiting for some": {
    action: "raise the limit of descriptors (LimitNOFILE); the previous configuration is in force meanwhile",
    command: STATUS,
  },
  "Log lines could not be written and are lost": {
    action: "speed up the log's reader, or make room on its disk",
  },
  "Own Node is gone, its last known facts stay in force": {
    action: "none if the node is being removed, else register it again",
    command: DOCTOR,
  },
  "Cannot use what the Node says": {
    action: "correct the Node; its last facts stay in force",
    command: DOCTOR,
  },
  "Cannot use the Node's new pod CIDRs": {
    action: "correct spec.podCIDRs of the Node; the former ones stay in force",
    command: DOCTOR,
  },
  "Starting without knowing the own Node": {
    action: "restore the connection to the API server; zone hints and policies Local go by the name alone",
    command: DOCTOR,
  },
  "The primary address is not known: everything is served but node ports, which are open nowhere": {
    action: "do what the line advises: --bind-address, --hostname-override or the right to read Nodes",
    command: DOCTOR,
  },
  "The own Node has no addresses yet": { action: "none, if the kubelet is just starting", command: DOCTOR },
  "The Node may not be read, so nothing is known of its addresses and zone": {
    action: "grant the right to read Nodes, as the line says",
    command: "kproxy doctor --kubeconfig=FILE",
  },
  "There is no Node of this name, so nothing is known of its addresses and zone": {
    action: "set --hostname-override to the Node's name",
    command: DOCTOR,
  },
  "Cannot remove what kube-proxy left": {
    action: "fix what the error names",
    command: "kproxy cleanup --dry-run",
  },
  "Cannot remove what other modes left, will try again": {
    action: "fix what the error names",
    command: "kproxy cleanup --dry-run",
  },
  "Something of … stays": {
    action: "remove what uses it, as the line says; it does no harm",
    command: "kproxy cleanup --dry-run",
  },
  "Cannot remove what … left": { action: "fix what the line names", command: "kproxy cleanup --dry-run" },
  "Cannot look for the tables of another service proxy": {
    action: "fix what the error names",
    command: DOCTOR,
  },
  "Another service proxy writes rules on this node": {
    action: "end the other proxy: two of them undo one another's work",
    command: DOCTOR,
  },
  "kproxy.snapshot has no effect: all objects come from files, which are on this node anyway": {
    action: "take the field out of the configuration",
  },
  "The cluster counts on an IP family that this node cannot serve": {
    action: "switch the family on in the kernel, or leave it out of the cluster",
    command: DOCTOR,
  },
  "kproxy.trafficCounters has no effect": { action: "take the field out, or run mode nftables" },
  "Event": { action: "as the Event says, above; without an API server Events are log lines" },
  // Servers.
  "The API server cannot be asked about a client's token, it is refused": {
    action:
      "give kproxy's account the ClusterRole system:auth-delegator, or restore the connection to the API server",
    command: DOCTOR,
  },
  "Changed files for TLS cannot be used, those read before stay in use": {
    action: "fix the file that the error names: it is read again within 10 s",
  },
  "A file with secrets can be read or written by any user of the node": {
    action: "chmod 0600 the file, or give the Secret's volume the defaultMode 0400",
  },
  "The serving certificate does not count now: clients that check it will not connect": {
    action: "put a new certificate, with its key, in its place",
  },
  "Cannot answer a request": {
    action: "tell the project: it is a fault of kproxy",
    command: "kproxy sysdump FILE",
  },
  "Cannot accept connections, will try again": {
    action: "raise the limit of descriptors (LimitNOFILE)",
    command: STATUS,
  },
  "Cannot open the socket, going on without: no command can ask this kproxy": {
    action:
      "give kproxy a directory of its own that is closed to others (mode 0700), or another `kproxy.socket`; it tries again every 10 s",
    command: "ls -ld /run/kproxy",
  },
  "Cannot listen, will try again": { action: "free the address that the line names", command: STATUS },
  "Another program has the address": {
    action: "end it: often a kube-proxy that was left running",
    command: DOCTOR,
  },
  "Cannot open health check node port": {
    action: "free the port, or delete one of the Services that want it",
    command: STATUS,
  },
  "Cannot list the node's addresses, using all of them": {
    action: "fix what the error names",
    command: DOCTOR,
  },
  "Cannot answer a health check": {
    action: "tell the project: it is a fault of kproxy",
    command: "kproxy sysdump FILE",
  },
  "Cannot accept health checks, will try again": {
    action: "raise the limit of descriptors (LimitNOFILE)",
    command: STATUS,
  },
};
