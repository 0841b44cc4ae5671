/**
 * The flow cases with real packets that need a kernel with IPVS, or with sockets of SCTP, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/flows_in_uml.ts'`.
 *
 * @module
 */
import type { FlowCase } from "../flows/flow_case.ts";
import { runFlowCases } from "../support/flow_lab.ts";
import { labCases, SCTP_LAB_CASES } from "../support/flow_lab_cases.ts";

/** Starting a program takes tens of milliseconds here, and a first packet may take as long. */
const SLOW = { variant: "legacy", patience: 6 } as const;

/** Words after `--` choose cases by name. */
const isChosen = ({ name }: FlowCase): boolean =>
  Deno.args.length === 0 || Deno.args.some((word) => name.includes(word));

Deno.test(
  "flow cases of SCTP in mode iptables",
  (t) => runFlowCases(t, SCTP_LAB_CASES.filter(isChosen), { mode: "iptables", isTraced: false, ...SLOW }),
);

Deno.test(
  "flow cases with real packets in IPVS mode",
  (t) => runFlowCases(t, labCases("ipvs").filter(isChosen), { mode: "ipvs", ...SLOW }),
);
